"""A pose model on the people of a split: predicted keypoints, and the confidence of every source in
them.

The closed form needs a person's area: annotated, or read from a network's features by one linear
layer (`AreaFit`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ccnet.coco_ap.matching import GroundTruth, matched_oks, pair_oks
from ccnet.confidence import about_of, area_and_width, best_width, closed_form
from ccnet.data import datasets
from ccnet.data.datasets import AnnotatedPerson, Split
from ccnet.data.observations import Observations, observe
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
FindBoxes = Callable[
    [int, np.ndarray], Boxes | None
]  # of people, from the id of an image and the image


@dataclass(frozen=True)
class SourceConfidence:
    keypoint: np.ndarray  # [N, K]
    presence: np.ndarray  # [N, K] weight of each keypoint in the person's confidence

    def person(self, box_score: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Confidence in each person (or a part of it), times that in its box, [N]."""
        weight = np.maximum(self.presence[:, part].sum(1), 1e-6)
        return box_score * (self.presence[:, part] * self.keypoint[:, part]).sum(1) / weight


RIDGE = 1e-3  # relative to the mean variance of the features


@dataclass(frozen=True)
class AreaFit:
    """What the closed form needs, measured on training people."""

    mean_share: float  # of its crop that a person fills
    centre: Tensor  # [C] mean of the pooled features
    weight: Tensor  # [C] of the logarithm of the share
    mean_log_share: float
    # of each closed form, cells: width of the heatmaps' target that fits best with areas of its
    # kind
    width_cells: Mapping[ConfidenceSource, float]

    def share(self, features: Tensor) -> Tensor:
        """Share of its crop that each person fills [N], from features [N, *feature_shape]."""
        return (
            ((pooled(features).cpu().double() - self.centre) @ self.weight + self.mean_log_share)
            .exp()
            .clamp(max=1)
        )


def pooled(features: Tensor) -> Tensor:
    """One vector a person [N, C]: maps averaged over cells, one vector a keypoint over keypoints."""
    plain = features.as_subclass(Tensor).float()
    return plain.mean({4: (2, 3), 3: (1,)}[plain.ndim]) if plain.ndim > 2 else plain


def fit_areas(
    model: PoseModel,
    people: Sequence[AnnotatedPerson],
    progress: Callable[[int], None] = lambda people: None,
) -> AreaFit:
    """On these people, all of whom are in memory at once."""
    o = observe(model, pooled, people, progress=progress)
    x = o.features.double()
    log_share = o.area_share.double().clamp_min(1e-6).log()
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    pull = (RIDGE * covariance.diagonal().mean()).clamp_min(1e-12) * torch.eye(
        len(covariance), dtype=x.dtype
    )
    weight = torch.linalg.solve(
        covariance + pull, centred.T @ (log_share - log_share.mean()) / len(x)
    )
    fit = AreaFit(float(o.area_share.mean()), x.mean(0), weight, float(log_share.mean()), {})
    shares: dict[ConfidenceSource, Tensor | float] = {
        "closed-form": fit.mean_share,
        "closed-form-predicted": fit.share(x),
        "closed-form-annotated": o.area_share,
    }
    return replace(
        fit, width_cells={name: fit_width(o, share, model) for name, share in shares.items()}
    )


def fit_width(o: Observations, share: Tensor | float, model: PoseModel) -> float:
    """The width of the heatmaps' target in cells that fits best people who fill this share [N] of
    their crops.
    """
    oks = torch.where(o.labelled > 0, o.oks.double(), torch.nan)
    area_px2 = o.crop_area_px2 * share
    return best_width(lambda width: closed_form(o, area_px2, model, width).numpy(), oks.numpy())


