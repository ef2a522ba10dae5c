"""Stored crops -> augmented training batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from pose2d.skeletons import COCO17

from .people import CroppedPeople


@dataclass(frozen=True)
class Augmentation:
    """Less rotation and scale than Simple Baselines has, since a few epochs do not wear the crops
    out; flips; and less colour, since half of the test images have none."""

    scale: float = 0.15  # standard deviation, clipped to twice that
    rotation_deg: float = 15.0  # standard deviation, clipped to twice that
    rotated: float = 0.4  # probability
    shift: float = 0.03  # standard deviation, in crop sides
    flip: float = 0.5  # probability
    grey: float = 0.3  # probability
    light: float = 0.3  # probability of another brightness and contrast


@dataclass(frozen=True)
class Batch:
    """N crops of one size."""

    crops: Tensor  # [N, 3, H, W] uint8 RGB
    xy_px: Tensor  # [N, 17, 2] crop pixels
    weight: Tensor  # [N, 17] of each keypoint; 0 where it is unknown or outside


def batches(
    people: CroppedPeople,
    size: int,
    input_wh: tuple[int, int],
    full_wh: tuple[int, int],
    seed: tuple[int, ...],
) -> Iterator[Batch]:
    """Yield all people once, in an order and with an augmentation that depend on `seed` alone; an
    incomplete last batch is left out. full_wh: the size at which the stored crops have the
    network's scale; a smaller `input_wh` shows the same, smaller.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(people))
    for first in range(0, len(people) - size + 1, size):
        rows = np.sort(order[first : first + size])
        cut = [_augmented(people, row, input_wh, full_wh, Augmentation(), random) for row in rows]
        crops, xy, weight = (np.stack(part) for part in zip(*cut, strict=True))
        yield Batch(
            torch.from_numpy(crops).permute(0, 3, 1, 2),
            torch.from_numpy(xy),
            torch.from_numpy(weight),
        )


def _augmented(
    people: CroppedPeople,
    row: int,
    input_wh: tuple[int, int],
    full_wh: tuple[int, int],
    augmentation: Augmentation,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one crop [H, W, 3], its keypoints [17, 2] and their weights [17]."""
    stored = people.pixels[row]
    xy = people.xy_px[row]
    weight = people.weight[row]
    scale = 1 + np.clip(
        random.normal(0, augmentation.scale), -2 * augmentation.scale, 2 * augmentation.scale
    )
    turn = (
        random.normal(0, augmentation.rotation_deg)
        if random.random() < augmentation.rotated
        else 0.0
    )
    turn = np.deg2rad(np.clip(turn, -2 * augmentation.rotation_deg, 2 * augmentation.rotation_deg))
    zoom = input_wh[0] / full_wh[0] / scale
    linear = zoom * np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    to = np.array(input_wh) * (0.5 + random.normal(0, augmentation.shift, 2))
    centre = np.array([stored.shape[1], stored.shape[0]]) / 2
    affine = np.column_stack([linear, to - linear @ centre])
    crop = cv2.warpAffine(stored, affine, input_wh, flags=cv2.INTER_LINEAR)
    xy = xy @ linear.T + affine[:, 2]
    if random.random() < augmentation.flip:
        order = list(COCO17.flip_order)
        crop = np.ascontiguousarray(crop[:, ::-1])
        xy = xy[order] * [-1, 1] + [input_wh[0] - 1, 0]
        weight = weight[order]
    if random.random() < augmentation.grey:
        crop = np.repeat(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY)[..., None], 3, 2)
    if random.random() < augmentation.light:
        crop = np.clip(crop * random.uniform(0.6, 1.4) + random.uniform(-25, 25), 0, 255).astype(
            np.uint8
        )
    inside = ((xy >= 0) & (xy <= np.array(input_wh) - 1)).all(1)
    return crop, xy.astype(np.float32), (weight * inside).astype(np.float32)
