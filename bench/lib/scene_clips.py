"""Keypoints of real clips whose footage is not here: `real_keypoints` as release 0.1.0 wrote it,
and its labels.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pose2d.skeletons import HALPE26
from pose2d.types import ErrorDistribution, Keypoints
from pose2d.video.camera_motion.motion import CameraMotion

# Constants are chosen on these clips; the others are for reporting.
CHOOSING = (
    "air_side",
    "boxing",
    "dog_mat",
    "golf",
    "hug",
    "run_towards",
    "sit_sofa2",
    "three_women",
    "toddler",
    "yoga_side",
)


@dataclass(frozen=True)
class Label:
    """What a person saw in a clip."""

    clip: str
    identity: int | None  # None: all people
    from_s: float
    to_s: float
    posture: str
    must_hold: str


@dataclass(frozen=True)
class RealClip:
    """One clip's people and camera."""

    name: str
    size_px: tuple[int, int]
    fps: float
    keypoints: dict[int, Keypoints]  # by identity, [N, 26]
    frame: dict[int, np.ndarray]  # [N] frame numbers
    diagonal_px: dict[int, np.ndarray]  # [N] of the box
    motion: CameraMotion


def read_labels(root: Path) -> list[Label]:
    with (root / "labels.csv").open(newline="") as stream:
        return [
            Label(
                row["clip"],
                None if row["identity"] == "all" else int(row["identity"]),
                float(row["from_s"]),
                float(row["to_s"]),
                row["posture"],
                row["must hold"] or "",
            )
            for row in csv.DictReader(stream)
        ]


def read_clip(folder: Path) -> RealClip:
    tracks, points = (
        dict(np.load(folder / name, allow_pickle=False)) for name in ("tracks.npz", "keypoints.npz")
    )

    def tensor(name: str, rows: slice) -> torch.Tensor:
        return torch.from_numpy(points[f"row_{name}"][rows].astype(np.float32))

    keypoints = {}
    frame = {}
    diagonal = {}
    for number, identity in enumerate(points["identity"].tolist()):
        rows = slice(points["first_row"][number], points["first_row"][number + 1])
        keypoints[identity] = Keypoints(
            xy_px=tensor("xy_px", rows),
            confidence=tensor("confidence", rows),
            presence=tensor("presence", rows),
            source=str(points["source"]),
            area_px2=tensor("area_px2", rows),
            skeleton=HALPE26,  # type: ignore[arg-type]
            error=ErrorDistribution(
                tensor("error_weight", rows),
                tensor("error_sigma", rows),
                tensor("error_log_ratio", rows),
            ),
        )
        frame[identity] = points["row_frame"][rows]
        box = points["row_box_px"][rows]
        diagonal[identity] = np.hypot(*(box[:, 2:] - box[:, :2]).T)
    size = (int(tracks["width_px"]), int(tracks["height_px"]))
    rate = tracks["rate"]
    return RealClip(
        folder.name, size, float(rate[0] / rate[1]), keypoints, frame, diagonal, _motion(tracks)
    )


def _motion(tracks: dict[str, np.ndarray]) -> CameraMotion:
    return CameraMotion(
        kind=str(tracks["camera_kind"][0]),  # type: ignore[arg-type]
        frames=tracks["frame"],
        first_from_camera=tracks["camera_first_from_frame"].astype(float),
        zoom=tracks["camera_zoom"].astype(float),
        focal_px=float(tracks["camera_focal_px"][0]),
        reason=str(tracks["camera_reason"][0]),
        turning_focal_px=float(tracks["camera_turning_focal_px"][0]),
        turning_focal_log_sigma=float(tracks["camera_turning_focal_log_std"][0]),
    )


# --- postures
# -------------------------------------------------------------------------------------------------------


def posture_holds(
    posture: str, joints_m: np.ndarray, up: np.ndarray, must_hold: str = ""
) -> np.ndarray | None:
    """[T] whether joints [T, 24, 3] show a labelled posture, given up [T, 3]; None: the label asks
    nothing of these.
    """
    height = np.einsum("tkj,tj->tk", joints_m, up)
    legs = np.linalg.norm(np.diff(joints_m[:, (1, 4, 7)], axis=1), axis=-1).sum(
        1
    )  # metres of hip to ankle
    ankles = height[:, (7, 8)]
    toes = height[:, (10, 11)]
    floor = np.minimum(ankles - 0.05 * legs[:, None], toes).min(1)
    pelvis = (height[:, 0] - floor) / legs  # 1.0 standing
    torso = joints_m[:, 12] - joints_m[:, 0]
    lean = np.degrees(
        np.arccos(np.clip(np.sum(torso * up, 1) / np.linalg.norm(torso, axis=1), -1, 1))
    )
    palms = (height[:, (20, 21)] - floor[:, None]) / legs[:, None]
    knees = (height[:, (4, 5)] - floor[:, None]) / legs[:, None]
    feet_apart = np.abs(ankles[:, 0] - ankles[:, 1]) / legs
    knee_bend = np.stack([_bend(joints_m, side) for side in (1, 2)], 1)
    if posture in ("stands", "runs", "stands or walks"):
        upright = (lean < 35) & (pelvis > 0.8)
        return upright & (knee_bend.min(1) < 40) if "knees straight" in must_hold else upright
    if posture == "squats":
        return (pelvis < 0.75) & (lean < 75)
    if posture == "sits":  # on a sofa of 0.4 m: the pelvis joint half a metre over the floor
        return (pelvis > 0.3) & (pelvis < 0.85) & (lean < 55)
    if posture == "sits on the floor":
        return (pelvis < 0.45) & (lean < 65)
    if posture == "lies":
        return (lean > 55) & (pelvis < 0.5)
    if posture == "hands and knees":
        return (lean > 45) & (palms.min(1) < 0.35) & (knees.min(1) < 0.35)
    if posture == "downward dog":
        return (height[:, 0] > height[:, 12]) & (pelvis > 0.6) & (palms.min(1) < 0.35)
    if posture in ("plank", "low push-up"):
        return (lean > 55) & (lean < 125) & (palms.min(1) < 0.35) & (pelvis < 0.65)
    if posture == "handstand":
        return (height[:, 12] < height[:, 0]) & (height[:, 0] < ankles.max(1))
    if posture == "deep lunge":
        return (feet_apart < 0.3) & (pelvis > 0.3) & (pelvis < 0.95) & (lean < 100)
    if posture == "side support":
        return (palms.min(1) < 0.35) & (pelvis > 0.2) & (pelvis < 0.8)
    return None


def _bend(joints_m: np.ndarray, side: int) -> np.ndarray:
    """[T] degrees of knee flexion."""
    thigh = joints_m[:, 3 + side] - joints_m[:, side]
    shank = joints_m[:, 6 + side] - joints_m[:, 3 + side]
    size = np.linalg.norm(thigh, axis=1) * np.linalg.norm(shank, axis=1)
    return np.degrees(np.arccos(np.clip(np.sum(thigh * shank, 1) / size, -1, 1)))
