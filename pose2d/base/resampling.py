"""Bootstrap confidence intervals by resampling with replacement.

All compared figures use the same draws, so that their differences are paired."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def draws(count: int, resamples: int, seed: int = 0) -> np.ndarray:
    """Return how often each of `count` samples is drawn, [1 + resamples, count].

    The first row stands for the samples as they are: all ones."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return np.concatenate([np.ones((1, count), np.int64), drawn])


def interval(samples: np.ndarray) -> Interval:
    """Return the interval of a figure [1 + resamples], whose first entry is the figure itself.

    Draws in which the figure is not finite are ignored."""
    finite = samples[1:][np.isfinite(samples[1:])]
    if not len(finite):
        return Interval(float(samples[0]), float("nan"), float("nan"))
    low, high = np.quantile(finite, [0.025, 0.975])
    return Interval(float(samples[0]), float(low), float(high))


def clustered_means(error: np.ndarray, cluster: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the mean error [1 + resamples] of samples [N] whose clusters are resampled.

    `cluster` [N] numbers the cluster of each sample from 0; `counts` comes from `draws`. Errors of
    frames of one sequence are correlated, so whole sequences are drawn. NaN errors are ignored."""
    finite = np.isfinite(error)
    size = counts.shape[1]
    total = np.bincount(cluster[finite], error[finite], minlength=size)
    number = np.bincount(cluster[finite], minlength=size)
    with np.errstate(invalid="ignore"):
        return (counts @ total) / (counts @ number)
