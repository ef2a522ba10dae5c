"""How SPIN and CLIFF cut people out: a window with whole-pixel corners, black beyond the image, then resized.

`pose2d.crops` does not round; these networks were trained on rounded windows, so theirs is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.crops import check_boxes, check_image

LARGEST_PX = 20_000  # side of a window; no camera has such images, and the window is held in memory


@dataclass(frozen=True)
class Cropping:
    """One network's way to cut."""

    input_wh: tuple[int, int]  # width, height of the network's input
    box_scale: float  # the box is grown by this
    to_pixel: Callable[[np.ndarray], np.ndarray]  # how a corner becomes a whole number
    shrink: int  # OpenCV's interpolation where pixels become fewer


# SPIN cuts corners off (towards zero) and resizes smoothly; CLIFF rounds and samples without smoothing.
SPIN_CROPPING = Cropping((224, 224), 1.2, np.trunc, cv2.INTER_AREA)
CLIFF_CROPPING = Cropping((192, 256), 1.1, np.rint, cv2.INTER_LINEAR)


@dataclass(frozen=True)
class Windows:
    """Where N crops lie in their image. The height is the side b that the crop camera speaks of."""

    center_px: np.ndarray  # [N, 2]
    height_px: np.ndarray  # [N]
    first: np.ndarray  # [N, 2] whole pixels, x and y of the top left corner
    end: np.ndarray  # [N, 2] whole pixels, one beyond the bottom right corner


def windows(boxes_px: np.ndarray, cropping: Cropping) -> Windows:
    """Boxes [N, 4] (x1, y1, x2, y2) -> windows of the input's aspect ratio, b = max(w H / W, h) x box_scale high."""
    boxes = check_boxes(boxes_px)
    center, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    width, height = cropping.input_wh
    side = np.maximum(size[:, 0] * height / width, size[:, 1]) * cropping.box_scale
    half = side[:, None] * np.array([width / height, 1.0]) / 2
    first = cropping.to_pixel(center - half).astype(int)
    end = np.maximum(cropping.to_pixel(center + half).astype(int), first + 1)
    if (end - first).max(initial=0) > LARGEST_PX:
        raise UserError(
            f"a box is {int(side.max())} pixels high; boxes must be pixels of the image, at most {LARGEST_PX}."
        )
    return Windows(center, side, first, end)


def cut(image: np.ndarray, where: Windows, cropping: Cropping) -> Tensor:
    """Crops of an RGB uint8 image, float32 [N, 3, H, W] on a scale of 0..255."""
    check_image(image)
    width, height = cropping.input_wh
    crops = np.empty((len(where.first), height, width, 3), np.float32)
    for crop, first, end in zip(crops, where.first, where.end, strict=True):
        window = _window(image, first, end)
        smaller = window.shape[0] > height or window.shape[1] > width
        cv2.resize(window, (width, height), crop, interpolation=cropping.shrink if smaller else cv2.INTER_LINEAR)
    return torch.from_numpy(crops).permute(0, 3, 1, 2)


def _window(image: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Pixels first <= p < end, float32; zero outside the image."""
    size = np.array(image.shape[1::-1])
    inside, beyond = np.clip(first, 0, size), np.clip(end, 0, size)
    window = np.zeros((end[1] - first[1], end[0] - first[0], 3), np.float32)
    (x, y), (x_end, y_end) = inside - first, beyond - first
    window[y:y_end, x:x_end] = image[inside[1] : beyond[1], inside[0] : beyond[0]]
    return window
