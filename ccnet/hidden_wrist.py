"""The occlusion test on real people: their right wrist behind a growing blurred patch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ccnet.data.datasets import Person, load_image
from ccnet.heads.head import Head
from ccnet.occlusion import OcclusionCurve, Predict, occlusion_curves
from pose2d import crops
from pose2d.estimate import Crops, crop_people, estimate_crops
from pose2d.models.base import PoseModel
from pose2d.oks import l_squared

KEYPOINT = "right_wrist"
VISIBLE = 2  # COCO's mark of a keypoint that is labelled and in view
MOST_PEOPLE = 100  # spread evenly over the split: each costs a run of the network for every patch size
BATCH = 32


def hide_wrists(model: PoseModel, head: Head | None, people: Sequence[Person]) -> dict[str, OcclusionCurve]:
    """The raw score's curve and the head's; empty if the skeleton has no right wrist or none is in view."""
    if KEYPOINT not in model.skeleton.keypoints:
        return {}
    wrist = model.skeleton.keypoints.index(KEYPOINT)
    seen = [person for person in people if person.keypoints[wrist, 2] == VISIBLE]
    chosen = [seen[i] for i in np.unique(np.linspace(0, len(seen) - 1, MOST_PEOPLE).astype(int))] if seen else []
    images, wrists_px, scales = [], [], []
    for person in chosen:
        cropped = crop_people(model, load_image(person), np.asarray(person.box_px)[None])
        affine = cropped.affine
        images.append(cropped.pixels[0].permute(1, 2, 0).numpy())
        wrists_px.append(crops.move(affine, torch.from_numpy(person.keypoints[None, wrist : wrist + 1, :2]))[0, 0])
        scales.append(float(np.sqrt(abs(np.linalg.det(affine[0, :, :2])))))
    if not chosen:
        return {}
    size_px = np.sqrt([person.area_px2 for person in chosen]) * np.array(scales)
    l2_px2 = l_squared(torch.from_numpy(size_px**2), model.skeleton)[:, wrist].numpy()
    return occlusion_curves(
        images, torch.stack(wrists_px).double().numpy(), l2_px2, size_px, wrist, _predictor(model, head)
    )


def _predictor(model: PoseModel, head: Head | None) -> Predict:
    @torch.inference_mode()
    def predict(images: np.ndarray) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        places: list[torch.Tensor] = []
        confidence: dict[str, list[torch.Tensor]] = {}
        for part in torch.from_numpy(images).permute(0, 3, 1, 2).split(BATCH):
            found = estimate_crops(model, Crops(part, np.tile(np.eye(2, 3), (len(part), 1, 1))))
            places.append(found.xy_px)
            confidence.setdefault("raw", []).append(found.score)
            if head is not None:
                confidence.setdefault("ccnet", []).append(head(found.features)[0].cpu())
        joined = {name: torch.cat(several).double().numpy() for name, several in confidence.items()}
        return torch.cat(places).double().numpy(), joined

    return predict


def as_record(curves: Mapping[str, OcclusionCurve]) -> dict[str, Any]:
    """For metrics.json."""
    if not curves:
        return {}
    first = next(iter(curves.values()))
    return {
        "keypoint": KEYPOINT,
        "people": first.samples,
        "patch_side_per_person_size": first.size.tolist(),
        "oks": first.oks.tolist(),
        "confidence": {name: curve.confidence.tolist() for name, curve in curves.items()},
    }
