"""Crop people out of images, run the pose network, and map its keypoints back to the image.

Pixel coordinates are 0 at the centre of the top left pixel, as in OpenCV and COCO's keypoints.

Everything that runs a pose network calls `estimate_crops`: `fitmesh run` and `eval-3dpw` through
`estimate_people`, `eval-coco` through `estimate`, `train-ccnet` with augmented crops of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pose2d.base.columns import column
from pose2d.base.errors import UserError
from pose2d.base.table import Table
from pose2d.models.base import CropConvention, PoseModel

GREY = 127  # about 0 for a network that reads colours as -1..1


def check_image(image: np.ndarray) -> None:
    """Refuse what is not an RGB image."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise UserError(
            "an image must be RGB uint8 of shape [height, width, 3], "
            f"got {image.dtype} {list(image.shape)}."
        )


def check_boxes(boxes_px: np.ndarray) -> np.ndarray:
    """Return boxes as float64 [N, 4] (x1, y1, x2, y2), or refuse what is not a box."""
    boxes = np.asarray(boxes_px, np.float64)
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise UserError(
            f"boxes must have shape [N, 4] (x1, y1, x2, y2 in pixels), got {list(boxes.shape)}."
        )
    size = boxes[:, 2:] - boxes[:, :2]
    wrong = ~np.isfinite(boxes).all(1) | (size < 0).any(1) | (size <= 0).all(1)
    if wrong.any():
        raise UserError(
            f"box {boxes[wrong][0].tolist()} is not x1, y1, x2, y2 with x2 > x1 and y2 > y1."
        )
    return boxes


