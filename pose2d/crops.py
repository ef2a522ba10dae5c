"""A box in an image becomes a network's input, and the network's coordinates go back into the image.

Coordinates count pixels from the centre of the top left one, as OpenCV and COCO's keypoints do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pose2d.base.errors import UserError

CropConvention = Literal["sbl", "udp", "square"]
GREY = 127  # the middle of the colours: what a network that reads -1..1 takes for nothing


def check_image(image: np.ndarray) -> None:
    """Refuse what is not an RGB image, in words."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise UserError(
            f"an image must be RGB uint8 of shape [height, width, 3], got {image.dtype} {list(image.shape)}."
        )


def check_boxes(boxes_px: np.ndarray) -> np.ndarray:
    """Boxes as float64 [N, 4] with x1, y1, x2, y2; refuse what is no box, in words."""
    boxes = np.asarray(boxes_px, np.float64)
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise UserError(f"boxes must have shape [N, 4] (x1, y1, x2, y2 in pixels), got {list(boxes.shape)}.")
    size = boxes[:, 2:] - boxes[:, :2]
    wrong = ~np.isfinite(boxes).all(1) | (size < 0).any(1) | (size <= 0).all(1)
    if wrong.any():
        raise UserError(f"box {boxes[wrong][0].tolist()} is not x1, y1, x2, y2 with x2 > x1 and y2 > y1.")
    return boxes


