"""Claim: the stated standard deviations of 3D joints are honest.

Held-out CMU motion on the open body, random cameras and shapes, keypoint noise drawn from the stated sigmas; over time
it lasts as a real network's does, or is drawn anew in every frame. Of every joint and axis the error of the fit is
compared with the standard deviation that the fit states: 68 % intervals (one sigma) should hold 60 to 76 % of the
errors, 95 % intervals (1.96 sigma) 90 to 98 %. Constants are chosen with --subjects training, never on the held-out.

    python bench/uncertainty.py --clips clips_30fps.npz [--tracks 36 --frames 90 --subjects held-out]
"""

import argparse
import resource
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import fitting
from fitting.motion_capture import Motion, load_motion
from fitting.optimise import Fit
from fitting.synthetic import Noise, Scene, scene

NOISES = {
    "as stated": Noise(outliers=0.0),
    "as stated, sharp keypoints": Noise(confidence=(0.9, 0.99), outliers=0.0),
    "as stated, blurred keypoints": Noise(confidence=(0.3, 0.9), outliers=0.0),
    "as stated, 8 of 17 missing": Noise(outliers=0.0, missing=8 / 17),
    "with 3 % outliers": Noise(outliers=0.03),
    "as stated, anew in every frame": Noise(outliers=0.0, constant_share=0.0, memory_s=0.0),
}


def ratios(found: Fit, truth: Scene, body: fitting.Body) -> tuple[Tensor, Tensor]:
    """Error over stated deviation, per joint and axis: in the camera frame [T, 24, 3], from the pelvis [T, 23, 3]."""
    joints, exact = body.at(found.params).joints * 1000, body.at(truth.truth).joints * 1000
    assert found.joint_std_mm is not None
    assert found.joint_std_relative_mm is not None
    away = joints - exact
    relative = away - away[:, :1]
    seen = found.observed
    return (away / found.joint_std_mm)[seen], (relative / found.joint_std_relative_mm)[seen][:, 1:]


def measure(
    motion: Motion, body: fitting.Body, noise: Noise, clips: np.ndarray, frames: int, over_time: bool
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    place, pose = [], []
    for clip in clips:
        truth = scene(motion, int(clip), body, generator, noise, frames)
        solve = fitting.fit if over_time else fitting.fit_frames
        a, b = ratios(solve(truth.keypoints, truth.camera, body), truth, body)
        place.append(a)
        pose.append(b)
    return torch.cat(place), torch.cat(pose)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--tracks", type=int, default=36)
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--subjects", choices=("held-out", "training"), default="held-out")
    arguments = parser.parse_args()
    body = fitting.load_body()
    motion = load_motion(arguments.clips, body, 30.0)
    whose = np.flatnonzero(motion.held_out == (arguments.subjects == "held-out"))
    clips = whose[np.linspace(0, len(whose) - 1, min(arguments.tracks, len(whose))).round().astype(int)]
    table = Table(
        title=f"{len(clips)} {arguments.subjects} clips, up to {arguments.frames} frames: errors inside the interval, %"
    )
    for column in ("noise", "fit", "joints", "68 %", "95 %", "68 % x y z", "95 % x y z", "holds"):
        table.add_column(column, justify="left" if column in ("noise", "fit", "joints") else "right")
    for name, noise in NOISES.items():
        for over_time in (False, True):
            pairs = measure(motion, body, noise, clips, arguments.frames, over_time)
            for what, ratio in zip(("in the camera frame", "relative to pelvis"), pairs, strict=True):
                one, two = ((ratio.abs() < limit).double().mean((0, 1)) * 100 for limit in (1.0, 1.96))
                holds = 60 <= one.mean() <= 76 and 90 <= two.mean() <= 98
                table.add_row(
                    name, "track" if over_time else "single frames", what, f"{one.mean():.1f}", f"{two.mean():.1f}",
                    " ".join(f"{v:.0f}" for v in one), " ".join(f"{v:.0f}" for v in two), "yes" if holds else "no",
                )  # fmt: skip
    console = Console(width=150)
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
