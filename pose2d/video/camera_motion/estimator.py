"""The camera motion of one shot, frame by frame.

Corners of the background (outside people's boxes) are followed from a key frame; a static shot
keeps one key frame throughout. Rotation and zoom are fitted first, robustly. What they leave is
noise, things that move by themselves, or parallax.

Pixels are those of a small grey image, from its centre, unless a name says `_px`."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pose2d.video.camera_motion.corners import (
    LEAST_CORNERS,
    KeyFrame,
    background_mask,
    find_corners,
    follow_corners,
    shrink_to_grey,
)
from pose2d.video.camera_motion.kind import STATIC_PX, FrameMeasurement, summarize_motion
from pose2d.video.camera_motion.motion import CameraMotion, motionless, scale_turns
from pose2d.video.camera_motion.overlay import Overlay, corner_extent, share_of_cells
from pose2d.video.camera_motion.parallax import NO_PARALLAX, measure_parallax
from pose2d.video.camera_motion.rotation import (
    Pose,
    fit_rotation_and_zoom,
    image_shift_px,
    move_points,
)
from pose2d.video.camera_motion.turning_focal import Turn, focal_from_turns, is_sliding

SIDE_PX = 320  # longer side of the small image
# Every n-th frame is measured: while the image stands still, and while it moves.
STILL_STRIDE = 5
TURNING_STRIDE = 2
_CALM = 8  # measured frames without motion, after which the stride is that of a still image
# A camera that stood still still does if this share of the corners has moved by less than this.
REST_PX = 0.6
REST_SHARE = 0.25
LEAST_EXPLAINED = 6.0  # robust weights of a pose's corners; with less the pose is not reliable
_MOST_LOG_ZOOM = 3.0  # a larger zoom is a failed fit
# A new key frame is taken when the image has moved by this share of its longer side, has zoomed by
# this much (log), or when fewer than this share of the key frame's corners are followed.
_KEY_SHIFT = 0.22
_KEY_LOG_ZOOM = 0.15
_KEY_CORNERS = 0.5
# The focal length is measured from at most MOST_TURNS turns, each of which moves the image by at
# least this share of its longer side. A change below LEAST_FOCAL_CHANGE (log) is not applied.
LEAST_TURN = 0.08
MOST_TURNS = 12
LEAST_FOCAL_CHANGE = 0.03


class CameraMotionEstimator:
    """Measures the camera of one shot: `feed` its frames in order, then `finish`. Holds one small
    image and a few numbers per frame.
    """

    def __init__(self, size_px: tuple[int, int], focal_px: float) -> None:
        """size_px: (width, height) of the full frame that boxes refer to; focal_px: known or
        assumed focal length.
        """
        self._scale = min(1.0, SIDE_PX / max(size_px))
        width, height = (max(8, round(side * self._scale)) for side in size_px)
        self._size = (width, height)
        self._focal = focal_px * self._scale
        self._focal_px = float(focal_px)
        self._key: KeyFrame | None = None
        self._overlay = Overlay((width, height))
        self._previous_image = np.zeros((0, 0), np.uint8)
        self._measurements: list[FrameMeasurement] = []
        self._frames: list[int] = []
        self._calm = _CALM  # frames measured in a row without motion
        self._turns: list[Turn] = []  # the farthest from each key frame
        # Share of the image's longer side by which it must move before the focal length is measured
        # again.
        self._next_turn = LEAST_TURN

    def wants(self, frame: int) -> bool:
        """Return whether `feed` would measure this frame's image."""
        if not self._measurements:
            return True
        stride = TURNING_STRIDE if self._calm < _CALM else STILL_STRIDE
        return frame - self._measurements[-1].frame >= stride

    def feed(
        self, frame: int, image: np.ndarray | None, boxes_px: np.ndarray | Sequence[Sequence[float]]
    ) -> None:
        """Add the next frame. image: [h, w] or [h, w, 3] uint8, the full frame at any size (may be
        None when the frame is not wanted); boxes_px: [P, 4] x1, y1, x2, y2.
        """
        if self._frames and frame <= self._frames[-1]:
            raise ValueError(f"frames must come in order: {frame} after {self._frames[-1]}")
        self._frames.append(frame)
        if image is None or not self.wants(frame):
            return
        small = shrink_to_grey(image, self._size)
        boxes = np.asarray(boxes_px, np.float64).reshape(-1, 4) * self._scale
        mask = background_mask(boxes, self._size)
        mask[self._overlay.mask] = 0
        if self._key is None:
            self._begin(frame, small, mask)
        else:
            self._measure(frame, small, mask)
        self._previous_image = small

    def finish(self, frames: np.ndarray | None = None) -> CameraMotion:
        """Return the camera motion of these frames, or of all that were fed: interpolated between
        measured frames, constant before the first and after the last.
        """
        if frames is None:
            frames = np.array(self._frames, int)
        motion = summarize_motion(
            frames, self._measurements, self._focal, self._focal_px, self._size
        )
        turns = self._turns[:MOST_TURNS]
        if motion.kind != "rotating" or not turns:
            return motion
        if is_sliding(turns, self._focal):
            reason = "the image slides instead of turning"
            return motionless("moving", motion.frames, self._focal_px, reason)
        measured = focal_from_turns(turns, self._focal)
        if measured is None:
            return motion
        return replace(
            motion,
            turning_focal_px=self._focal_px * math.exp(measured.log_ratio),
            turning_focal_log_sigma=measured.log_sigma,
        )

    def _begin(self, frame: int, small: np.ndarray, mask: np.ndarray) -> None:
        """Take the shot's first image as key frame."""
        pose = Pose(np.eye(3), 0.0)
        self._key = KeyFrame(small, find_corners(small, mask), pose)
        corners = len(self._key.corners)
        self._measurements.append(FrameMeasurement(frame, pose, NO_PARALLAX, corners))

    def _measure(self, frame: int, small: np.ndarray, mask: np.ndarray) -> None:
        """Measure a later image."""
        start = self._measurements[-1].pose
        measured = self._measure_against_key(start, frame, small, mask)
        if measured is None:  # the key frame may be too far away
            self._key = KeyFrame(
                self._previous_image, find_corners(self._previous_image, mask), start
            )
            measured = self._measure_against_key(start, frame, small, mask)
        is_lost = measured is None
        if measured is None:  # nothing to follow: keep the pose
            measured = FrameMeasurement(frame, start, NO_PARALLAX, 0)
        if is_lost or self._needs_new_key(measured):
            corners = find_corners(small, mask)
            if len(corners) >= LEAST_CORNERS:
                self._key = KeyFrame(small, corners, measured.pose)
        step = image_shift_px(start, measured.pose, self._focal, self._size)
        self._calm = self._calm + 1 if step < STATIC_PX else 0
        self._measurements.append(measured)
        self._update_focal()

    def _measure_against_key(
        self, start: Pose, frame: int, small: np.ndarray, mask: np.ndarray
    ) -> FrameMeasurement | None:
        """Follow the key frame's corners into an image and fit its pose; None if too few are
        followed or the pose does not explain them.
        """
        assert self._key is not None
        key = self._key
        if len(key.corners) < LEAST_CORNERS:
            return None
        guess = move_points(key.corners, key.pose, start, self._focal)
        corners, points = follow_corners(key, guess, small, mask)
        if len(corners) < LEAST_CORNERS:
            return None
        self._overlay.observe(corners, points, key.pose, start, self._focal)
        is_background = ~self._overlay.covers(corners)
        corners = corners[is_background]
        points = points[is_background]
        if len(corners) < LEAST_CORNERS:
            return None
        # After a calm while, corners at rest say that the camera still stands, even if much walks
        # past it: a turning camera does not leave a quarter of them in place.
        unmoved = move_points(corners, key.pose, start, self._focal)
        at_rest = np.linalg.norm(points - unmoved, axis=1) < REST_PX
        rest_share = share_of_cells(at_rest, corners, self._size)
        enough_at_rest = at_rest.sum() >= LEAST_CORNERS and rest_share >= REST_SHARE
        is_still = self._calm >= _CALM and bool(enough_at_rest)
        used = at_rest if is_still else np.ones(len(points), bool)
        pose, explained = fit_rotation_and_zoom(
            corners[used], points[used], key.pose, start, self._focal
        )
        is_finite = np.isfinite(pose.first_from_camera).all()
        if explained < LEAST_EXPLAINED or not is_finite or abs(pose.log_zoom) > _MOST_LOG_ZOOM:
            return None
        residual = points - move_points(corners, key.pose, pose, self._focal)
        parallax = measure_parallax(points, residual, self._focal)
        self._remember_turn(Turn(corners, points, key.pose, pose))
        in_place = 0.0
        if key.pose.log_zoom == 0.0 and np.array_equal(key.pose.first_from_camera, np.eye(3)):
            has_stayed = np.linalg.norm(points - corners, axis=1) < REST_PX
            in_place = share_of_cells(has_stayed, corners, self._size)
        extent = corner_extent(points, self._size)
        return FrameMeasurement(frame, pose, parallax, len(corners), is_still, in_place, extent)

    def _remember_turn(self, turn: Turn) -> None:
        """Keep the last far turn from each key frame; beyond 2 MOST_TURNS every other one."""
        shift = image_shift_px(turn.key, turn.pose, self._focal, self._size)
        if shift < LEAST_TURN * max(self._size):
            return
        if self._turns and self._turns[-1].key is turn.key:
            self._turns.pop()
        self._turns.append(turn)
        if len(self._turns) > 2 * MOST_TURNS:
            self._turns = self._turns[::2]

    def _update_focal(self) -> None:
        """Take the focal length that the turns so far reveal: under a wrong one, a camera that pans
        seems to move. Poses measured under the old one get the new one's angles; their parallax is
        forgotten.
        """
        if not self._turns:
            return
        last = self._turns[-1]
        shift = image_shift_px(last.key, last.pose, self._focal, self._size) / max(self._size)
        if shift < self._next_turn:
            return
        is_farthest = shift >= _KEY_SHIFT
        self._next_turn = math.inf if is_farthest else 2 * max(shift, self._next_turn)
        measured = focal_from_turns(self._turns[-MOST_TURNS:], self._focal)
        if measured is None or abs(measured.log_ratio) < LEAST_FOCAL_CHANGE:
            return
        ratio = math.exp(measured.log_ratio)
        self._rescale_poses(ratio)
        self._turns = []
        self._focal *= ratio
        self._focal_px *= ratio

    def _rescale_poses(self, focal_ratio: float) -> None:
        """Replace the poses of all measurements and of the key frame by those under another focal
        length.
        """
        assert self._key is not None
        poses = [m.pose for m in self._measurements]
        turns = scale_turns(np.stack([pose.first_from_camera for pose in poses]), focal_ratio)
        # The key frame's pose is the pose of one of the measurements.
        rescaled = {
            id(pose): replace(pose, first_from_camera=turn)
            for pose, turn in zip(poses, turns, strict=True)
        }
        self._measurements = [
            replace(m, pose=rescaled[id(m.pose)], parallax=NO_PARALLAX) for m in self._measurements
        ]
        self._key = replace(self._key, pose=rescaled[id(self._key.pose)])

    def _needs_new_key(self, measured: FrameMeasurement) -> bool:
        """Return whether the key frame shows too little of the current image. While the camera
        stands still it never does: corners that people hide come back, and new corners would be
        found on people.
        """
        assert self._key is not None
        if measured.is_still:
            return False
        pose = self._key.pose
        shift = image_shift_px(pose, measured.pose, self._focal, self._size)
        has_few_corners = measured.corners < _KEY_CORNERS * len(self._key.corners)
        has_moved = shift > _KEY_SHIFT * max(self._size)
        has_zoomed = abs(measured.pose.log_zoom - pose.log_zoom) > _KEY_LOG_ZOOM
        return has_few_corners or has_moved or has_zoomed
