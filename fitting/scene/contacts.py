"""Which points of a body rest on something: heels and toes, and hands, knees and seat when they bear weight.

A point that bears weight stands still. Its speed is measured in the image, with the camera's own motion taken out, in
body heights per second, so that it means the same near and far. The image shows little of motion along the line of
sight; there the fitted body speaks. How high a point is over the floor counts too when there is a floor.

Two hypotheses (resting, free) with dwell times are filtered forwards and backwards in time: a state is held until there
is evidence against it (hysteresis), and the answer is a probability.
"""

from dataclasses import dataclass

import numpy as np

WINDOW_S = 0.1  # half the time over which a speed is measured
SHARED_S = 0.1  # time within which speeds are one measurement: they share their windows, and noise is slow
# Speeds in body heights per second: of a resting point (noise beside the stated one, rolling of the sole), and of a
# free one (mean of a gamma density). Feet of walking CMU subjects: 0.03 in the middle of a stance, 1.1 in a swing.
REST_SPEED, FREE_SPEED = 0.04, 0.9
# Along the line of sight, where the image shows little, the fit tells: deviation at rest, and of free points.
REST_DEPTH_SPEED, FREE_DEPTH_SPEED = 0.22, 0.8
# Height over the floor at rest, and of free points: a foot that swings clears the floor by a few centimetres.
HEIGHT_SIGMA_M, FREE_HEIGHT_M = 0.05, 0.12
ON, OFF = 0.8, 0.6  # hysteresis of `intervals`; against 0.6 and 0.4 on shots of `bench/world.py --choose`
_DWELL_S = {"foot": (0.4, 0.5), "other": (6.0, 1.0)}  # mean time (free, resting)
_SEAT_THIGH_DEG = (45.0, 70.0)  # of the thigh from vertical: standing below, sitting above
_MOST_LOG_ODDS = 6.0  # of one frame: no single measurement is beyond doubt


@dataclass(frozen=True)
class PointMotion:
    """N points of one body in the image over T frames."""

    time_s: np.ndarray  # [T] increasing
    ray: np.ndarray  # [T, N, 3] unit directions in the first camera's axes, the camera's rotation taken out
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
    """From pixels [T, N, 2] with deviations [T, N] (inf or NaN: not seen).

    body_height_px [T]: height of the standing body at its depth; focal_px [T] or one number (zoom included);
    first_from_camera [T, 3, 3]: `CameraMotion`'s, None for a static camera.
    """
    focal = np.broadcast_to(np.asarray(focal_px, float), (len(xy_px),))
    ray = np.concatenate(
        ((xy_px - np.array(center_px)) / focal[:, None, None], np.ones((*xy_px.shape[:2], 1))), -1
    )  # fmt: skip
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    ray = np.where(seen[..., None], ray, np.array([0.0, 0.0, 1.0]))
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    if first_from_camera is not None:
        ray = np.einsum("tij,tnj->tni", first_from_camera, ray)
    sigma = np.where(seen, np.maximum(np.nan_to_num(sigma_px, posinf=0), 1e-3) / focal[:, None], np.inf)
    return PointMotion(np.asarray(time_s, float), ray, sigma, np.maximum(body_height_px / focal, 1e-4))


def speeds(motion: PointMotion) -> tuple[np.ndarray, np.ndarray]:
    """Body heights per second [T, N] and their deviation per axis [T, N] (inf where too little is seen).

    A straight line through each point's neighbours in time, weighted by their precision.
    """
    t = motion.time_s
    count, points = motion.sigma_rad.shape
    speed, sigma = np.zeros((count, points)), np.full((count, points), np.inf)
    weight = np.where(np.isfinite(motion.sigma_rad), 1 / np.square(motion.sigma_rad), 0)
    for i in range(count):
        low, high = np.searchsorted(t, t[i] - WINDOW_S - 1e-6), np.searchsorted(t, t[i] + WINDOW_S + 1e-6)
        if high - low < 3:
            low, high = max(0, i - 1), min(count, i + 2)
        w, dt, ray = weight[low:high], (t[low:high] - t[i])[:, None], motion.ray[low:high]
        total = np.maximum(w.sum(0), 1e-12)
        mid = (w * dt).sum(0) / total
        spread = (w * (dt - mid) ** 2).sum(0)
        slope = ((w * (dt - mid))[..., None] * ray).sum(0) / np.maximum(spread, 1e-12)[:, None]
        usable = ((w > 0).sum(0) >= 2) & (spread > 1e-9)
        speed[i] = np.where(usable, np.linalg.norm(slope, axis=-1), 0) / motion.body_rad[i]
        sigma[i] = np.where(usable, np.maximum(spread, 1e-12) ** -0.5, np.inf) / motion.body_rad[i]
    return speed, sigma


