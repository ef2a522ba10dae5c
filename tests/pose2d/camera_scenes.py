"""Textured scenes seen through cameras that are known exactly: a far background, boards at several
depths, people.
"""

from dataclasses import dataclass

import cv2
import numpy as np


def texture(rng: np.random.Generator, size: int = 900) -> np.ndarray:
    """Grey noise at several scales with some hard edges, as walls, trees and furniture have."""
    image = np.zeros((size, size), np.float32)
    for cells, strength in ((6, 60), (20, 45), (60, 40), (150, 20)):
        coarse = rng.normal(0, 1, (cells, cells)).astype(np.float32)
        image += strength * cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    for _ in range(60):
        x, y = rng.integers(0, size, 2)
        w, h = rng.integers(10, 120, 2)
        image[y : y + h, x : x + w] += rng.normal(0, 40)
    return np.clip(image + 120, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Board:
    """A textured rectangle in the first camera's frame."""

    image: np.ndarray
    corner_m: np.ndarray  # [3] its top left corner
    right_m: np.ndarray  # [3] along its upper edge, as long as it
    down_m: np.ndarray  # [3] along its left edge


def wall(
    image: np.ndarray, center_m: tuple[float, float, float], width_m: float, height_m: float
) -> Board:
    """A board that faces the first camera."""
    right = np.array([width_m, 0.0, 0.0])
    down = np.array([0.0, height_m, 0.0])
    return Board(image, np.array(center_m) - right / 2 - down / 2, right, down)


def seen(
    boards: list[Board],
    size: tuple[int, int],
    focal_px: float,
    first_from_camera: np.ndarray,
    place_m: np.ndarray,
) -> np.ndarray:
    """[H, W] what a camera at place_m (in the first camera's frame) sees; later boards lie in
    front.
    """
    frame = np.full(size[::-1], 100, np.uint8)
    k = np.array([[focal_px, 0, (size[0] - 1) / 2], [0, focal_px, (size[1] - 1) / 2], [0, 0, 1]])
    for board in boards:
        h, w = board.image.shape
        plane = np.stack((board.right_m / w, board.down_m / h, board.corner_m - place_m), 1)
        matrix = k @ first_from_camera.T @ plane
        drawn = cv2.warpPerspective(
            board.image, matrix, size, flags=cv2.INTER_LINEAR, borderValue=0
        )
        covered = cv2.warpPerspective(
            np.full_like(board.image, 255), matrix, size, flags=cv2.INTER_NEAREST
        )
        frame = np.where(covered > 0, drawn, frame)
    return frame


def sensed(
    frame: np.ndarray, rng: np.random.Generator, noise: float = 4.0, quality: int = 35
) -> np.ndarray:
    """The frame with a sensor's noise and JPEG's blocks."""
    noisy = np.clip(frame + rng.normal(0, noise, frame.shape), 0, 255).astype(np.uint8)
    _, data = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)


def with_walker(
    frame: np.ndarray, image: np.ndarray, time: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """A textured figure that walks across the frame and its box (4)."""
    h, w = frame.shape
    tall = int(0.6 * h)
    wide = int(0.15 * w)
    x = int((0.1 + 0.35 * number + 0.25 * time) * w) % w - wide // 2
    y = int(0.3 * h + 4 * np.sin(9 * time))
    x1 = max(0, x)
    x2 = min(w, x + wide)
    y2 = min(h, y + tall)
    frame = frame.copy()
    if x2 > x1:
        frame[y:y2, x1:x2] = image[: y2 - y, x1 - x : x2 - x]
    return frame, np.array([x1, y, max(x2, x1 + 1), y2], float)
