"""COCO's keypoint AP and AR: precision and recall along falling confidence, their averages,
bootstrap, body parts.
"""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccnet.coco_ap import matching
from ccnet.coco_ap.matching import Detections, GroundTruth, Matches
from pose2d.base.errors import UserError
from pose2d.base.resampling import draws
from pose2d.skeletons import COCO17, WHOLEBODY133

Sigmas = Sequence[float] | np.ndarray  # [K] of OKS
RECALL_POINTS = np.linspace(0.0, 1.0, 101)  # [R]


@dataclass(frozen=True)
class Curves:
    """For each size range and threshold; -1 where there is no person to be found."""

    precision: np.ndarray  # [A, T, R] best precision at this recall or beyond
    recall: np.ndarray  # [A, T] share of people found in the end
    exact_ap: (
        np.ndarray
    )  # [A, T] mean over people of the precision at which each was found: no grid, no envelope


def curves(matches: Matches, image_weight: np.ndarray | None = None) -> Curves:
    """Curves of all detections; `image_weight` [I] counts every image that many times, as a
    resampled data set does.
    """
    images = matches.positives.shape[1]
    weight = (np.ones(images, int) if image_weight is None else image_weight)[matches.image]
    people = matches.positives.sum(1) if image_weight is None else matches.positives @ image_weight
    each = [
        [_curve(outcome, weight, int(positives)) for outcome in of_size]
        for of_size, positives in zip(matches.outcome, people, strict=True)
    ]
    precision, recall, exact = (
        np.array([[c[part] for c in row] for row in each]) for part in range(3)
    )
    return Curves(precision, recall, exact)


def _curve(
    outcome: np.ndarray, weight: np.ndarray, positives: int
) -> tuple[np.ndarray, float, float]:
    """One precision curve, final recall and exact AP of outcomes [D] in the order of falling
    confidence. Precision is highest, and recall first reached, at true positives: nothing between
    them counts. A detection of weight n is n detections in a row."""
    if positives == 0:
        return np.full(len(RECALL_POINTS), -1.0), -1.0, -1.0
    hits = np.flatnonzero(outcome == matching.TRUE)
    false = np.repeat(np.cumsum(weight * (outcome == matching.FALSE))[hits], weight[hits])
    true = np.arange(1, len(false) + 1)
    precision = true / (false + true + np.spacing(1))
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    first = np.searchsorted(true / positives, RECALL_POINTS, side="left")
    at_recall = np.append(best_from_here, 0.0)[
        first
    ]  # a recall that is never reached has precision 0
    return at_recall, len(true) / positives, float(precision.sum() / positives)


def mean_of_defined(values: np.ndarray) -> float:
    """Mean of what is not -1; -1 if nothing is."""
    defined = values[values > -1]
    return float(np.mean(defined)) if len(defined) else -1.0


@dataclass(frozen=True)
class KeypointAP:
    """Average precision and recall over OKS .50 to .95; -1 where nothing was there to be found."""

    ap: float
    ap50: float
    ap75: float
    ap_medium: float
    ap_large: float
    ar: float
    ar50: float
    ar75: float
    ar_medium: float
    ar_large: float
    exact_ap: float  # without the 101-point grid: with OKS as confidence it is exactly `ar`
    precision: np.ndarray  # [T, R, A] at OKS_THRESHOLDS, RECALL_POINTS and sizes all, medium, large
    recall: np.ndarray  # [T, A]

    @property
    def stats(self) -> np.ndarray:
        """The ten numbers in the order of `COCOeval.stats`."""
        return np.array([getattr(self, name) for name in TEN_NUMBERS])


TEN_NUMBERS = (
    "ap",
    "ap50",
    "ap75",
    "ap_medium",
    "ap_large",
    "ar",
    "ar50",
    "ar75",
    "ar_medium",
    "ar_large",
)


def evaluate(
    truth: GroundTruth, detections: Detections, sigmas: Sigmas = COCO17.oks_sigma
) -> KeypointAP:
    """Equal to pycocotools' COCOeval(iouType="keypoints") with these sigmas."""
    return summarize(matching.match(truth, detections, sigmas))


Evaluate = Callable[[GroundTruth, Detections, Sigmas], KeypointAP]


def evaluate_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sigmas = COCO17.oks_sigma,
) -> KeypointAP:
    """The same from a parsed COCO annotation file and a list of COCO results. Neither is changed."""
    truth = matching.ground_truth_from_coco(dataset, len(sigmas))
    return evaluate(truth, matching.detections_from_coco(results, truth), sigmas)


def summarize(matches: Matches, image_weight: np.ndarray | None = None) -> KeypointAP:
    """The ten numbers of matched detections; `image_weight` [I] as in `curves`."""
    measured = curves(matches, image_weight)
    three_quarters = int(np.argmin(abs(matching.OKS_THRESHOLDS - 0.75)))

    def five(
        values: np.ndarray,
    ) -> list[float]:  # [A, T, ...]; of everyone: over all thresholds, at 0.5 and at 0.75
        parts = (values[0], values[0, 0], values[0, three_quarters], values[1], values[2])
        return [mean_of_defined(np.atleast_1d(part)) for part in parts]

    numbers = dict(
        zip(TEN_NUMBERS, [*five(measured.precision), *five(measured.recall)], strict=True)
    )
    exact_ap = mean_of_defined(measured.exact_ap[0])
    precision = np.moveaxis(measured.precision, 0, -1)
    return KeypointAP(**numbers, exact_ap=exact_ap, precision=precision, recall=measured.recall.T)