@dataclass(frozen=True)
class Predictions:
    """Predicted people, the confidence of every source in them, and their true OKS."""

    skeleton: Skeleton
    image: np.ndarray  # [N] id of the image
    xy_px: np.ndarray  # [N, K, 2] image pixels
    box_score: np.ndarray  # [N] 1 for annotated boxes
    confidence: Mapping[ConfidenceSource, SourceConfidence]
    oks: (
        np.ndarray
    )  # [N] with the person the box belongs to, or with the most similar one in the image
    keypoint_oks: (
        np.ndarray
    )  # [N, K] NaN where not labelled, or where the box belongs to no annotated person
    correct: np.ndarray | None = (
        None  # [N, K] MPII: 1 where PCKh@0.5 calls a keypoint right, NaN where it counts none
    )
    pckh: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict
    )  # MPII: percent by threshold and group

    def only(self, wanted: Sequence[str]) -> "Predictions":
        """Some of the sources, with raw and oracle, which the others are compared with."""
        kept = {
            name: value
            for name, value in self.confidence.items()
            if name in (*wanted, "raw", "oracle")
        }
        return replace(self, confidence=kept)


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
) -> Predictions:
    """Every image of the split that has labelled people, in annotated boxes or in those that `find`
    gives. Several processes share the images; each of them returns everything."""
    skeleton = datasets.labelled_skeleton(model.skeleton)
    mine: list[dict[str, np.ndarray]] = []  # of each image; empty: no boxes
    for people in group.share(datasets.by_image(split.people)):
        image = datasets.load_image(people[0])
        area_px2 = (
            torch.tensor([person.area_px2 for person in people]).double() if find is None else None
        )
        annotated = Boxes(np.array([person.box_px for person in people]), np.ones(len(people)))
        there = annotated if find is None else find(people[0].image_id, image)
        stated: dict[str, np.ndarray] = {}
        if there is not None and len(there.scores):
            boxes_px = there.boxes_px
            scores = there.scores
            if find is not None:  # as in a video: a box that cuts somebody off grows
                boxes_px, _ = estimate_people(model, [image] * len(boxes_px), boxes_px)
            pose = estimate(model, image, boxes_px, flip_test)
            by_source = _stated(pose, model, head, areas, area_px2)
            stated = {
                name: value.double().numpy()[:, : skeleton.size]
                for name, value in by_source.items()
            }
            stated |= {
                "image": np.full(len(scores), people[0].image_id),
                "box": np.asarray(scores, float),
            }
        mine.append(stated)
        progress(len(people))
    parts = [part for part in group.gather(mine) if part]
    if not parts:
        raise UserError(f"no boxes in the images of {split.name}: nothing to evaluate.")
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    image_id, box_score, xy_px, presence = (
        joined.pop(name) for name in ("image", "box", "xy_px", "presence")
    )
    every = np.ones(presence.shape)
    # Without presence of its own, a source counts every keypoint alike.
    confidence = {
        s: SourceConfidence(joined[s], presence if s == "ccnet" else every)
        for s in SOURCES
        if s in joined
    }
    if find is not None:
        oks = best_oks(split.truth, skeleton, image_id, xy_px)
        keypoint_oks = np.full(every.shape, np.nan)
        confidence["oracle"] = SourceConfidence(oks[:, None] * every, every)
        return Predictions(skeleton, image_id, xy_px, box_score, confidence, oks, keypoint_oks)
    keypoints = np.stack([p.keypoints for p in split.people])
    area = np.array([p.area_px2 for p in split.people])
    truth_px = keypoints[:, : skeleton.size, :2]
    labelled = keypoints[:, : skeleton.size, 2] > 0
    oks, keypoint_oks = matched_oks(xy_px, truth_px, labelled, area, skeleton.oks_sigma)
    confidence["oracle"] = SourceConfidence(np.nan_to_num(keypoint_oks), labelled.astype(float))
    predictions = Predictions(skeleton, image_id, xy_px, box_score, confidence, oks, keypoint_oks)
    if skeleton != MPII16:
        return predictions
    head_px = np.array([person.head_px for person in split.people])
    right = {
        t: datasets.right_keypoints(xy_px, truth_px, labelled, head_px, t) for t in datasets.PCKH_AT
    }
    correct = right[0.5].copy()
    correct[:, datasets.NOT_COUNTED] = np.nan
    return replace(
        predictions, correct=correct, pckh={f"{t:g}": datasets.pckh(of) for t, of in right.items()}
    )


def _stated(
    pose: PoseEstimate,
    model: PoseModel,
    head: CalibrationHead | None,
    areas: AreaFit | None,
    annotated_px2: Tensor | None,  # [N] areas of the annotated people, where boxes are theirs
) -> dict[str, Tensor]:
    """Keypoints, what every source but the oracle says of them, and the head's presence."""
    stated = {"xy_px": pose.xy_px, "ones": torch.ones_like(pose.score), "raw": pose.score}
    stated["presence"] = stated["ones"]
    if pose.heatmap_score is not None:
        stated["raw-heatmap"] = pose.heatmap_score
    # What was fitted on training people just now comes before the record of a head, and that before
    # published widths.
    share, width = area_and_width(model, about_of(head) if head is not None else None)
    area_px2: dict[ConfidenceSource, Tensor] = {"closed-form": pose.crop_area_px2 * share}
    if areas is not None:
        area_px2["closed-form"] = pose.crop_area_px2 * areas.mean_share
        area_px2["closed-form-predicted"] = pose.crop_area_px2 * areas.share(pose.features)
    if annotated_px2 is not None:
        area_px2["closed-form-annotated"] = annotated_px2
    for name, area in area_px2.items():
        stated[name] = closed_form(pose, area, model, areas.width_cells[name] if areas else width)
    if head is not None:
        both = head(pose.features)
        mirrored = pose.flipped_features
        both = both if mirrored is None else flip_average(both, head(mirrored), model.skeleton)
        stated["ccnet"], stated["presence"] = (value.cpu() for value in both)
    return stated


def best_oks(
    truth: GroundTruth, skeleton: Skeleton, image_id: np.ndarray, xy_px: np.ndarray
) -> np.ndarray:
    """OKS of each predicted person with the most similar one of its image, [N]; 0 where nobody is
    labelled.
    """
    people = {
        i: np.flatnonzero((truth.image == i) & ~truth.ignore) for i in np.unique(image_id).tolist()
    }
    pairs = [(d, g) for d, i in enumerate(image_id.tolist()) for g in people[i]]
    detection, person = np.array(pairs, int).reshape(-1, 2).T
    best = np.zeros(len(image_id))
    np.maximum.at(best, detection, pair_oks(detection, person, xy_px, truth, skeleton.oks_sigma))
    return best
