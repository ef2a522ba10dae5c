"""The occlusion test: the right wrist of real people behind a growing blurred patch.

As the keypoint is hidden its OKS falls, and a calibrated confidence falls with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch

from ccnet.data.datasets import AnnotatedPerson, evenly, load_image
from ccnet.heads.head import CalibrationHead
from pose2d import crops
from pose2d.crops import Crops, crop_people, estimate_crops
from pose2d.models.base import PoseModel
from pose2d.types import ConfidenceSource, l_squared

# crops -> xy_px [N, K, 2] crop pixels, and the confidence [N, K] of every source by its name
Predict = Callable[[np.ndarray], tuple[np.ndarray, Mapping[ConfidenceSource, np.ndarray]]]
SIZES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # sides of the patches, as shares of the person's size


@dataclass(frozen=True)
class OcclusionCurves:
    """One keypoint behind patches of growing size; means over all crops."""

    size: np.ndarray  # [S] side of the patch as a share of the person's size
    oks: np.ndarray  # [S] what the confidence should be: the true OKS
    confidence: Mapping[ConfidenceSource, np.ndarray]  # [S] of each source
    people: int  # crops in every mean


def blur_patch(
    image: np.ndarray, centre_px: Sequence[float] | np.ndarray, side_px: float, softness: float = 0.5
) -> np.ndarray:
    """The image [H, W, 3] uint8 with a square patch around `centre_px` (x, y) blurred beyond recognition. The blur's
    sigma is `softness` times the side, so a larger patch also shows less; image outside is untouched."""
    height, width = image.shape[:2]
    x, y = centre_px
    left, right = (int(np.clip(round(x + sign * side_px / 2), 0, width)) for sign in (-1, 1))
    top, bottom = (int(np.clip(round(y + sign * side_px / 2), 0, height)) for sign in (-1, 1))
    hidden = image.copy()
    blurred = cv2.GaussianBlur(image, (0, 0), softness * side_px, borderType=cv2.BORDER_REPLICATE)
    hidden[top:bottom, left:right] = blurred[top:bottom, left:right]
    return hidden


def occlusion_curves(
    crops: Sequence[np.ndarray],  # [H, W, 3] uint8 each
    truth_xy_px: np.ndarray,  # [N, 2] where the keypoint truly is, crop pixels
    l2_px2: np.ndarray,  # [N] its OKS falloff in crop pixels^2
    person_size_px: np.ndarray,  # [N] square root of the person's area in the crop
    keypoint: int,
    predict: Predict,
    sizes: Sequence[float] = SIZES,
    progress: Callable[[int], None] = lambda crops: None,
) -> OcclusionCurves:
    """Each source's mean confidence in one keypoint over crops, and its mean OKS, for each patch size. A patch's side
    is a share of the person's size."""
    confidence: dict[ConfidenceSource, list[float]] = {}
    oks = []
    for size in sizes:
        hidden = [
            blur_patch(crop, at, size * side) if size > 0 else crop
            for crop, at, side in zip(crops, truth_xy_px, person_size_px, strict=True)
        ]
        xy_px, by_source = predict(np.stack(hidden))
        d2 = ((xy_px[:, keypoint] - truth_xy_px) ** 2).sum(-1)
        oks.append(float(np.exp(-d2 / (2 * l2_px2)).mean()))
        for name, values in by_source.items():
            confidence.setdefault(name, []).append(float(values[:, keypoint].mean()))
        progress(len(crops))
    means = {name: np.array(values) for name, values in confidence.items()}
    return OcclusionCurves(np.asarray(sizes, float), np.array(oks), means, len(crops))


OCCLUDED_KEYPOINT = "right_wrist"
VISIBLE = 2  # COCO's mark of a keypoint that is labelled and in view
MOST_PEOPLE = 100  # spread evenly over the split: each costs a run of the network for every patch size
BATCH = 32


def people_to_occlude(model: PoseModel, people: Sequence[AnnotatedPerson]) -> list[AnnotatedPerson]:
    """Some whose right wrist is in view; nobody if the skeleton has none."""
    if OCCLUDED_KEYPOINT not in model.skeleton.keypoints:
        return []
    wrist = model.skeleton.keypoints.index(OCCLUDED_KEYPOINT)
    return evenly([person for person in people if person.keypoints[wrist, 2] == VISIBLE], MOST_PEOPLE)


def occlude_wrists(
    model: PoseModel,
    head: CalibrationHead | None,
    chosen: Sequence[AnnotatedPerson],  # from `people_to_occlude`; not nobody
    progress: Callable[[int], None] = lambda crops: None,
) -> OcclusionCurves:
    """The raw score's curve and the head's; `progress` counts every crop under every patch."""
    wrist = model.skeleton.keypoints.index(OCCLUDED_KEYPOINT)
    images, wrists_px, scales = [], [], []
    for person in chosen:
        cropped = crop_people(model, load_image(person), np.asarray(person.box_px)[None])
        affine = cropped.affine
        images.append(cropped.pixels[0].permute(1, 2, 0).numpy())
        wrists_px.append(crops.move(affine, torch.from_numpy(person.keypoints[None, wrist : wrist + 1, :2]))[0, 0])
        scales.append(float(np.sqrt(abs(np.linalg.det(affine[0, :, :2])))))
    size_px = np.sqrt([person.area_px2 for person in chosen]) * np.array(scales)
    l2_px2 = l_squared(torch.from_numpy(size_px**2), model.skeleton)[:, wrist].numpy()

    @torch.inference_mode()
    def predict(images: np.ndarray) -> tuple[np.ndarray, Mapping[ConfidenceSource, np.ndarray]]:
        places: list[torch.Tensor] = []
        confidence: dict[ConfidenceSource, list[torch.Tensor]] = {"raw": [], **({"ccnet": []} if head else {})}
        for part in torch.from_numpy(images).permute(0, 3, 1, 2).split(BATCH):
            estimated = estimate_crops(model, Crops(part, np.tile(np.eye(2, 3), (len(part), 1, 1))))
            places.append(estimated.xy_px)
            confidence["raw"].append(estimated.score)
            if head is not None:
                confidence["ccnet"].append(head(estimated.features)[0].cpu())
        joined = {name: torch.cat(several).double().numpy() for name, several in confidence.items()}
        return torch.cat(places).double().numpy(), joined

    truth_px = torch.stack(wrists_px).double().numpy()
    return occlusion_curves(images, truth_px, l2_px2, size_px, wrist, predict, progress=progress)
