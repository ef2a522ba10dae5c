"""A pose model on the people of a split: predicted keypoints, and the confidence of every source in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ccnet.closed_form import closed_form
from ccnet.coco_ap.matching import matched_oks, pair_oks
from ccnet.coco_ap.people import ground_truth_from_coco
from ccnet.data.datasets import AnnotatedPerson, Split, by_image, load_image
from ccnet.data.observations import Observations
from ccnet.distributed import ALONE, ProcessGroup
from ccnet.heads.files import about_of
from ccnet.heads.head import CalibrationHead, flip_average
from pose2d.base.errors import UserError
from pose2d.detect.detector import PersonDetector, read_detections
from pose2d.estimate import PoseEstimate, estimate, estimate_people
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17, HALPE26, Skeleton
from pose2d.types import ConfidenceSource

SOURCES: tuple[ConfidenceSource, ...] = ("ones", "raw", "closed-form", "ccnet", "oracle")
Boxes = Callable[[Sequence[AnnotatedPerson], np.ndarray], tuple[np.ndarray, np.ndarray]]  # -> boxes [N, 4], scores [N]


@dataclass(frozen=True)
class SourceConfidence:
    """The confidence of one source in N people."""

    keypoint: np.ndarray  # [N, K]
    presence: np.ndarray  # [N, K] weight of each keypoint in the person's confidence

    def person(self, box_score: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Confidence in each person (or a part of it), times that in its box, [N]."""
        weight = np.maximum(self.presence[:, part].sum(1), 1e-6)
        return box_score * (self.presence[:, part] * self.keypoint[:, part]).sum(1) / weight


@dataclass(frozen=True)
class Predictions:
    """Predicted people, the confidence of every source in them, and their true OKS."""

    skeleton: Skeleton
    image: np.ndarray  # [N] id of the image
    xy_px: np.ndarray  # [N, K, 2] image pixels
    box_score: np.ndarray  # [N] 1 for annotated boxes
    confidence: Mapping[ConfidenceSource, SourceConfidence]
    oks: np.ndarray  # [N] with the person the box belongs to, or with the most similar one in the image
    keypoint_oks: np.ndarray  # [N, K] NaN where not labelled, or where the box belongs to no annotated person


