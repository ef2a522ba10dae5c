"""How far an estimated world is from the true one: gravity, floor, feet, sizes, lens, camera, and
places over time.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from bench.lib.world_scenes import PersonTruth, ShotTruth
from eval3dpw.captured.feet import FEET_KEYPOINTS
from eval3dpw.scoring import mpjpe_mm, pa_mpjpe_mm
from fitting.camera.world import points_to_world, rotation_to_world, world_from_camera

SEGMENT = (
    100  # frames over which world MPJPE is taken, aligned on the first two: as others report it
)
PAN_S = 5.0
_RIGHT_KINDS = {"static": ("static",), "pan": ("rotating",), "hand": ("moving", "rotating")}


@dataclass(frozen=True)
class PersonEstimate:
    """One person as fitted, in each frame's camera."""

    rows: np.ndarray  # [n] frames of the shot
    joints_cam_m: np.ndarray  # [n, 24, 3]
    keypoints_cam_m: np.ndarray  # [n, 26, 3]
    over_sole_m: np.ndarray  # [4] height of heels and toes over the sole of this body at its size
    height_m: float
    contact: np.ndarray | None  # [n, 4] probability that heels and toes stand; None: not looked for


@dataclass(frozen=True)
class ShotEstimate:
    """One shot as fitted."""

    people: list[PersonEstimate | None]  # in the truth's order; None: not found
    up_cam: np.ndarray | None  # [3] in the first camera; None: not known
    camera_height_m: float  # NaN: not known
    focal_px: float
    kind: str | None  # of the camera; None: it was not looked for
    first_from_camera: np.ndarray | None  # [T, 3, 3]; None: does not turn, as far as is known

    def world_from_camera(self, frames: int) -> np.ndarray:
        """[T, 4, 4]. A camera of which nothing is known is taken to be level, the lowest feet to be
        on the floor.
        """
        up = np.array([0.0, -1.0, 0.0]) if self.up_cam is None else self.up_cam
        height = self.camera_height_m
        if not np.isfinite(height):
            level = world_from_camera(up, 0.0, self.first_from_camera, frames)
            lowest = [
                (
                    points_to_world(p.keypoints_cam_m[:, FEET_KEYPOINTS], level[p.rows])[..., 1]
                    - p.over_sole_m
                ).min(1)
                for p in self.people
                if p is not None
            ]
            height = -float(np.quantile(np.concatenate(lowest), 0.05)) if lowest else 0.0
        return world_from_camera(up, height, self.first_from_camera, frames)


def shot_metrics(truth: ShotTruth, estimate: ShotEstimate) -> dict[str, float]:
    """Every figure of one shot; NaN where a figure means nothing."""
    up = estimate.up_cam if estimate.up_cam is not None else np.array([0.0, -1.0, 0.0])
    right = _RIGHT_KINDS[truth.camera_kind]
    figures = {
        "gravity, deg": angle_deg(up, truth.up_cam),
        "gravity known, %": 100.0 * (estimate.up_cam is not None),
        "stated floor, cm off": 100 * abs(estimate.camera_height_m - truth.camera_height_m),
        "focal length, %": 100 * abs(estimate.focal_px / truth.camera.focal_px[0] - 1),
        "camera kind right, %": np.nan
        if estimate.kind is None
        else 100.0 * (estimate.kind in right),
        "turn over 5 s, deg off": np.nan
        if truth.camera_kind == "static"
        else turn_error_deg(truth, estimate),
    }
    world_from_camera = estimate.world_from_camera(truth.frames)
    true_places = true_world(truth)
    by_person = [
        _person_metrics(truth, exact, person, world_from_camera, true_places)
        for exact, person in zip(truth.people, estimate.people, strict=True)
        if person is not None
    ]
    for name in by_person[0] if by_person else ():
        values = np.array([row[name] for row in by_person])
        figures[name] = float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
    return figures


