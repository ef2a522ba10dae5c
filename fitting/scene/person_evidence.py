"""Gather what one person of a shot shows about gravity, floor and size."""

import math
from dataclasses import dataclass

import numpy as np

from fitting.body import Body
from fitting.camera.focal import FocalEstimate
from fitting.fits import TrackFit
from fitting.scene.contact import keypoint_sigma_px
from pose2d.base.scratch import release_scratch, scratch_array
from pose2d.base.table import blocks

PELVIS = 0
HIPS = (1, 2)
KNEES = (4, 5)
ANKLES = (7, 8)
TOES = (10, 11)
NECK = 12
SHOULDERS = (16, 17)
# Who moves head, hands and feet against the hips by less than this share of the height in
# LEAST_STILL_S is a mannequin or an image: its feet may be anywhere. People who stand as still as
# they can sway by more.
STILL_SHARE, LEAST_STILL_S = 0.006, 1.5
# A head tells the height of a person in so many frames, and of a body of so many pixels. Not tuned.
LEAST_HEAD_FRAMES, LEAST_HEAD_BODY_PX = 10, 60.0
_FOOT_KEYPOINTS = (15, 24, 20, 16, 25, 21)  # ankle, heel and toe, left and right, among Halpe's 26


@dataclass(frozen=True)
class PersonEvidence:
    """One person of a shot over the T frames that show them."""

    frames: np.ndarray  # [T] frame numbers of the shot, increasing
    joints_cam_m: (
        np.ndarray
    )  # [T, 24, 3] SMPL's joints in each frame's own camera, as fitted; NaN allowed
    observed: np.ndarray  # [T, 24] bool: the joint rests on something seen
    feet_px: (
        np.ndarray
    )  # [T, 6, 2] full-frame pixels of ankle, heel and toe of the left foot, then of the right
    feet_sigma_px: np.ndarray  # [T, 6] deviation; inf or NaN: not seen
    height_m: float  # of the fitted body, standing
    known_height_m: float | None = None  # that the person is known to have
    head_share: float = (
        math.nan
    )  # length from neck to crown over that from ankle to neck, in the image; NaN: not seen


@dataclass(frozen=True)
class ShotCamera:
    """The camera that the people were fitted with."""

    focal: FocalEstimate  # focal_px: what the fits used
    center_px: tuple[float, float]
    fps: float
    first_from_camera: np.ndarray | None = None  # [F, 3, 3] by frame number; None: static
    moving: bool = False  # the camera goes somewhere: standing feet do not stand still in the image
    vertical: np.ndarray | None = (
        None  # [3] against gravity, as lines of the background show it; None: they do not
    )


def never_moves(person: PersonEvidence, fps: float) -> bool:
    """Return whether this is a mannequin or an image."""
    joints = person.joints_cam_m[np.isfinite(person.joints_cam_m).all((1, 2))]
    if len(joints) < LEAST_STILL_S * fps or len(joints) < 5:
        return False
    limbs = (joints[:, (15, 20, 21, *ANKLES)] - joints[:, :1])[..., :2]
    spread = 1.48 * np.median(np.abs(limbs - np.median(limbs, axis=0)), axis=0).max(-1)
    return bool(np.median(spread) < STILL_SHARE * person.height_m)


def person_evidence(
    track: TrackFit, body: Body, rows: np.ndarray, known_height_m: float | None
) -> PersonEvidence:
    """Return what one person shows. rows [T]: places of the track's frames in the shot."""
    fit = track.fit
    joints = scratch_array((len(track), 24, 3), np.float64)
    for block in blocks(len(track)):
        part = fit.rows(block)
        joints[block] = np.where(
            part.observed.numpy()[:, None, None], body.at(part.params).joints.numpy(), np.nan
        )
    release_scratch()
    return PersonEvidence(
        frames=rows,
        joints_cam_m=joints,
        observed=track.joint_observed,
        feet_px=track.keypoints.xy_px.numpy()[:, _FOOT_KEYPOINTS].astype(float),
        feet_sigma_px=keypoint_sigma_px(track)[:, _FOOT_KEYPOINTS],
        height_m=body.height_m(fit.params.shape),
        known_height_m=known_height_m,
        head_share=shown_head_share(track),
    )


def shown_head_share(track: TrackFit) -> float:
    """Return the length from neck to crown over that from ankle to neck in the image.

    It is the lower quartile of the frames that show all of it; NaN where they are few, as in single
    images, or the person is small.
    """
    points = track.keypoints.xy_px.numpy()
    present = track.keypoints.presence.numpy() >= 0.5

    def length(a: int, b: int) -> np.ndarray:
        return np.linalg.norm(points[:, a] - points[:, b], axis=-1)

    complete = present[:, (11, 12, 13, 14, 15, 16, 17, 18, 19)].all(1) & track.detected
    if complete.sum() < LEAST_HEAD_FRAMES:
        return math.nan
    legs = np.maximum(length(11, 13) + length(13, 15), length(12, 14) + length(14, 16))
    head = length(17, 18)[complete]
    below = (length(18, 19) + legs)[complete]
    if np.median(head + below) < LEAST_HEAD_BODY_PX:
        return math.nan
    return float(np.quantile(head / np.maximum(below, 1e-6), 0.25))
