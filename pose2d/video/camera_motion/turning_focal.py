"""The focal length that a turning camera reveals.

A camera that pans by d moves a point at x focal lengths from the axis by d (1 + x^2) focal lengths:
how much faster the edges move than the middle tells how wide the lens is."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.spatial.transform import Rotation

from pose2d.video.camera_motion.rotation import Pose, fit_rotation_and_zoom, move_points

NOISE_PX = 0.25  # least error of a followed corner
# Errors of a focal length from turning, as logarithms: lens distortion and rolling shutter limit
# it, and beyond the second one the measurement says nothing.
LEAST_FOCAL_LOG_SIGMA = 0.03
WORST_FOCAL_LOG_SIGMA = 0.15
# A camera that moves sideways looks like one that turns behind a lens exp(SLIDE_LOG) times as long,
# which then explains the corners with a cost below SLIDES times that of the lens assumed
# (tests/pose2d/test_camera_motion.py).
SLIDE_LOG = 2.0
SLIDES = 0.9
# Errors of neighbouring corners are correlated (compression blocks, rolling shutter), so a quarter
# of the corners count.
_INDEPENDENT_SHARE = 0.25
_COARSE_LOG_RATIOS = np.linspace(-0.9, 0.9, 10)
_FINE_STEP = 0.05


@dataclass(frozen=True)
class Turn:
    """Corners of a key frame and where they were when the camera had turned far."""

    corners: np.ndarray  # [N, 2]
    points: np.ndarray  # [N, 2]
    key: Pose
    pose: Pose


@dataclass(frozen=True)
class FocalRatio:
    """A measured focal length over the assumed one, as a logarithm."""

    log_ratio: float
    log_sigma: float


def focal_from_turns(turns: list[Turn], focal: float) -> FocalRatio | None:
    """Return the focal length that explains the turns best, relative to `focal`; None if the turns
    do not constrain it.
    """
    costs = [turns_cost(turns, focal, log_ratio) for log_ratio in _COARSE_LOG_RATIOS]
    best = int(np.argmin(costs))
    if best in (0, len(costs) - 1):
        return None
    optimum = minimize_scalar(
        lambda log_ratio: turns_cost(turns, focal, log_ratio),
        bounds=(_COARSE_LOG_RATIOS[best - 1], _COARSE_LOG_RATIOS[best + 1]),
        method="bounded",
        options={"xatol": 2e-3},
    ).x
    below, center, above = (
        turns_cost(turns, focal, optimum + step) for step in (-_FINE_STEP, 0.0, _FINE_STEP)
    )
    curvature = (below - 2 * center + above) / _FINE_STEP**2
    if not np.isfinite(curvature) or curvature <= 0:
        return None
    sigma = math.hypot(curvature**-0.5, LEAST_FOCAL_LOG_SIGMA)
    return FocalRatio(float(optimum), sigma) if sigma < WORST_FOCAL_LOG_SIGMA else None


def is_sliding(turns: list[Turn], focal: float) -> bool:
    """Return whether the camera moves sideways instead of turning: all of the image moves alike, as
    behind a lens that is far too long.
    """
    assumed = turns_cost(turns, focal, 0.0)
    much_longer = turns_cost(turns, focal, SLIDE_LOG)
    return much_longer < SLIDES * assumed


def turns_cost(turns: list[Turn], focal: float, log_ratio: float) -> float:
    """Return the negative log likelihood of all turns under the focal length exp(log_ratio) focal,
    each turn with the rotation and zoom that fit best.
    """
    ratio = math.exp(log_ratio)
    total = 0.0
    for turn in turns:
        key_from_camera = turn.key.first_from_camera.T @ turn.pose.first_from_camera
        turned = Rotation.from_matrix(key_from_camera).as_rotvec()
        rescaled = Rotation.from_rotvec(turned * np.array([1 / ratio, 1 / ratio, 1.0]))
        guess = Pose(turn.key.first_from_camera @ rescaled.as_matrix(), turn.pose.log_zoom)
        pose, _ = fit_rotation_and_zoom(turn.corners, turn.points, turn.key, guess, focal * ratio)
        residual = turn.points - move_points(turn.corners, turn.key, pose, focal * ratio)
        squared = np.sum(residual**2, 1)
        robust = float(np.sum(squared / (1 + squared)))
        total += _INDEPENDENT_SHARE * robust / (2 * NOISE_PX**2)
    return total
