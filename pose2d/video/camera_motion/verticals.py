"""The direction of gravity from straight lines of the background: door frames, walls and posts."""

import math

import cv2
import numpy as np

from pose2d.video.camera_motion.corners import shrink_to_grey

LINES_PX = 640  # longer side of the image that lines are detected in
LEAST_LENGTH = 0.05  # of a line, of the image's longer side
STEEP_DEG = 25.0  # a line is at most this far from the image's own vertical
LEAST_LINES = 8
LINE_DEG = 1.0  # std of a line's direction
LEAST_AGREEMENT = 0.5  # share of the lines' length that must meet in one point
# A second meeting point this far away may have at most this share of the best one's agreement.
ELSEWHERE_DEG = 6.0
MOST_ELSEWHERE = 0.8


def vertical_direction(
    image: np.ndarray, boxes_px: np.ndarray, focal_px: float
) -> np.ndarray | None:
    """Return the direction [3] against gravity in the camera frame: the vanishing point of most of
    the long steep lines outside the boxes [P, 4]. None if too few lines meet, or if they meet in
    two places.
    """
    scale = min(1.0, LINES_PX / max(image.shape[:2]))
    size = round(image.shape[1] * scale), round(image.shape[0] * scale)
    lines = _detect_lines(shrink_to_grey(image, size))
    middle = lines.mean(1)
    along = lines[:, 1] - lines[:, 0]
    length = np.linalg.norm(along, axis=1)
    is_steep = np.degrees(np.arctan2(np.abs(along[:, 0]), np.abs(along[:, 1]))) < STEEP_DEG
    after_start = middle[:, None] > boxes_px[:, :2] * scale
    before_end = middle[:, None] < boxes_px[:, 2:] * scale
    is_on_person = (after_start & before_end).all(-1).any(1)
    is_usable = is_steep & (length > LEAST_LENGTH * max(size)) & ~is_on_person
    if is_usable.sum() < LEAST_LINES:
        return None
    length = length[is_usable]
    along = along[is_usable] / length[:, None]
    center = (np.array(size) - 1) / 2
    middle = (middle[is_usable] - center) / (focal_px * scale)
    candidates = _candidate_directions()
    agreement = _agreement(candidates, middle, along, length)
    best = candidates[agreement.argmax()]
    is_elsewhere = candidates @ best < math.cos(math.radians(ELSEWHERE_DEG))
    is_unique = agreement[is_elsewhere].max() < MOST_ELSEWHERE * agreement.max()
    return best if agreement.max() > LEAST_AGREEMENT and is_unique else None


def _detect_lines(grey: np.ndarray) -> np.ndarray:
    """Return the end points [L, 2, 2] of straight line segments."""
    segments = cv2.createLineSegmentDetector().detect(grey)[0]
    if segments is None:
        return np.zeros((0, 2, 2))
    return segments.reshape(-1, 2, 2).astype(float)


def _candidate_directions() -> np.ndarray:
    """Return directions against gravity [D, 3] for pitches of -30 to 45 and rolls of -12 to 12
    degrees, one degree apart.
    """
    grid = np.meshgrid(np.arange(-30.0, 46.0), np.arange(-12.0, 13.0))
    pitch, roll = np.radians(grid).reshape(2, -1)
    x = np.sin(roll) * np.cos(pitch)
    y = -np.cos(roll) * np.cos(pitch)
    return np.stack((x, y, -np.sin(pitch)), 1)


def _agreement(
    up: np.ndarray, middle: np.ndarray, along: np.ndarray, length: np.ndarray
) -> np.ndarray:
    """Return for every direction [D, 3] the share of the lines' length that points to its vanishing
    point. middle [L, 2]: focal lengths from the centre; along [L, 2]: unit vectors.
    """
    to_vanishing_point = up[:, None, :2] - up[:, None, 2:] * middle  # [D, L, 2]
    distance = np.maximum(np.linalg.norm(to_vanishing_point, axis=-1), 1e-9)
    cross = to_vanishing_point[..., 0] * along[:, 1] - to_vanishing_point[..., 1] * along[:, 0]
    sine = cross / distance
    return np.exp(-((sine / math.radians(LINE_DEG)) ** 2) / 2) @ length / length.sum()
