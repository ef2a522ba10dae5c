"""How good fits of real videos are, as far as that can be told without truth.

    python bench/run_quality.py out/park out/sign

Reads folders of `fitmesh run`. Columns:

off     mean distance of the body's keypoints to the confident 2D keypoints, in pixels and as a
        share of the person's height
jitter  mean size of the second difference of joints from frame to frame: in the image (pixels), and
        relative to the pelvis in space (mm). "2D" is the same of the confident keypoints
        themselves: what the fit had to smooth.
still   the jitter in space where the 2D keypoints move least (the calmest quarter of the frames)
turns   frames after which the pelvis has turned by more than 60 degrees (flips; people do not turn
        that fast)
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitmesh
from bench.lib.claim import Console, claim
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices

FLIP_DEG = 60


def second_difference(points: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """|p(t+1) - 2 p(t) + p(t-1)| [T - 2, J], NaN where one of the three is not valid [T, J]."""
    size = np.linalg.norm(points[2:] - 2 * points[1:-1] + points[:-2], axis=-1)
    return np.where(valid[2:] & valid[1:-1] & valid[:-2], size, np.nan)


def turns_deg(person: Person) -> np.ndarray:
    """Return by how much the pelvis turns from frame to frame, [T - 1]."""
    rotation = rotation_matrices(torch.from_numpy(person.pose_rad[:, 0]).double())
    return np.degrees(matrix_to_axis_angle(rotation[:-1].mT @ rotation[1:]).norm(dim=-1).numpy())


def measured(result: Result, person: Person) -> dict[str, str]:
    def mean(values: np.ndarray) -> float:
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    confident = person.confident
    height_px = mean((person.box_px[:, 3] - person.box_px[:, 1])[person.observed])
    off_px = mean(person.reprojection_px[confident])
    joints_px = result.camera.project(torch.from_numpy(person.joints_m)).numpy()
    apart = np.diff(person.frame, prepend=person.frame[0]) > np.diff(result.frames).min(
        initial=np.iinfo(np.int64).max
    )
    observed = person.joint_observed.copy()
    confident = confident.copy()
    observed[apart], confident[apart] = False, False  # no motion across an absence
    in_image = second_difference(joints_px, observed)
    in_2d = second_difference(person.keypoints_px, confident)
    relative_mm = 1000 * (person.joints_m - person.joints_m[:, :1])
    in_space = second_difference(
        relative_mm, np.broadcast_to(person.observed[:, None], observed.shape)
    )
    motion = np.linalg.norm(person.keypoints_px[2:] - person.keypoints_px[:-2], axis=-1)
    motion = np.array([mean(row) for row in np.where(confident[1:-1], motion, np.nan)])
    calm = (
        motion <= np.nanquantile(motion, 0.25)
        if np.isfinite(motion).any()
        else np.zeros(len(motion), bool)
    )
    flips = turns_deg(person)[person.observed[1:] & person.observed[:-1]] > FLIP_DEG
    return {
        "person": str(person.identity),
        "frames": str(len(person)),
        "observed": f"{person.observed.mean():.0%}",
        "off px": f"{off_px:.1f}",
        "of height": f"{off_px / height_px:.1%}",
        "jitter px": f"{mean(in_image):.2f}",
        "2D": f"{mean(in_2d):.2f}",
        "jitter mm": f"{mean(in_space):.1f}",
        "still mm": f"{mean(in_space[calm]):.1f}",
        "turns": str(int(flips.sum())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    arguments = parser.parse_args()
    console = Console(width=140)
    for folder in arguments.folders:
        result = fitmesh.load(folder)
        rows = [measured(result, person) for person in result.people]
        title = f"{folder.name}: {result.pose_model}, {result.source}, {result.weighting}, init {result.init}"
        table = Table(*(rows[0] if rows else ["no person"]), title=title)
        for row in rows:
            table.add_row(*row.values())
        console.print(table)


if __name__ == "__main__":
    claim(main)
