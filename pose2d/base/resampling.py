"""Bootstrap confidence intervals: what a figure was measured on is resampled with replacement.

The same draws serve everything that is compared, so that a difference of two figures is paired."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A figure and where it lies in 95 % of the draws."""

    value: float
    low: float
    high: float


def draws(count: int, resamples: int, seed: int = 0) -> np.ndarray:
    """How often each of `count` things counts: as they are, then in each draw, [1 + resamples,
    count].
    """
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return np.concatenate([np.ones((1, count), np.int64), drawn])


def interval(samples: np.ndarray) -> Interval:
    """Of an array whose first entry is the figure itself; draws in which it is not defined do not
    count.
    """
    rest = samples[1:][np.isfinite(samples[1:])]
    if not len(rest):
        return Interval(float(samples[0]), float("nan"), float("nan"))
    low, high = np.quantile(rest, [0.025, 0.975])
    return Interval(float(samples[0]), float(low), float(high))


def clustered_means(error: np.ndarray, cluster: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean error [1 + resamples] of samples [N] in clusters [N] (numbers 0 ..), drawn as often as
    `counts` of `draws`. Frames of one sequence have similar errors, so whole sequences are drawn.
    NaN errors do not count."""
    finite = np.isfinite(error)
    size = counts.shape[1]
    total = np.bincount(cluster[finite], error[finite], minlength=size)
    number = np.bincount(cluster[finite], minlength=size)
    with np.errstate(invalid="ignore"):
        return (counts @ total) / (counts @ number)
