"""Gravity from straight lines of the background, in drawn images whose vertical is known."""

import math

import cv2
import numpy as np
import pytest

from pose2d.video.camera_motion.motion import under_focal
from pose2d.video.camera_motion.verticals import vertical_direction

FOCAL_PX = 560.0
NO_BOXES = np.zeros((0, 4))


def draw_posts(up: np.ndarray, seed: int) -> np.ndarray:
    """Return an image [H, W, 3] of posts along `up` and of other edges, with a sensor's noise."""
    rng = np.random.default_rng(seed)
    image = np.full((480, 640), 120, np.uint8)
    center = np.array([319.5, 239.5])
    for foot in rng.uniform((-3, -1, 5), (3, 1.5, 9), (14, 3)):
        start, end = (p[:2] / p[2] * FOCAL_PX + center for p in (foot, foot + 1.8 * up))
        start_16ths = tuple(np.rint(16 * start).astype(int))
        end_16ths = tuple(np.rint(16 * end).astype(int))
        grey_level = int(rng.integers(0, 256))
        cv2.line(image, start_16ths, end_16ths, grey_level, 2, 16, 4)
    for x, y, w, h in rng.integers((0, 0, -90, -30), (640, 480, 90, 30), (20, 4)):
        cv2.line(image, (x, y), (x + w, y + h), int(rng.integers(0, 256)), 2, 16)
    grey = np.clip(image + rng.normal(0, 4, image.shape), 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, 2)


def up_direction(pitch_deg: float, roll_deg: float) -> np.ndarray:
    p = math.radians(pitch_deg)
    r = math.radians(roll_deg)
    return np.array([math.sin(r) * math.cos(p), -math.cos(r) * math.cos(p), -math.sin(p)])


def angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    return math.degrees(math.acos(np.clip(a @ b, -1, 1)))


@pytest.mark.parametrize(("pitch", "roll"), [(0, 0), (14, -3), (-9, 5), (28, 2), (20, -26)])
def test_posts_show_where_up_is(pitch: float, roll: float) -> None:
    up = up_direction(pitch, roll)
    image = draw_posts(up, 3)
    measured = vertical_direction(image, NO_BOXES, FOCAL_PX)
    assert measured is not None
    assert angle_deg(measured, up) < 2.5
    under_wrong_focal = vertical_direction(image, NO_BOXES, FOCAL_PX * 1.3)
    assert under_wrong_focal is not None
    assert angle_deg(under_focal(under_wrong_focal, 1 / 1.3), up) < 3


def test_people_and_noise_show_no_vertical() -> None:
    image = draw_posts(up_direction(14, -3), 3)
    everywhere = np.array([[-5.0, -5.0, 700.0, 700.0]])
    assert vertical_direction(image, everywhere, FOCAL_PX) is None
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)
    assert vertical_direction(noise, NO_BOXES, FOCAL_PX) is None
