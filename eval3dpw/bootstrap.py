"""How sure is a difference in millimetres? Sequences drawn again and again, the same draw for everything compared.

Frames of a sequence err alike, so the sequence is what is drawn. A figure is a mean over frames: of each draw, the sum
over its sequences' frames by their number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A figure and where it lies in 95 % of the draws."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def draws(sequences: int, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """How often each sequence counts: as it is, then in each draw, [1 + resamples, sequences]."""
    drawn = np.random.default_rng(seed).multinomial(sequences, np.full(sequences, 1 / sequences), resamples)
    return np.concatenate([np.ones((1, sequences), np.int64), drawn])


def means(error: np.ndarray, sequence: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean error [1 + resamples] of frames [N] that belong to sequences [N] (numbers 0 ..); NaN errors do not count."""
    known = np.isfinite(error)
    size = counts.shape[1]
    total = np.bincount(sequence[known], error[known], minlength=size)
    number = np.bincount(sequence[known], minlength=size)
    with np.errstate(invalid="ignore"):
        return (counts @ total) / (counts @ number)


def interval(samples: np.ndarray) -> Interval:
    """Of an array whose first entry is the figure itself."""
    rest = samples[1:][np.isfinite(samples[1:])]
    if not len(rest):
        return Interval(float(samples[0]), float("nan"), float("nan"))
    low, high = np.quantile(rest, [0.025, 0.975])
    return Interval(float(samples[0]), float(low), float(high))


def paired(errors: Mapping[str, np.ndarray], against: str, sequence: np.ndarray) -> dict[str, Interval]:
    """Mean of every row minus that of the row `against`, frame errors [N] each."""
    counts = draws(int(sequence.max()) + 1)
    base = means(errors[against], sequence, counts)
    return {name: interval(means(error, sequence, counts) - base) for name, error in errors.items()}
