"""Plots as inline SVG of any width: lines are in the SVG, text is HTML around it, so that text is not stretched."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from fitmesh.exports.scene import runs

WIDTH, HEIGHT = 1000, 100  # of the view box, stretched to the page
MOST_POINTS = 600  # longer lines are drawn through the means of neighbours


@dataclass(frozen=True)
class Line:
    """One curve."""

    title: str
    values: np.ndarray  # [T]; NaN leaves a gap
    colour: str  # a class name of the page's style


@dataclass(frozen=True)
class Axis:
    """What the curves of a plot share."""

    title: str
    unit: str
    time_s: np.ndarray  # [T]
    gaps: np.ndarray  # [T] bool, frames that were filled in: shaded
    away: np.ndarray  # [T] bool, frames in which the person is absent: shaded differently
    low: float | None = None  # fixed lower end; None: as the values need
    high: float | None = None


def plot(axis: Axis, lines: Sequence[Line], band: tuple[np.ndarray, np.ndarray] | None = None) -> str:
    """A titled plot; `band` is shaded from its first to its second curve [T]."""
    together = [line.values for line in lines] + list(band or ())
    low, high = _range(np.concatenate(together), axis)
    ticks = _ticks(low, high)
    start, end = float(axis.time_s[0]), float(axis.time_s[-1])
    parts = [
        _shade(kind, first, last, axis.time_s)
        for kind, flags in (("gap", axis.gaps), ("away", axis.away))
        for first, last in runs(flags)
    ]
    parts += [
        f'<line class="grid" x1="0" x2="{WIDTH}" y1="{_y(t, low, high)}" y2="{_y(t, low, high)}"/>' for t in ticks
    ]
    if band is not None:
        parts.append(_band(axis.time_s, *band, low, high))
    parts += [_curve(line, axis.time_s, low, high) for line in lines]
    marks = "".join(f'<span class="ytick" style="top:{_y(t, low, high) / HEIGHT:.2%}">{t:g}</span>' for t in ticks)
    names = "".join(f'<span class="key {line.colour}">{escape(line.title)}</span>' for line in lines if line.title)
    return (
        f'<figure class="plot" data-low="{low}" data-high="{high}" data-start="{start}" data-end="{end}" '
        f'data-unit="{escape(axis.unit)}"><figcaption><b>{escape(axis.title)}</b> {names}'
        f'<output></output></figcaption><div class="area">{marks}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(axis.title)} over time">{"".join(parts)}</svg></div>{time_marks(start, end)}</figure>'
    )


def time_marks(start_s: float, end_s: float) -> str:
    """The line of times below a plot."""
    if end_s <= start_s:
        return f'<div class="times"><span class="first" style="left:0">{start_s:.2f} s</span></div>'
    spans = ""
    for t in _ticks(start_s, end_s):
        share = (t - start_s) / (end_s - start_s)
        edge = "first" if share < 0.04 else "last" if share > 0.96 else ""  # labels must not overflow the axis
        spans += f'<span class="{edge}" style="left:{share:.2%}">{t:g} s</span>'
    return f'<div class="times">{spans}</div>'


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """[T, ...] -> at most `most` rows: means of neighbours, NaN where all of them are."""
    if len(values) <= most:
        return values
    edges = np.linspace(0, len(values), most + 1).round().astype(int)
    finite = np.isfinite(values)
    counts = np.add.reduceat(finite.astype(float), edges[:-1])
    sums = np.add.reduceat(np.where(finite, values, 0.0), edges[:-1])
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def row_statistic(values: np.ndarray, measure: Callable[..., np.ndarray]) -> np.ndarray:
    """[T, K] -> [T]: `measure` (nanmean, nanmax, ..) of each row with a finite value, NaN for others."""
    finite = np.isfinite(values).any(1)
    result = np.full(len(values), np.nan)
    if finite.any():
        result[finite] = measure(values[finite], axis=1)
    return result


def _x(time_s: np.ndarray) -> np.ndarray:
    span = time_s[-1] - time_s[0]
    return (time_s - time_s[0]) / span * WIDTH if span > 0 else np.full(len(time_s), WIDTH / 2)


def _y(value: float, low: float, high: float) -> float:
    return round(HEIGHT * (high - value) / (high - low), 2)


def _points(x: np.ndarray, values: np.ndarray, low: float, high: float) -> str:
    return " ".join(f"{a:.1f},{_y(b, low, high)}" for a, b in zip(x.tolist(), values.tolist(), strict=True))


def _curve(line: Line, time_s: np.ndarray, low: float, high: float) -> str:
    x, values = _x(thinned(time_s)), thinned(line.values)
    parts = []
    for first, last in runs(np.isfinite(values)):
        piece = slice(first, last + 1)
        if first == last:  # a line needs two ends
            parts.append(f'<path d="M{x[first]:.1f} {_y(values[first], low, high)}h.01" class="dot {line.colour}"/>')
        else:
            points = _points(x[piece], values[piece], low, high)
            parts.append(f'<polyline class="curve {line.colour}" data-title="{escape(line.title)}" points="{points}"/>')
    return "".join(parts)


def _band(time_s: np.ndarray, lower: np.ndarray, upper: np.ndarray, low: float, high: float) -> str:
    x, lower, upper = _x(thinned(time_s)), thinned(lower), thinned(upper)
    parts = []
    for first, last in runs(np.isfinite(lower) & np.isfinite(upper)):
        piece = slice(first, last + 1)
        there = _points(x[piece], upper[piece], low, high)
        back = _points(x[piece][::-1], lower[piece][::-1], low, high)
        parts.append(f'<polygon class="band" points="{there} {back}"/>')
    return "".join(parts)


def _shade(kind: str, first: int, last: int, time_s: np.ndarray) -> str:
    x, half = _x(time_s), WIDTH / max(len(time_s) - 1, 1) / 2
    left, right = max(0.0, x[first] - half), min(float(WIDTH), x[last] + half)
    return f'<rect class="{kind}" x="{left:.1f}" width="{right - left:.1f}" y="0" height="{HEIGHT}"/>'


def _range(values: np.ndarray, axis: Axis) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    low = float(finite.min()) if axis.low is None and len(finite) else (axis.low or 0.0)
    high = float(finite.max()) if axis.high is None and len(finite) else (axis.high or 1.0)
    if high - low < 1e-6:
        return low - 0.5, high + 0.5
    slack = 0.06 * (high - low)
    return (low if axis.low is not None else low - slack), (high if axis.high is not None else high + slack)


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers."""
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
