"""Find standing feet in captured motion and keep them from sliding.

Captured motion on a body with other proportions slides: a leg that is longer than the subject's
sweeps the floor. `planted` moves the whole body a little, frame by frame, so that the point that
bears the weight stays where it is. `in_contact` then measures which points stand.
"""

from functools import partial

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d

from fitting.body import Body
from pose2d.skeletons import HALPE26

FEET = (
    "left_heel",
    "left_big_toe",
    "right_heel",
    "right_big_toe",
)  # in the order of `fit.npz`'s contacts
FEET_KEYPOINTS = tuple(HALPE26.keypoints.index(name) for name in FEET)
STILL_M_S = 0.10  # a point that stands is slower
ON_FLOOR_M = 0.05  # and not higher over what it stands on
# height, and speed in each round, at which a point begins to be free
_BEARS_M = 0.03
_BEARS_M_S = (0.30, 0.12)
_SETTLES_S = 0.15  # time over which the height of standing feet is levelled


def feet_over_sole_m(body: Body, shape: torch.Tensor | None = None) -> np.ndarray:
    """Return the height [4] of FEET over the sole at rest."""
    rest_pose = body(torch.zeros(1, 24, 3), shape, vertices=True)
    assert rest_pose.vertices is not None
    return (
        rest_pose.keypoints[0, list(FEET_KEYPOINTS), 1] - rest_pose.vertices[0, :, 1].min()
    ).numpy()


def speeds_m_s(points_m: np.ndarray, fps: float) -> np.ndarray:
    """Return the speed [T, N] of points [T, N, 3] by central differences."""
    if len(points_m) < 2:
        return np.zeros(points_m.shape[:-1])
    return np.linalg.norm(np.gradient(points_m, axis=0), axis=-1) * fps


def plant_feet(
    feet_m: np.ndarray, over_sole_m: np.ndarray, fps: float, level: bool = True
) -> np.ndarray:
    """Return the shift [T, 3] that makes feet [T, 4, 3] (y up) stand on y = 0 without sliding.

    level: put standing feet onto y = 0 at any time, not only on average; for floors without steps.
    """
    shift = np.zeros((len(feet_m), 3))
    height = feet_m[..., 1] - over_sole_m
    shift[:, 1] = -np.quantile(height.min(1), 0.1)
    above = height + shift[:, 1:2] if level else height - height.min(1, keepdims=True)
    low = np.exp(-((np.maximum(above, 0) / _BEARS_M) ** 2))
    bears = low
    for free_m_s in _BEARS_M_S:  # what stands shows ever more clearly as the sliding goes
        velocity = np.gradient(feet_m + shift[:, None], axis=0) * fps
        speed = np.linalg.norm(velocity[..., ::2], axis=-1)
        bears = gaussian_filter1d(
            low * np.exp(-((speed / free_m_s) ** 2)), 0.7, axis=0, mode="nearest"
        )
        slide = (bears[..., None] * velocity).sum(1) / np.maximum(bears.sum(1, keepdims=True), 0.02)
        shift[:, ::2] -= np.cumsum(slide, axis=0)[:, ::2] / fps
    shift[:, ::2] -= shift[:, ::2].mean(0)
    if level:
        width = max(_SETTLES_S * fps, 1.0)
        smooth = partial(gaussian_filter1d, sigma=width, mode="nearest")
        off = smooth((bears * height).sum(1))
        weight = smooth(bears.sum(1))
        shift[:, 1] = np.where(weight > 1e-3, -off / np.maximum(weight, 1e-3), shift[:, 1])
    return shift


def find_contacts(
    feet_m: np.ndarray, over_sole_m: np.ndarray, fps: float, level: bool = True
) -> np.ndarray:
    """Return [T, 4] bool: which of the feet's points stand, in a world with the floor at y = 0.

    level: False where there are steps; then the height over the body's lowest point decides.
    """
    height = feet_m[..., 1] - over_sole_m
    above = height if level else height - height.min(1, keepdims=True)
    return (speeds_m_s(feet_m, fps) < STILL_M_S) & (above < ON_FLOOR_M)
