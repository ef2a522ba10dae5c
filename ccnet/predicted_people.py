"""Run a pose model on the people of a split: predicted keypoints with the confidence of every
source, and their true OKS."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ccnet.areas import AreaFit
from ccnet.closed_form import area_and_width, closed_form
from ccnet.coco_ap.matching import GroundTruth, matched_oks, pair_oks
from ccnet.data import mpii
from ccnet.data.datasets import (
    AnnotatedPerson,
    Split,
    by_image,
    labelled_skeleton,
    load_image,
)
from ccnet.heads.files import about_of
from ccnet.heads.head import CalibrationHead, flip_average
from pose2d.base.distributed import ALONE, ProcessGroup
from pose2d.base.errors import UserError
from pose2d.crops import PoseEstimate, estimate, estimate_people
from pose2d.detect.boxes import Boxes
from pose2d.models.base import PoseModel
from pose2d.skeletons import MPII16, Skeleton
from pose2d.types import ConfidenceSource

SOURCES: tuple[ConfidenceSource, ...] = (
    "ones",
    "raw",
    "raw-mean",
    "raw-heatmap",
    "closed-form",
    "closed-form-predicted",
    "closed-form-annotated",
    "ccnet",
    "oracle",
)
USUAL_SOURCES = tuple(
    name for name in SOURCES if name not in ("closed-form-predicted", "closed-form-annotated")
)
# Eq. 5: keypoints whose raw score is above this count in the raw confidence of a person, as in
# SimpleBaseline and HRNet.
RAW_THRESHOLD = 0.2
THRESHOLDED = ("raw", "raw-heatmap")
FindBoxes = Callable[[int, np.ndarray], Boxes | None]  # id of an image, image -> boxes of people


@dataclass(frozen=True)
class SourceConfidence:
    """The confidence of one source in all keypoints."""

    keypoint: np.ndarray  # [N, K]
    presence: np.ndarray  # [N, K] weight of each keypoint in the person's confidence

    def person(self, box_score: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Return the confidence in each person (or a part of it) times that in its box, [N]."""
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
    oks: np.ndarray  # [N] with the person the box belongs to, or the most similar one in the image
    # [N, K] NaN where not labelled, or where the box belongs to no annotated person
    keypoint_oks: np.ndarray
    # MPII, by threshold (0.5, 0.1): [N, K] 1 where PCKh calls a keypoint right, else 0, NaN where it
    # does not count
    correct: Mapping[float, np.ndarray] = field(default_factory=dict)
    pckh: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # MPII: % by threshold

    def only(self, sources: Sequence[str]) -> "Predictions":
        """Return these sources with raw and oracle, which the others are compared with."""
        names = (*sources, "raw", "oracle")
        confidence = {name: value for name, value in self.confidence.items() if name in names}
        return replace(self, confidence=confidence)


@torch.inference_mode()
def predict_split(
    model: PoseModel,
    head: CalibrationHead | None,
    split: Split,
    find: FindBoxes | None = None,
    flip_test: bool = False,
    progress: Callable[[int], None] = lambda people: None,
    group: ProcessGroup = ALONE,
    areas: AreaFit | None = None,
    raw_threshold: float = RAW_THRESHOLD,
) -> Predictions:
    """Predict every image of the split that has labelled people, in annotated boxes or in those
    that `find` gives. Several processes share the images; each of them returns everything.

    raw_threshold: tau of Eq. 5, for the raw confidence of people.
    """
    skeleton = labelled_skeleton(model.skeleton)
    by_process: list[dict[str, np.ndarray]] = []  # of each image; empty: no boxes
    for people in group.share(by_image(split.people)):
        columns = _predict_image(model, head, people, find, flip_test, areas)
        by_process.append({name: value[:, : skeleton.size] for name, value in columns.items()})
        progress(len(people))
    parts = [part for part in group.gather(by_process) if part]
    if not parts:
        raise UserError(f"no boxes in the images of {split.name}: nothing to evaluate.")
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    image_id = joined.pop("image")[:, 0]
    box_score = joined.pop("box")[:, 0]
    xy_px = joined.pop("xy_px")
    presence = joined.pop("presence")
    every_keypoint = np.ones(presence.shape)
    confidence = {}
    for name in SOURCES:
        if name not in joined:
            continue
        weight = every_keypoint  # sources that do not predict presence count every keypoint alike
        if name == "ccnet":
            weight = presence
        elif name in THRESHOLDED:
            weight = (joined[name] > raw_threshold).astype(float)
        confidence[name] = SourceConfidence(joined[name], weight)
    if find is not None:
        oks = best_oks(split.truth, skeleton, image_id, xy_px)
        keypoint_oks = np.full(presence.shape, np.nan)
        confidence["oracle"] = SourceConfidence(oks[:, None] * every_keypoint, every_keypoint)
        return Predictions(skeleton, image_id, xy_px, box_score, confidence, oks, keypoint_oks)
    keypoints = np.stack([person.keypoints for person in split.people])[:, : skeleton.size]
    area_px2 = np.array([person.area_px2 for person in split.people])
    labelled = keypoints[..., 2] > 0
    oks, keypoint_oks = matched_oks(
        xy_px, keypoints[..., :2], labelled, area_px2, skeleton.oks_sigma
    )
    confidence["oracle"] = SourceConfidence(np.nan_to_num(keypoint_oks), labelled.astype(float))
    predictions = Predictions(skeleton, image_id, xy_px, box_score, confidence, oks, keypoint_oks)
    return _with_pckh(predictions, split, keypoints) if skeleton == MPII16 else predictions