def regions(
    boxes_px: np.ndarray, input_wh: tuple[int, int], box_scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return centre [N, 2] and size [N, 2] of the regions that are cropped for boxes [N, 4].

    Boxes are extended to the input's aspect ratio and then grown by `box_scale`."""
    boxes = check_boxes(boxes_px)
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    aspect = input_wh[0] / input_wh[1]
    width = np.maximum(width, height * aspect)
    return centre, np.stack([width, width / aspect], 1) * box_scale


def affines(
    boxes_px: np.ndarray, input_wh: tuple[int, int], box_scale: float, convention: CropConvention
) -> np.ndarray:
    """Return the affine maps [N, 2, 3] from image pixels to crop pixels of boxes [N, 4].

    The region is (w, h) and the input (W, H). "sbl" scales by W/w on both axes and moves the
    region's centre to (W/2, H/2). "udp" scales by (W-1)/w and (H-1)/h and moves the centre to
    ((W-1)/2, (H-1)/2). "square" is as "sbl", but `crop_boxes` shows only the grown box itself."""
    centre, size = regions(boxes_px, input_wh, box_scale)
    target = np.asarray(input_wh, np.float64) - (1 if convention == "udp" else 0)
    linear = (target / size)[:, :, None] * np.eye(2)
    shift = target / 2 - np.einsum("nij,nj->ni", linear, centre)
    return np.concatenate([linear, shift[:, :, None]], 2)


def invert(affine: np.ndarray) -> np.ndarray:
    """Invert affine maps [N, 2, 3]."""
    linear = np.linalg.inv(affine[:, :, :2])
    return np.concatenate([linear, -np.einsum("nij,njk->nik", linear, affine[:, :, 2:])], 2)


def move(affine: np.ndarray, xy: Tensor) -> Tensor:
    """Apply affine maps [N, 2, 3] to points [N, K, 2]."""
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
    """Return crops uint8 [N, 3, H, W] of an RGB image and the affine maps [N, 2, 3] that made them.

    "sbl" and "udp" fill the crop from the image, black beyond its edges. "square" shows only the
    grown box and makes the rest of the square grey, so that the crop of a narrow box does not show
    other people."""
    affine = affines(boxes_px, input_wh, box_scale, convention)
    if convention != "square":
        return cut(image, affine, input_wh, antialias), affine
    pixels = cut(image, affine, input_wh, antialias, fill=GREY)
    visible = grown_boxes(boxes_px, box_scale, affine)
    first = np.ceil(visible[:, :2]).astype(int).clip(0)
    end = (np.floor(visible[:, 2:]).astype(int) + 1).clip(0)
    for crop, (left, top), (right, bottom) in zip(pixels.numpy(), first, end, strict=True):
        crop[:, :top] = GREY
        crop[:, bottom:] = GREY
        crop[:, :, :left] = GREY
        crop[:, :, right:] = GREY
    return pixels, affine


def grown_boxes(boxes_px: np.ndarray, box_scale: float, affine: np.ndarray) -> np.ndarray:
    """Return the grown boxes [N, 4] that "square" crops show: x1, y1, x2, y2 in crop pixels."""
    boxes = check_boxes(boxes_px)
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    half = (boxes[:, 2:] - boxes[:, :2]) / 2 * box_scale
    corners = torch.from_numpy(np.stack([centre - half, centre + half], 1))
    return move(affine, corners).flatten(1).numpy()


def cut(
    image: np.ndarray,
    affine: np.ndarray,
    input_wh: tuple[int, int],
    antialias: bool = True,
    fill: int = 0,
) -> Tensor:
    """Return a crop for each affine map [N, 2, 3] of an RGB image, uint8 [N, 3, H, W].

    Pixels outside the image are `fill`."""
    check_image(image)
    width, height = input_wh
    image_wh = np.array(image.shape[1::-1])
    crops = np.full((len(affine), height, width, 3), fill, np.uint8)
    corners = np.array([[-1, -1, 1], [width, -1, 1], [-1, height, 1], [width, height, 1]])
    for crop, forward, back in zip(crops, affine, invert(affine), strict=True):
        region = corners @ back.T
        shrink = np.sqrt(abs(np.linalg.det(back[:, :2])))  # image pixels per crop pixel
        margin = 1 + int(np.ceil(shrink))
        first = np.clip(np.floor(region.min(0)) - margin, 0, image_wh).astype(int)
        end = np.clip(np.ceil(region.max(0)) + margin, 0, image_wh).astype(int)
        if (end <= first).any():
            continue  # the box lies outside the image
        part = image[first[1] : end[1], first[0] : end[0]]
        factor = np.ones(2)
        if antialias and shrink > 1:  # average the pixels that fall into one, then sample
            small = np.maximum(np.round((end - first) / shrink), 1).astype(int)
            factor = (end - first) / small
            # torch's filter takes a third of the time of OpenCV's.
            pixels = torch.from_numpy(part).permute(2, 0, 1)[None]
            pixels = F.interpolate(pixels, small[::-1].tolist(), mode="bilinear", antialias=True)
            part = np.ascontiguousarray(pixels[0].permute(1, 2, 0).numpy())
        # Pixel centres of `part` in the image: first + factor * (p + 1/2) - 1/2.
        shift = forward[:, 2] + forward[:, :2] @ (first + factor / 2 - 0.5)
        matrix = np.column_stack([forward[:, :2] * factor, shift])
        border = (cv2.BORDER_CONSTANT, (fill, fill, fill))
        cv2.warpAffine(part, matrix, (width, height), crop, cv2.INTER_LINEAR, *border)
    return torch.from_numpy(crops).permute(0, 3, 1, 2)


def turns(angle: np.ndarray) -> np.ndarray:
    """Return rotations [N, 2, 2] by angles [N], from the axes of turned squares to the image's."""
    cos = np.cos(angle)
    sin = np.sin(angle)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


def squares(images: Sequence[np.ndarray], regions: np.ndarray, side: int) -> Tensor:
    """Return a square of each RGB image [N] for MediaPipe's networks, [N, side, side, 3] in 0..1.

    regions [N, 4]: x and y of the centre, side in pixels, and angle that the square is turned by.
    """
    crops = np.empty((len(regions), side, side, 3), np.float32)
    rotations = turns(regions[:, 3])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    for image, region, rotation, crop in zip(images, regions, rotations, crops, strict=True):
        # From crop to image. The centre of a pixel has integer coordinates in the image, and those
        # of an integer plus 1/2 in the crop.
        step = rotation * region[2] / side
        affine = np.column_stack([step, region[:2] - step.sum(1) * (side - 1) / 2])
        crop[:] = cv2.warpAffine(image, affine, (side, side), flags=flags)
    crops /= 255
    return torch.from_numpy(crops)


BATCH = 2  # crops through the network at once: more save no time and take more memory
# A crop grows where keypoints lie on its edge. bench/people.py measures the effect; the numbers are
# not tuned.
EDGE = 0.02  # width of the edge as a share of the crop's side
EDGE_SCORE = 0.3  # least raw score of keypoints that count
GROW = 0.1  # margin around the keypoints, as a share of their extent


@dataclass(frozen=True)
class Crops:
    """Crops of N people."""

    pixels: Tensor  # [N, 3, H, W] uint8, RGB
    affine: np.ndarray  # [N, 2, 3] image pixels -> crop pixels


@dataclass(frozen=True)
class PoseEstimate(Table):
    """A network's output for N people; features stay on its device, the rest is on the CPU."""

    xy_px: Tensor = column(("keypoints", 2), "f", "in the image", unit="px")  # [N, K, 2]
    score: Tensor = column(("keypoints",), "f", "the network's own (raw) confidence")  # [N, K]
    sigma_px: Tensor = column(
        ("keypoints", 2), "f", "std per axis; NaN where the network states none", unit="px"
    )
    crop_area_px2: Tensor = column((), "f", "of each crop in the image", unit="px^2")  # [N]
    features: Tensor = column((), "f", "input of CCNet")  # [N, *feature_shape]
    flipped_features: Tensor | None = column(
        (), "f", "of the mirrored crops, with the flip test", optional=True
    )
    heatmap_score: Tensor | None = column(
        ("keypoints",), "f", "where there is one beside `score`", optional=True
    )


def crop_people(model: PoseModel, image: np.ndarray, boxes_px: np.ndarray) -> Crops:
    """Crop boxes [N, 4] (x1, y1, x2, y2) out of an RGB uint8 image for a network."""
    return Crops(*crop_boxes(image, boxes_px, model.input_wh, model.box_scale, model.crop))


@torch.inference_mode()
def estimate_crops(model: PoseModel, crops: Crops, flip_test: bool = False) -> PoseEstimate:
    """Run the network on all crops at once, on the device of its parameters."""
    inputs = model.normalize(crops.pixels.to(next(model.parameters()).device))
    features = model.features(inputs)
    flipped = None
    if flip_test:
        flipped = model.features(inputs.flip(-1))
        prediction = model.predict_flip(features, flipped)
    else:
        prediction = model.predict(features)
    image_from_crop = invert(crops.affine)
    # image pixels^2 per crop pixel^2
    zoom = torch.from_numpy(np.abs(np.linalg.det(image_from_crop[:, :, :2]))).float()
    sigma = prediction.sigma_px
    if sigma is None:
        sigma = torch.full_like(prediction.xy_px, torch.nan)
    heatmap_score = prediction.heatmap_score
    if heatmap_score is not None:
        heatmap_score = heatmap_score.float().cpu()
    return PoseEstimate(
        xy_px=move(image_from_crop, prediction.xy_px.cpu().double()).float(),
        score=prediction.score.float().cpu(),
        sigma_px=sigma.float().cpu() * zoom.sqrt()[:, None, None],
        crop_area_px2=zoom * model.input_wh[0] * model.input_wh[1],
        features=features,
        flipped_features=flipped,
        heatmap_score=heatmap_score,
    )


def estimate(
    model: PoseModel,
    image: np.ndarray,
    boxes_px: np.ndarray,
    flip_test: bool = False,
    batch: int = 32,
) -> PoseEstimate:
    """Estimate keypoints of the people in boxes [N, 4] (x1, y1, x2, y2) of one RGB uint8 image."""
    boxes_px = check_boxes(boxes_px)
    return _estimate(model, [image] * len(boxes_px), boxes_px, flip_test, batch)


def _estimate(
    model: PoseModel,
    images: Sequence[np.ndarray],
    boxes_px: np.ndarray,
    flip_test: bool = False,
    batch: int = BATCH,
) -> PoseEstimate:
    """Estimate one person in a box [N, 4] of each image [N], `batch` of them at a time."""
    poses = []
    for first in range(0, max(len(boxes_px), 1), batch):
        rows = range(len(boxes_px))[first : first + batch]
        parts = [crop_people(model, images[row], boxes_px[row : row + 1]) for row in rows]
        pixels = [part.pixels for part in parts] or [
            torch.zeros((0, 3, *model.input_wh[::-1]), dtype=torch.uint8)
        ]
        affine = [part.affine for part in parts] or [np.zeros((0, 2, 3))]
        poses.append(
            estimate_crops(model, Crops(torch.cat(pixels), np.concatenate(affine)), flip_test)
        )
    return PoseEstimate.concat(poses)


def estimate_people(
    model: PoseModel, images: Sequence[np.ndarray], boxes_px: np.ndarray
) -> tuple[np.ndarray, PoseEstimate]:
    """Estimate one person in a box [N, 4] of each image [N]; images may repeat.

    Returns the boxes that were used and the network's output. A box that cuts a person off grows
    once: where confident keypoints lie on the edge of their crop, the crop is made again around the
    keypoints."""
    boxes_px = np.asarray(boxes_px, np.float64).reshape(-1, 4)
    poses = _estimate(model, images, boxes_px)
    grown = grow_boxes(boxes_px, poses, [image.shape[1::-1] for image in images], model)
    rows = np.flatnonzero((grown != boxes_px).any(1))
    if len(rows):
        order = np.arange(len(boxes_px))
        order[rows] = len(boxes_px) + np.arange(len(rows))
        again = _estimate(model, [images[int(row)] for row in rows], grown[rows])
        poses = PoseEstimate.concat([poses, again]).rows(torch.from_numpy(order))
    return grown, poses


def grow_boxes(
    boxes_px: np.ndarray, poses: PoseEstimate, image_wh: Sequence[tuple[int, ...]], model: PoseModel
) -> np.ndarray:
    """Grow boxes [N, 4] around keypoints that lie on their crop's edge inside the image."""
    if not len(boxes_px):
        return boxes_px
    xy = poses.xy_px.double().numpy()
    sure = poses.score.numpy() >= EDGE_SCORE
    size = np.array(image_wh, np.float64)
    centre, side = regions(boxes_px, model.input_wh, model.box_scale)
    first = centre - side / 2
    last = centre + side / 2
    margin = (EDGE * side)[:, None]
    on_edge = (xy <= first[:, None] + margin) | (xy >= last[:, None] - margin)  # [N, K, 2]
    # A larger box shows nothing more where the image itself ends.
    inside = (xy > margin) & (xy < size[:, None] - 1 - margin)
    is_cut_off = np.asarray(((on_edge & inside).any(-1) & sure).any(1))
    low = np.where(sure[..., None], xy, np.inf).min(1)
    high = np.where(sure[..., None], xy, -np.inf).max(1)
    extent = np.where(is_cut_off[:, None], high - low, 0.0)
    low = np.maximum(low - GROW * extent, 0)
    high = np.minimum(high + GROW * extent, size - 1)
    corners = [np.minimum(boxes_px[:, :2], low), np.maximum(boxes_px[:, 2:], high)]
    grown = np.concatenate(corners, 1)
    # Keypoints that would double the box are probably another person's limb.
    sides = boxes_px[:, 2:] - boxes_px[:, :2]
    new_sides = grown[:, 2:] - grown[:, :2]
    rows = np.flatnonzero(is_cut_off & (new_sides.max(1) <= 2 * sides.max(1)))
    out = boxes_px.copy()
    out[rows] = grown[rows]
    return out
