"""Filters of motion by name: `butterworth:HZ`, `gaussian:SECONDS`, `none`."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.signal import butter, sosfiltfilt

from pose2d.base.errors import OptionError

NONE = "none"
_BUTTERWORTH = "butterworth"
_GAUSSIAN = "gaussian"
_OPTION = "--filter"
# Of one direction; forwards and backwards make it the fourth order that gait laboratories use.
_ORDER = 2
_LARGEST = 1000.0  # Hz, s
_PASSES_ALL = 0.95  # of half the frame rate: a higher cut-off filters nothing


@dataclass(frozen=True)
class Filter:
    """A low-pass filter without delay."""

    name: str
    value: float  # Hz of butterworth, seconds of gaussian

    def apply(self, time_s: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return values [T, N] at even times, filtered; too short a motion is returned as it is."""
        if len(values) < 3:
            return values
        step_s = float(np.median(np.diff(time_s)))
        if self.name == _GAUSSIAN:
            return gaussian_filter1d(values, self.value / step_s, axis=0, mode="nearest")
        if self.value >= _PASSES_ALL * 0.5 / step_s:
            return values
        # So that both directions together pass half the power at the stated frequency.
        both_directions = (math.sqrt(2) - 1) ** (1 / (2 * _ORDER))
        cutoff_hz = min(self.value / both_directions, _PASSES_ALL * 0.5 / step_s)
        sections = butter(_ORDER, cutoff_hz, fs=1 / step_s, output="sos")
        padding = min(len(values) - 1, math.ceil(1 / (self.value * step_s)))
        return sosfiltfilt(sections, values, axis=0, padlen=padding)


def parse_filter(text: str) -> Filter | None:
    """Return the filter that `--filter` names; None: none."""
    name, separator, number = text.strip().partition(":")
    if name == NONE and not separator:
        return None
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if name not in (_BUTTERWORTH, _GAUSSIAN) or not 0 < value <= _LARGEST:
        raise OptionError(
            f"{_OPTION} must be none, butterworth:HZ (such as butterworth:6) or gaussian:SECONDS "
            f"(such as gaussian:0.05), with a number above 0 and at most {_LARGEST:g}; got {text!r}.",
            option=_OPTION,
        )
    return Filter(name, value)
