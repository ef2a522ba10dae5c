"""The occlusion test: the right wrist of real people behind a growing blurred patch.

As the keypoint is hidden its OKS falls, and a calibrated confidence falls with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import cv2
import numpy as np
import torch
from torch import Tensor

from ccnet.data.datasets import AnnotatedPerson, evenly
from ccnet.data.observations import observe, plain_crop
from ccnet.heads.head import CalibrationHead
from pose2d import crops
from pose2d.crops import Crops
from pose2d.models.base import PoseModel
from pose2d.types import ConfidenceSource

# Sides of the patches, as shares of the person's size.
SIZES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
SOFTNESS = 0.5  # sigma of the blur over the patch's side: a larger patch also shows less
OCCLUDED_KEYPOINT = "right_wrist"
VISIBLE = 2  # COCO's mark of a keypoint that is labelled and in view
# Spread evenly over the split: each person costs a run of the network for every patch size.
MOST_PEOPLE = 100


@dataclass(frozen=True)
class OcclusionCurves:
    """One keypoint behind patches of growing size; means over all people."""

    size: np.ndarray  # [S] side of the patch as a share of the person's size
    oks: np.ndarray  # [S] what the confidence should be: the true OKS
    confidence: Mapping[ConfidenceSource, np.ndarray]  # [S] of each source
    people: int


def blur_patch(
    image: np.ndarray, centre_px: Sequence[float] | np.ndarray, side_px: float
) -> np.ndarray:
    """Return the image [H, W, 3] uint8 with a square patch around `centre_px` (x, y) blurred beyond
    recognition.
    """
    height, width = image.shape[:2]
    x, y = centre_px
    left, right = (int(np.clip(round(x + sign * side_px / 2), 0, width)) for sign in (-1, 1))
    top, bottom = (int(np.clip(round(y + sign * side_px / 2), 0, height)) for sign in (-1, 1))
    hidden = image.copy()
    blurred = cv2.GaussianBlur(image, (0, 0), SOFTNESS * side_px, borderType=cv2.BORDER_REPLICATE)
    hidden[top:bottom, left:right] = blurred[top:bottom, left:right]
    return hidden


def people_to_occlude(model: PoseModel, people: Sequence[AnnotatedPerson]) -> list[AnnotatedPerson]:
    """Return at most MOST_PEOPLE whose right wrist is in view; empty if the skeleton has none."""
    if OCCLUDED_KEYPOINT not in model.skeleton.keypoints:
        return []
    wrist = model.skeleton.keypoints.index(OCCLUDED_KEYPOINT)
    return evenly(
        [person for person in people if person.keypoints[wrist, 2] == VISIBLE], MOST_PEOPLE
    )


def occlude_wrists(
    model: PoseModel,
    head: CalibrationHead | None,
    chosen: Sequence[AnnotatedPerson],  # from `people_to_occlude`; not empty
    progress: Callable[[int], None] = lambda crops: None,
) -> OcclusionCurves:
    """Return the curves of the raw score and of the head. `progress` counts crops times patches."""
    wrist = model.skeleton.keypoints.index(OCCLUDED_KEYPOINT)
    sizes = cycle(SIZES)

    def hide(
        model: PoseModel, person: AnnotatedPerson, image: np.ndarray, random: np.random.Generator
    ) -> Crops:
        """Cut the crop of a person behind the next patch."""
        cropped = plain_crop(model, person, image, random)
        size = next(sizes)
        if size == 0:
            return cropped
        wrist_xy = torch.from_numpy(person.keypoints[None, wrist : wrist + 1, :2])
        at_px = crops.move(cropped.affine, wrist_xy)[0, 0]
        scale2 = abs(np.linalg.det(cropped.affine[0, :, :2]))
        side_px = size * float(np.sqrt(person.area_px2 * scale2))
        hidden = blur_patch(cropped.pixels[0].permute(1, 2, 0).numpy(), at_px.tolist(), side_px)
        return Crops(torch.from_numpy(hidden).permute(2, 0, 1)[None], cropped.affine)

    def read(features: Tensor) -> Tensor:
        return features[:, :0].as_subclass(Tensor) if head is None else head(features)[0]

    def by_size(values: Tensor) -> np.ndarray:
        return values[:, wrist].double().reshape(-1, len(SIZES)).mean(0).numpy()

    repeated = [person for person in chosen for _ in SIZES]
    observed = observe(model, read, repeated, hide, progress=progress)
    confidence: dict[ConfidenceSource, np.ndarray] = {"raw": by_size(observed.score)}
    if head is not None:
        confidence["ccnet"] = by_size(observed.features)
    return OcclusionCurves(np.array(SIZES), by_size(observed.oks), confidence, len(chosen))
