"""Image and boxes -> keypoints in the image, with the network's own confidence and its features.

Everything that runs a pose network calls `estimate_crops`: `fitmesh run` and `eval-3dpw` through `estimate_frames`,
`eval-coco` through `estimate`, `train-ccnet` with augmented crops of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pose2d import crops as cropping
from pose2d.base.prefetch import prefetch
from pose2d.models.base import PoseModel

BATCH = 16  # crops through the network at once, of one frame or several


@dataclass(frozen=True)
class Crops:
    """N people cut out of images."""

    pixels: Tensor  # [N, 3, H, W] uint8, RGB
    affine: np.ndarray  # [N, 2, 3] image pixels -> crop pixels


@dataclass(frozen=True)
class PoseEstimate:
    """A network's output for N people."""

    xy_px: Tensor  # [N, K, 2] image pixels (cpu)
    score: Tensor  # [N, K] the network's own (raw) confidence (cpu)
    sigma_px: Tensor  # [N, K, 2] image pixels per axis; NaN where the network states none (cpu)
    crop_area_px2: Tensor  # [N] of each crop in image pixels^2 (cpu)
    features: Tensor  # [N, *feature_shape] what CCNet reads (stays on the network's device)
    flipped_features: Tensor | None  # of the mirrored crops, with the flip test


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
    )


def estimate(
    model: PoseModel, image: np.ndarray, boxes_px: np.ndarray, flip_test: bool = False, batch: int = 32
) -> PoseEstimate:
    """Keypoints of the people in boxes [N, 4] (x1, y1, x2, y2) of one RGB uint8 image."""
    crops = crop_people(model, image, boxes_px)
    starts = range(0, max(len(crops.affine), 1), batch)
    parts = [estimate_crops(model, _rows(crops, slice(first, first + batch)), flip_test) for first in starts]
    flipped = [part.flipped_features for part in parts if part.flipped_features is not None]
    with torch.inference_mode():
        return PoseEstimate(
            xy_px=torch.cat([part.xy_px for part in parts]),
            score=torch.cat([part.score for part in parts]),
            sigma_px=torch.cat([part.sigma_px for part in parts]),
            crop_area_px2=torch.cat([part.crop_area_px2 for part in parts]),
            features=torch.cat([part.features for part in parts]),
            flipped_features=torch.cat(flipped) if flipped else None,
        )


def estimate_frames(
    model: PoseModel,
    frames: Iterable[tuple[int, np.ndarray]],  # frame number and RGB uint8 image, in order
    row_frame: np.ndarray,  # [N] frame number of each person
    boxes_px: np.ndarray,  # [N, 4] where that person is; NaN: not in the frame
    batch: int = BATCH,
) -> Iterator[tuple[np.ndarray, PoseEstimate]]:
    """Rows [n] and their estimates, in the order of the frames, `batch` rows at a time.

    A batch may hold rows of several frames; rows of one frame stay in order. Reading stops after the last frame that
    has a row. Frames are read and cropped in a second thread while the network runs in this one.
    """
    rows_of_frame: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.isfinite(boxes_px).all(-1)).tolist():
        rows_of_frame.setdefault(int(row_frame[row]), []).append(row)
    if rows_of_frame:
        for rows, crops in prefetch(_batches(model, frames, rows_of_frame, boxes_px, batch), depth=1):
            yield rows, estimate_crops(model, crops)


def _batches(
    model: PoseModel,
    frames: Iterable[tuple[int, np.ndarray]],
    rows_of_frame: dict[int, list[int]],
    boxes_px: np.ndarray,
    batch: int,
) -> Iterator[tuple[np.ndarray, Crops]]:
    """Crops of all rows. Joined by NumPy: torch's arithmetic in a second thread takes the cores from the network."""
    last = max(rows_of_frame)
    rows = np.zeros(0, np.int64)
    crops = Crops(torch.zeros(0, 3, *model.input_wh[::-1], dtype=torch.uint8), np.zeros((0, 2, 3)))
    for number, image in frames:
        new_rows = np.array(rows_of_frame.get(number, ()), np.int64)
        if len(new_rows):
            new = crop_people(model, image, boxes_px[new_rows])
            rows = np.concatenate([rows, new_rows])
            pixels = torch.from_numpy(np.concatenate([crops.pixels.numpy(), new.pixels.numpy()]))
            crops = Crops(pixels, np.concatenate([crops.affine, new.affine]))
        while len(rows) >= batch:
            yield rows[:batch], _rows(crops, slice(None, batch))
            rows, crops = rows[batch:], _rows(crops, slice(batch, None))
        if number >= last:
            break
    if len(rows):
        yield rows, crops


def _rows(crops: Crops, rows: slice) -> Crops:
    return Crops(crops.pixels[rows], crops.affine[rows])