def depth_speeds(points_cam_m: np.ndarray, pelvis_cam_m: np.ndarray, time_s: np.ndarray, height_m: float) -> np.ndarray:
    """Speed [T, N] along the optical axis, body heights per second, of fitted points [T, N, 3]; NaN where not fitted.

    A fit's depth is too noisy to be differentiated over a tenth of a second, but a pelvis moves evenly: its depth is
    followed over a second, and the points relative to it over a short window.
    """
    slow = _slope(pelvis_cam_m[:, None, 2], time_s, 0.5)
    fast = _slope(points_cam_m[..., 2] - pelvis_cam_m[:, None, 2], time_s, WINDOW_S)
    return (slow + fast) / height_m


def _slope(values: np.ndarray, time_s: np.ndarray, window_s: float) -> np.ndarray:
    """d/dt of values [T, N] by a straight line over +- window_s; NaN where the window has fewer than 3 of them."""
    result = np.full(values.shape, np.nan)
    for i in range(len(values)):
        near = slice(*np.searchsorted(time_s, (time_s[i] - window_s - 1e-6, time_s[i] + window_s + 1e-6)))
        dt, part = time_s[near], values[near]
        if len(dt) >= 3 and np.isfinite(part).all():
            dt = dt - dt.mean()
            result[i] = dt @ part / (dt @ dt)
    return result


def contact_probability(
    motion: PointMotion,
    depth_speed: np.ndarray | None = None,
    height_m: np.ndarray | None = None,
    height_sigma_m: float = HEIGHT_SIGMA_M,
    pose_log_odds: np.ndarray | None = None,
    is_foot: np.ndarray | None = None,
) -> np.ndarray:
    """[T, N] probability that each point rests on something.

    depth_speed [T, N]: from `depth_speeds`, NaN where not known. height_m [T, N]: over the floor, NaN where not known;
    None without a floor. pose_log_odds [T, N]: what the pose says (`seat_log_odds` for the pelvis). is_foot [N]: all
    unless given; other points rest rarely, and never without evidence from height or pose.
    """
    count, points = motion.sigma_rad.shape
    foot = np.ones(points, bool) if is_foot is None else np.asarray(is_foot, bool)
    speed, sigma = speeds(motion)
    log_odds = _speed_log_odds(speed, sigma)
    if depth_speed is not None:
        log_odds = log_odds + np.where(np.isfinite(sigma), _depth_speed_log_odds(depth_speed), 0.0)
    told = np.broadcast_to(foot, (count, points)).copy()
    if height_m is not None:
        by_height = _height_log_odds(height_m, height_sigma_m)
        log_odds = log_odds + by_height
        told |= np.isfinite(height_m)
    if pose_log_odds is not None:
        log_odds = log_odds + np.nan_to_num(pose_log_odds)
        told |= pose_log_odds > 0
    # Speeds of neighbouring frames share their window: one independent measurement in each half window.
    step = np.gradient(motion.time_s) if count > 1 else np.ones(1)
    log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS) * np.minimum(1.0, step / SHARED_S)[:, None]
    probability = np.zeros((count, points))
    for kind, which in (("foot", foot), ("other", ~foot)):
        if which.any():
            probability[:, which] = _smoothed(log_odds[:, which], motion.time_s, *_DWELL_S[kind])
    return np.where(told, probability, 0.0)


