"""Image and boxes -> keypoints in the image, with the network's own confidence and its features.

Everything that runs a pose network calls `estimate_crops`: `fitmesh run` and `eval-3dpw` through `estimate_people`,
`eval-coco` through `estimate`, `train-ccnet` with augmented crops of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pose2d import crops as cropping
from pose2d.base.table import Table, column
from pose2d.models.base import PoseModel

BATCH = 4  # crops through the network at once: 8 save 3 % of the time and take 50 MB more
# A crop grows where keypoints lie on its edge. bench/people.py measures what it brings; the numbers are not tuned.
EDGE = 0.02  # this near the edge, as a share of the crop's side
EDGE_SCORE = 0.3  # raw score of keypoints that count
GROW = 0.1  # margin around the keypoints, as a share of their extent


@dataclass(frozen=True)
class Crops:
    """N people cut out of images."""

    pixels: Tensor  # [N, 3, H, W] uint8, RGB
    affine: np.ndarray  # [N, 2, 3] image pixels -> crop pixels


@dataclass(frozen=True)
class PoseEstimate(Table):
    """A network's output for N people, on the CPU but for the features."""

    xy_px: Tensor = column(("keypoints", 2), "f", "in the image", unit="px")  # [N, K, 2]
    score: Tensor = column(("keypoints",), "f", "the network's own (raw) confidence")  # [N, K]
    sigma_px: Tensor = column(("keypoints", 2), "f", "std per axis; NaN where the network states none", unit="px")
    crop_area_px2: Tensor = column((), "f", "of each crop in the image", unit="px^2")  # [N]
    features: Tensor = column((), "f", "what CCNet reads")  # [N, *feature_shape] on the network's device
    flipped_features: Tensor | None = column((), "f", "of the mirrored crops, with the flip test", optional=True)
    heatmap_score: Tensor | None = column(("keypoints",), "f", "where there is one beside `score`", optional=True)


def crop_people(model: PoseModel, image: np.ndarray, boxes_px: np.ndarray) -> Crops:
    """The network's crops of boxes [N, 4] (x1, y1, x2, y2) in an RGB uint8 image."""
    return Crops(*cropping.crop_boxes(image, boxes_px, model.input_wh, model.box_scale, model.crop))


@torch.inference_mode()
def estimate_crops(model: PoseModel, crops: Crops, flip_test: bool = False) -> PoseEstimate:
    """One pass of the network over all crops, on the device of its parameters."""
    inputs = model.normalize(crops.pixels.to(next(model.parameters()).device))
    features = model.features(inputs)
    flipped = model.features(inputs.flip(-1)) if flip_test else None
    prediction = model.predict(features) if flipped is None else model.predict_flip(features, flipped)
    image_from_crop = cropping.invert(crops.affine)
    # image pixels^2 per crop pixel^2
    zoom = torch.from_numpy(np.abs(np.linalg.det(image_from_crop[:, :, :2]))).float()
    sigma = torch.full_like(prediction.xy_px, torch.nan) if prediction.sigma_px is None else prediction.sigma_px
    return PoseEstimate(
        xy_px=cropping.move(image_from_crop, prediction.xy_px.cpu().double()).float(),
        score=prediction.score.float().cpu(),
        sigma_px=sigma.float().cpu() * zoom.sqrt()[:, None, None],
        crop_area_px2=zoom * model.input_wh[0] * model.input_wh[1],
        features=features,
        flipped_features=flipped,
        heatmap_score=None if prediction.heatmap_score is None else prediction.heatmap_score.float().cpu(),
    )


def estimate(
    model: PoseModel, image: np.ndarray, boxes_px: np.ndarray, flip_test: bool = False, batch: int = 32
) -> PoseEstimate:
    """Keypoints of the people in boxes [N, 4] (x1, y1, x2, y2) of one RGB uint8 image."""
    crops = crop_people(model, image, boxes_px)
    parts = [slice(first, first + batch) for first in range(0, max(len(crops.affine), 1), batch)]
    return PoseEstimate.concat(
        [estimate_crops(model, Crops(crops.pixels[p], crops.affine[p]), flip_test) for p in parts]
    )


