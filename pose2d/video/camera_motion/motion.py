"""The camera motion of one shot, and its arrays in `tracks.npz`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from scipy.spatial.transform import Rotation

from pose2d.base.columns import column, shared
from pose2d.base.table import Table

Kind = Literal["static", "rotating", "moving", "unknown"]


@dataclass(frozen=True)
class CameraMotion(Table):
    """The camera of one shot over its F frames."""

    kind: Kind
    frames: np.ndarray = column((), "i", "frame numbers, increasing")
    # [F, 3, 3]
    first_from_camera: np.ndarray = column(
        (3, 3), "d", "a frame's camera -> the first frame's camera", finite=True
    )
    zoom: np.ndarray = column(
        (), "d", "focal length over the first frame's", low=1e-3, high=1e3, finite=True
    )
    # Focal length of the first frame in pixels of the full frame. Angles were measured with it.
    focal_px: float = shared()
    # What the kind was decided from, in words.
    reason: str = shared()
    # Focal length of the first frame as measured from the turning itself; NaN: not measurable.
    turning_focal_px: float = math.nan
    turning_focal_log_sigma: float = math.inf
    # [3] the direction against gravity in the first frame, from straight lines of the background.
    vertical: np.ndarray | None = None

    def turning(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the rotations [T, 3, 3] from the cameras of these rows to the first camera; None
        if the camera does not turn or its motion is unknown.
        """
        if self.kind in ("static", "unknown"):
            return None
        return self.first_from_camera[rows.clip(0, len(self.frames) - 1)]

    def zooming(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the focal lengths [T] of these rows over the first frame's; None if the focal
        length is constant. A moving camera has no zoom: moving forwards looks like zooming in.
        """
        if self.kind != "rotating" or np.ptp(self.zoom) < 1e-6:
            return None
        return self.zoom[rows.clip(0, len(self.frames) - 1)]

    def with_focal(self, focal_px: float) -> "CameraMotion":
        """Return the motion that explains the same image motion under another focal length: turns
        about x and y scale by old / new.
        """
        ratio = focal_px / self.focal_px
        vertical = None if self.vertical is None else under_focal(self.vertical, ratio)
        refocused = replace(self, focal_px=float(focal_px), vertical=vertical)
        if self.kind == "static" or ratio == 1:
            return refocused
        return replace(refocused, first_from_camera=scale_turns(self.first_from_camera, ratio))


def motionless(kind: Kind, frames: np.ndarray, focal_px: float, reason: str) -> CameraMotion:
    """Return a motion of this kind without any turning or zooming."""
    no_turns = np.broadcast_to(np.eye(3), (len(frames), 3, 3)).copy()
    return CameraMotion(kind, frames, no_turns, np.ones(len(frames)), focal_px, reason)


def scale_turns(first_from_camera: np.ndarray, focal_ratio: float) -> np.ndarray:
    """Return rotations [F, 3, 3] as they are measured under another focal length (new / old): the
    step between neighbouring frames shrinks about x and y and keeps its roll.
    """
    steps = first_from_camera[:-1].swapaxes(1, 2) @ first_from_camera[1:]
    total = [first_from_camera[0]]
    if len(steps):
        divisor = np.array([focal_ratio, focal_ratio, 1.0])
        scaled = Rotation.from_matrix(steps).as_rotvec() / divisor
        for step in Rotation.from_rotvec(scaled).as_matrix():
            total.append(total[-1] @ step)
    return np.stack(total)


def under_focal(direction: np.ndarray, ratio: float) -> np.ndarray:
    """Return the vanishing direction [3] that has the same vanishing point in the image under
    another focal length (new / old).
    """
    refocused = direction / np.array([ratio, ratio, 1.0])
    return refocused / np.linalg.norm(refocused)


# The arrays of `tracks.npz` without which it has no camera motion: per shot, and per frame.
ARRAYS = (
    "camera_kind",
    "camera_reason",
    "camera_focal_px",
    "camera_first_from_frame",
    "camera_zoom",
    "camera_turning_focal_px",
    "camera_turning_focal_log_std",
)


def motion_arrays(motions: Sequence[CameraMotion]) -> Mapping[str, Any]:
    """Return the arrays of `tracks.npz` for the motions of all shots in order: per shot [S] and per
    frame [F].
    """

    def join_frames(name: str, empty: np.ndarray) -> np.ndarray:
        columns = [getattr(motion, name) for motion in motions]
        return np.concatenate([empty, *columns]).astype(np.float32)

    no_vertical = np.full(3, np.nan)
    verticals = [no_vertical if m.vertical is None else m.vertical for m in motions]
    log_sigmas = [m.turning_focal_log_sigma for m in motions]
    return {
        "camera_kind": np.array([m.kind for m in motions], np.str_),
        "camera_reason": np.array([m.reason for m in motions], np.str_),
        "camera_focal_px": np.array([m.focal_px for m in motions], np.float64),
        "camera_first_from_frame": join_frames("first_from_camera", np.zeros((0, 3, 3))),
        "camera_zoom": join_frames("zoom", np.zeros(0)),
        "camera_turning_focal_px": np.array([m.turning_focal_px for m in motions], np.float64),
        "camera_turning_focal_log_std": np.array(log_sigmas, np.float64),
        "camera_vertical": np.array(verticals, np.float64).reshape(-1, 3),
    }


def read_motion(arrays: Mapping[str, np.ndarray], shot: int) -> CameraMotion | None:
    """Return the motion of one shot from the arrays of `tracks.npz`; None if they have none."""
    if any(name not in arrays for name in ARRAYS):
        return None
    firsts = arrays["shot_first_frame"]
    end = firsts[shot + 1] if shot + 1 < len(firsts) else np.inf
    in_shot = (arrays["frame"] >= firsts[shot]) & (arrays["frame"] < end)
    vertical = np.full(3, np.nan)
    if "camera_vertical" in arrays:
        vertical = arrays["camera_vertical"][shot]
    return CameraMotion(
        kind=cast(Kind, str(arrays["camera_kind"][shot])),
        frames=arrays["frame"][in_shot],
        first_from_camera=arrays["camera_first_from_frame"][in_shot].astype(np.float64),
        zoom=arrays["camera_zoom"][in_shot].astype(np.float64),
        focal_px=float(arrays["camera_focal_px"][shot]),
        reason=str(arrays["camera_reason"][shot]),
        turning_focal_px=float(arrays["camera_turning_focal_px"][shot]),
        turning_focal_log_sigma=float(arrays["camera_turning_focal_log_std"][shot]),
        vertical=vertical if np.isfinite(vertical).all() else None,
    )
