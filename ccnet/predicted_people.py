"""A pose model on the people of a split: predicted keypoints, and the confidence of every source in them.

The closed form needs a person's area: annotated, or read from a network's features by one linear layer (`AreaFit`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ccnet.coco_ap.matching import ground_truth_from_coco, matched_oks, pair_oks
from ccnet.confidence import about_of, best_width, closed_form, mean_area_px2, target_cells
from ccnet.data import datasets
from ccnet.data.datasets import AnnotatedPerson, PCKh, Split
from ccnet.data.observations import Observations, join, observe
from ccnet.heads.head import CalibrationHead, flip_average
from pose2d.base.distributed import ALONE, ProcessGroup
from pose2d.base.errors import UserError
from pose2d.crops import estimate, estimate_people
from pose2d.detect.detector import PersonDetector, read_detections
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17, HALPE26, MPII16, Skeleton
from pose2d.types import ConfidenceSource

SOURCES: tuple[ConfidenceSource, ...] = (
    "ones", "raw", "raw-heatmap", "closed-form", "closed-form-predicted", "closed-form-annotated", "ccnet", "oracle",
)  # fmt: skip
USUAL_SOURCES = tuple(name for name in SOURCES if name not in ("closed-form-predicted", "closed-form-annotated"))
Boxes = Callable[[Sequence[AnnotatedPerson], np.ndarray], tuple[np.ndarray, np.ndarray]]  # -> boxes [N, 4], scores [N]


@dataclass(frozen=True)
class SourceConfidence:
    keypoint: np.ndarray  # [N, K]
    presence: np.ndarray  # [N, K] weight of each keypoint in the person's confidence

    def person(self, box_score: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Confidence in each person (or a part of it), times that in its box, [N]."""
        weight = np.maximum(self.presence[:, part].sum(1), 1e-6)
        return box_score * (self.presence[:, part] * self.keypoint[:, part]).sum(1) / weight


MOST_PEOPLE = 1500  # spread evenly over the training people
RIDGE = 1e-3  # relative to the mean variance of the features


@dataclass(frozen=True)
class AreaFit:
    """What the closed form needs, measured on training people."""

    mean_share: float  # of its crop that a person fills
    centre: Tensor  # [C] mean of the pooled features
    weight: Tensor  # [C] of the logarithm of the share
    mean_log_share: float
    width_with_mean: float  # cells: width of the heatmaps' target that fits best with the mean share
    width_with_predicted: float  # with predicted areas
    width_with_annotated: float  # with annotated areas

    def share(self, features: Tensor) -> Tensor:
        """Share of its crop that each person fills [N], from features [N, *feature_shape]."""
        return ((pooled(features).cpu().double() - self.centre) @ self.weight + self.mean_log_share).exp().clamp(max=1)


def pooled(features: Tensor) -> Tensor:
    """One vector a person [N, C]: maps averaged over cells, one vector a keypoint over keypoints."""
    plain = features.as_subclass(Tensor).float()
    return plain.mean({4: (2, 3), 3: (1,)}[plain.ndim]) if plain.ndim > 2 else plain


def fit_areas(
    model: PoseModel, people: Sequence[AnnotatedPerson], progress: Callable[[int], None] = lambda people: None
) -> AreaFit:
    """On these people (`people_to_fit` chooses some)."""
    reader = _PooledFeatures(model.feature_shape, model.skeleton.size, 0)
    o = join(observe(model, reader, people), progress)
    x, log_share = o.inputs.double(), o.area_share.double().clamp_min(1e-6).log()
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    pull = (RIDGE * covariance.diagonal().mean()).clamp_min(1e-12) * torch.eye(len(covariance), dtype=x.dtype)
    weight = torch.linalg.solve(covariance + pull, centred.T @ (log_share - log_share.mean()) / len(x))
    mean_share, mean_log_share = float(o.area_share.mean()), float(log_share.mean())
    predicted = ((x - x.mean(0)) @ weight + mean_log_share).exp().clamp(max=1)
    widths = [fit_width(o, share, model) for share in (mean_share, predicted, o.area_share)]
    return AreaFit(mean_share, x.mean(0), weight, mean_log_share, *widths)


def fit_width(o: Observations, share: Tensor | float, model: PoseModel) -> float:
    """The width of the heatmaps' target in cells that fits best people who fill this share [N] of their crops."""
    crop_px2, area_px2 = o.crop_area_px2.double(), (o.crop_area_px2 * share).double()
    score, sigma_px = o.score.double(), o.sigma_px.double()
    return best_width(lambda w: closed_form(score, sigma_px, crop_px2, area_px2, model, w).numpy(), o.labelled_oks)


def people_to_fit(people: Sequence[AnnotatedPerson]) -> list[AnnotatedPerson]:
    """At most MOST_PEOPLE, evenly spread."""
    return [people[i] for i in np.unique(np.linspace(0, len(people) - 1, MOST_PEOPLE).astype(int))]


