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
    """Precision and recall of each size range and threshold; -1 where no person is to be found."""

    precision: np.ndarray  # [A, T, R] best precision at this recall or beyond
    recall: np.ndarray  # [A, T] share of people found in the end
    # [A, T] mean over people of the precision at which each was found: no grid, no envelope
    exact_ap: np.ndarray


def curves(matches: Matches, image_weight: np.ndarray | None = None) -> Curves:
    """Return the curves of all detections. `image_weight` [I] counts every image that many times,
    as in a resampled data set.
    """
    images = matches.positives.shape[1]
    weight = (np.ones(images, int) if image_weight is None else image_weight)[matches.image]
    people = matches.positives.sum(1) if image_weight is None else matches.positives @ image_weight
    by_size = [
        [_curve(outcome, weight, int(positives)) for outcome in outcomes]
        for outcomes, positives in zip(matches.outcome, people, strict=True)
    ]
    precision, recall, exact_ap = (
        np.array([[curve[part] for curve in row] for row in by_size]) for part in range(3)
    )
    return Curves(precision, recall, exact_ap)


def _curve(
    outcome: np.ndarray, weight: np.ndarray, positives: int
) -> tuple[np.ndarray, float, float]:
    """Return precision curve, final recall and exact AP of outcomes [D], highest confidence first.

    Precision is highest, and recall first reached, at true positives, so nothing between
    them counts. A detection of weight n is n detections in a row.
    """
    if positives == 0:
        return np.full(len(RECALL_POINTS), -1.0), -1.0, -1.0
    hits = np.flatnonzero(outcome == matching.TRUE)
    false = np.repeat(np.cumsum(weight * (outcome == matching.FALSE))[hits], weight[hits])
    true = np.arange(1, len(false) + 1)
    precision = true / (false + true + np.spacing(1))
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    first = np.searchsorted(true / positives, RECALL_POINTS, side="left")
    at_recall = np.append(best_from_here, 0.0)[first]  # 0 at a recall that is never reached
    return at_recall, len(true) / positives, float(precision.sum() / positives)


def mean_of_defined(values: np.ndarray) -> float:
    """Return the mean of the values that are not -1; -1 if there is none."""
    defined = values[values > -1]
    return float(np.mean(defined)) if len(defined) else -1.0


@dataclass(frozen=True)
class KeypointAP:
    """Average precision and recall over OKS .50 to .95; -1 where there is no person."""

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
        """Return the ten numbers in the order of `COCOeval.stats`."""
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
    """Return AP and AR, equal to pycocotools' COCOeval(iouType="keypoints") with these sigmas."""
    return summarize(matching.match(truth, detections, sigmas))


Evaluate = Callable[[GroundTruth, Detections, Sigmas], KeypointAP]


def evaluate_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sigmas = COCO17.oks_sigma,
) -> KeypointAP:
    """Return AP and AR of a list of COCO results on a parsed COCO annotation file."""
    truth = matching.ground_truth_from_coco(dataset, len(sigmas))
    return evaluate(truth, matching.detections_from_coco(results, truth), sigmas)


def summarize(matches: Matches, image_weight: np.ndarray | None = None) -> KeypointAP:
    """Return the ten numbers of matched detections; `image_weight` [I] as in `curves`."""
    measured = curves(matches, image_weight)
    three_quarters = int(np.argmin(abs(matching.OKS_THRESHOLDS - 0.75)))

    def five(values: np.ndarray) -> list[float]:
        """Average [A, T, ...]: all sizes over thresholds, at 0.5, at 0.75; medium; large."""
        parts = (values[0], values[0, 0], values[0, three_quarters], values[1], values[2])
        return [mean_of_defined(np.atleast_1d(part)) for part in parts]

    averages = [*five(measured.precision), *five(measured.recall)]
    numbers = dict(zip(TEN_NUMBERS, averages, strict=True))
    exact_ap = mean_of_defined(measured.exact_ap[0])
    precision = np.moveaxis(measured.precision, 0, -1)
    return KeypointAP(**numbers, exact_ap=exact_ap, precision=precision, recall=measured.recall.T)


def bootstrap_ap(
    sources: Mapping[str, Matches], resamples: int = 1000, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return the AP of every confidence source, [1 + resamples]: on all images, then on each
    resample.

    Matching never crosses images, so a resample only changes how often each image counts. All
    sources must come from the same ground truth; a difference or ratio of the arrays is then
    paired.
    """
    weights = draws(next(iter(sources.values())).positives.shape[1], resamples, seed)
    ap = {}
    for name, matches in sources.items():
        all_sizes = replace(
            matches,
            outcome=np.ascontiguousarray(matches.outcome[:1]),
            positives=matches.positives[:1],
        )
        resampled = [mean_of_defined(curves(all_sizes, weight).precision) for weight in weights]
        ap[name] = np.array(resampled)
    return ap


PARTS = {name: slice(first, end) for name, first, end in WHOLEBODY133.parts} | {
    "wholebody": slice(0, WHOLEBODY133.size)
}


def evaluate_wholebody(
    truth: GroundTruth,
    detections: Detections,
    # {part: [D]}; parts that are not listed are ranked by detections.score
    part_score: Mapping[str, np.ndarray] | None = None,
    evaluate: Evaluate = evaluate,
) -> dict[str, KeypointAP]:
    """Return AP and AR of all PARTS of 133 keypoints. OKS uses the whole person's area in every
    part, and the size of a detection is that of its body keypoints.
    """
    sigmas = np.asarray(WHOLEBODY133.oks_sigma)
    body_area_px2 = matching.extent_area(detections.xy_px[:, PARTS["body"]])
    results = {}
    for name, part in PARTS.items():
        score = np.asarray((part_score or {}).get(name, detections.score), float)
        ranked = Detections(detections.image, detections.xy_px[:, part], score, body_area_px2)
        visibility = truth.visibility[:, part]
        ignore = truth.crowd | ~(visibility > 0).any(1)  # people without a label of this part
        own = replace(truth, xy_px=truth.xy_px[:, part], visibility=visibility, ignore=ignore)
        results[name] = evaluate(own, ranked, sigmas[part])
    return results


def evaluate_by_pycocotools(
    truth: GroundTruth, detections: Detections, sigmas: Sigmas = COCO17.oks_sigma
) -> KeypointAP:
    """Return what `evaluate` returns, computed by pycocotools; `exact_ap`, which it does not have,
    is NaN.
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


# pycocotools is slower and gives the same numbers.
EVALUATORS: dict[str, Evaluate] = {"ours": evaluate, "pycocotools": evaluate_by_pycocotools}


def evaluator(name: str) -> Evaluate:
    """Return the evaluator of this name."""
    if name not in EVALUATORS:
        raise UserError(f"unknown evaluator {name!r}: choose one of {', '.join(EVALUATORS)}.")
    return EVALUATORS[name]


def run_pycocotools(index: Any, sigmas: Sigmas) -> KeypointAP:
    """Run COCOeval, silently, on the COCO objects (truth, results) that `index()` makes."""
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
    """Return the COCO object of a data set (parsed JSON)."""
    from pycocotools.coco import COCO

    index = COCO()
    index.dataset = dict(dataset)
    index.createIndex()
    return index


def to_coco(truth: GroundTruth) -> dict[str, Any]:
    """Return the people as a COCO data set (parsed JSON)."""
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
    """Return detections as a list of COCO results."""
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
