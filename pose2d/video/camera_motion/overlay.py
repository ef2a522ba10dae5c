"""Captions, logos and timestamps: corners that stay in place while the background moves.

They belong to the frame and say nothing about the camera. A corner is one of them if it stays where
it is in several images while most of the image moves as one camera motion would move it."""

import math

import numpy as np

from pose2d.video.camera_motion.corners import LEAST_CORNERS
from pose2d.video.camera_motion.rotation import Pose, fit_rotation_and_zoom, move_points

# The image is divided into cells of this share of its longer side, because text has far more
# corners than what is behind it: not the corners are counted but the cells that move.
CELL_SHARE = 0.1
FIXED_PX = 0.6  # a corner that moves less stays in place
# The background's motion must carry a fixed corner at least this far, and explain this share of the
# corners that move. Chosen on tests/pose2d/test_camera_motion.py.
CARRIED_PX = 1.5
LEAST_EXPLAINED_SHARE = 0.5
LEAST_IMAGES = 3  # in which a corner must stay in place against the background
RADIUS_PX = 7  # around such a corner, what is part of the overlay


def cell_of(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the number [N] of the cell that holds each point [N, 2] from the image's centre."""
    side = CELL_SHARE * max(size)
    column, row = np.floor((points + np.array(size) / 2) / side).astype(int).T
    return row * (math.ceil(size[0] / side) + 1) + column


def share_of_cells(holds: np.ndarray, points: np.ndarray, size: tuple[int, int]) -> float:
    """Return the share of points [N, 2] where `holds` [N], every occupied cell counted once."""
    _, cell, count = np.unique(cell_of(points, size), return_inverse=True, return_counts=True)
    weight = 1 / count[cell]
    return float((weight * holds).sum() / weight.sum())


def corner_extent(points: np.ndarray, size: tuple[int, int]) -> float:
    """Return how far points [N, 2] are spread: the smaller share of the image's width and height."""
    low, high = np.quantile(points, (0.05, 0.95), axis=0)
    return float(((high - low) / np.array(size)).min())


class Overlay:
    """The part of the image that is fixed to the frame, as far as it is known."""

    def __init__(self, size: tuple[int, int]) -> None:
        """size: (width, height) of the small image."""
        self._size = size
        self._fixed_in = np.zeros(size[::-1], np.int32)  # [h, w] images in which it stayed

    @property
    def mask(self) -> np.ndarray:
        """[h, w] bool: part of the overlay."""
        return self._fixed_in >= LEAST_IMAGES

    def covers(self, points: np.ndarray) -> np.ndarray:
        """Return which points [N, 2] from the image's centre are part of the overlay: [N] bool."""
        column, row = self._pixels(points).T
        return self._fixed_in[row, column] >= LEAST_IMAGES

    def observe(
        self, corners: np.ndarray, points: np.ndarray, key: Pose, guess: Pose, focal: float
    ) -> None:
        """Add an image in which `corners` [N, 2] of the key frame are found at `points` [N, 2]."""
        is_fixed = np.linalg.norm(points - corners, axis=1) < FIXED_PX
        is_moved = ~is_fixed
        if not is_fixed.any() or is_moved.sum() < LEAST_CORNERS:
            return
        if share_of_cells(is_moved, corners, self._size) < 0.5:
            return
        moved = corners[is_moved]
        pose, explained = fit_rotation_and_zoom(moved, points[is_moved], key, guess, focal)
        if explained < LEAST_EXPLAINED_SHARE * len(moved):
            return
        fixed = corners[is_fixed]
        carried = np.linalg.norm(move_points(fixed, key, pose, focal) - fixed, axis=1)
        seen_now = np.zeros(self._fixed_in.shape, bool)
        for column, row in self._pixels(fixed[carried > CARRIED_PX]):
            top = max(0, row - RADIUS_PX)
            left = max(0, column - RADIUS_PX)
            seen_now[top : row + RADIUS_PX + 1, left : column + RADIUS_PX + 1] = True
        self._fixed_in += seen_now

    def _pixels(self, points: np.ndarray) -> np.ndarray:
        """Return the columns and rows [N, 2] of points from the image's centre."""
        width, height = self._size
        pixels = np.rint(points + (np.array(self._size) - 1) / 2).astype(int)
        return np.clip(pixels, 0, (width - 1, height - 1))