def seat_log_odds(joints_m: np.ndarray, up: np.ndarray) -> np.ndarray:
    """[T] whether somebody sits, from joints [T, 24, 3] and the up direction [3] or [T, 3]: both thighs lie flat."""
    thigh = joints_m[:, (4, 5)] - joints_m[:, (1, 2)]
    thigh = thigh / np.maximum(np.linalg.norm(thigh, axis=-1, keepdims=True), 1e-9)
    drop = -np.sum(thigh * np.broadcast_to(up, (len(joints_m), 3))[:, None], -1)
    angle = np.degrees(np.arccos(np.clip(drop, -1, 1))).min(1)
    low, high = _SEAT_THIGH_DEG
    return np.clip(6 * (angle - (low + high) / 2) / (high - low), -_MOST_LOG_ODDS, 3.0)


def intervals(probability: np.ndarray, on: float = ON, off: float = OFF) -> list[tuple[int, int]]:
    """Spans [first, end) of one point's [T] during which it rests: all of them above `off`, somewhere above `on`."""
    above = np.concatenate(([False], probability >= off, [False]))
    edges = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2)
    return [(int(first), int(end)) for first, end in edges if (probability[first:end] >= on).any()]


def _speed_log_odds(speed: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Rayleigh's density at rest against a gamma density (shape 2) in motion, both in the plane of the image."""
    seen = np.isfinite(sigma)
    noise = np.square(np.where(seen, sigma, 1.0))
    rest2 = REST_SPEED**2 + noise
    mean2 = (FREE_SPEED / 2) ** 2 + noise
    odds = np.log(mean2 / rest2) - speed**2 / (2 * rest2) + speed / np.sqrt(mean2)
    return np.where(seen, odds, 0.0)


def _depth_speed_log_odds(speed: np.ndarray) -> np.ndarray:
    """Two normal densities."""
    rest2, free2 = REST_DEPTH_SPEED**2, FREE_DEPTH_SPEED**2
    odds = 0.5 * np.log(free2 / rest2) - np.nan_to_num(speed) ** 2 / 2 * (1 / rest2 - 1 / free2)
    return np.where(np.isfinite(speed), odds, 0.0)


def _height_log_odds(height_m: np.ndarray, sigma_m: float) -> np.ndarray:
    """A normal density around the floor against a wider one; below the floor is as good as on it."""
    h = np.maximum(np.nan_to_num(height_m), 0.0)
    wide2 = FREE_HEIGHT_M**2 + sigma_m**2
    odds = 0.5 * np.log(wide2 / sigma_m**2) - h**2 / 2 * (1 / sigma_m**2 - 1 / wide2)
    return np.where(np.isfinite(height_m), odds, 0.0)


def _smoothed(log_odds: np.ndarray, time_s: np.ndarray, free_s: float, resting_s: float) -> np.ndarray:
    """Posterior of the resting state of a two-state chain with these mean dwell times, [T, N]."""
    count, points = log_odds.shape
    share = resting_s / (free_s + resting_s)
    like = np.stack((np.ones_like(log_odds), np.exp(log_odds)), -1)  # [T, N, (free, resting)]
    prior = np.array([1 - share, share])
    forward = np.zeros((count, points, 2))
    forward[0] = prior * like[0]
    forward[0] /= forward[0].sum(-1, keepdims=True)
    # exp(Q dt) of a two-state chain
    keep = np.exp(-np.diff(time_s) * (1 / free_s + 1 / resting_s))
    move = keep[:, None, None] * np.eye(2) + (1 - keep)[:, None, None] * np.stack((prior, prior))
    for i in range(1, count):
        forward[i] = (forward[i - 1] @ move[i - 1]) * like[i]
        forward[i] /= forward[i].sum(-1, keepdims=True)
    backward = np.ones((points, 2))
    resting = np.zeros((count, points))
    for i in range(count - 1, -1, -1):
        both = forward[i] * backward
        resting[i] = both[:, 1] / both.sum(-1)
        if i:
            backward = (like[i] * backward) @ move[i - 1].T
            backward /= backward.sum(-1, keepdims=True)
    return resting