def regions(boxes_px: np.ndarray, input_wh: tuple[int, int], box_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Boxes [N, 4] -> centre [N, 2] and size [N, 2] of what is cropped: the input's aspect ratio, then grown."""
    boxes = check_boxes(boxes_px)
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    aspect = input_wh[0] / input_wh[1]
    width = np.maximum(width, height * aspect)
    return centre, np.stack([width, width / aspect], 1) * box_scale


def affines(
    boxes_px: np.ndarray,
    input_wh: tuple[int, int],
    box_scale: float,
    convention: CropConvention,
    rotation_deg: float = 0.0,
) -> np.ndarray:
    """Image pixels -> crop pixels for each box, [N, 2, 3]. With (cx, cy), (w, h) the region and (W, H) the input: "sbl"
    scales W/w on both axes, the region's centre lands on (W/2, H/2); "udp" scales (W-1)/w and (H-1)/h, the centre lands
    on ((W-1)/2, (H-1)/2); "square" is as "sbl", but `crop_boxes` shows nothing but the grown box itself. A positive
    rotation turns the crop's content against the clock."""
    centre, size = regions(boxes_px, input_wh, box_scale)
    target = np.asarray(input_wh, np.float64) - (1 if convention == "udp" else 0)
    angle = np.deg2rad(rotation_deg)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    linear = (target / size)[:, :, None] * turn
    shift = target / 2 - np.einsum("nij,nj->ni", linear, centre)
    return np.concatenate([linear, shift[:, :, None]], 2)


def invert(affine: np.ndarray) -> np.ndarray:
    """The way back, [N, 2, 3]."""
    linear = np.linalg.inv(affine[:, :, :2])
    return np.concatenate([linear, -np.einsum("nij,njk->nik", linear, affine[:, :, 2:])], 2)


def move(affine: np.ndarray, xy: Tensor) -> Tensor:
    """Points [N, K, 2] through affine maps [N, 2, 3]."""
    matrix = torch.from_numpy(affine).to(xy)
    return torch.einsum("nij,nkj->nki", matrix[:, :, :2], xy) + matrix[:, None, :, 2]


def crop_boxes(
    image: np.ndarray,
    boxes_px: np.ndarray,
    input_wh: tuple[int, int],
    box_scale: float,
    convention: CropConvention,
    antialias: bool = True,
) -> tuple[Tensor, np.ndarray]:
    """Crops uint8 [N, 3, H, W] of an RGB image and the affine maps [N, 2, 3] that made them. "sbl" and "udp" fill the
    input's whole frame from the image, black beyond its edges. "square" shows the grown box only and leaves the rest of
    the square grey, so that a narrow box does not show its neighbours."""
    affine = affines(boxes_px, input_wh, box_scale, convention)
    if convention != "square":
        return cut(image, affine, input_wh, antialias), affine
    pixels = cut(image, affine, input_wh, antialias, fill=GREY)
    shown = grown_boxes(boxes_px, box_scale, affine)
    first, end = np.ceil(shown[:, :2]).astype(int).clip(0), (np.floor(shown[:, 2:]).astype(int) + 1).clip(0)
    for crop, (left, top), (right, bottom) in zip(pixels.numpy(), first, end, strict=True):
        crop[:, :top], crop[:, bottom:], crop[:, :, :left], crop[:, :, right:] = GREY, GREY, GREY, GREY
    return pixels, affine


def grown_boxes(boxes_px: np.ndarray, box_scale: float, affine: np.ndarray) -> np.ndarray:
    """What a "square" crop shows: the grown boxes [N, 4], x1, y1, x2, y2 in crop pixels."""
    boxes = check_boxes(boxes_px)
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2 * box_scale
    corners = torch.from_numpy(np.stack([centre - half, centre + half], 1))
    return move(affine, corners).flatten(1).numpy()


def cut(
    image: np.ndarray,
    affine: np.ndarray,
    input_wh: tuple[int, int],
    antialias: bool = True,
    fill: int = 0,
) -> Tensor:
    """One crop per affine map [N, 2, 3] of an RGB image: uint8 [N, 3, H, W], `fill` outside the image."""
    check_image(image)
    width, height = input_wh
    crops = np.full((len(affine), height, width, 3), fill, np.uint8)
    for crop, forward, back in zip(crops, affine, invert(affine), strict=True):
        _cut_one(image, forward, back, crop, antialias, fill)
    return torch.from_numpy(crops).permute(0, 3, 1, 2)


def shrunk(image: np.ndarray, size_wh: Sequence[int]) -> np.ndarray:
    """An RGB uint8 image in fewer pixels, antialiased. torch's filter takes a third of the time of OpenCV's."""
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
    small = F.interpolate(pixels, (size_wh[1], size_wh[0]), mode="bilinear", antialias=True)
    return np.ascontiguousarray(small[0].permute(1, 2, 0).numpy())


def _cut_one(
    image: np.ndarray, forward: np.ndarray, back: np.ndarray, crop: np.ndarray, antialias: bool, fill: int
) -> None:
    height, width = crop.shape[:2]
    corners = np.array([[-1, -1, 1], [width, -1, 1], [-1, height, 1], [width, height, 1]]) @ back.T
    image_wh = np.array([image.shape[1], image.shape[0]])
    shrink = np.sqrt(abs(np.linalg.det(back[:, :2])))  # image pixels per crop pixel
    margin = 1 + int(np.ceil(shrink))
    first = np.clip(np.floor(corners.min(0)) - margin, 0, image_wh).astype(int)
    end = np.clip(np.ceil(corners.max(0)) + margin, 0, image_wh).astype(int)
    if (end <= first).any():
        return  # the box lies outside the image
    part = image[first[1] : end[1], first[0] : end[0]]
    factor = np.ones(2)
    if antialias and shrink > 1:  # weigh all the pixels that fall into one, then sample
        small = np.maximum(np.round((end - first) / shrink), 1).astype(int)
        factor = (end - first) / small
        part = shrunk(part, small.tolist())
    # Pixel centres of `part` in the image: first + factor * (p + 1/2) - 1/2.
    matrix = np.empty((2, 3))
    matrix[:, :2] = forward[:, :2] * factor
    matrix[:, 2] = forward[:, 2] + forward[:, :2] @ (first + factor / 2 - 0.5)
    border = (fill, fill, fill)
    cv2.warpAffine(part, matrix, (width, height), crop, cv2.INTER_LINEAR, cv2.BORDER_CONSTANT, border)


@dataclass(frozen=True)
class Normalization:
    """(crop / 255 - mean) / std, per channel in the network's own order."""

    mean: tuple[float, float, float]  # per input channel, on a scale of 0..1
    std: tuple[float, float, float]
    bgr: bool = False  # the network takes blue first

    def __call__(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255, uint8 or float -> the network's input, float."""
        x = crops if torch.is_floating_point(crops) else crops.float()
        if self.bgr:
            x = x.flip(1)
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(3, 1, 1)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(3, 1, 1)
        return torch.addcmul(-mean / std, x, 1 / (255 * std))


_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_RGB = Normalization(_MEAN, _STD)
# The official Simple Baselines read images with OpenCV and never turned them round: blue gets red's mean.
IMAGENET_BGR = Normalization(_MEAN, _STD, bgr=True)
# Official RLE: a mean of its own, and nothing scaled.
RLE_RGB = Normalization((0.406, 0.457, 0.480), (1.0, 1.0, 1.0))