def _person_metrics(
    truth: ShotTruth,
    exact: PersonTruth,
    estimate: PersonEstimate,
    world_from_camera: np.ndarray,
    true_places: np.ndarray,
) -> dict[str, float]:
    rows = estimate.rows
    joints = estimate.joints_cam_m
    true_joints = truth.in_camera(exact.joints_m)[rows]
    world = points_to_world(joints, world_from_camera[rows])
    true_world_m = exact.joints_m[rows] @ true_places[:3, :3].T + true_places[:3, 3]
    feet = points_to_world(estimate.keypoints_cam_m[:, FEET_KEYPOINTS], world_from_camera[rows])
    roots = world[:, 0] - world[0, 0], true_world_m[:, 0] - true_world_m[0, 0]
    below = np.maximum(-(feet[..., 1] - estimate.over_sole_m).min(1), 0)
    contacts = np.nan
    if estimate.contact is not None:
        contacts = 100 * float(((estimate.contact > 0.5) == exact.standing[rows]).mean())
    a = torch.from_numpy(joints)
    b = torch.from_numpy(true_joints)
    return {
        "standing feet, cm/s": standing_speed_cm_s(feet, exact.still[rows], rows, truth.fps),
        "contacts right, %": contacts,
        "feet under the floor, mm": 1000 * float(below.mean()),
        "world MPJPE, mm": world_mpjpe_mm(world, true_world_m),
        "place in the world, cm off": 100
        * float(np.linalg.norm(world - true_world_m, axis=-1).mean()),
        "root drift, cm": 100 * float(np.linalg.norm(roots[0] - roots[1], axis=1).max()),
        "height, %": 100 * abs(estimate.height_m / exact.height_m - 1),
        "depth, %": 100 * abs(float(np.median(joints[:, 0, 2] / true_joints[:, 0, 2])) - 1),
        "MPJPE, mm": float(mpjpe_mm(a, b, a[:, 0], b[:, 0]).mean()),
        "PA-MPJPE, mm": float(pa_mpjpe_mm(a, b).mean()),
    }


def angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)))


def true_world(truth: ShotTruth) -> np.ndarray:
    """[4, 4] from the simulation's world to the stated one: first camera above the origin, looking
    along -z.
    """
    stated_value = np.eye(4)
    stated_value[:3, :3] = rotation_to_world(truth.up_cam)
    stated_value[1, 3] = truth.camera_height_m
    return stated_value @ truth.camera_from_world[0]


def standing_speed_cm_s(
    feet_m: np.ndarray, still: np.ndarray, rows: np.ndarray, fps: float
) -> float:
    """Median speed of heels and toes [n, 4, 3] in the middle of three frames in which they truly
    stand still.
    """
    full = still[:-2] & still[1:-1] & still[2:] & (rows[2:] - rows[:-2] == 2)[:, None]
    speed = np.linalg.norm(feet_m[2:] - feet_m[:-2], axis=-1) * fps / 2
    return 100 * float(np.median(speed[full])) if full.any() else np.nan


def world_mpjpe_mm(joints_m: np.ndarray, true_m: np.ndarray) -> float:
    """Return errors of segments of SEGMENT frames, each moved so that its first two frames fit
    best.
    """
    errors = []
    for first in range(0, max(len(joints_m) - SEGMENT // 2, 1), SEGMENT):
        part = joints_m[first : first + SEGMENT]
        target = true_m[first : first + SEGMENT]
        a = part[:2].reshape(-1, 3)
        b = target[:2].reshape(-1, 3)
        turn, _ = Rotation.align_vectors(b - b.mean(0), a - a.mean(0))
        moved = turn.apply((part - a.mean(0)).reshape(-1, 3)).reshape(part.shape) + b.mean(0)
        errors.append(np.linalg.norm(moved - target, axis=-1).mean())
    return 1000 * float(np.mean(errors))


def turn_error_deg(truth: ShotTruth, estimate: ShotEstimate) -> float:
    """The largest error of how far the camera turned within any 5 s."""
    true = Rotation.from_matrix(
        truth.camera_from_world[:, :3, :3].swapaxes(1, 2)
    )  # world from camera
    turns = np.broadcast_to(np.eye(3), (truth.frames, 3, 3))
    own = Rotation.from_matrix(
        turns if estimate.first_from_camera is None else estimate.first_from_camera
    )
    span = min(round(PAN_S * truth.fps), truth.frames - 1)
    off = (true[:-span].inv() * true[span:]) * (own[:-span].inv() * own[span:]).inv()
    return float(np.degrees(off.magnitude()).max())