def bootstrap_ap(
    sources: Mapping[str, Matches], resamples: int = 1000, seed: int = 0
) -> dict[str, np.ndarray]:
    """AP of every confidence source: first on all images, then on each resample, [1 + resamples].
    Matching never crosses images, so a resample only changes how often each image counts. All
    sources must come from the same ground truth; a difference or ratio of the arrays is then
    paired."""
    weights = draws(next(iter(sources.values())).positives.shape[1], resamples, seed)
    ap = {}
    for name, m in sources.items():  # people of all sizes
        everyone = Matches(m.score, m.image, np.ascontiguousarray(m.outcome[:1]), m.positives[:1])
        ap[name] = np.array(
            [mean_of_defined(curves(everyone, weight).precision) for weight in weights]
        )
    return ap


PARTS = {name: slice(first, end) for name, first, end in WHOLEBODY133.parts} | {
    "wholebody": slice(0, WHOLEBODY133.size)
}


def evaluate_wholebody(
    truth: GroundTruth,
    detections: Detections,
    part_score: Mapping[str, np.ndarray]
    | None = None,  # {part: [D]}; parts left out are ranked by detections.score
    evaluate: Evaluate = evaluate,
) -> dict[str, KeypointAP]:
    """All PARTS of 133 keypoints. OKS uses the whole person's area in every part, and the size of a
    detection is that of its body keypoints."""
    sigmas = np.asarray(WHOLEBODY133.oks_sigma)
    body_area_px2 = matching.extent_area(detections.xy_px[:, PARTS["body"]])
    results = {}
    for name, part in PARTS.items():
        score = np.asarray((part_score or {}).get(name, detections.score), float)
        of_part = Detections(detections.image, detections.xy_px[:, part], score, body_area_px2)
        visibility = truth.visibility[:, part]
        ignore = truth.crowd | ~(visibility > 0).any(1)  # who has none of the part labelled
        own = replace(truth, xy_px=truth.xy_px[:, part], visibility=visibility, ignore=ignore)
        results[name] = evaluate(own, of_part, sigmas[part])
    return results


def evaluate_by_pycocotools(
    truth: GroundTruth, detections: Detections, sigmas: Sigmas = COCO17.oks_sigma
) -> KeypointAP:
    """`average_precision.evaluate` by COCOeval(iouType="keypoints"); `exact_ap`, which it does not
    know, is NaN.
    """
    dataset = to_coco(truth)
    rows = zip(to_coco_results(detections), detections.area_px2.tolist(), strict=True)
    results = [
        {**result, "id": number, "area": area}
        for number, (result, area) in enumerate(rows, start=1)
    ]
    return run_pycocotools(
        lambda: (coco_index(dataset), coco_index({**dataset, "annotations": results})), sigmas
    )


EVALUATORS: dict[str, Evaluate] = {
    "ours": evaluate,
    "pycocotools": evaluate_by_pycocotools,
}  # slower, the same numbers


def evaluator(name: str) -> Evaluate:
    if name not in EVALUATORS:
        raise UserError(f"unknown evaluator {name!r}: choose one of {', '.join(EVALUATORS)}.")
    return EVALUATORS[name]


def run_pycocotools(index: Any, sigmas: Sigmas) -> KeypointAP:
    """Of the COCO objects of truth and results that `index()` makes. Quiet: pycocotools prints as
    it goes.
    """
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(*index(), iouType="keypoints")
        evaluation.params.kpt_oks_sigmas = np.asarray(sigmas, float)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    numbers = dict(zip(TEN_NUMBERS, evaluation.stats.tolist(), strict=True))
    precision = evaluation.eval["precision"][:, :, 0, :, 0]
    recall = evaluation.eval["recall"][:, 0, :, 0]
    return KeypointAP(**numbers, exact_ap=float("nan"), precision=precision, recall=recall)


def coco_index(dataset: Mapping[str, Any]) -> Any:
    """The COCO object of a data set (parsed JSON)."""
    from pycocotools.coco import COCO

    index = COCO()
    index.dataset = dict(dataset)
    index.createIndex()
    return index


def to_coco(truth: GroundTruth) -> dict[str, Any]:
    """The people as a COCO data set (parsed JSON)."""
    points = np.concatenate([truth.xy_px, truth.visibility[..., None]], -1)
    annotations = [
        {
            "id": int(truth.id[i]),
            "image_id": truth.image[i].item(),
            "category_id": 1,
            "keypoints": points[i].ravel().tolist(),
            "area": float(truth.area_px2[i]),
            "bbox": truth.box_px[i].tolist(),
            "iscrowd": int(truth.crowd[i]),
            # pycocotools ignores a person by this count
            "num_keypoints": 0
            if truth.ignore[i]
            else max(1, int(np.count_nonzero(truth.visibility[i] > 0))),
        }
        for i in range(len(truth.image))
    ]
    categories = [{"id": 1, "name": "person", "supercategory": "person"}]
    images = [{"id": image} for image in truth.images.tolist()]
    return {"images": images, "annotations": annotations, "categories": categories}


def to_coco_results(detections: Detections) -> list[dict[str, Any]]:
    """Found people as a list of COCO results."""
    points = np.concatenate([detections.xy_px, np.ones((*detections.xy_px.shape[:2], 1))], -1)
    return [
        {
            "image_id": image,
            "category_id": 1,
            "keypoints": keypoints.ravel().tolist(),
            "score": score,
        }
        for image, keypoints, score in zip(
            detections.image.tolist(), points, detections.score.tolist(), strict=True
        )
    ]
