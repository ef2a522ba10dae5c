"""How sure is a difference in AP? Images drawn again and again with replacement, the same draw for every source."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ccnet.average_precision import curves, mean_of_defined
from ccnet.matching import Matches


@dataclass(frozen=True)
class Interval:
    """A figure and where it lies in most resampled data sets."""

    value: float  # on the data as they are
    low: float
    high: float
    level: float  # share of resamples between low and high

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def bootstrap_ap(sources: Mapping[str, Matches], resamples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
    """AP of every confidence source: first on all images, then on each resample, [1 + resamples].

    Matching never looks beyond one image, so a resample only changes how often each image counts. All sources must
    come from the same ground truth; a difference or ratio of the arrays is then paired.
    """
    images = {matches.positives.shape[1] for matches in sources.values()}
    if len(images) != 1:
        raise ValueError(f"the sources cover different numbers of images: {sorted(images)}")
    (count,) = images
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    weights = np.concatenate([np.ones((1, count), np.int64), draws.astype(np.int64)])
    everyone = {name: _all_sizes(matches) for name, matches in sources.items()}
    return {
        name: np.array([mean_of_defined(curves(matches, weight).precision) for weight in weights])
        for name, matches in everyone.items()
    }


def interval(samples: np.ndarray, level: float = 0.95) -> Interval:
    """Percentile interval of an array whose first entry is the figure itself."""
    low, high = np.nanquantile(samples[1:], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(samples[0]), float(low), float(high), level)


def paired_difference(better: Matches, worse: Matches, resamples: int = 1000, seed: int = 0) -> Interval:
    """AP of one confidence source minus that of another, with its 95 % interval."""
    ap = bootstrap_ap({"better": better, "worse": worse}, resamples, seed)
    return interval(ap["better"] - ap["worse"])


def _all_sizes(matches: Matches) -> Matches:
    return Matches(matches.score, matches.image, np.ascontiguousarray(matches.outcome[:1]), matches.positives[:1])
