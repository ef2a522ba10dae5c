"""Fit a body to 2D keypoints that another program found.

    python examples/own_keypoints.py keypoints.npy --width 1280 --height 720 --fps 25

keypoints.npy holds one person: [frames, 17, 3] with x and y in pixels and a score from 0 to 1, in
COCO's order. Rows of NaN are frames without the person.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import fitting
import pose2d


def fit_person(keypoints: np.ndarray, size_px: tuple[int, int], fps: float) -> np.ndarray:
    """Return the joints [frames, 24, 3] in metres, in the camera frame."""
    score = np.nan_to_num(keypoints[..., 2])
    observations = pose2d.Keypoints(
        xy_px=torch.from_numpy(keypoints[..., :2]),
        confidence=torch.from_numpy(score),
        presence=torch.ones(score.shape),
        source="raw",
        skeleton=pose2d.COCO17,
    )
    camera = fitting.Camera.default(size_px)
    body = fitting.load_body()
    # A network's own score is no expected error, so it is used as a plain weight.
    fit = fitting.fit(observations, camera, body, weighting="confidence", fps=fps)
    return body.at(fit.params).joints.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keypoints", type=Path)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--height", type=int, required=True)
    parser.add_argument("--fps", type=float, default=30.0)
    arguments = parser.parse_args()

    keypoints = np.load(arguments.keypoints, allow_pickle=False).astype(np.float32)
    joints_m = fit_person(keypoints, (arguments.width, arguments.height), arguments.fps)
    out = arguments.keypoints.with_name(arguments.keypoints.stem + "_joints_m.npy")
    np.save(out, joints_m)
    print(f"{out}: {len(joints_m)} frames, 24 joints, metres in the camera frame")


if __name__ == "__main__":
    main()
