"""How the camera moved, measured while the people are looked for: `tracks.npz` holds it for every frame.

`BackgroundMotion.add` is fed frames with the boxes of everyone in them; it looks at a few of them on a small grey image
(`fitting.scene.camera_motion`), so a camera that stands still costs almost nothing.
"""

from collections.abc import Mapping
from typing import Any, cast

import cv2
import numpy as np

from fitting.scene.camera_motion import SIDE_PX, CameraMotion, CameraMotionEstimator, Kind, unknown_motion
from fitting.scene.lens import focal_prior
from pose2d.video.frames import Frame

# What `tracks.npz` has of the camera: per shot, and per frame.
ARRAYS = (
    "camera_kind", "camera_reason", "camera_focal_px", "camera_first_from_frame", "camera_zoom",
    "camera_turning_focal_px", "camera_turning_focal_log_std",
)  # fmt: skip


class BackgroundMotion:
    """One estimator a shot. Angles are measured under a focal length from the prior or from the turning itself;
    `CameraMotion.with_focal` mends them once it is known better."""

    def __init__(self, size_px: tuple[int, int]) -> None:
        self._size, self._focal = size_px, focal_prior(size_px).focal_px
        self._shots: list[tuple[int, CameraMotionEstimator]] = []
        self._last = -1

    def cut(self, frame: int) -> None:
        """A shot begins with this frame."""
        self._shots.append((frame, CameraMotionEstimator(self._size, self._focal)))

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """The next frame, with boxes [P, 4]; frames may be left out, and one that was seen before is ignored."""
        if frame.index <= self._last:
            return
        if not self._shots:
            self.cut(frame.index)
        self._last, estimator = frame.index, self._shots[-1][1]
        estimator.feed(frame.index, _grey(frame.rgb) if estimator.wants(frame.index) else None, boxes_px)

    def arrays(self, frames: np.ndarray, shot_first_frame: np.ndarray) -> Mapping[str, Any]:
        """For `tracks.npz`: per shot [S] and per frame [F]. A shot whose begin was not told in time is "unknown"."""
        told = dict(self._shots)
        kinds, reasons, motions = [], [], []
        ends = [*shot_first_frame[1:].tolist(), np.inf]
        for first, end in zip(shot_first_frame.tolist(), ends, strict=True):
            numbers = frames[(frames >= first) & (frames < end)]
            motion = unknown_motion(numbers, self._focal, "the background was not looked at")
            if first in told and not any(first < other < end for other in told):
                motion = told[first].finish().at(numbers)
            kinds.append(motion.kind)
            reasons.append(motion.reason)
            motions.append(motion)

        def joined(name: str, empty: np.ndarray) -> np.ndarray:
            return np.concatenate([empty, *(getattr(m, name) for m in motions)]).astype(np.float32)

        return {
            "camera_kind": np.array(kinds, np.str_),
            "camera_reason": np.array(reasons, np.str_),
            "camera_focal_px": np.array([m.focal_px for m in motions], np.float64),
            "camera_first_from_frame": joined("first_from_camera", np.zeros((0, 3, 3))),
            "camera_zoom": joined("zoom", np.zeros(0)),
            "camera_turning_focal_px": np.array([m.turning_focal_px for m in motions], np.float64),
            "camera_turning_focal_log_std": np.array([m.turning_focal_log_sigma for m in motions], np.float64),
        }


def read_motion(arrays: Mapping[str, np.ndarray], shot: int) -> CameraMotion | None:
    """One shot's from the arrays of `tracks.npz`; None where they have none."""
    if any(name not in arrays for name in ARRAYS):
        return None
    firsts = arrays["shot_first_frame"]
    end = firsts[shot + 1] if shot + 1 < len(firsts) else np.inf
    here = (arrays["frame"] >= firsts[shot]) & (arrays["frame"] < end)
    return CameraMotion(
        kind=cast(Kind, str(arrays["camera_kind"][shot])),
        frames=arrays["frame"][here],
        first_from_camera=arrays["camera_first_from_frame"][here].astype(np.float64),
        zoom=arrays["camera_zoom"][here].astype(np.float64),
        focal_px=float(arrays["camera_focal_px"][shot]),
        reason=str(arrays["camera_reason"][shot]),
        turning_focal_px=float(arrays["camera_turning_focal_px"][shot]),
        turning_focal_log_sigma=float(arrays["camera_turning_focal_log_std"][shot]),
    )


def _grey(rgb: np.ndarray) -> np.ndarray:
    height, width = rgb.shape[:2]
    scale = min(1.0, SIDE_PX / max(width, height))
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA) if scale < 1 else rgb
    return cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
