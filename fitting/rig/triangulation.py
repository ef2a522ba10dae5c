"""Points where the rays of several cameras meet."""

import numpy as np

_ITERATIONS = 6
_MIN_DEPTH_M = 0.1
# Bones by Halpe's keypoints of both sides, and an adult's lengths in metres.
_BONES = (
    ((5, 11), (6, 12), 0.50),
    ((11, 13), (12, 14), 0.42),
    ((13, 15), (14, 16), 0.40),
    ((5, 7), (6, 8), 0.28),
    ((7, 9), (8, 10), 0.25),
)


def triangulate(
    rays: np.ndarray, sigma: np.ndarray, rotation: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points [..., 3] where rays of V cameras meet best, and their deviations [...].

    rays [V, ..., 2] are weighted by their deviations sigma [V, ...]. The deviation of a point is
    the length of its standard deviation over the three axes. Both are NaN where fewer than two
    cameras see a point. rotation [V, 3, 3], offset [V, 3]: from the points' frame to each camera.

    The weights are iterated: a ray that misses by more than three deviations counts less, as under
    Geman-McClure's loss.
    """
    # (x R_3 - R_1) X = t_1 - x t_3, and the same for y
    shape = (len(rays), *(1,) * (rays.ndim - 2))
    third = rotation[:, 2].reshape(*shape, 3)
    depth_offset = offset[:, 2].reshape(shape)
    rows = np.stack(
        [rays[..., k, None] * third - rotation[:, k].reshape(*shape, 3) for k in (0, 1)], -2
    )
    target = np.stack(
        [offset[:, k].reshape(shape) - rays[..., k] * depth_offset for k in (0, 1)], -1
    )
    visible = np.isfinite(sigma)
    depth_axis = np.broadcast_to(third, (*sigma.shape, 3))
    depth = np.ones_like(sigma)
    slope = np.ones_like(sigma)
    points = np.zeros((*rays.shape[1:-1], 3))
    matrix = np.zeros((*points.shape, 3))
    for _ in range(_ITERATIONS):
        weight = np.where(visible, slope / np.square(np.where(visible, sigma, 1.0) * depth), 0.0)
        matrix = np.einsum("v...,v...ki,v...kj->...ij", weight, rows, rows) + 1e-9 * np.eye(3)
        vector = np.einsum("v...,v...ki,v...k->...i", weight, rows, target)
        points = np.linalg.solve(matrix, vector[..., None])[..., 0]
        depth = np.einsum("...i,v...i->v...", points, depth_axis) + depth_offset
        depth = np.maximum(depth, _MIN_DEPTH_M)
        missed = np.einsum("v...ki,...i->v...k", rows, points) - target
        squared = np.square(missed).sum(-1) / np.square(np.where(visible, sigma, np.inf) * depth)
        slope = np.square(9 / (9 + squared))
    enough = visible.sum(0) >= 2
    std = np.sqrt(np.trace(np.linalg.inv(matrix), axis1=-2, axis2=-1))
    return np.where(enough[..., None], points, np.nan), np.where(enough, std, np.nan)


def measure_body_size(points: np.ndarray) -> float:
    """Return the median length of bones over an adult's, of keypoints [T, 26, 3]; NaN: unknown."""
    lengths = [
        np.linalg.norm(points[:, a] - points[:, b], axis=-1) / adult_m
        for *sides, adult_m in _BONES
        for a, b in sides
    ]
    ratios = np.concatenate(lengths)
    ratios = ratios[np.isfinite(ratios)]
    return float(np.median(ratios)) if len(ratios) else float("nan")
