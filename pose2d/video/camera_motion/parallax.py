"""Parallax: the image motion that a camera's translation leaves after rotation and zoom.

Translation itself is not estimated: from neighbouring frames it is mostly noise, and its length is
never observable."""

from dataclasses import dataclass

import numpy as np

from pose2d.video.camera_motion.corners import LEAST_CORNERS

PARALLAX_PX = 0.9  # a residual displacement that counts as motion
_LOST_PX = 40  # a longer one is a corner that was lost
_MOST_PX = 6.0  # a residual counts as if it were at most this long


@dataclass(frozen=True)
class Parallax:
    """What rotation and zoom leave in one frame."""

    share: float  # of the corners: those with a residual displacement
    aligned: float  # of the residuals' energy: what follows lines through one image point


NO_PARALLAX = Parallax(0.0, 0.0)


def measure_parallax(points: np.ndarray, residual: np.ndarray, focal: float) -> Parallax:
    """Return how much of the residual displacements [N, 2] of image points [N, 2] is parallax.

    A camera that moves by t shifts the image of a point at (u, v) along (f t_x - u t_z, f t_y - v
    t_z), at any depth, so n . t = 0 with n = (-f r_v, f r_u, u r_v - v r_u). t is found by
    iteratively reweighted least squares."""
    length = np.linalg.norm(residual, axis=1)
    is_moved = (length > PARALLAX_PX) & (length < _LOST_PX)
    share = float(is_moved.mean())
    if is_moved.sum() < LEAST_CORNERS:
        return Parallax(share, 0.0)
    u = points[is_moved, 0]
    v = points[is_moved, 1]
    unit = residual[is_moved] / length[is_moved, None]
    across = u * unit[:, 1] - v * unit[:, 0]
    n = np.stack((-focal * unit[:, 1], focal * unit[:, 0], across), -1)
    weight = np.ones(len(n))
    aligned = np.zeros(len(n))
    for _ in range(6):
        _, vectors = np.linalg.eigh((n * weight[:, None]).T @ n)
        t = vectors[:, 0]
        line = np.stack((focal * t[0] - u * t[2], focal * t[1] - v * t[2]), -1)
        line_length = np.maximum(np.linalg.norm(line, axis=1), 1e-9)
        aligned = (np.sum(unit * line, 1) / line_length) ** 2
        weight = 1 / np.maximum(line_length, 1e-6) ** 2 / (0.1 + 1 - aligned)
    energy = np.minimum(length[is_moved], _MOST_PX) ** 2
    return Parallax(share, float(energy @ aligned / energy.sum()))
