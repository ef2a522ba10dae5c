"""Deciding whether the camera of a shot stands still, turns and zooms on the spot, or moves.

The thresholds were chosen on textured backgrounds seen through known cameras with noise, JPEG
compression and moving people (tests/pose2d/test_camera_motion.py). Pixels are those of the small
image."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from pose2d.video.camera_motion.corners import LEAST_CORNERS
from pose2d.video.camera_motion.motion import CameraMotion, Kind, motionless
from pose2d.video.camera_motion.parallax import Parallax
from pose2d.video.camera_motion.rotation import Pose, image_shift_px

STATIC_PX = 0.6  # a camera whose image moves less (0.13 degrees for a phone) stands still
# With a static camera at least this share of the cells is in place at nearly all times.
STATIC_SHARE = 0.35
# Corners that span less of the image's width or height may be a caption's. Two lines of text span
# 0.2 (tests/pose2d/test_camera_motion.py).
LEAST_EXTENT = 0.25
# A frame shows parallax if this share of its corners has a residual, and this share of the
# residuals' energy follows lines through one point (noise gives a half).
PARALLAX_SHARE = 0.3
PARALLAX_ALIGNED = 0.8
PARALLAX_FRAMES = 0.2  # share of such frames that a moving camera has
# A camera that moves forwards looks like one that zooms. But a zoom leaves parallax in at most 6 %
# of the corners, in the worst tenth of the frames; forward motion leaves 18 % or more where depths
# differ by a sixth.
LEAST_ZOOM = 0.08
ZOOMED_SHARE = 0.12


@dataclass(frozen=True)
class FrameMeasurement:
    """What was measured in one frame."""

    frame: int
    pose: Pose
    parallax: Parallax
    corners: int  # that were followed; 0: none, and the pose is that of the frame before
    is_still: bool = False  # enough corners are where they were in the frame before
    # Share of the background's cells whose corners are where they were in the shot's first image.
    in_place: float = 1.0
    extent: float = 1.0  # smaller share of the image's sides over which corners are followed


def summarize_motion(
    frames: np.ndarray,
    measurements: list[FrameMeasurement],
    focal: float,
    focal_px: float,
    size: tuple[int, int],
) -> CameraMotion:
    """Return the camera motion of all frames: interpolated between measured ones, constant before
    the first and after the last.
    """
    kind, reason = decide_kind(measurements, focal, size)
    if kind in ("static", "unknown"):
        return motionless(kind, frames, focal_px, reason)
    poses = [m.pose for m in measurements]
    measured = np.array([m.frame for m in measurements], float)
    rotations = Rotation.from_matrix(np.stack([pose.first_from_camera for pose in poses]))
    steps = (rotations[:-1].inv() * rotations[1:]).as_rotvec()
    place = np.clip(np.searchsorted(measured, frames, side="right") - 1, 0, len(measured) - 2)
    gap = measured[place + 1] - measured[place]
    part = np.clip((frames - measured[place]) / gap, 0, 1)
    turned = (rotations[place] * Rotation.from_rotvec(steps[place] * part[:, None])).as_matrix()
    log_zoom = np.interp(frames, measured, [pose.log_zoom for pose in poses])
    return CameraMotion(kind, frames, turned, np.exp(log_zoom), focal_px, reason)


def decide_kind(
    measurements: list[FrameMeasurement], focal: float, size: tuple[int, int]
) -> tuple[Kind, str]:
    """Return the kind of camera and the reason for it in words."""
    usable = [m for m in measurements if m.corners > 0]
    if len(measurements) == 1 and usable and usable[0].corners >= LEAST_CORNERS:
        return "static", "one frame was looked at"
    if len(usable) < 2 or len(usable) < 0.5 * len(measurements):
        count = f"{len(usable)} of {len(measurements)}"
        return "unknown", f"the background shows corners in {count} frames looked at"
    if np.median([m.extent for m in usable[1:]]) < LEAST_EXTENT:
        return "unknown", "the background shows corners in one strip only, as a caption does"
    # Trees, water and people that were not detected move corners, but a moving camera leaves none
    # in place for long.
    in_place = float(np.quantile([m.in_place for m in usable], 0.05))
    if in_place >= STATIC_SHARE:
        share = f"{100 * in_place:.0f} %"
        return "static", f"at least {share} of the background's corners stay in place"
    shift = [image_shift_px(usable[0].pose, m.pose, focal, size) for m in usable]
    if np.quantile(shift, 0.95) < STATIC_PX:
        return "static", f"the background moves by less than {STATIC_PX} pixels of {max(size)}"
    parallax = [m.parallax for m in usable[1:]]
    has_parallax = [p.share >= PARALLAX_SHARE and p.aligned >= PARALLAX_ALIGNED for p in parallax]
    parallax_frames = float(np.mean(has_parallax))
    if parallax_frames >= PARALLAX_FRAMES:
        share = f"{100 * parallax_frames:.0f} %"
        return "moving", f"rotation and zoom leave parallax in {share} of the frames looked at"
    zoom_range = float(np.ptp([m.pose.log_zoom for m in usable]))
    zoom_text = f"{np.exp(zoom_range):.2f}"
    moved_share = np.quantile([p.share for p in parallax], 0.9)
    if zoom_range > LEAST_ZOOM and moved_share > ZOOMED_SHARE:
        return "moving", f"what looks like a zoom by {zoom_text} leaves parallax"
    rotations = Rotation.from_matrix(np.stack([m.pose.first_from_camera for m in usable]))
    turn = np.degrees(rotations.magnitude().max())
    return "rotating", f"the camera turns by up to {turn:.1f} degrees and zooms by {zoom_text}"
