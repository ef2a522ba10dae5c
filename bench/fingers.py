"""Claim: fingers of one camera are within 12 mm of triangulated ones, and within 9 mm on rendered
hands (Procrustes).

    python bench/fingers.py [--cameras DIR] [--rendered 300] [--offsets]

--cameras: a hand recorded by two calibrated cameras (TemugeB/handpose3d, MIT). Each camera is
fitted by itself, on a body of which only the distance is guessed, by PnP of the palm; truth is
triangulated from the 2D keypoints of both. The recording has no unit: its palms are made as long as
the model's. Half of it chose the constants of `fitting/keypoints/hands.py` and
`fitting/hands.py`; the figures are of the other half.

--rendered: hands of the open body in random poses from random sides, with the network's own
keypoints. The body's wrist is turned by 14 degrees about each axis and 5 % too near or too far (one
std), as a body's fit leaves it.

--offsets: where the network shows its keypoints on rendered hands (`OPEN_KEYPOINTS_MM` of
`fitting.body.fingers`).
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.hand_points import shown_points
from bench.lib.hand_recordings import recording, triangulated
from bench.lib.rendered_hands import CAMERA, bones_of, keypoints_of, rendered
from fitting.body import Body, BodyParams
from fitting.body.fingers import WRISTS
from fitting.body.load import load_body
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from fitting.camera import Camera
from fitting.hands import fit_hands
from fitting.keypoints.hands import KNUCKLES, PALM, observe_hands
from pose2d.hands import Look
from pose2d.types import HandKeypoints

TIPS = slice(4, None, 4)


def rest_points(body: Body, side: int) -> np.ndarray:
    """[21, 3] keypoints of a flat hand from its wrist."""
    fingers = body.with_fingers()
    points = (fingers.flat_points(body.rest_joints) + fingers.offsets)[side].numpy()
    return points - points[0]


def hung_on(palm: np.ndarray, wrist_m: np.ndarray, side: int, body: Body) -> BodyParams:
    """Bodies in T-pose whose palms are turned so [N, 3, 3] and whose wrists are there [N, 3]."""
    pose = torch.zeros(len(palm), 24, 3)
    pose[:, 0] = matrix_to_axis_angle(torch.from_numpy(palm)).float()
    shift = torch.from_numpy(wrist_m).float() - body(pose).joints[:, WRISTS[side]]
    return BodyParams(pose, torch.zeros(10), shift, torch.ones(()))


def as_hands(observed: Look, std_px: np.ndarray, side: int) -> HandKeypoints:
    hands = HandKeypoints.unseen(len(observed))
    ones = np.ones(len(observed))
    inputs = (observed.xy_px, std_px, ones, observed.score, observed.landmarks_m, observed.size_px)
    for name, values in zip(
        ("xy_px", "std_px", "presence", "score", "landmarks_m", "size_px"), inputs, strict=True
    ):
        getattr(hands, name)[:, side] = values
    return hands


class Found(NamedTuple):
    """Hold N fitted hands, in millimetres from the wrist as the network shows it."""

    points: np.ndarray  # [N, 21, 3]
    std: np.ndarray  # [N, 21] stated


def fitted(
    hands: HandKeypoints,
    params: BodyParams,
    camera: Camera,
    body: Body,
    segment: np.ndarray,
    side: int,
) -> Found:
    result = fit_hands(observe_hands(hands, camera, body), params, camera, body, 30.0, segment)
    fingers = body.with_fingers()
    shape = torch.zeros(body.shape_size)
    pose = params.pose.clone()
    pose[:, list(WRISTS)] = torch.from_numpy(result.wrist_rad)
    placed = fingers.placement(
        body.placement(rotation_matrices(pose), shape), torch.from_numpy(result.pose_rad), shape
    )
    points = shown_points(fingers, placed, shape)[:, side].numpy()
    return Found(1000 * (points - points[:, :1]), result.point_std_mm[:, side])


def aligned(
    points: np.ndarray, truth: np.ndarray, by: list[int] | slice, *, scale: bool
) -> np.ndarray:
    """[N, 21] distances after the rigid motion (and scale) that brings some of the points nearest
    to the truth.
    """
    out = []
    for a, b in zip(points, truth, strict=True):
        am = a[by].mean(0)
        bm = b[by].mean(0)
        u, s, v = np.linalg.svd((b[by] - bm).T @ (a[by] - am))
        sign = np.array([1, 1, np.sign(np.linalg.det(u @ v))])
        size = (s * sign).sum() / ((a[by] - am) ** 2).sum() if scale else 1.0
        out.append(np.linalg.norm(size * (a - am) @ (u @ np.diag(sign) @ v).T + bm - b, axis=1))
    return np.array(out)


def two_cameras(folder: Path, console: Console) -> None:
    body = load_body()
    side = 1
    pair = [recording(folder, number) for number in (0, 1)]
    points, agreed = triangulated(pair)
    rest_hand = rest_points(body, side)
    span = np.median(np.linalg.norm(points[:, KNUCKLES] - points[:, :1], axis=-1).mean(-1))
    unit_m = np.linalg.norm(rest_hand[list(KNUCKLES)], axis=-1).mean() / span
    used = np.flatnonzero((pair[0].seen.score > 0.9) & (pair[1].seen.score > 0.9))
    table = Table(
        "camera",
        "frames",
        "tips, wrist aligned",
        "90 %",
        "tips, palm aligned",
        "all points, Procrustes",
        "within 1 std (68 %)",
        "within 2 std (95 %)",
        title="One camera, mm (median)",
    )
    for number, view in enumerate(pair):
        observed = view.seen.rows(used)
        std = view.std_px[used]
        truth = 1000 * unit_m * (points[used] - points[used, :1]) @ view.rotation.T
        xy = view.camera.undistort(torch.from_numpy(observed.xy_px)).numpy().astype(np.float64)
        matrix = np.array(
            [
                [view.camera.focal_px[0], 0, view.camera.center_px[0]],
                [0, view.camera.focal_px[1], view.camera.center_px[1]],
                [0, 0, 1],
            ]
        )
        palm_points = [0, *PALM]
        depth = np.array(
            [
                cv2.solvePnP(
                    rest_hand[palm_points].astype(np.float64),
                    flat[palm_points],
                    matrix,
                    None,
                    flags=cv2.SOLVEPNP_SQPNP,
                )[2][2, 0]
                for flat in xy
            ]
        )
        depth = np.array([np.median(depth[max(0, t - 15) : t + 16]) for t in range(len(depth))])
        wrist = (
            np.column_stack(
                [(xy[:, 0] - view.camera.center_px) / view.camera.focal_px, np.ones(len(xy))]
            )
            * depth[:, None]
        )
        hands = as_hands(observed, std, side)
        palm = rotation_matrices(observe_hands(hands, view.camera, body).palm_rad[:, side]).numpy()
        segment = np.cumsum(np.r_[0, np.diff(used) > 1])
        result = fitted(hands, hung_on(palm, wrist, side, body), view.camera, body, segment, side)
        half = np.arange(len(used)) >= len(used) // 2
        good = (agreed[used] & agreed[used, :1] & half[:, None])[:, 1:]
        off = np.linalg.norm(result.points - truth, axis=-1)
        by_palm = aligned(result.points, truth, palm_points, scale=False)
        by_all = aligned(result.points, truth, slice(None), scale=True)
        tips = good[:, 3::4]
        inside = [(off[:, 1:] < k * result.std[:, 1:])[good].mean() for k in (1, 2)]
        ends = off[:, TIPS][tips]
        figures = (
            np.median(ends),
            np.percentile(ends, 90),
            np.median(by_palm[:, TIPS][tips]),
            np.median(by_all[half]),
        )
        table.add_row(
            str(number),
            str(half.sum()),
            *(f"{mm:.1f}" for mm in figures),
            *(f"{part:.0%}" for part in inside),
        )
    console.print(table)


def of_rendered(count: int, console: Console) -> None:
    body = load_body()
    hands_rendered = rendered(count, load_body())
    rng = np.random.default_rng(0)
    title = "Rendered hands, millimetres after Procrustes"
    table = Table(
        "hand", "seen", "median", "mean", "tips", "the network's landmarks, mean", title=title
    )
    for side, name in enumerate(("left", "right")):
        rows = np.flatnonzero((hands_rendered.side == side) & (hands_rendered.seen.score > 0.5))
        turned = rotation_matrices(torch.from_numpy(rng.normal(0, 0.25, (len(rows), 3)))).numpy()
        wrist = hands_rendered.points[rows, 0] * rng.normal(1, 0.05, (len(rows), 1))
        observed = hands_rendered.seen.rows(rows)
        params = hung_on(hands_rendered.palm[rows] @ turned, wrist, side, body)
        result = fitted(
            as_hands(observed, hands_rendered.std_px[rows], side),
            params,
            CAMERA,
            body,
            np.arange(len(rows)),
            side,
        )
        truth = 1000 * keypoints_of(
            hands_rendered.points[rows],
            hands_rendered.palm[rows],
            hands_rendered.angles[rows],
            side,
            body,
        )
        off, theirs = (
            aligned(part, truth, slice(None), scale=True)
            for part in (result.points, observed.landmarks_m)
        )
        table.add_row(
            name,
            f"{len(rows)} of {(hands_rendered.side == side).sum()}",
            f"{np.median(off):.1f}",
            f"{off.mean():.1f}",
            f"{np.median(off[:, TIPS]):.1f}",
            f"{theirs.mean():.1f}",
        )
    console.print(table)


def offsets(count: int, console: Console) -> None:
    """Robust least squares of the pixels between where points are and where the network shows them."""
    body = load_body()
    hands_rendered = rendered(count, load_body())
    table = Table(
        "keypoint",
        "x",
        "y",
        "z",
        "spread",
        title="From joint or tip to keypoint, millimetres, left hand",
    )
    pixels = CAMERA.project(torch.from_numpy(hands_rendered.points)).numpy()
    off = np.linalg.norm(hands_rendered.seen.xy_px - pixels, axis=-1)
    palm_px = (
        700
        * np.linalg.norm(hands_rendered.points[:, 9] - hands_rendered.points[:, 0], axis=-1)
        / hands_rendered.points[:, 0, 2]
    )
    rows = np.flatnonzero((hands_rendered.seen.score > 0.8) & (np.median(off, 1) < 0.3 * palm_px))
    bones = np.stack(
        [
            bones_of(hands_rendered.palm[rows], hands_rendered.angles[rows], side, body)
            for side in (0, 1)
        ],
        1,
    )[np.arange(len(rows)), hands_rendered.side[rows]]
    mirror = np.where(hands_rendered.side[rows, None] == 0, 1.0, [-1.0, 1, 1])
    for k in range(21):
        x, y, z = hands_rendered.points[rows, k].T
        zero = np.zeros_like(x)
        lens = (
            700
            / z[:, None, None]
            * np.stack(
                [np.stack([zero + 1, zero, -x / z], 1), np.stack([zero, zero + 1, -y / z], 1)], 1
            )
        )
        rest_axes = (lens @ bones[:, k]) * mirror[:, None]
        requested = hands_rendered.seen.xy_px[rows, k] - pixels[rows, k]
        weight = np.ones(len(rows))
        for _ in range(15):
            root = np.sqrt(weight)[:, None, None]
            result = np.linalg.lstsq(
                (root * rest_axes).reshape(-1, 3), (root[..., 0] * requested).ravel(), rcond=None
            )[0]
            left = rest_axes @ result - requested
            weight = 1 / (1 + (left**2).sum(1) / 16)
        spread = 1000 * 1.48 * np.median(np.abs(left) * (z / 700)[:, None])
        table.add_row(str(k), *(f"{1000 * value:.1f}" for value in result), f"{spread:.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cameras", type=Path)
    parser.add_argument("--rendered", type=int, default=0)
    parser.add_argument("--offsets", action="store_true")
    options = parser.parse_args()
    console = Console()
    if options.cameras is not None:
        two_cameras(options.cameras, console)
    if options.rendered:
        (offsets if options.offsets else of_rendered)(options.rendered, console)


if __name__ == "__main__":
    claim(main)
