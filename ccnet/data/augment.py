"""What training shows a network besides the crops as they are: other boxes, worse images, hidden parts.

A calibration head must know the mistakes the network makes, and on clean crops it makes too few of them.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from ccnet.data.occluders import hide


@dataclass(frozen=True)
class Augment:
    """How often, and how far."""

    scale_log: float = 0.12  # standard deviation of the logarithm of the box's size
    shift: float = 0.04  # standard deviation of the box's centre, in box sides
    surroundings: float = 0.15  # probability of seeing what the network's crops usually leave grey around the box
    flip: float = 0.5  # probability of a mirror image
    grey: float = 0.3  # probability of an image without colour
    coarse: float = 0.4  # probability of a loss of resolution
    coarse_factor: tuple[float, float] = (1.2, 4.0)  # by this much
    hidden: float = 0.4  # probability of one or two things in the way (ccnet/occluders.py)
    light: float = 0.3  # probability of another brightness and contrast


def jitter_box(box_px: np.ndarray, how: Augment, random: np.random.Generator) -> np.ndarray:
    """A box x1, y1, x2, y2 as a careless detector might have drawn it."""
    size = box_px[2:] - box_px[:2]
    centre = (box_px[:2] + box_px[2:]) / 2 + random.normal(0, how.shift, 2) * size.max()
    size = size * np.exp(random.normal(0, how.scale_log))
    return np.concatenate([centre - size / 2, centre + size / 2])


def spoil(
    crop: np.ndarray,  # [H, W, 3] uint8, RGB
    box_px: np.ndarray,  # x1, y1, x2, y2 of what the crop shows; the rest is grey and stays so
    person_px: np.ndarray,  # [M, 2] points of the person
    how: Augment,
    random: np.random.Generator,
) -> np.ndarray:
    """The crop with less colour, detail or content."""
    height, width = crop.shape[:2]
    if random.random() < how.grey:
        crop = np.repeat(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY)[:, :, None], 3, 2)
    if random.random() < how.coarse:
        factor = random.uniform(*how.coarse_factor)
        small = cv2.resize(crop, (int(width / factor), int(height / factor)), interpolation=cv2.INTER_AREA)
        crop = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    if random.random() < how.hidden:
        left, top, right, bottom = np.clip(np.round(box_px), 0, [width, height, width, height]).astype(int)
        crop, shown = crop.copy(), (slice(top, bottom), slice(left, right))
        for _ in range(random.integers(1, 3) if right > left and bottom > top else 0):
            crop[shown] = hide(crop[shown], person_px - (left, top), random)
    if random.random() < how.light:
        crop = np.clip(crop * random.uniform(0.6, 1.4) + random.uniform(-25, 25), 0, 255).astype(np.uint8)
    return crop
