"""How sure is a difference in millimetres? Sequences drawn again and again, the same draw for everything compared.

Frames of a sequence err alike, so the sequence is what is drawn. A figure is a mean over frames: of each draw, the sum
over its sequences' frames by their number.
"""

from collections.abc import Mapping

import numpy as np

from pose2d.base.resampling import Interval, draws, interval

RESAMPLES = 2000


def means(error: np.ndarray, sequence: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean error [1 + resamples] of frames [N] that belong to sequences [N] (numbers 0 ..); NaN errors do not count."""
    known = np.isfinite(error)
    size = counts.shape[1]
    total = np.bincount(sequence[known], error[known], minlength=size)
    number = np.bincount(sequence[known], minlength=size)
    with np.errstate(invalid="ignore"):
        return (counts @ total) / (counts @ number)


def paired(errors: Mapping[str, np.ndarray], against: str, sequence: np.ndarray) -> dict[str, Interval]:
    """Mean of every row minus that of the row `against`, frame errors [N] each."""
    counts = draws(int(sequence.max()) + 1, RESAMPLES)
    base = means(errors[against], sequence, counts)
    return {name: interval(means(error, sequence, counts) - base) for name, error in errors.items()}
