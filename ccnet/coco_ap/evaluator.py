"""COCO's ten keypoint numbers, vectorised, and pycocotools itself for the record."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccnet.coco_ap.average_precision import curves, mean_of_defined
from ccnet.coco_ap.matching import OKS_THRESHOLDS, Matches, match
from ccnet.data.people import (
    Detections,
    GroundTruth,
    detections_from_coco,
    ground_truth_from_coco,
    to_coco,
    to_coco_results,
)
from pose2d.skeletons import COCO17


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


TEN_NUMBERS = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar", "ar50", "ar75", "ar_medium", "ar_large")


def evaluate(
    truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma
) -> KeypointAP:
    """Equal to pycocotools' COCOeval(iouType="keypoints") with these sigmas."""
    return summarize(match(truth, detections, sigmas))


def evaluate_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma,
) -> KeypointAP:
    """The same from a parsed COCO annotation file and a list of COCO results. Neither is changed."""
    truth = ground_truth_from_coco(dataset, len(sigmas))
    return evaluate(truth, detections_from_coco(results, truth), sigmas)


def summarize(matches: Matches, image_weight: np.ndarray | None = None) -> KeypointAP:
    """The ten numbers of matched detections; `image_weight` [I] as in `curves`."""
    found = curves(matches, image_weight)
    everyone, medium, large = range(3)
    half, three_quarters = 0, int(np.argmin(abs(OKS_THRESHOLDS - 0.75)))

    def ten(values: np.ndarray) -> tuple[float, float, float, float, float]:  # [A, T, ...]
        parts = (
            values[everyone],
            values[everyone, half],
            values[everyone, three_quarters],
            values[medium],
            values[large],
        )
        mean, at50, at75, of_medium, of_large = (mean_of_defined(np.atleast_1d(part)) for part in parts)
        return mean, at50, at75, of_medium, of_large

    return KeypointAP(
        *ten(found.precision),
        *ten(found.recall),
        exact_ap=mean_of_defined(found.exact_ap[everyone]),
        precision=np.moveaxis(found.precision, 0, -1),
        recall=found.recall.T,
    )


def pycocotools_ap(
    truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma
) -> np.ndarray:
    """The ten numbers by pycocotools itself, quietly, [10]: what every table quotes."""
    dataset = to_coco(truth)
    areas = detections.area_px2.tolist()
    found = [
        {**result, "id": number, "area": area}
        for number, (result, area) in enumerate(zip(to_coco_results(detections), areas, strict=True), start=1)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        return _run_pycocotools(_coco(dataset), _coco({**dataset, "annotations": found}), sigmas)


def pycocotools_ap_of_coco(
    dataset: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    sigmas: Sequence[float] | np.ndarray = COCO17.oks_sigma,
) -> np.ndarray:
    """The same from parsed JSON, which is copied first, since pycocotools writes into what it is given."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = _coco({**dataset, "annotations": [dict(a) for a in dataset["annotations"]]})
        # loadRes looks at the first result, so it cannot load none
        found = truth.loadRes([dict(r) for r in results]) if results else _coco({**dataset, "annotations": []})
        return _run_pycocotools(truth, found, sigmas)


def _coco(dataset: Mapping[str, Any]) -> Any:
    from pycocotools.coco import COCO

    index = COCO()
    index.dataset = dict(dataset)
    index.createIndex()
    return index


def _run_pycocotools(truth: Any, found: Any, sigmas: Sequence[float] | np.ndarray) -> np.ndarray:
    from pycocotools.cocoeval import COCOeval

    evaluation = COCOeval(truth, found, iouType="keypoints")
    evaluation.params.kpt_oks_sigmas = np.asarray(sigmas, float)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return np.asarray(evaluation.stats)