def estimate_people(
    model: PoseModel, images: Sequence[np.ndarray], boxes_px: np.ndarray
) -> tuple[np.ndarray, PoseEstimate]:
    """One person in a box [N, 4] of each image [N]: boxes as they were used, and what the network says. A box that cuts
    a person off grows, once: where confident keypoints lie on the edge of their crop, the crop is made again around the
    keypoints. Images may repeat, for several people in one."""
    boxes_px = np.asarray(boxes_px, np.float64).reshape(-1, 4)
    poses = PoseEstimate.concat([_one_pass(model, images, boxes_px, rows) for rows in _parts(len(boxes_px))])
    grown = grow_boxes(boxes_px, poses, [image.shape[1::-1] for image in images], model)
    rows = np.flatnonzero((grown != boxes_px).any(1))
    if len(rows):
        again = [_one_pass(model, images, grown, rows[part]) for part in _parts(len(rows))]
        order = np.arange(len(boxes_px))
        order[rows] = len(boxes_px) + np.arange(len(rows))
        poses = PoseEstimate.concat([poses, *again]).rows(torch.from_numpy(order))
    return grown, poses


def grow_boxes(
    boxes_px: np.ndarray, poses: PoseEstimate, image_wh: Sequence[tuple[int, ...]], model: PoseModel
) -> np.ndarray:
    """Boxes [N, 4]: as they are, or around the keypoints where some lie on the crop's edge inside the image."""
    if not len(boxes_px):
        return boxes_px
    xy, sure = poses.xy_px.double().numpy(), poses.score.numpy() >= EDGE_SCORE
    size = np.array(image_wh, np.float64)
    centre, side = cropping.regions(boxes_px, model.input_wh, model.box_scale)
    first, last, margin = centre - side / 2, centre + side / 2, (EDGE * side)[:, None]
    on_edge = (xy <= first[:, None] + margin) | (xy >= last[:, None] - margin)  # [N, K, 2]
    inside = (xy > margin) & (xy < size[:, None] - 1 - margin)  # the image's own edge cuts everybody off
    wanted = np.asarray(((on_edge & inside).any(-1) & sure).any(1))
    low = np.where(sure[..., None], xy, np.inf).min(1)
    high = np.where(sure[..., None], xy, -np.inf).max(1)
    extent = np.where(wanted[:, None], high - low, 0.0)
    reach = np.concatenate([np.maximum(low - GROW * extent, 0), np.minimum(high + GROW * extent, size - 1)], 1)
    grown = np.concatenate([np.minimum(boxes_px[:, :2], reach[:, :2]), np.maximum(boxes_px[:, 2:], reach[:, 2:])], 1)
    # Nobody doubles in size for one keypoint: that would be somebody else's limb.
    sides, new_sides = boxes_px[:, 2:] - boxes_px[:, :2], grown[:, 2:] - grown[:, :2]
    rows = np.flatnonzero(wanted & (new_sides.max(1) <= 2 * sides.max(1)))
    out = boxes_px.copy()
    out[rows] = grown[rows]
    return out


def _parts(count: int) -> list[slice]:
    return [slice(first, first + BATCH) for first in range(0, max(count, 1), BATCH)]


def _one_pass(
    model: PoseModel, images: Sequence[np.ndarray], boxes_px: np.ndarray, rows: slice | np.ndarray
) -> PoseEstimate:
    chosen = np.arange(len(boxes_px))[rows]
    parts = [crop_people(model, images[row], boxes_px[row : row + 1]) for row in chosen]
    pixels = [part.pixels.numpy() for part in parts] or [np.zeros((0, 3, *model.input_wh[::-1]), np.uint8)]
    affine = [part.affine for part in parts] or [np.zeros((0, 2, 3))]
    return estimate_crops(model, Crops(torch.from_numpy(np.concatenate(pixels)), np.concatenate(affine)))
