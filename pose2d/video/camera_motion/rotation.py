"""Rotation and zoom of the camera between two frames.

A camera that turns by R and zooms by z moves every image point by the same homography, at any depth
of the scene:

    x' ~ K_z R K^-1 x,      K_z = diag(z f, z f, 1)

Points are in pixels of the small image, from its centre."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

# Scales of the robust loss over the iterations, pixels. A wide scale first pulls in far starts.
_SCALES_FROM_FAR = (8.0, 5.0, 3.0, 2.0, 1.5, 1.5, 1.2, 1.2)
_SCALES_FROM_NEAR = (1.5, 1.2, 1.2)


@dataclass(frozen=True)
class Pose:
    """Direction and zoom of the camera, relative to the shot's first frame."""

    first_from_camera: np.ndarray  # [3, 3]
    log_zoom: float


def move_points(points: np.ndarray, start: Pose, end: Pose, focal: float) -> np.ndarray:
    """Return where image points [N, 2] at one pose are at another pose."""
    end_from_start = end.first_from_camera.T @ start.first_from_camera
    on_unit_plane = points / (focal * math.exp(start.log_zoom))
    rays = np.concatenate((on_unit_plane, np.ones((len(points), 1))), 1) @ end_from_start.T
    return focal * math.exp(end.log_zoom) * rays[:, :2] / np.maximum(rays[:, 2:], 0.05)


def fit_rotation_and_zoom(
    corners: np.ndarray, points: np.ndarray, key: Pose, guess: Pose, focal: float
) -> tuple[Pose, float]:
    """Return the pose that moves `corners` [N, 2] of the key frame to `points` [N, 2], and the sum
    of the robust weights (about the number of corners that it explains). Robust Gauss-Newton from
    a guess.
    """
    pose = guess
    weight = np.ones(len(points))
    distance = np.linalg.norm(points - move_points(corners, key, pose, focal), axis=1)
    is_near = np.quantile(distance, 0.6) < 1.0
    for scale in _SCALES_FROM_NEAR if is_near else _SCALES_FROM_FAR:
        predicted = move_points(corners, key, pose, focal)
        residual = points - predicted
        weight = (scale**2 / (scale**2 + np.sum(residual**2, 1))) ** 2  # Geman-McClure
        jacobian = _point_derivatives(predicted, focal * math.exp(pose.log_zoom))
        weighted = jacobian * weight[:, None, None]
        normal = np.einsum("nki,nkj->ij", weighted, jacobian) + np.diag([1e-6, 1e-6, 1e-6, 1e-3])
        step = np.linalg.solve(normal, np.einsum("nki,nk->i", weighted, residual))
        turned = pose.first_from_camera @ Rotation.from_rotvec(-step[:3]).as_matrix()
        pose = Pose(turned, pose.log_zoom + float(step[3]))
    return pose, float(weight.sum())


def _point_derivatives(points: np.ndarray, f: float) -> np.ndarray:
    """Return the derivatives [N, 2, 4] of image points by rotation (x, y, z) and log zoom."""
    u = points[:, 0]
    v = points[:, 1]
    jacobian = np.zeros((len(points), 2, 4))
    jacobian[:, 0] = np.stack((-u * v / f, f + u * u / f, -v, u), -1)
    jacobian[:, 1] = np.stack((-f - v * v / f, u * v / f, u, v), -1)
    return jacobian


def image_shift_px(a: Pose, b: Pose, focal: float, size: tuple[int, int]) -> float:
    """Return how far the image moves between two poses: root mean square over a grid, small
    pixels.
    """
    axes = (np.linspace(-0.4, 0.4, 3) * side for side in size)
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    shift = move_points(grid, a, b, focal) - grid
    return float(np.sqrt(np.mean(np.sum(shift**2, 1))))
