"""Camera motion of a whole video, one estimator a shot."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pose2d.video.camera_motion.estimator import CameraMotionEstimator
from pose2d.video.camera_motion.motion import (
    CameraMotion,
    motion_arrays,
    motionless,
    under_focal,
)
from pose2d.video.camera_motion.verticals import vertical_direction
from pose2d.video.frames import Frame


class BackgroundMotion:
    """Watches the frames of a video and measures the camera motion of every shot.

    Angles are measured under an assumed focal length or under the one that the turning itself
    reveals; `CameraMotion.with_focal` corrects them once the focal length is known better."""

    def __init__(self, size_px: tuple[int, int], focal_px: float) -> None:
        """size_px: (width, height) of the full frame; focal_px: assumed focal length."""
        self._size = size_px
        self._focal = focal_px
        self._shots: list[tuple[int, CameraMotionEstimator]] = []  # by first frame
        self._vertical: dict[int, np.ndarray | None] = {}  # by first frame, under that focal length
        self._last_frame = -1

    def cut(self, frame: int) -> None:
        """Begin a shot with this frame."""
        self._shots.append((frame, CameraMotionEstimator(self._size, self._focal)))

    def add(self, frame: Frame, boxes_px: np.ndarray) -> None:
        """Measure the next frame, with people's boxes [P, 4]. Frames may be left out; a frame that
        is not after the last one is ignored.
        """
        if frame.index <= self._last_frame:
            return
        if not self._shots:
            self.cut(frame.index)
        self._last_frame = frame.index
        first, estimator = self._shots[-1]
        if first not in self._vertical:
            self._vertical[first] = vertical_direction(frame.rgb, boxes_px, self._focal)
        estimator.feed(frame.index, frame.rgb, boxes_px)

    def arrays(self, frames: np.ndarray, shot_first_frame: np.ndarray) -> Mapping[str, Any]:
        """Return the arrays of `tracks.npz`: per shot [S] and per frame [F]."""
        motions = []
        ends = [*shot_first_frame[1:].tolist(), np.inf]
        for first, end in zip(shot_first_frame.tolist(), ends, strict=True):
            in_shot = (frames >= first) & (frames < end)
            motions.append(self._finish_shot(first, end, frames[in_shot]))
        return motion_arrays(motions)

    def _finish_shot(self, first: int, end: float, frames: np.ndarray) -> CameraMotion:
        """Return the motion of one shot; "unknown" if `cut` was not called at its begin, or was
        called within it.
        """
        estimators = dict(self._shots)
        if first not in estimators or any(first < begin < end for begin in estimators):
            return motionless("unknown", frames, self._focal, "the background was not looked at")
        motion = estimators[first].finish(frames)
        vertical = self._vertical.get(first)
        if vertical is None:
            return motion
        return replace(motion, vertical=under_focal(vertical, motion.focal_px / self._focal))
