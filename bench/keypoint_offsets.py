"""Where RTMPose-s puts its 26 keypoints, and where the open body has them: the systematic
difference, in millimetres.

    python bench/keypoint_offsets.py --onnx rtmpose_s_halpe26_256x192.onnx --motion clips_30fps.npz --work FOLDER

People of many shapes, in clothes and shoes, are rendered in poses of the CMU motion capture, from
all sides and nothing in their way. For a keypoint on a bone with rotation G_i in image i, the
network's position is modelled as the projection of

    q_i + G_i o,    one o for all images, along the axes of the rest pose (x to the left, y up, z to the front),

left and right being mirror images. o is found by robust least squares on half of the sequences, and
the remaining errors are measured on the other half. An o that stays is a different definition of
the keypoint; what is left after it is the network's noise. Only keypoints that are in view are
counted. docs/body.md has the table.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.offset_people import (
    BONES,
    LEAST_SCORE,
    NAMES,
    Observations,
    bone,
    detect,
    kind_of,
    observe,
    render,
)
from fitting.body import Body
from fitting.body.load import load_body
from fitting.body.open_body import OPEN_BODY

CAUCHY_MM = 25.0  # distance at which a keypoint counts half


@dataclass(frozen=True)
class Offset:
    """One kind of keypoint, both sides together, as on the left side of the body."""

    count: int  # keypoints in view
    offset_mm: np.ndarray  # [3] to the left (outwards), up, to the front
    deviation_mm: np.ndarray  # [3] standard deviation of that, by resampling sequences
    # distance in the image plane between the body's point and the network's, on the test half
    median_mm: float
    explained_mm: float  # the same after adding the offset


def offset(observed: Observations, numbers: list[int], carried_by: list[int]) -> Offset:
    design = []
    target = []
    group = []
    for number, joint in zip(numbers, carried_by, strict=True):
        use = observed.in_view[:, number] & (observed.score[:, number] > LEAST_SCORE)
        point = observed.points_cam[use, number]
        to_plane = np.zeros(
            (len(point), 2, 3)
        )  # derivative of the projection, in metres at the point's depth
        to_plane[:, 0, 0] = to_plane[:, 1, 1] = 1
        to_plane[:, :, 2] = -point[:, :2] / point[:, 2:]
        matrix = to_plane @ observed.rotation_cam[use, joint]
        if NAMES[number].startswith("right"):
            matrix = matrix * (-1, 1, 1)
        design.append(matrix)
        scale = 1000 * point[:, 2] / observed.focal_px[use]
        target.append(
            (observed.found_px[use, number] - observed.projected_px[use, number]) * scale[:, None]
        )
        group.append(observed.sequence[use])
    a = np.concatenate(design)
    b = np.concatenate(target)
    sequences = np.concatenate(group)
    free = np.ones(3, bool)
    if len(numbers) == 1:
        free[0] = False  # in the body's plane of symmetry
    train = sequences % 2 == 0
    result = robust_offset(a[train], b[train], free)
    rng = np.random.default_rng(0)
    again = []
    for _ in range(60):
        drawn = rng.choice(np.unique(sequences), len(np.unique(sequences)))
        rows = np.concatenate([np.flatnonzero(sequences == s) for s in drawn])
        again.append(robust_offset(a[rows], b[rows], free))
    test = ~train
    return Offset(
        len(b),
        robust_offset(a, b, free),
        np.std(again, 0),
        float(np.median(np.linalg.norm(b[test], axis=1))),
        float(np.median(np.linalg.norm(b[test] - a[test] @ result, axis=1))),
    )


def robust_offset(a: np.ndarray, b: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Least squares with a Cauchy weight on each keypoint's distance."""
    offset = np.zeros(3)
    for _ in range(30):
        weight = 1 / (1 + (np.linalg.norm(b - a @ offset, axis=1) / CAUCHY_MM) ** 2)
        rows = a[:, :, free]
        normal = np.einsum("n,nri,nrj->ij", weight, rows, rows) + 1e-9 * np.eye(free.sum())
        offset[free] = np.linalg.solve(normal, np.einsum("n,nri,nr->i", weight, rows, b))
    return offset


def tips(body: Body) -> np.ndarray:
    """[26, V] what anatomy would choose: tips of toes and heels, the crown, the middle of the
    shoulders and hips.
    """
    with np.load(OPEN_BODY) as file:
        rows = file["J_regressor_halpe26"].copy()
    rows[17:] = 0
    for number, name in ((17, "headtop"), *zip(range(20, 26), _FOOT_PICKS, strict=True)):
        rows[number, body.vertex_picks[name]] = 1
    rows[18], rows[19] = (rows[5] + rows[6]) / 2, (rows[11] + rows[12]) / 2
    return rows


_FOOT_PICKS = ("LBigToe", "RBigToe", "LSmallToe", "RSmallToe", "LHeel", "RHeel")


def table(observed: Observations, title: str) -> Table:
    columns = (
        "keypoint",
        "bone",
        "n",
        "out, up, front (mm)",
        "+-",
        "median error (mm)",
        "with the offset",
    )
    visible = Table(*columns, title=title)
    for kind in dict.fromkeys(kind_of(name) for name in NAMES):
        numbers = [number for number, name in enumerate(NAMES) if kind_of(name) == kind]
        result = offset(observed, numbers, [bone(number) for number in numbers])
        place, spread = (
            ", ".join(f"{v:.0f}" for v in values)
            for values in (result.offset_mm, result.deviation_mm)
        )
        errors = f"{result.median_mm:.0f}", f"{result.explained_mm:.0f}"
        visible.add_row(
            kind.replace("_", " "), BONES[kind][0], str(result.count), place, spread, *errors
        )
    return visible


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--onnx", type=Path, required=True, help="rtmpose_s_halpe26_256x192.onnx")
    parser.add_argument(
        "--motion", type=Path, help="CMU clips at 30 frames/s; the embedded ones unless given"
    )
    parser.add_argument("--sequences", type=int, default=70, help="four images each")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for rendered images; what is there is kept"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    body = load_body()
    render(options.work, body, options.motion, options.sequences)
    detect(options.work, options.onnx)
    with np.load(OPEN_BODY) as file:
        embedded = file["J_regressor_halpe26"]
    for words, regressor in (("tips and middles", tips(body)), ("J_regressor_halpe26", embedded)):
        observed = observe(options.work, body, regressor)
        title = f"{words}: {len(observed.sequence)} images of {len(np.unique(observed.sequence))} people"
        Console().print(table(observed, title))


if __name__ == "__main__":
    claim(main)
