"""Precision and recall along falling confidence, and their averages."""

from dataclasses import dataclass

import numpy as np

from ccnet.coco_ap.matching import FALSE, TRUE, Matches

RECALL_POINTS = np.linspace(0.0, 1.0, 101)  # [R]


@dataclass(frozen=True)
class Curves:
    """For each size range and threshold; -1 where there is no person to be found."""

    precision: np.ndarray  # [A, T, R] best precision at this recall or beyond
    recall: np.ndarray  # [A, T] share of people found in the end
    exact_ap: np.ndarray  # [A, T] mean over people of the precision at which each was found: no grid, no envelope


def curves(matches: Matches, image_weight: np.ndarray | None = None) -> Curves:
    """Curves of all detections; `image_weight` [I] counts every image that many times, as a resampled data set does."""
    images = matches.positives.shape[1]
    weight = (np.ones(images, int) if image_weight is None else image_weight)[matches.image]
    people = matches.positives.sum(1) if image_weight is None else matches.positives @ image_weight
    found = [
        [_curve(outcome, weight, int(positives)) for outcome in of_size]
        for of_size, positives in zip(matches.outcome, people, strict=True)
    ]
    precision, recall, exact = (np.array([[c[part] for c in row] for row in found]) for part in range(3))
    return Curves(precision, recall, exact)


def _curve(outcome: np.ndarray, weight: np.ndarray, positives: int) -> tuple[np.ndarray, float, float]:
    """One precision curve, final recall and exact AP of outcomes [D] in the order of falling confidence.

    Precision is highest, and recall first reached, at true positives: nothing between them needs looking at. A
    detection of weight n is n detections in a row.
    """
    if positives == 0:
        return np.full(len(RECALL_POINTS), -1.0), -1.0, -1.0
    hits = np.flatnonzero(outcome == TRUE)
    false = np.repeat(np.cumsum(weight * (outcome == FALSE))[hits], weight[hits])
    true = np.arange(1, len(false) + 1)
    precision = true / (false + true + np.spacing(1))
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    first = np.searchsorted(true / positives, RECALL_POINTS, side="left")
    at_recall = np.append(best_from_here, 0.0)[first]  # a recall that is never reached has precision 0
    return at_recall, len(true) / positives, float(precision.sum() / positives)


def mean_of_defined(values: np.ndarray) -> float:
    """Mean of what is not -1; -1 if nothing is."""
    defined = values[values > -1]
    return float(np.mean(defined)) if len(defined) else -1.0
