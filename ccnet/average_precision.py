"""Precision and recall along falling confidence, and their averages."""

from dataclasses import dataclass

import numpy as np

from ccnet.compiled import compiled
from ccnet.matching import Matches

RECALL_POINTS = np.linspace(0.0, 1.0, 101)  # [R]


@dataclass(frozen=True)
class Curves:
    """For each size range and threshold; -1 where there is no person to be found."""

    precision: np.ndarray  # [A, T, R] best precision at this recall or beyond
    recall: np.ndarray  # [A, T] share of people found in the end
    exact_ap: np.ndarray  # [A, T] mean over people of the precision at which each was found: no grid, no envelope


def curves(matches: Matches, image_weight: np.ndarray | None = None) -> Curves:
    """Curves of all detections; `image_weight` [I] counts every image that many times, as a resampled data set does."""
    weight = np.ones(matches.positives.shape[1], np.int64) if image_weight is None else image_weight
    areas, thresholds = matches.outcome.shape[:2]
    precision = np.empty((areas, thresholds, len(RECALL_POINTS)))
    recall, exact = np.empty((areas, thresholds)), np.empty((areas, thresholds))
    positives = np.einsum("ai,i->a", matches.positives, weight)
    _accumulate(matches.outcome, weight[matches.image], positives, RECALL_POINTS, precision, recall, exact)
    return Curves(precision, recall, exact)


def mean_of_defined(values: np.ndarray) -> float:
    """Mean of what is not -1; -1 if nothing is."""
    defined = values[values > -1]
    return float(np.mean(defined)) if len(defined) else -1.0


@compiled
def _accumulate(outcome, weight, positives, recall_points, precision, recall, exact):  # type: ignore[no-untyped-def]
    """One pass per curve: recall only grows, so each true positive belongs to the last recall point it has reached.

    The envelope (best precision at this recall or beyond) is then a running maximum from the right.
    """
    for a in range(outcome.shape[0]):
        for t in range(outcome.shape[1]):
            curve = precision[a, t]
            if positives[a] == 0:
                curve[:] = -1
                recall[a, t] = exact[a, t] = -1
                continue
            curve[:] = 0
            true = false = 0
            reached = 0
            total = 0.0
            for d in range(len(weight)):
                if outcome[a, t, d] == 0:
                    false += weight[d]
                elif outcome[a, t, d] == 1 and weight[d] > 0:
                    for _ in range(weight[d]):  # a picture drawn n times holds n people, found one after another
                        true += 1
                        total += true / (false + true)
                    share = true / positives[a]
                    while reached + 1 < len(recall_points) and recall_points[reached + 1] <= share:
                        reached += 1
                    curve[reached] = max(curve[reached], true / (false + true + 2.220446049250313e-16))
            for r in range(len(recall_points) - 2, -1, -1):
                curve[r] = max(curve[r], curve[r + 1])
            recall[a, t] = true / positives[a]
            exact[a, t] = total / positives[a]