def annotated_boxes(people: Sequence[AnnotatedPerson], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array([person.box_px for person in people]), np.ones(len(people))


def detected_boxes(detector: PersonDetector) -> Boxes:
    """The embedded detector's boxes."""

    def find(people: Sequence[AnnotatedPerson], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = detector.detect(image)
        return found.boxes_px, found.scores

    return find


def boxes_from_json(path: str | Path) -> Boxes:
    """Boxes of a COCO detection result file, by image id."""
    detections = read_detections(path)

    def find(people: Sequence[AnnotatedPerson], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = detections.get(people[0].image_id)
        return (found.boxes_px, found.scores) if found else (np.zeros((0, 4)), np.zeros(0))

    return find


@torch.inference_mode()
def predict_split(
    model: PoseModel,
    head: CalibrationHead | None,
    split: Split,
    boxes: Boxes = annotated_boxes,
    flip_test: bool = False,
    progress: Callable[[int], None] = lambda people: None,
    group: ProcessGroup = ALONE,
) -> Predictions:
    """Every image of the split that has labelled people, in annotated boxes or in those of a detector.

    Several processes share the images; each of them returns everything.
    """
    # image id, box score, xy, score, sigma, crop area, and confidence and presence if there is a head
    mine: list[tuple[Tensor, ...]] = []
    for _, people in group.share(list(by_image(split.people))):
        image = load_image(people[0])
        boxes_px, scores = boxes(people, image)
        if boxes is not annotated_boxes and len(boxes_px):  # as in a video: a box that cuts somebody off grows
            boxes_px, _ = estimate_people(model, [image] * len(boxes_px), boxes_px)
        found = estimate(model, image, boxes_px, flip_test)
        calibrated = _calibrate(head, found, model.skeleton) if head is not None else ()
        about = (torch.full((len(scores),), people[0].image_id), torch.from_numpy(np.asarray(scores, float)))
        mine.append((*about, found.xy_px, found.score, found.sigma_px, found.crop_area_px2, *calibrated))
        progress(len(people))
    parts = group.gather([tuple(value.cpu() for value in values) for values in mine])
    ids, box_score, xy_px, score, sigma_px, crop_area_px2, *calibrated_parts = (
        torch.cat(values) for values in zip(*parts, strict=True)
    )
    if not len(ids):
        raise UserError(f"no boxes in the images of {split.name}: nothing to evaluate.")
    image_id = ids.numpy()
    skeleton = labelled_skeleton(model.skeleton)
    found_px = xy_px.double().numpy()[:, : skeleton.size]
    if boxes is annotated_boxes:
        oks, keypoint_oks = _oks_of_annotated(split, skeleton, found_px)
    else:
        oks = best_oks(split, skeleton, image_id, found_px)
        keypoint_oks = np.full(found_px.shape[:2], np.nan)
    return Predictions(
        skeleton=skeleton,
        image=image_id,
        xy_px=found_px,
        box_score=box_score.numpy(),
        confidence=_all_sources(model, head, score, sigma_px, crop_area_px2, calibrated_parts, oks, keypoint_oks),
        oks=oks,
        keypoint_oks=keypoint_oks,
    )


def labelled_skeleton(skeleton: Skeleton) -> Skeleton:
    """The keypoints that a data set has labels for: of Halpe's 26 COCO labels the first 17."""
    return COCO17 if skeleton == HALPE26 else skeleton


def _calibrate(head: CalibrationHead, found: PoseEstimate, skeleton: Skeleton) -> tuple[Tensor, Tensor]:
    plain: tuple[Tensor, Tensor] = head(found.features)
    return plain if found.flipped_features is None else flip_average(plain, head(found.flipped_features), skeleton)


@torch.inference_mode()
def predictions_from(
    observations: Observations, split: Split, head: CalibrationHead | None, model: PoseModel
) -> Predictions:
    """The people of a split in their annotated boxes, from cached observations."""
    skeleton = labelled_skeleton(model.skeleton)
    xy_px = observations.xy_px.double().numpy()[:, : skeleton.size]
    oks, keypoint_oks = _oks_of_annotated(split, skeleton, xy_px)
    calibrated: Sequence[Tensor] = ()
    if head is not None:
        calibrated = head.calibrate(observations.inputs.to(next(head.parameters()).device))
    score, sigma_px, area = observations.score, observations.sigma_px, observations.crop_area_px2
    return Predictions(
        skeleton=skeleton,
        image=np.array([person.image_id for person in split.people]),
        xy_px=xy_px,
        box_score=np.ones(len(oks)),
        confidence=_all_sources(model, head, score, sigma_px, area, calibrated, oks, keypoint_oks),
        oks=oks,
        keypoint_oks=keypoint_oks,
    )


def _oks_of_annotated(split: Split, skeleton: Skeleton, xy_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """OKS of every person [N] and keypoint [N, K], one prediction per annotated person."""
    keypoints = np.stack([person.keypoints for person in split.people])[:, : skeleton.size]
    area = np.array([person.area_px2 for person in split.people])
    return matched_oks(xy_px, keypoints[..., :2], keypoints[..., 2] > 0, area, skeleton.oks_sigma)


def best_oks(split: Split, skeleton: Skeleton, image_id: np.ndarray, xy_px: np.ndarray) -> np.ndarray:
    """OKS of each predicted person with the most similar one of its image, [N]; 0 where nobody is labelled."""
    truth = ground_truth_from_coco(split.dataset, skeleton.size)
    people = {i: np.flatnonzero((truth.image == i) & ~truth.ignore) for i in np.unique(image_id).tolist()}
    pairs = [(d, g) for d, i in enumerate(image_id.tolist()) for g in people[i]]
    best = np.zeros(len(image_id))
    if pairs:
        found, person = np.array(pairs).T
        sigmas = np.asarray(skeleton.oks_sigma)
        oks = pair_oks(found, person, xy_px, truth.xy_px, truth.visibility > 0, truth.area_px2, truth.box_px, sigmas)
        np.maximum.at(best, found, oks)
    return best


def _all_sources(
    model: PoseModel,
    head: CalibrationHead | None,
    score: Tensor,  # [N, K]
    sigma_px: Tensor,  # [N, K, 2]
    crop_area_px2: Tensor,  # [N]
    calibrated: Sequence[Tensor],  # confidence and presence, [N, K] each, or nothing
    oks: np.ndarray,  # [N]
    keypoint_oks: np.ndarray,  # [N, K]
) -> dict[ConfidenceSource, SourceConfidence]:
    """Without presence of its own, a source counts every keypoint alike."""
    count = keypoint_oks.shape[1]
    closed = closed_form(score, sigma_px, crop_area_px2, model, about_of(head) if head is not None else None)[:, :count]
    score = score[:, :count]
    every = np.ones(tuple(score.shape))
    sources: dict[ConfidenceSource, SourceConfidence] = {
        "ones": SourceConfidence(every, every),
        "raw": SourceConfidence(score.double().numpy(), every),
        "closed-form": SourceConfidence(closed.double().numpy(), every),
    }
    if calibrated:
        confidence, presence = (value.double().cpu().numpy()[:, :count] for value in calibrated)
        sources["ccnet"] = SourceConfidence(confidence, presence)
    labelled = ~np.isnan(keypoint_oks)
    some = labelled.any(1, keepdims=True)
    true = np.where(some, np.nan_to_num(keypoint_oks), oks[:, None])
    sources["oracle"] = SourceConfidence(true, np.where(some, labelled, 1.0))
    return sources
