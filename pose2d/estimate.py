"""An image and boxes -> keypoints in the image, with the network's own confidence and its features."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pose2d import crops
from pose2d.models.base import PoseModel


@dataclass(frozen=True)
class People:
    """What a network says of the people in one image."""

    xy_px: Tensor  # [N, K, 2] image pixels
    score: Tensor  # [N, K] the network's own (raw) confidence
    sigma_px: Tensor | None  # [N, K, 2] standard deviation per axis, image pixels, if the network states one
    features: Tensor  # [N, *feature_shape] what CCNet reads
    mirrored: Tensor | None  # [N, *feature_shape] of the mirrored crops, with the flip test
    boxes_px: np.ndarray  # [N, 4] the boxes as given


def crop_people(model: PoseModel, image: np.ndarray, boxes_px: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """The network's crops uint8 [N, 3, H, W] of an RGB image, and the affine maps [N, 2, 3] that made them."""
    return crops.crop_boxes(image, boxes_px, model.input_wh, model.box_scale, model.crop)


def estimate(
    model: PoseModel, image: np.ndarray, boxes_px: np.ndarray, flip_test: bool = False, batch: int = 32
) -> People:
    """Keypoints of the people in boxes [N, 4] (x1, y1, x2, y2) of an RGB uint8 image."""
    pixels, affine = crop_people(model, image, boxes_px)
    features, mirrored, predictions = [], [], []
    with torch.inference_mode():
        for part in pixels.split(batch) if len(pixels) else [pixels]:
            inputs = model.normalize(part)
            features.append(model.features(inputs))
            if flip_test:
                mirrored.append(model.features(inputs.flip(-1)))
                predictions.append(model.predict_flip(features[-1], mirrored[-1]))
            else:
                predictions.append(model.predict(features[-1]))
    back = crops.invert(affine)
    grow = torch.from_numpy(np.sqrt(np.abs(np.linalg.det(back[:, :, :2])))).float()[:, None, None]
    sigma = [p.sigma_px for p in predictions if p.sigma_px is not None]
    return People(
        xy_px=crops.move(back, torch.cat([p.xy_px for p in predictions])),
        score=torch.cat([p.score for p in predictions]),
        sigma_px=torch.cat(sigma) * grow if sigma else None,
        features=torch.cat(features),
        mirrored=torch.cat(mirrored) if mirrored else None,
        boxes_px=np.asarray(boxes_px, np.float64).reshape(-1, 4),
    )
