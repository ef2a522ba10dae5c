"""What fits of a shot's people say about gravity and floor: plumb lines, stance feet and steps
(`scene.ground`).

And which points of the feet are in contact. A point that bears weight stands still. Its speed is
measured in the image, with the camera's own motion taken out, in body heights per second, so that
it means the same near and far. The image shows little of motion along the line of sight; there the
fitted body speaks. How high a point is over the floor counts too when there is a floor.

Two hypotheses (in contact, free) with dwell times are filtered forwards and backwards in time: a
state is held until there is evidence against it (hysteresis), and the answer is a probability."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.ndimage import maximum_filter1d

from fitting.body import Body
from fitting.camera import Camera, FocalEstimate
from fitting.fits import TrackFit
from fitting.keypoints.observed import OBSERVED_PROBABILITY
from fitting.keypoints.weights import PRESENT, stated_error_px
from fitting.optimise import CONSTANT_ERROR_SHARE
from fitting.solver.terms.scene import FEET, foot_lifts
from pose2d.base.scratch import release_scratch, scratch_array
from pose2d.base.table import BLOCK, Table, blocks, column

WINDOW_S = 0.1  # half the time over which a speed is measured
SHARED_S = (
    0.1  # time within which speeds are one measurement: they share their windows, and noise is slow
)
# Speeds in body heights per second: of a point in contact (noise beside the stated one, rolling of
# the sole), and of a free one (mean of a gamma density). Feet of walking CMU subjects: 0.03 in the
# middle of a stance, 1.1 in a swing.
CONTACT_SPEED, FREE_SPEED = 0.04, 0.9
# Along the line of sight, where the image shows little, the fit tells: deviation in contact, and of
# free points.
CONTACT_DEPTH_SPEED, FREE_DEPTH_SPEED = 0.22, 0.8
# Height over the floor in contact, and of free points: a foot that swings clears the floor by a few
# centimetres.
HEIGHT_SIGMA_M, FREE_HEIGHT_M = 0.05, 0.12
ON, OFF = (
    0.8,
    0.6,
)  # hysteresis of `intervals`; against 0.6 and 0.4 on shots of `bench/world.py --choose`
_DWELL_S = (0.4, 0.5)  # mean time (free, in contact)
_MOST_LOG_ODDS = 6.0  # of one frame: no single measurement is beyond doubt


@dataclass(frozen=True)
class PointMotion:
    """N points of one body in the image over T frames."""

    time_s: np.ndarray  # [T] increasing
    ray: (
        np.ndarray
    )  # [T, N, 3] unit directions in the first camera's axes, the camera's rotation taken out
    sigma_rad: np.ndarray  # [T, N] of that direction, per axis; inf: not seen
    body_rad: np.ndarray  # [T] angle under which the standing body's height would be seen


def point_motion(
    xy_px: np.ndarray,
    sigma_px: np.ndarray,
    body_height_px: np.ndarray,
    time_s: np.ndarray,
    focal_px: np.ndarray | float,
    center_px: tuple[float, float],
    first_from_camera: np.ndarray | None = None,
) -> PointMotion:
    """From pixels [T, N, 2] with deviations [T, N] (inf or NaN: not seen). body_height_px [T]:
    height of the standing body at its depth; focal_px [T] or one number (zoom included);
    first_from_camera [T, 3, 3]: `CameraMotion`'s, None for a static camera."""
    focal = np.broadcast_to(np.asarray(focal_px, float), (len(xy_px),))
    ray = np.concatenate(
        ((xy_px - np.array(center_px)) / focal[:, None, None], np.ones((*xy_px.shape[:2], 1))), -1
    )
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    ray = np.where(seen[..., None], ray, np.array([0.0, 0.0, 1.0]))
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    if first_from_camera is not None:
        ray = np.einsum("tij,tnj->tni", first_from_camera, ray)
    sigma = np.where(
        seen, np.maximum(np.nan_to_num(sigma_px, posinf=0), 1e-3) / focal[:, None], np.inf
    )
    return PointMotion(
        np.asarray(time_s, float), ray, sigma, np.maximum(body_height_px / focal, 1e-4)
    )