def _predict_image(
    model: PoseModel,
    head: CalibrationHead | None,
    people: Sequence[AnnotatedPerson],
    find: FindBoxes | None,
    flip_test: bool,
    areas: AreaFit | None,
) -> dict[str, np.ndarray]:
    """Return columns [N, ..] for the people of one image; empty if it has no boxes."""
    image = load_image(people[0])
    area_px2 = None
    if find is None:
        boxes_px = np.array([person.box_px for person in people])
        scores = np.ones(len(people))
        area_px2 = torch.tensor([person.area_px2 for person in people]).double()
    else:
        boxes = find(people[0].image_id, image)
        if boxes is None or not len(boxes.scores):
            return {}
        scores = boxes.scores
        # As in a video: a box that cuts a person off grows.
        boxes_px, _ = estimate_people(model, [image] * len(scores), boxes.boxes_px)
    pose = estimate(model, image, boxes_px, flip_test)
    by_source = _confidence_by_source(pose, model, head, areas, area_px2)
    columns = {name: value.double().numpy() for name, value in by_source.items()}
    columns["image"] = np.full((len(scores), 1), people[0].image_id)
    columns["box"] = np.asarray(scores, float)[:, None]
    return columns


def _with_pckh(predictions: Predictions, split: Split, keypoints: np.ndarray) -> Predictions:
    """Return MPII's predictions with PCKh and the keypoints that it calls right."""
    head_px = np.array([person.head_px for person in split.people])
    labelled = keypoints[..., 2] > 0
    right = {
        threshold: mpii.right_keypoints(
            predictions.xy_px, keypoints[..., :2], labelled, head_px, threshold
        )
        for threshold in mpii.PCKH_AT
    }
    correct = {threshold: right[threshold].copy() for threshold in (0.5, 0.1)}
    for values in correct.values():
        values[:, mpii.NOT_COUNTED] = np.nan
    pckh = {f"{threshold:g}": mpii.pckh(values) for threshold, values in right.items()}
    return replace(predictions, correct=correct, pckh=pckh)


def _confidence_by_source(
    pose: PoseEstimate,
    model: PoseModel,
    head: CalibrationHead | None,
    areas: AreaFit | None,
    annotated_px2: Tensor | None,  # [N] areas of the annotated people, if boxes are theirs
) -> dict[str, Tensor]:
    """Return keypoints, the confidence of every source but the oracle, and the head's presence."""
    ones = torch.ones_like(pose.score)
    columns = {"xy_px": pose.xy_px, "ones": ones, "presence": ones}
    columns |= {"raw": pose.score, "raw-mean": pose.score}
    if pose.heatmap_score is not None:
        columns["raw-heatmap"] = pose.heatmap_score
    # Areas fitted to training people come before the record of a head, and that before published
    # widths.
    share, width = area_and_width(model, about_of(head) if head is not None else None)
    area_px2: dict[ConfidenceSource, Tensor] = {"closed-form": pose.crop_area_px2 * share}
    if areas is not None:
        area_px2["closed-form"] = pose.crop_area_px2 * areas.mean_share
        area_px2["closed-form-predicted"] = pose.crop_area_px2 * areas.share(pose.features)
    if annotated_px2 is not None:
        area_px2["closed-form-annotated"] = annotated_px2
    for name, area in area_px2.items():
        target_cells = areas.width_cells[name] if areas else width
        columns[name] = closed_form(pose, area, model, target_cells)
    if head is not None:
        confidence, presence = head(pose.features)
        if pose.flipped_features is not None:
            mirrored = head(pose.flipped_features)
            confidence, presence = flip_average((confidence, presence), mirrored, model.skeleton)
        columns["ccnet"] = confidence.cpu()
        columns["presence"] = presence.cpu()
    return columns


def best_oks(
    truth: GroundTruth, skeleton: Skeleton, image_id: np.ndarray, xy_px: np.ndarray
) -> np.ndarray:
    """Return the OKS of each predicted person with the most similar one of its image, [N]; 0 where
    no person is labelled.
    """
    people_of = {
        image: np.flatnonzero((truth.image == image) & ~truth.ignore)
        for image in np.unique(image_id).tolist()
    }
    pairs = [
        (number, person)
        for number, image in enumerate(image_id.tolist())
        for person in people_of[image]
    ]
    detection, person = np.array(pairs, int).reshape(-1, 2).T
    best = np.zeros(len(image_id))
    np.maximum.at(best, detection, pair_oks(detection, person, xy_px, truth, skeleton.oks_sigma))
    return best
