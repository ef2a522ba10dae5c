"""Read keypoints with calibrated confidence, and a second time where the first reading is doubtful.

Pose networks have seen few people who lie or stand on their hands, and read them better in a crop
that is turned upright. A person is read again in a crop turned by quarters: to where the torso of
the first reading points up, and in all directions where the first reading is hardly believed. The
reading with the highest expected OKS counts, if it is clearly better than the first.

bench/turned_readings.py measures it on rendered people."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import torch

from pose2d.crops import (
    BATCH,
    Crops,
    PoseEstimate,
    affines,
    check_boxes,
    cut,
    estimate_crops,
    estimate_people,
)
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints

# Mean confidence of the keypoints in the image below which all directions are tried. Chosen with
# CLEARLY_BETTER on a part of the people of bench/turned_readings.py; values up to 0.65 do not help.
HARDLY_BELIEVED = 0.35
# Smaller people are read in one way only: their keypoints are doubtful for want of pixels. Not tuned.
LEAST_PX = 96.0  # of a box's longer side
CLEARLY_BETTER = 0.05  # by how much the mean expected OKS of a turned reading has to be higher
INSIDE = 0.5  # least presence of a keypoint that is stated to be in the image
# Rotations of the image by 0 to 3 quarters, anticlockwise as it is seen.
QUARTERS = np.array([[[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]]])
_SHOULDERS = [COCO17.keypoints.index(f"{side}_shoulder") for side in ("left", "right")]
_HIPS = [COCO17.keypoints.index(f"{side}_hip") for side in ("left", "right")]


class KeypointReader:
    """Reads one person in each of many boxes with a pose network and a confidence."""

    def __init__(self, model: PoseModel, confidence: Callable[[PoseEstimate], Keypoints]) -> None:
        self.first_readings = 0
        self.second_readings = 0
        self._model = model
        self._confidence = confidence
        self._lock = Lock()

    @torch.inference_mode()
    def __call__(
        self, images: Sequence[np.ndarray], boxes_px: np.ndarray
    ) -> tuple[np.ndarray, Keypoints]:
        """Return the boxes [N, 4] that were used and the keypoints in them, one image a box."""
        boxes_px, poses = estimate_people(self._model, images, boxes_px)
        first = self._confidence(poses)
        with self._lock:
            self.first_readings += len(first)
        if first.source != "ccnet" or self._model.crop == "square" or not len(first):
            return boxes_px, first
        is_large = (boxes_px[:, 2:] - boxes_px[:, :2]).max(1) >= LEAST_PX
        box, quarter = np.nonzero(doubtful_directions(first) & is_large[:, None])
        with self._lock:
            self.second_readings += len(box)
        best = first
        best_score = expected_oks(first) + CLEARLY_BETTER
        for number in (1, 2, 3):
            rows = box[quarter == number]
            if not len(rows):
                continue
            again = self._read_turned([images[row] for row in rows], boxes_px[rows], number)
            score = expected_oks(again)
            is_better = score > best_score[rows]
            best = best.put(torch.from_numpy(rows[is_better]), again.rows(is_better))
            best_score[rows] = np.maximum(score, best_score[rows])
        return boxes_px, best

    def _read_turned(
        self, images: Sequence[np.ndarray], boxes_px: np.ndarray, quarter: int
    ) -> Keypoints:
        """Return the keypoints read in crops that are turned by quarters."""
        parts = []
        for first in range(0, len(boxes_px), BATCH):
            rows = slice(first, first + BATCH)
            crops = [
                turned_crop(self._model, image, box, quarter)
                for image, box in zip(images[rows], boxes_px[rows], strict=True)
            ]
            pixels = torch.cat([crop.pixels for crop in crops])
            affine = np.concatenate([crop.affine for crop in crops])
            parts.append(self._confidence(estimate_crops(self._model, Crops(pixels, affine))))
        keypoints = Keypoints.concat(parts)
        return turn_errors(keypoints) if quarter % 2 else keypoints


def expected_oks(keypoints: Keypoints) -> np.ndarray:
    """Return the expected OKS [N] of the body's keypoints, where those outside count as 0."""
    body = slice(COCO17.size)
    return np.asarray((keypoints.confidence * keypoints.presence)[:, body].double().mean(1))


def doubtful_directions(keypoints: Keypoints) -> np.ndarray:
    """Return by which quarters crops should be turned for a second reading, bool [N, 4].

    Turned by column c of a row, the torso of that reading points up, or the reading as a whole is
    hardly believed. Column 0 is the first reading itself."""
    xy_px = keypoints.xy_px.double().numpy()
    torso = xy_px[:, _SHOULDERS].mean(1) - xy_px[:, _HIPS].mean(1)
    angle = np.arctan2(torso[:, 0], -torso[:, 1])  # 0: up, a quarter: to the right
    upright = np.round(angle / (np.pi / 2)).astype(int) % 4
    confidence = keypoints.confidence[:, : COCO17.size].numpy()
    presence = keypoints.presence[:, : COCO17.size].numpy()
    is_torso_inside = (presence[:, [*_SHOULDERS, *_HIPS]] >= INSIDE).all(1)
    is_inside = presence >= INSIDE
    mean = (confidence * is_inside).sum(1) / np.maximum(is_inside.sum(1), 1)
    directions = np.repeat((mean < HARDLY_BELIEVED)[:, None], 4, 1)
    directions[is_torso_inside, upright[is_torso_inside]] = True
    directions[:, 0] = False
    return directions


def turned_crop(model: PoseModel, image: np.ndarray, box_px: np.ndarray, quarter: int) -> Crops:
    """Return the crop of a box [4], turned by quarters anticlockwise, and its affine map."""
    box = check_boxes(box_px[None])[0]
    centre = (box[:2] + box[2:]) / 2
    half = (box[2:] - box[:2]) / 2
    half = half[::-1] if quarter % 2 else half
    turned_box = np.concatenate([-half, half])[None]
    affine = affines(turned_box, model.input_wh, model.box_scale, model.crop)
    linear = affine[:, :, :2] @ QUARTERS[quarter]
    affine = np.concatenate([linear, affine[:, :, 2:] - linear @ centre[:, None]], 2)
    return Crops(cut(image, affine, model.input_wh), affine)


def turn_errors(keypoints: Keypoints) -> Keypoints:
    """Return keypoints whose stated errors along x and y trade places, as after a quarter turn."""
    error = keypoints.error
    if error is None or error.log_ratio is None:
        return keypoints
    return replace(keypoints, error=replace(error, log_ratio=-error.log_ratio))