def speeds(motion: PointMotion) -> tuple[np.ndarray, np.ndarray]:
    """Body heights per second [T, N] and their deviation per axis [T, N] (inf where too little is
    seen). A straight line through each point's neighbours in time, weighted by their precision."""
    t = motion.time_s
    count, points = motion.sigma_rad.shape
    speed = np.zeros((count, points))
    sigma = np.full((count, points), np.inf)
    weight = np.where(np.isfinite(motion.sigma_rad), 1 / np.square(motion.sigma_rad), 0)
    for i in range(count):
        low = np.searchsorted(t, t[i] - WINDOW_S - 1e-6)
        high = np.searchsorted(t, t[i] + WINDOW_S + 1e-6)
        if high - low < 3:
            low = max(0, i - 1)
            high = min(count, i + 2)
        w = weight[low:high]
        dt = (t[low:high] - t[i])[:, None]
        ray = motion.ray[low:high]
        total = np.maximum(w.sum(0), 1e-12)
        mid = (w * dt).sum(0) / total
        spread = (w * (dt - mid) ** 2).sum(0)
        slope = ((w * (dt - mid))[..., None] * ray).sum(0) / np.maximum(spread, 1e-12)[:, None]
        usable = ((w > 0).sum(0) >= 2) & (spread > 1e-9)
        speed[i] = np.where(usable, np.linalg.norm(slope, axis=-1), 0) / motion.body_rad[i]
        sigma[i] = np.where(usable, np.maximum(spread, 1e-12) ** -0.5, np.inf) / motion.body_rad[i]
    return speed, sigma


def depth_speeds(
    points_cam_m: np.ndarray, pelvis_cam_m: np.ndarray, time_s: np.ndarray, height_m: float
) -> np.ndarray:
    """Speed [T, N] along the optical axis, body heights per second, of fitted points [T, N, 3]; NaN
    where not fitted. A fit's depth is too noisy to be differentiated over a tenth of a second, but
    a pelvis moves evenly: its depth is followed over a second, and the points relative to it over a
    short window."""
    slow = _slope(pelvis_cam_m[:, None, 2], time_s, 0.5)
    fast = _slope(points_cam_m[..., 2] - pelvis_cam_m[:, None, 2], time_s, WINDOW_S)
    return (slow + fast) / height_m


def _slope(values: np.ndarray, time_s: np.ndarray, window_s: float) -> np.ndarray:
    """d/dt of values [T, N] by a straight line over +- window_s; NaN where the window has fewer
    than 3 of them.
    """
    result = np.full(values.shape, np.nan)
    for i in range(len(values)):
        near = slice(
            *np.searchsorted(time_s, (time_s[i] - window_s - 1e-6, time_s[i] + window_s + 1e-6))
        )
        dt = time_s[near]
        part = values[near]
        if len(dt) >= 3 and np.isfinite(part).all():
            dt = dt - dt.mean()
            result[i] = dt @ part / (dt @ dt)
    return result


def contact_probability(
    motion: PointMotion, depth_speed: np.ndarray | None = None, height_m: np.ndarray | None = None
) -> np.ndarray:
    """[T, N] probability that each point of the feet is in contact. depth_speed [T, N]: from
    `depth_speeds`, NaN where not known. height_m [T, N]: over the floor, NaN where not known; None
    without a floor."""
    speed, sigma = speeds(motion)
    log_odds = _speed_log_odds(speed, sigma)
    if depth_speed is not None:
        along = _normal_log_odds(depth_speed, CONTACT_DEPTH_SPEED, FREE_DEPTH_SPEED)
        log_odds = log_odds + np.where(np.isfinite(sigma), along, 0.0)
    if height_m is not None:
        over_m = np.maximum(height_m, 0.0)  # below the floor is as good as on it
        log_odds = log_odds + _normal_log_odds(
            over_m, HEIGHT_SIGMA_M, math.hypot(FREE_HEIGHT_M, HEIGHT_SIGMA_M)
        )
    # Speeds of neighbouring frames share their window: one independent measurement in each half
    # window.
    step = np.gradient(motion.time_s) if len(log_odds) > 1 else np.ones(1)
    log_odds = (
        np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        * np.minimum(1.0, step / SHARED_S)[:, None]
    )
    return _smoothed(log_odds, motion.time_s, *_DWELL_S)


def intervals(probability: np.ndarray, on: float = ON, off: float = OFF) -> list[tuple[int, int]]:
    """Spans [first, end) of one point's [T] of contact: all of them above `off`, somewhere above
    `on`.
    """
    above = np.concatenate(([False], probability >= off, [False]))
    edges = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2)
    return [(int(first), int(end)) for first, end in edges if (probability[first:end] >= on).any()]


