"""Calibration metrics: correlation, expected calibration error, sparsification, average precision
of keypoints.

Every function takes flat arrays of confidence and OKS, one entry per person or per labelled
keypoint."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccnet.coco_ap.average_precision import Curves, curves
from ccnet.coco_ap.matching import FALSE, OKS_THRESHOLDS, TRUE, Matches

BINS = 15
REMOVED_POINTS = 101  # of a sparsification curve as drawn; its area is taken over every sample


@dataclass(frozen=True)
class ReliabilityBins:
    """Mean confidence and mean OKS, bin by bin. Empty bins have count 0 and NaN means."""

    edge: np.ndarray  # [B + 1]
    count: np.ndarray  # [B]
    confidence: np.ndarray  # [B] mean in the bin
    oks: np.ndarray  # [B] mean in the bin

    @property
    def expected_error(self) -> float:
        """Return the expected calibration error: the mean over samples of |mean confidence - mean
        OKS| in their bin.
        """
        full = self.count > 0
        gap = abs(self.confidence[full] - self.oks[full])
        return float((gap * self.count[full]).sum() / max(self.count.sum(), 1))


@dataclass(frozen=True)
class Sparsification:
    """Mean of 1 - OKS of the remaining samples as those of lowest confidence are removed first."""

    removed: np.ndarray  # [P] share removed, 0 up to just under 1
    error: np.ndarray  # [P] in the order of confidence
    oracle: np.ndarray  # [P] in the order of the true error
    random: float  # of a random order: the mean error
    ause: float  # 100 x area between `error` and `oracle`, not normalised


def calibration(
    confidence: np.ndarray, oks: np.ndarray, against: str = "oks", bins: int = BINS
) -> dict[str, Any]:
    """Return the calibration numbers of one confidence source on one level (people or keypoints),
    by name. Samples whose OKS (or PCK, by `against`) is NaN are not labelled and do not count.
    """
    confidence, oks = labelled_samples(confidence, oks)
    return {
        "samples": len(oks),
        "pearson": pearson(confidence, oks),
        "ause": sparsification(confidence, oks).ause,
        "ece": reliability(confidence, oks, bins).expected_error,
        "mean_confidence": float(confidence.mean()) if len(oks) else float("nan"),
        f"mean_{against}": float(oks.mean()) if len(oks) else float("nan"),
    }


def labelled_samples(confidence: np.ndarray, oks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both flat, in double precision, without the samples whose OKS is NaN."""
    confidence = np.asarray(confidence, float).ravel()
    oks = np.asarray(oks, float).ravel()
    labelled = ~np.isnan(oks)
    return confidence[labelled], oks[labelled]


def pearson(confidence: np.ndarray, oks: np.ndarray) -> float:
    """Return the linear correlation; NaN if either is constant."""
    a = confidence - np.mean(confidence)
    b = oks - np.mean(oks)
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def reliability(confidence: np.ndarray, oks: np.ndarray, bins: int = BINS) -> ReliabilityBins:
    """Return means in bins of [0, 1] of equal width. A confidence outside of [0, 1], as raw scores
    may be, counts in the first or last bin with its own value.
    """
    edge = np.linspace(0, 1, bins + 1)
    which = np.clip((np.asarray(confidence) * bins).astype(int), 0, bins - 1)
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(which, confidence, bins) / count
        mean_oks = np.bincount(which, oks, bins) / count
    return ReliabilityBins(edge, count, mean_confidence, mean_oks)


def sparsification(confidence: np.ndarray, oks: np.ndarray) -> Sparsification:
    """Return the mean error of the remaining samples as the lowest confidence is removed first, and
    AUSE, the area to the best order. Samples of equal confidence count with the mean error of their
    group, since they have no order.
    """
    error = 1 - np.asarray(oks, float)
    n = len(error)
    if n == 0:
        nothing = np.zeros(0)
        return Sparsification(nothing, nothing, nothing, float("nan"), float("nan"))
    _, group, size = np.unique(confidence, return_inverse=True, return_counts=True)
    levelled = (np.bincount(group, error) / size)[group]
    curve = _mean_of_rest(levelled[np.argsort(confidence, kind="stable")])
    oracle = _mean_of_rest(-np.sort(-error))
    points = np.minimum((np.linspace(0, 1, REMOVED_POINTS) * n).astype(int), n - 1)
    return Sparsification(
        points / n,
        curve[points],
        oracle[points],
        float(error.mean()),
        100 * float((curve - oracle).mean()),
    )


def _mean_of_rest(error: np.ndarray) -> np.ndarray:
    """Return the mean of entry i and all after it, [N], for errors in the order of removal."""
    return np.cumsum(error[::-1])[::-1] / np.arange(len(error), 0, -1)


def keypoint_curves(confidence: np.ndarray, oks: np.ndarray) -> Curves:
    """Return precision and recall with every labelled keypoint as a detection of its own, for one
    size range: all.
    """
    confidence, oks = labelled_samples(confidence, oks)
    order = np.argsort(-confidence, kind="stable")
    outcome = np.where(oks[order] >= OKS_THRESHOLDS[:, None], TRUE, FALSE).astype(np.int8)
    one_image = np.zeros(len(oks), int)
    return curves(Matches(confidence[order], one_image, outcome[None], np.array([[len(oks)]])))


def keypoint_mar(oks: np.ndarray) -> float:
    """Return the mean average recall of keypoints: the share of labelled ones that reach each
    threshold, averaged. It does not depend on confidence.
    """
    labelled = np.asarray(oks, float)
    labelled = labelled[~np.isnan(labelled)]
    return float((labelled >= OKS_THRESHOLDS[:, None]).mean())


def keypoint_map(confidence: np.ndarray, oks: np.ndarray) -> float:
    """Return the mean average precision of keypoints at the thresholds of COCO."""
    return float(keypoint_curves(confidence, oks).precision.mean())
