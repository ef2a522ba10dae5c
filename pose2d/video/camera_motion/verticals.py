"""The direction of gravity from straight lines of the background: door frames, walls and posts."""

import math
from dataclasses import dataclass

import cv2
import numpy as np

from pose2d.video.camera_motion.corners import shrink_to_grey

LINES_PX = 640  # longer side of the image that lines are detected in
LEAST_LENGTH = 0.05  # of a line, of the image's longer side
STEEP_DEG = 25.0  # lines within this angle of a candidate's vertical count for or against it
LEAST_LINES = 8
LINE_DEG = 1.0  # std of a line's direction
LEAST_AGREEMENT = 0.5  # share of the steep lines' length that must meet in one point
# Few cameras are rolled, and floors show lines too: a large roll needs more.
LEVEL_ROLL_DEG, ROLLED_SCORE = 12.0, 0.6
# A second meeting point this far away may have at most this share of the best one's score. With
# these, 29 of 120 photographs of COCO show gravity, none of them with a large roll; and the four
# cameras of pose2sim, two of them rolled by 13 and 26 degrees, are off by 0, 6, 1 and 1 degrees.
ELSEWHERE_DEG = 10.0
MOST_ELSEWHERE = 0.75


@dataclass(frozen=True)
class Lines:
    """Straight line segments of the background, in focal lengths from the image's centre."""

    middle: np.ndarray  # [L, 2]
    along: np.ndarray  # [L, 2] unit
    length: np.ndarray  # [L]


def vertical_direction(
    image: np.ndarray, boxes_px: np.ndarray, focal_px: float
) -> np.ndarray | None:
    """Return the direction [3] against gravity in the camera frame: the vanishing point of most of
    the long steep lines outside the boxes [P, 4]. None if too few lines meet, or if they meet in
    two places.
    """
    lines = _background_lines(image, boxes_px, focal_px)
    if len(lines.length) < LEAST_LINES:
        return None
    candidates = _candidate_directions()
    score, agreement = _score(candidates, lines)
    place = score.argmax()
    best = candidates[place]
    is_elsewhere = candidates @ best < math.cos(math.radians(ELSEWHERE_DEG))
    is_unique = score[is_elsewhere].max() < MOST_ELSEWHERE * score[place]
    return best if agreement[place] > LEAST_AGREEMENT and is_unique else None


def _background_lines(image: np.ndarray, boxes_px: np.ndarray, focal_px: float) -> Lines:
    """Return the long lines outside the boxes [P, 4]."""
    scale = min(1.0, LINES_PX / max(image.shape[:2]))
    size = round(image.shape[1] * scale), round(image.shape[0] * scale)
    segments = _detect_lines(shrink_to_grey(image, size))
    middle = segments.mean(1)
    along = segments[:, 1] - segments[:, 0]
    length = np.linalg.norm(along, axis=1)
    after_start = middle[:, None] > boxes_px[:, :2] * scale
    before_end = middle[:, None] < boxes_px[:, 2:] * scale
    is_on_person = (after_start & before_end).all(-1).any(1)
    is_usable = (length > LEAST_LENGTH * max(size)) & ~is_on_person
    length = length[is_usable]
    center = (np.array(size) - 1) / 2
    from_center = (middle[is_usable] - center) / (focal_px * scale)
    return Lines(from_center, along[is_usable] / length[:, None], length)


def _detect_lines(grey: np.ndarray) -> np.ndarray:
    """Return the end points [L, 2, 2] of straight line segments."""
    segments = cv2.createLineSegmentDetector().detect(grey)[0]
    if segments is None:
        return np.zeros((0, 2, 2))
    return segments.reshape(-1, 2, 2).astype(float)


def _candidate_directions() -> np.ndarray:
    """Return directions against gravity [D, 3] for pitches of -30 to 45 and rolls of -40 to 40
    degrees, one degree apart.
    """
    grid = np.meshgrid(np.arange(-30.0, 46.0), np.arange(-40.0, 41.0))
    pitch, roll = np.radians(grid).reshape(2, -1)
    x = np.sin(roll) * np.cos(pitch)
    y = -np.cos(roll) * np.cos(pitch)
    return np.stack((x, y, -np.sin(pitch)), 1)


def _score(up: np.ndarray, lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    """Return for every direction [D, 3] a score and the agreement: of the lines that are steep
    under it, the share of length that points to its vanishing point. The score is the agreement
    times that length.
    """
    to_vanishing_point = up[:, None, :2] - up[:, None, 2:] * lines.middle  # [D, L, 2]
    distance = np.maximum(np.linalg.norm(to_vanishing_point, axis=-1), 1e-9)
    cross = (
        to_vanishing_point[..., 0] * lines.along[:, 1]
        - to_vanishing_point[..., 1] * lines.along[:, 0]
    )
    sine = cross / distance
    is_steep = np.abs(sine) < math.sin(math.radians(STEEP_DEG))
    meeting = np.exp(-((sine / math.radians(LINE_DEG)) ** 2) / 2) @ lines.length
    agreement = meeting / np.maximum(is_steep @ lines.length, 1e-9)
    agreement[is_steep.sum(1) < LEAST_LINES] = 0.0
    roll_deg = np.degrees(np.arctan2(up[:, 0], -up[:, 1]))
    score = meeting * agreement * np.where(np.abs(roll_deg) > LEVEL_ROLL_DEG, ROLLED_SCORE, 1.0)
    return score, agreement
