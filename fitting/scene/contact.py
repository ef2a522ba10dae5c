"""Find which points of the feet are in contact with what they stand on.

A point that bears weight stands still. Its speed is measured in the image, with the camera's own
motion taken out, in body heights per second, so that it means the same near and far. The image
shows little of motion along the line of sight; there the fitted body speaks. The height of a point
over the floor counts too when there is a floor.

Two hypotheses (in contact, free) with dwell times are filtered forwards and backwards in time: a
state is held until there is evidence against it (hysteresis), and the answer is a probability."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.ndimage import maximum_filter1d

from fitting.body import Body
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.keypoints.observed import OBSERVED_PROBABILITY
from fitting.keypoints.weights import PRESENT, stated_error_px
from fitting.problem_setup import CONSTANT_ERROR_SHARE
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.floor import foot_lifts
from pose2d.base.scratch import release_scratch
from pose2d.base.table import BLOCK, blocks

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
# A foot in contact so far from the floor stands on something else. Feet of people on the floor are
# found within 0.1 m.
OFF_FLOOR_M = 0.2
UNSEEN_S = 0.1


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
    """Return the motion of points from pixels [T, N, 2] with deviations [T, N] (inf, NaN: not seen).

    body_height_px [T]: height of the standing body at its depth; focal_px [T] or one number (zoom
    included); first_from_camera [T, 3, 3]: `CameraMotion`'s, None for a static camera.
    """
    focal = np.broadcast_to(np.asarray(focal_px, float), (len(xy_px),))
    ray = np.concatenate(
        ((xy_px - np.array(center_px)) / focal[:, None, None], np.ones((*xy_px.shape[:2], 1))), -1
    )
    is_visible = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    ray = np.where(is_visible[..., None], ray, np.array([0.0, 0.0, 1.0]))
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    if first_from_camera is not None:
        ray = np.einsum("tij,tnj->tni", first_from_camera, ray)
    sigma = np.where(
        is_visible, np.maximum(np.nan_to_num(sigma_px, posinf=0), 1e-3) / focal[:, None], np.inf
    )
    return PointMotion(
        np.asarray(time_s, float), ray, sigma, np.maximum(body_height_px / focal, 1e-4)
    )


def speeds(motion: PointMotion) -> tuple[np.ndarray, np.ndarray]:
    """Return body heights per second [T, N] and their deviation per axis [T, N] (inf: too little is
    seen), from a straight line through each point's neighbours in time, weighted by precision.
    """
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
    for point, point_probability in enumerate(probability.T):
        for first, end in intervals(point_probability):
            contact[first:end, point] = point_probability[first:end]
    return contact, np.isfinite(motion.sigma_rad)


def _speed_log_odds(speed: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Rayleigh's density in contact against a gamma density (shape 2) in motion, both in the plane
    of the image.
    """
    is_visible = np.isfinite(sigma)
    noise = np.square(np.where(is_visible, sigma, 1.0))
    held2 = CONTACT_SPEED**2 + noise
    mean2 = (FREE_SPEED / 2) ** 2 + noise
    odds = np.log(mean2 / held2) - speed**2 / (2 * held2) + speed / np.sqrt(mean2)
    return np.where(is_visible, odds, 0.0)


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
        """Return the probability [T, N, 2] of each state, given all frames before."""
        said = np.tile(prior, (*like.shape[:2], 1))
        for i, share in enumerate(keep):
            posterior = said[i] * like[i]
            said[i + 1] = share * posterior / posterior.sum(-1, keepdims=True) + (1 - share) * prior
        return said

    # The chain is the same in both directions of time.
    posterior = predicted(like, keep) * like * predicted(like[::-1], keep[::-1])[::-1] / prior
    return posterior[..., 1] / posterior.sum(-1)


def keypoint_sigma_px(track: TrackFit) -> np.ndarray:
    """Return the deviation [T, 26] of visible keypoints, as it changes over time; inf: not visible.

    It is that of the core of the stated distribution: a keypoint in its tail is plainly wrong, and
    mostly so in all neighbouring frames. The constant share of an error moves no keypoint.
    """
    if len(track) > BLOCK:
        return np.concatenate(
            [keypoint_sigma_px(track.rows(block)) for block in blocks(len(track))]
        )
    points = track.keypoints
    weight, sigma_px = stated_error_px(replace(points, xy_px=torch.nan_to_num(points.xy_px)))
    sigma = (
        (1 - CONSTANT_ERROR_SHARE) ** 0.5 * (weight / sigma_px.square()).sum(-1).rsqrt()
    ).numpy()
    is_visible = track.keypoint_observed >= OBSERVED_PROBABILITY
    is_visible &= (points.presence.numpy() >= PRESENT) & track.detected[:, None]
    return np.where(is_visible, sigma, np.inf)


def foot_contacts(
    track: TrackFit,
    body: Body,
    time_s: np.ndarray,
    camera: Camera,
    first_from_camera: np.ndarray | None,
    up: np.ndarray,
    floor_m: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability [T, 4] that each of FEET is in contact, zero outside of `intervals`,
    and that it is on the floor.

    track: the body at size 1, as the ground has it. first_from_camera [T, 3, 3]; None: the camera
    does not turn. floor_m: up . x of the floor at the body's size 1; None: not known.
    """
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
    for block in blocks(len(params)):
        part = track.rows(block)
        posed = body.at(part.fit.params)
        points_cam[block] = posed.keypoints[:, FEET].numpy()
        pelvis[block] = posed.joints[:, 0].numpy()
        sigma[block] = keypoint_sigma_px(part)[:, FEET]
        release_scratch()
    height_m = body.height_m(params.shape)
    xy = track.keypoints.xy_px[:, FEET].numpy()
    over = None
    if floor_m is not None:
        points = np.einsum("tij,tnj->tni", turn, points_cam)
        over = points @ up - floor_m - foot_lifts(body).double().numpy()
    # Feet far over the floor may stand on a step: their speed decides.
    usable_height_m = None if over is None else np.where(over > OFF_FLOOR_M, np.nan, over)
    view = focal_px, camera.center_px, first_from_camera
    contact, is_visible = contacts(
        xy, sigma, points_cam, pelvis, height_m, time_s, view, usable_height_m
    )
    contact *= _near_in_time(is_visible & track.fit.observed.numpy()[:, None], time_s)
    if over is None:
        return contact, np.zeros_like(contact)
    return contact, contact * (np.abs(over) < OFF_FLOOR_M)


def _near_in_time(is_visible: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Return whether a point is visible within UNSEEN_S of each frame [T, n]: a point that is
    missed once is in contact all the same.
    """
    step = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 1.0
    reach = max(0, round(UNSEEN_S / max(step, 1e-6)))
    return maximum_filter1d(is_visible.astype(np.uint8), 2 * reach + 1, axis=0, mode="constant") > 0