class _PooledFeatures(CalibrationHead):
    """Keeps the pooled features of each crop; nothing in it is trained."""

    kind = "pooled"

    def inputs(self, features: Tensor) -> Tensor:
        return pooled(features)

    def logits(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


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
    correct: np.ndarray | None = None  # [N, K] MPII: 1 where PCKh@0.5 calls a keypoint right, NaN where it counts none
    pckh: tuple[PCKh, ...] = ()  # MPII: at 0.5, 0.1 and 0.11 (`PUBLISHED_AT_01`)

    def only(self, wanted: Sequence[str]) -> "Predictions":
        """Some of the sources, with raw and oracle, which the others are compared with."""
        kept = {name: value for name, value in self.confidence.items() if name in (*wanted, "raw", "oracle")}
        return replace(self, confidence=kept)


class NetworkOutput(NamedTuple):
    """What a network, and its head if it has one, say of N people."""

    xy_px: Tensor  # [N, K, 2] image pixels
    score: Tensor  # [N, K]
    sigma_px: Tensor  # [N, K, 2] image pixels; NaN where the network states none
    crop_area_px2: Tensor  # [N]
    heatmap_score: Tensor | None = None  # [N, K] of networks with a second score
    confidence: Tensor | None = None  # [N, K] the head's
    presence: Tensor | None = None  # [N, K] the head's
    area_share: Tensor | None = None  # [N] of its crop that each person fills, as predicted from the features


def annotated_boxes(people: Sequence[AnnotatedPerson], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array([person.box_px for person in people]), np.ones(len(people))


def detected_boxes(detector: PersonDetector) -> Boxes:
    return lambda people, image: ((boxes := detector.detect(image)).boxes_px, boxes.scores)


def boxes_from_json(path: str | Path, image_ids: Collection[int]) -> Boxes:
    """Boxes of a COCO detection result file, by image id."""
    detections = read_detections(path)
    if not any(number in detections for number in image_ids):
        raise UserError(f"{path} has no box in any of the {len(image_ids)} images: it belongs to another split.")

    def find(people: Sequence[AnnotatedPerson], image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        boxes = detections.get(people[0].image_id)
        return (boxes.boxes_px, boxes.scores) if boxes else (np.zeros((0, 4)), np.zeros(0))

    return find


@torch.inference_mode()
def predict_split(
    model: PoseModel, head: CalibrationHead | None, split: Split, boxes: Boxes = annotated_boxes,
    flip_test: bool = False, progress: Callable[[int], None] = lambda people: None, group: ProcessGroup = ALONE,
    areas: AreaFit | None = None,
) -> Predictions:  # fmt: skip
    """Every image of the split that has labelled people, in annotated boxes or in those of a detector. Several
    processes share the images; each of them returns everything."""
    mine: list[tuple[np.ndarray, np.ndarray, NetworkOutput] | None] = []  # image ids, box scores; None: no boxes
    for _, people in group.share(list(datasets.by_image(split.people))):
        image = datasets.load_image(people[0])
        boxes_px, scores = boxes(people, image)
        if not len(boxes_px):
            mine.append(None)
        else:
            if boxes is not annotated_boxes:  # as in a video: a box that cuts somebody off grows
                boxes_px, _ = estimate_people(model, [image] * len(boxes_px), boxes_px)
            pose = estimate(model, image, boxes_px, flip_test)
            calibrated: tuple[Tensor | None, Tensor | None] = (None, None)
            if head is not None:
                plain, mirrored = head(pose.features), pose.flipped_features
                both = plain if mirrored is None else flip_average(plain, head(mirrored), model.skeleton)
                calibrated = both[0].cpu(), both[1].cpu()
            output = NetworkOutput(
                pose.xy_px, pose.score, pose.sigma_px, pose.crop_area_px2, pose.heatmap_score, *calibrated,
                None if areas is None else areas.share(pose.features),
            )  # fmt: skip
            mine.append((np.full(len(scores), people[0].image_id), np.asarray(scores, float), output))
        progress(len(people))
    parts = [part for part in group.gather(mine) if part is not None]
    if not parts:
        raise UserError(f"no boxes in the images of {split.name}: nothing to evaluate.")
    image_id, box_score = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    columns = zip(*(part[2] for part in parts), strict=True)
    output = NetworkOutput(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]
    if boxes is annotated_boxes:
        return _of_annotated(output, split, head, model, areas)
    skeleton = COCO17 if model.skeleton == HALPE26 else model.skeleton  # COCO labels the first 17
    xy_px = output.xy_px.double().numpy()[:, : skeleton.size]
    oks, keypoint_oks = best_oks(split, skeleton, image_id, xy_px), np.full(xy_px.shape[:2], np.nan)
    confidence = _all_sources(output, model, head, areas, None, oks, keypoint_oks)
    return Predictions(skeleton, image_id, xy_px, box_score, confidence, oks, keypoint_oks)


@torch.inference_mode()
def predictions_from(
    observations: Observations, split: Split, head: CalibrationHead | None, model: PoseModel
) -> Predictions:
    """The people of a split in their annotated boxes, from cached observations."""
    o = observations
    calibrated: tuple[Tensor | None, Tensor | None] = (None, None)
    if head is not None:
        confidence, presence = head.calibrate(o.inputs.to(next(head.parameters()).device))
        calibrated = confidence.cpu(), presence.cpu()
    heatmap_score = o.heatmap_score if model.has_heatmap_score else None
    output = NetworkOutput(o.xy_px, o.score, o.sigma_px, o.crop_area_px2, heatmap_score, *calibrated)
    return _of_annotated(output, split, head, model)


def _of_annotated(
    output: NetworkOutput, split: Split, head: CalibrationHead | None, model: PoseModel, areas: AreaFit | None = None,
) -> Predictions:  # fmt: skip
    """One prediction per annotated person, in the order of the split."""
    skeleton = COCO17 if model.skeleton == HALPE26 else model.skeleton
    xy_px = output.xy_px.double().numpy()[:, : skeleton.size]
    keypoints, area = np.stack([p.keypoints for p in split.people]), np.array([p.area_px2 for p in split.people])
    truth_px, labelled = keypoints[:, : skeleton.size, :2], keypoints[:, : skeleton.size, 2] > 0
    oks, keypoint_oks = matched_oks(xy_px, truth_px, labelled, area, skeleton.oks_sigma)
    confidence = _all_sources(output, model, head, areas, torch.from_numpy(area), oks, keypoint_oks)
    image = np.array([person.image_id for person in split.people])
    predictions = Predictions(skeleton, image, xy_px, np.ones(len(oks)), confidence, oks, keypoint_oks)
    if skeleton != MPII16:
        return predictions
    compared = (xy_px, truth_px, labelled, np.array([person.head_px for person in split.people]))
    pckh = tuple(datasets.pckh(*compared, threshold) for threshold in (0.5, 0.1, datasets.PUBLISHED_AT_01))
    return replace(predictions, correct=datasets.correct_keypoints(*compared), pckh=pckh)


def best_oks(split: Split, skeleton: Skeleton, image_id: np.ndarray, xy_px: np.ndarray) -> np.ndarray:
    """OKS of each predicted person with the most similar one of its image, [N]; 0 where nobody is labelled."""
    truth = ground_truth_from_coco(split.dataset, skeleton.size)
    people = {i: np.flatnonzero((truth.image == i) & ~truth.ignore) for i in np.unique(image_id).tolist()}
    pairs = [(d, g) for d, i in enumerate(image_id.tolist()) for g in people[i]]
    best = np.zeros(len(image_id))
    if pairs:
        detection, person = np.array(pairs).T
        sigmas = np.asarray(skeleton.oks_sigma)
        given = truth.xy_px, truth.visibility > 0, truth.area_px2, truth.box_px
        oks = pair_oks(detection, person, xy_px, *given, sigmas)
        np.maximum.at(best, detection, oks)
    return best


def _all_sources(
    output: NetworkOutput,
    model: PoseModel,
    head: CalibrationHead | None,
    areas: AreaFit | None,
    annotated_px2: Tensor | None,  # [N] areas of the annotated people, where boxes are theirs
    oks: np.ndarray,  # [N]
    keypoint_oks: np.ndarray,  # [N, K]
) -> dict[ConfidenceSource, SourceConfidence]:
    """Without presence of its own, a source counts every keypoint alike."""
    count = keypoint_oks.shape[1]
    every = np.ones(keypoint_oks.shape)

    def alike(confidence: Tensor) -> SourceConfidence:
        return SourceConfidence(confidence.double().numpy()[:, :count], every)

    sources: dict[ConfidenceSource, SourceConfidence] = {
        "ones": SourceConfidence(every, every),
        "raw": alike(output.score),
    }
    if output.heatmap_score is not None:
        sources["raw-heatmap"] = alike(output.heatmap_score)
    # The closed form's kinds of area [N], each with the width of the heatmaps' target that belongs to it. What was
    # fitted on training people just now comes before the record of a head, and that before published widths.
    crop_px2, about = output.crop_area_px2, about_of(head) if head is not None else None
    width = target_cells(model, about) if areas is None else areas.width_with_annotated
    forms: dict[ConfidenceSource, tuple[Tensor, float]] = {}
    if areas is None:
        forms["closed-form"] = mean_area_px2(crop_px2, about), width
    else:
        forms["closed-form"] = crop_px2 * areas.mean_share, areas.width_with_mean
        if output.area_share is not None:
            forms["closed-form-predicted"] = crop_px2 * output.area_share, areas.width_with_predicted
    if annotated_px2 is not None:
        forms["closed-form-annotated"] = annotated_px2, width
    for name, (area_px2, cells) in forms.items():
        area_px2 = area_px2.to(output.score)
        sources[name] = alike(closed_form(output.score, output.sigma_px, crop_px2, area_px2, model, cells))
    if output.confidence is not None and output.presence is not None:
        confidence, presence = (value.double().numpy()[:, :count] for value in (output.confidence, output.presence))
        sources["ccnet"] = SourceConfidence(confidence, presence)
    labelled = ~np.isnan(keypoint_oks)
    some = labelled.any(1, keepdims=True)
    true = np.where(some, np.nan_to_num(keypoint_oks), oks[:, None])
    sources["oracle"] = SourceConfidence(true, np.where(some, labelled, 1.0))
    return sources