def contacts(
    xy_px: np.ndarray,
    sigma_px: np.ndarray,
    points_cam_m: np.ndarray,
    pelvis_cam_m: np.ndarray,
    height_m: float,
    time_s: np.ndarray,
    view: tuple[float, tuple[float, float], np.ndarray | None],
    over_m: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """[T, N] probability of contact of points of the feet, zero outside of `intervals`, and whether
    each is seen: by pixels [T, N, 2] with deviations, and by the fitted body of this height. view:
    focal length in pixels, centre and rotations, as of `point_motion`; over_m: heights as of
    `contact_probability`."""
    focal_px, center_px, turn = view
    height_px = focal_px * height_m / np.maximum(np.nan_to_num(pelvis_cam_m[:, 2]), 0.2)
    motion = point_motion(xy_px, sigma_px, height_px, time_s, focal_px, center_px, turn)
    probability = contact_probability(
        motion, depth_speeds(points_cam_m, pelvis_cam_m, time_s, height_m), over_m
    )
    contact = np.zeros_like(probability)
    for point, each in enumerate(probability.T):
        for first, end in intervals(each):
            contact[first:end, point] = each[first:end]
    return contact, np.isfinite(motion.sigma_rad)


def _speed_log_odds(speed: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Rayleigh's density in contact against a gamma density (shape 2) in motion, both in the plane
    of the image.
    """
    seen = np.isfinite(sigma)
    noise = np.square(np.where(seen, sigma, 1.0))
    held2 = CONTACT_SPEED**2 + noise
    mean2 = (FREE_SPEED / 2) ** 2 + noise
    odds = np.log(mean2 / held2) - speed**2 / (2 * held2) + speed / np.sqrt(mean2)
    return np.where(seen, odds, 0.0)


def _normal_log_odds(value: np.ndarray, contact: float, free: float) -> np.ndarray:
    """Two normal densities around 0 with these deviations; 0 where the value is not known."""
    odds = math.log(free / contact) - np.nan_to_num(value) ** 2 / 2 * (1 / contact**2 - 1 / free**2)
    return np.where(np.isfinite(value), odds, 0.0)


def _smoothed(
    log_odds: np.ndarray, time_s: np.ndarray, free_s: float, contact_s: float
) -> np.ndarray:
    """Posterior of contact, of a two-state chain with these mean dwell times, [T, N]."""
    prior = np.array([free_s, contact_s]) / (free_s + contact_s)
    like = np.stack((np.ones_like(log_odds), np.exp(log_odds)), -1)  # [T, N, (free, in contact)]
    keep = np.exp(-np.diff(time_s) * (1 / free_s + 1 / contact_s))  # exp(Q dt) of a two-state chain

    def predicted(like: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """[T, N, 2] what all frames before say of each."""
        said = np.tile(prior, (*like.shape[:2], 1))
        for i, share in enumerate(keep):
            both = said[i] * like[i]
            said[i + 1] = share * both / both.sum(-1, keepdims=True) + (1 - share) * prior
        return said

    # The chain is the same in both directions of time.
    both = predicted(like, keep) * like * predicted(like[::-1], keep[::-1])[::-1] / prior
    return both[..., 1] / both.sum(-1)


PELVIS = 0
HIPS = (1, 2)
KNEES = (4, 5)
ANKLES = (7, 8)
TOES = (10, 11)
NECK = 12
SHOULDERS = (16, 17)

# Height of the ankle and toe joints over the sole, of the open body (1.70 m).
# of the body's height
ANKLE_OVER_SOLE = 0.072 / 1.70
TOE_OVER_SOLE = 0.031 / 1.70
# The neck lies in front of the ankles' middle: 5.9 degrees for walking, 6.3 for standing CMU
# subjects (deviation 1.7 between subjects), sideways 0.2 (1.0).
FORWARD_LEAN_DEG = 6.0
AXIS_IMAGE_DEG, AXIS_DEPTH_DEG = (
    2.0,
    7.0,
)  # deviation of one person's mean axis across and along the line of sight
LEG_SHARE = 0.5  # length of the legs, of the height
JOINT_M = 0.05  # of a foot relative to the pelvis: the median of what fits state of walkers
FOOT_M = 0.025  # of a stance point from the floor, beside its depth's error
DEPTH_LOG_SIGMA = 0.03  # of a fitted depth, as it changes over a shot
STEP_DEPTH_LOG_SIGMA = 0.015  # of how a fitted depth changes during one stance
STEP_GAIN_SIGMA = 0.18  # of how much fits shrink a leg's swing in depth, between shots
STRAIGHT_KNEE_DEG, STRAIGHT_HIP_DEG = 40.0, 40.0  # bends up to which somebody counts as standing
# Lunges and side bends are no plumb lines. Walkers' legs are up to STRIDE_DEG apart, their trunk
# within BENT_DEG of the line from their feet to their hips; they pass one leg by the other, so that
# in a quarter of the time these are closer than HELD_DEG, and bend their knees by turns, by
# UNLIKE_DEG at most in the median. Beyond, the axis is as uncertain as a share of the excess, and
# soon none at all.
STRIDE_DEG = 50.0
HELD_DEG = 34.0
BENT_DEG = 12.0
UNLIKE_DEG = 18.0
EXCESS = 0.7
MOST_EXCESS_DEG = 25.0
ALIKE = (
    0.15  # correlation of different people's leans: fits err by the same lens and the same habits
)
# Trunks of people who sit, kneel or squat: most lean, forwards or back, so each says little of
# gravity.
SEATED_HIP_DEG = 55.0
SEATED_IMAGE_DEG = 9.0
SEATED_DEPTH_DEG = 16.0
SEATED_FROM_UP_DEG = 40.0
# Who moves head, hands and feet against the hips by less than this share of the height in
# LEAST_STILL_S is a mannequin or a image: its feet may be anywhere. People who stand as still as
# they can sway by more.
STILL_SHARE, LEAST_STILL_S = 0.006, 1.5
# Feet of people who stand or walk are in contact nearly always, of people on a trampoline less than
# half of the time: these show no floor, and nothing holds them upright.
LEAST_IN_CONTACT, AIRBORNE_DEG = 0.5, 12.0
FARTHEST_FROM_UP_DEG = 65.0  # of a standing person's axis from the camera's own up direction
CHUNK_S = 0.5  # evidence of one person within this time is one measurement


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


@dataclass(frozen=True)
class PlumbLines(Table):
    """Axes of people who are upright, in the first camera's axes."""

    axis: np.ndarray = column((3,), "d", "unit")
    root: np.ndarray = column((3,), "d", "pelvis", unit="m")
    sigma: np.ndarray = column(
        (2,), "d", "deviation across and along the line of sight", unit="rad"
    )
    view_axis: np.ndarray = column((3,), "d", "optical axis at that time")


@dataclass(frozen=True)
class StanceFeet(Table):
    """Points of feet that bear weight, in the first camera's axes."""

    point: np.ndarray = column((3,), "d", "joint of the foot", unit="m")
    root: np.ndarray = column((3,), "d", "pelvis", unit="m")
    lift: np.ndarray = column((), "d", "of the joint over its sole", unit="m")
    sigma_m: np.ndarray = column((), "d", "deviation from the floor, beside the depth's", unit="m")
    person: np.ndarray = column((), "i", "whose")
    view_axis: np.ndarray = column((3,), "d", "optical axis at that time")


@dataclass(frozen=True)
class Evidence:
    """Everything that the problem needs."""

    plumb: PlumbLines
    feet: StanceFeet
    # [K, 5] metres along the optical axis from a stance's begin to its end: of the pelvis by its
    # depth, of the pelvis by the camera's turning, of the foot relative to the pelvis; the
    # deviation; and a weight, so that one person's steps together weigh as a few
    step: np.ndarray

    def without_feet(self) -> "Evidence":
        """Plumb lines alone."""
        return Evidence(self.plumb, self.feet.rows(slice(0)), self.step[:0])


def gathered(people: Sequence[PersonEvidence], camera: ShotCamera) -> tuple[Evidence, float]:
    """Also the seconds that people were upright."""
    plumb = [PlumbLines.empty()]
    feet = [StanceFeet.empty()]
    steps = [np.zeros((0, 5))]
    upright, standing_s = 0, 0.0  # people, and the time of all of them
    for number, person in enumerate(people):
        if len(person.frames) == 0 or never_moves(person, camera.fps):
            continue
        turn = np.broadcast_to(np.eye(3), (len(person.frames), 3, 3))
        if camera.first_from_camera is not None:
            turn = camera.first_from_camera[person.frames]
        standing = _upright(person)
        standing_s += float(standing.holds.sum()) / camera.fps
        stance = _stance(person, standing, turn, camera)
        if (
            stance.any(1).sum() < LEAST_IN_CONTACT * standing.holds.sum()
        ):  # somebody in the air need not be upright
            stance = np.zeros_like(stance)
            standing = replace(standing, deviation_deg=(AIRBORNE_DEG, AIRBORNE_DEG))
        lines = [
            _plumb_lines(person, posture, turn, camera) for posture in (standing, _seated(person))
        ]
        plumb = [*plumb, *lines]
        upright = upright + any(map(len, lines))
        feet.append(_stance_feet(person, number, stance, standing.excess_rad, turn, camera))
        if not camera.moving:
            steps.append(_steps(person, stance, turn, camera))
    together = PlumbLines.concat(plumb)
    wider = np.array([1.0, math.sqrt(1 + ALIKE * max(upright - 1, 0))])
    together = replace(together, sigma=together.sigma * wider)
    return Evidence(together, StanceFeet.concat(feet), np.concatenate(steps)), standing_s


def never_moves(person: PersonEvidence, fps: float) -> bool:
    """Whether this is a mannequin or a image."""
    joints = person.joints_cam_m[np.isfinite(person.joints_cam_m).all((1, 2))]
    if len(joints) < LEAST_STILL_S * fps or len(joints) < 5:
        return False
    limbs = (joints[:, (15, 20, 21, *ANKLES)] - joints[:, :1])[..., :2]
    spread = 1.48 * np.median(np.abs(limbs - np.median(limbs, axis=0)), axis=0).max(-1)
    return bool(np.median(spread) < STILL_SHARE * person.height_m)


@dataclass(frozen=True)
class _Axis:
    """Where a body points up, as far as its posture tells."""

    holds: np.ndarray  # [T] bool: the posture is one that tells
    axis: np.ndarray  # [T, 3]
    excess_rad: np.ndarray  # [T] deviation beside the usual one
    deviation_deg: tuple[
        float, float
    ]  # of one person's mean axis, across and along the line of sight


def _bend_deg(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Angle between directions [..., 3]."""
    size = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.degrees(
        np.arccos(np.clip(np.sum(first * second, -1) / np.maximum(size, 1e-9), -1, 1))
    )


def _upright(person: PersonEvidence) -> _Axis:
    """Who stands or walks, and the axis that then points up: from the pose alone. A leg that bears
    weight is nearly straight at knee and hip; lying people pass that too, so the axis must also be
    within reach of the camera's own up direction. Legs wide apart and a bent trunk make it
    uncertain."""
    joints = person.joints_cam_m
    finite = np.isfinite(joints).all((1, 2))
    joints = np.where(finite[:, None, None], joints, 0.0)
    neck = joints[:, NECK]
    pelvis = joints[:, PELVIS]
    ankles = joints[:, ANKLES]
    thigh = joints[:, HIPS] - joints[:, KNEES]  # upwards
    shank = joints[:, KNEES] - ankles
    knees = _bend_deg(thigh, shank)
    straight = (knees < STRAIGHT_KNEE_DEG) & (
        _bend_deg(thigh, (neck - pelvis)[:, None]) < STRAIGHT_HIP_DEG
    )
    axis = _without_forward_lean(neck - ankles.mean(1), joints[:, HIPS[1]] - joints[:, HIPS[0]])
    near_up = _bend_deg(axis, np.array([0.0, -1.0, 0.0])) < FARTHEST_FROM_UP_DEG
    seen = person.observed[:, ANKLES].any(1) & person.observed[:, SHOULDERS].any(1)
    stride = _bend_deg(ankles[:, 0] - pelvis, ankles[:, 1] - pelvis)
    bent = _bend_deg(neck - pelvis, pelvis - ankles.mean(1))
    unlike = float(np.median(np.abs(knees[:, 0] - knees[:, 1]))) if len(knees) else 0.0
    held = float(np.quantile(stride, 0.25)) if len(stride) else 0.0
    always = math.hypot(max(unlike - UNLIKE_DEG, 0.0), max(held - HELD_DEG, 0.0))
    excess = np.hypot(np.maximum(stride - STRIDE_DEG, 0), np.maximum(bent - BENT_DEG, 0))
    excess = EXCESS * np.hypot(excess, always)
    holds = (
        straight.any(1)
        & near_up
        & seen
        & finite
        & (joints[:, PELVIS, 2] > 0.2)
        & (excess < MOST_EXCESS_DEG)
    )
    return _Axis(holds, axis, np.radians(excess), (AXIS_IMAGE_DEG, AXIS_DEPTH_DEG))


def _seated(person: PersonEvidence) -> _Axis:
    """Who sits, kneels or squats with both hips bent, and their trunk."""
    joints = person.joints_cam_m
    finite = np.isfinite(joints).all((1, 2))
    joints = np.where(finite[:, None, None], joints, 0.0)
    trunk = joints[:, NECK] - joints[:, PELVIS]
    bent = _bend_deg(joints[:, HIPS] - joints[:, KNEES], trunk[:, None]).min(1) > SEATED_HIP_DEG
    near_up = _bend_deg(trunk, np.array([0.0, -1.0, 0.0])) < SEATED_FROM_UP_DEG
    seen = person.observed[:, HIPS].all(1) & person.observed[:, SHOULDERS].all(1)
    trunk = trunk / np.maximum(np.linalg.norm(trunk, axis=-1, keepdims=True), 1e-9)
    holds = bent & near_up & seen & finite & (joints[:, PELVIS, 2] > 0.2)
    return _Axis(holds, trunk, np.zeros(len(joints)), (SEATED_IMAGE_DEG, SEATED_DEPTH_DEG))


def _without_forward_lean(axis: np.ndarray, to_the_right: np.ndarray) -> np.ndarray:
    """The axis [T, 3] turned back about the body's own left-right direction by the mean lean of
    people.
    """
    axis = axis / np.maximum(np.linalg.norm(axis, axis=-1, keepdims=True), 1e-9)
    right = to_the_right - np.sum(to_the_right * axis, -1, keepdims=True) * axis
    right = right / np.maximum(np.linalg.norm(right, axis=-1, keepdims=True), 1e-9)
    forward = np.cross(axis, right)
    lean = math.radians(FORWARD_LEAN_DEG)
    return math.cos(lean) * axis - math.sin(lean) * forward


def _chunks(frames: np.ndarray, keep: np.ndarray, fps: float) -> list[np.ndarray]:
    """Indices of kept frames, in groups of at most CHUNK_S."""
    index = np.flatnonzero(keep)
    if len(index) == 0:
        return []
    group = np.floor(frames[index] / max(fps * CHUNK_S, 1.0)).astype(int)
    return np.split(index, np.flatnonzero(np.diff(group)) + 1)


def _plumb_lines(
    person: PersonEvidence, posture: _Axis, turn: np.ndarray, camera: ShotCamera
) -> PlumbLines:
    holds = posture.holds
    axis = posture.axis
    chunks = _chunks(person.frames, holds, camera.fps)
    # Posture is one error however long somebody stands; who walks changes it with every step.
    roots = np.einsum("tij,tj->ti", turn, np.nan_to_num(person.joints_cam_m[:, PELVIS]))
    walked_m = float(np.linalg.norm(np.ptp(roots[holds], axis=0))) if holds.any() else 0.0
    spread = max(1.0, len(chunks) / min(1 + walked_m, 3.0)) ** 0.5
    rows = []
    for index in chunks:
        in_first = np.einsum("tij,tj->ti", turn[index], axis[index])
        mean = np.median(in_first, axis=0)
        mean /= max(np.linalg.norm(mean), 1e-9)
        scatter = math.hypot(
            float(np.radians(np.median(_bend_deg(in_first, mean)))) / 2,
            float(np.median(posture.excess_rad[index])),
        )
        sigma = [math.hypot(math.radians(s), scatter) * spread for s in posture.deviation_deg]
        root = np.einsum("tij,tj->ti", turn[index], person.joints_cam_m[index, PELVIS]).mean(0)
        rows.append(PlumbLines(mean, root, np.array(sigma), turn[index, :, 2].mean(0)))
    return PlumbLines.stack(rows)


def _stance(
    person: PersonEvidence, standing: _Axis, turn: np.ndarray, camera: ShotCamera
) -> np.ndarray:
    """[T, 4] whether left ankle, left toe, right ankle, right toe bear the weight of somebody
    upright.
    """
    joints = person.joints_cam_m
    if (
        camera.moving or len(joints) == 1
    ):  # nothing tells what is in contact: the lower foot along the body's own axis
        low = -np.einsum("tkj,tj->tk", joints[:, (*ANKLES, *TOES)], standing.axis)
        left = low[:, (0, 2)].max(1)
        right = low[:, (1, 3)].max(1)
        return (
            np.stack((left > right, left > right, right > left, right > left), 1)
            & standing.holds[:, None]
        )
    contact, seen = contacts(
        person.feet_px,
        person.feet_sigma_px,
        joints[:, (7, 7, 10, 8, 8, 11)],
        joints[:, PELVIS],
        person.height_m,
        person.frames / camera.fps,
        (camera.focal.focal_px, camera.center_px, turn),
    )
    touches = (contact > 0) & seen
    # The ankle tells of the heel where no heel is seen: it stays put until the heel lifts.
    heel = np.where(seen[:, (1, 4)], touches[:, (1, 4)], touches[:, (0, 3)])
    toe = touches[:, (2, 5)]
    return np.stack((heel[:, 0], toe[:, 0], heel[:, 1], toe[:, 1]), 1) & standing.holds[:, None]


def _stance_feet(
    person: PersonEvidence,
    number: int,
    stance: np.ndarray,
    excess_rad: np.ndarray,
    turn: np.ndarray,
    camera: ShotCamera,
) -> StanceFeet:
    """excess_rad [T]: of the posture. Legs of lunges are seen badly in depth, and so is where their
    feet are.
    """
    joints = np.einsum("tij,tkj->tki", turn, np.nan_to_num(person.joints_cam_m))
    rows = []
    which = (ANKLES[0], TOES[0], ANKLES[1], TOES[1])
    for point, joint in enumerate(which):
        lift = person.height_m * (ANKLE_OVER_SOLE if joint in ANKLES else TOE_OVER_SOLE)
        for index in _chunks(
            person.frames, stance[:, point] & person.observed[:, joint], camera.fps
        ):
            sigma = 3 * FOOT_M if camera.moving or len(joints) == 1 else FOOT_M
            sigma = math.hypot(
                sigma, JOINT_M, LEG_SHARE * person.height_m * float(np.median(excess_rad[index]))
            )
            place = joints[index, joint].mean(0)
            root = joints[index, PELVIS].mean(0)
            of_foot = np.array(lift), np.array(sigma), np.array(number)
            rows.append(StanceFeet(place, root, *of_foot, turn[index, :, 2].mean(0)))
    return StanceFeet.stack(rows)


def _steps(
    person: PersonEvidence, stance: np.ndarray, turn: np.ndarray, camera: ShotCamera
) -> np.ndarray:
    """[K, 5] how pelvis and foot move along the optical axis while a foot stands, from its first to
    its last fifth.
    """
    rows = []
    joints = np.nan_to_num(person.joints_cam_m)
    for side, joint in enumerate(ANKLES):
        stands = stance[:, 2 * side] & person.observed[:, joint]
        for first, end in intervals(stands.astype(float)):
            ends = max(1, (end - first) // 5)
            if end - first < 0.25 * camera.fps or person.frames[end - 1] - person.frames[
                first
            ] >= 1.5 * (end - first):
                continue
            view = turn[first:end, :, 2].mean(0)
            view /= np.linalg.norm(view)
            root = joints[first:end, PELVIS]
            relative = joints[first:end, joint] - joints[first:end, PELVIS]
            along = (
                turn[first:end].swapaxes(1, 2) @ view
            )  # the mean optical axis in each frame's camera
            parts = (
                root[:, 2] * along[:, 2],
                root[:, 0] * along[:, 0] + root[:, 1] * along[:, 1],
                np.sum(relative * along, 1),
            )
            change = [float(part[-ends:].mean() - part[:ends].mean()) for part in parts]
            sigma = math.hypot(
                STEP_DEPTH_LOG_SIGMA * float(root[:, 2].mean()), FOOT_M, STEP_GAIN_SIGMA * change[2]
            )
            rows.append((*change, sigma))
    share = min(1.0, (8 / max(len(rows), 1)) ** 0.5)
    return np.array([(*row, share) for row in rows]).reshape(-1, 5)


_FOOT_KEYPOINTS = (15, 24, 20, 16, 25, 21)  # ankle, heel and toe, left and right, among Halpe's 26
# A foot in contact so far from the floor stands on something else. Feet of people on the floor are
# found within 0.1 m.
OFF_FLOOR_M = 0.2
UNSEEN_S = 0.1


def keypoint_sigma_px(track: TrackFit) -> np.ndarray:
    """[T, 26] deviation of the keypoints that count as seen, as it changes over time; inf: not
    seen. Of the core of the stated distribution: whoever is in its tail is plainly wrong, and
    mostly so in all neighbouring frames. The constant share of an error moves no keypoint."""
    if len(track) > BLOCK:
        return np.concatenate([keypoint_sigma_px(track.rows(some)) for some in blocks(len(track))])
    points = track.keypoints
    weight, sigma_px = stated_error_px(replace(points, xy_px=torch.nan_to_num(points.xy_px)))
    sigma = (
        (1 - CONSTANT_ERROR_SHARE) ** 0.5 * (weight / sigma_px.square()).sum(-1).rsqrt()
    ).numpy()
    seen = track.keypoint_observed >= OBSERVED_PROBABILITY
    seen &= (points.presence.numpy() >= PRESENT) & track.detected[:, None]
    return np.where(seen, sigma, np.inf)


def person_evidence(
    track: TrackFit, body: Body, rows: np.ndarray, known_height_m: float | None
) -> PersonEvidence:
    """rows [T]: the places of the track's frames among those of the shot."""
    fit = track.fit
    joints = scratch_array((len(track), 24, 3), np.float64)
    for some in blocks(len(track)):
        part = fit.rows(some)
        joints[some] = np.where(
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
    """Neck to crown over ankle to neck in the image, median of the frames that show all of it; NaN:
    too few do.
    """
    points = track.keypoints.xy_px.numpy()
    seen = track.keypoints.presence.numpy() >= 0.5

    def length(a: int, b: int) -> np.ndarray:
        return np.linalg.norm(points[:, a] - points[:, b], axis=-1)

    whole = seen[:, (11, 12, 13, 14, 15, 16, 17, 18, 19)].all(1) & track.detected
    if whole.sum() < min(3, len(track)):
        return math.nan
    legs = np.maximum(length(11, 13) + length(13, 15), length(12, 14) + length(14, 16))
    return float(np.median((length(17, 18) / np.maximum(length(18, 19) + legs, 1e-6))[whole]))


def foot_contacts(
    track: TrackFit,
    body: Body,
    time_s: np.ndarray,
    camera: Camera,
    first_from_camera: np.ndarray | None,
    up: np.ndarray,
    floor_m: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """[T, 4] probability that each of FEET is in contact, zero outside of `intervals`, and that it
    is on the floor. track: the body at size 1, as the ground has it. first_from_camera [T, 3, 3];
    None: the camera does not turn. floor_m: up . x of the floor at the body's size 1; None: not
    known."""
    params = track.fit.params
    focal_px = camera.mean_focal_px
    turn = (
        np.broadcast_to(np.eye(3), (len(params), 3, 3))
        if first_from_camera is None
        else first_from_camera
    )
    points_cam = np.empty((len(params), len(FEET), 3))
    pelvis = np.empty((len(params), 3))
    sigma = np.zeros((len(params), len(FEET)))
    for some in blocks(len(params)):
        part = track.rows(some)
        at = body.at(part.fit.params)
        points_cam[some] = at.keypoints[:, FEET].numpy()
        pelvis[some] = at.joints[:, 0].numpy()
        sigma[some] = keypoint_sigma_px(part)[:, FEET]
        release_scratch()
    height_m = body.height_m(params.shape)
    xy = track.keypoints.xy_px[:, FEET].numpy()
    over = None
    if floor_m is not None:
        points = np.einsum("tij,tnj->tni", turn, points_cam)
        over = points @ up - floor_m - foot_lifts(body).double().numpy()
    # Feet far over the floor may stand on a step: their speed decides.
    told = None if over is None else np.where(over > OFF_FLOOR_M, np.nan, over)
    view = focal_px, camera.center_px, first_from_camera
    contact, seen = contacts(xy, sigma, points_cam, pelvis, height_m, time_s, view, told)
    contact *= _near_in_time(seen & track.fit.observed.numpy()[:, None], time_s)
    if over is None:
        return contact, np.zeros_like(contact)
    return contact, contact * (np.abs(over) < OFF_FLOOR_M)


def _near_in_time(seen: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """[T, n] whether a point is seen within UNSEEN_S of each frame: one missed once is in contact
    all the same.
    """
    step = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 1.0
    reach = max(0, round(UNSEEN_S / max(step, 1e-6)))
    return maximum_filter1d(seen.astype(np.uint8), 2 * reach + 1, axis=0, mode="constant") > 0
