"""Plots as inline SVG of any width: lines are in the SVG, text is HTML around it, so that text is
not stretched.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from fitmesh.exports.scene import runs

WIDTH, HEIGHT = 1000, 100  # of the view box, stretched to the page
MOST_POINTS = 600  # of a line


@dataclass(frozen=True)
class Line:
    """One curve."""

    title: str
    values: np.ndarray  # [T]; NaN leaves a gap
    colour: str  # a class name of the page's style


@dataclass(frozen=True)
class Times:
    """What all plots of a person share."""

    time_s: np.ndarray  # [T]
    gaps: np.ndarray  # [T] bool, frames that were filled in: shaded
    away: np.ndarray  # [T] bool, frames in which the person is absent: shaded differently


def plot(
    times: Times,
    title: str,
    unit: str,
    lines: Sequence[Line],
    band: tuple[np.ndarray, np.ndarray] | None = None,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """A titled plot; `band` is shaded from its first to its second curve [T]; low, high: the ends
    of its axis, None: as the values need."""
    low, high = _range(
        np.concatenate([line.values for line in lines] + list(band or ())), low, high
    )
    x = _x(times.time_s)
    half = WIDTH / max(len(times.time_s) - 1, 1) / 2
    thin_x = _x(thinned(times.time_s))

    def y(value: float) -> float:
        return round(HEIGHT * (high - value) / (high - low), 2)

    def points(at: slice, values: np.ndarray) -> str:
        return " ".join(
            f"{a:.1f},{y(b)}" for a, b in zip(thin_x[at].tolist(), values[at].tolist(), strict=True)
        )

    parts = []
    for kind, flags in (("gap", times.gaps), ("away", times.away)):
        for first, last in runs(flags):
            left = max(0.0, x[first] - half)
            right = min(float(WIDTH), x[last] + half)
            parts.append(
                f'<rect class="{kind}" x="{left:.1f}" width="{right - left:.1f}" y="0" height="{HEIGHT}"/>'
            )
    ticks = _ticks(low, high)
    parts += [f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y(t)}" y2="{y(t)}"/>' for t in ticks]
    if band is not None:
        lower, upper = map(thinned, band)
        for first, last in runs(np.isfinite(lower) & np.isfinite(upper)):
            there, back = (points(slice(first, last + 1), side) for side in (upper, lower))
            parts.append(
                f'<polygon class="band" points="{there} {" ".join(reversed(back.split()))}"/>'
            )
    for line in lines:
        values = thinned(line.values)
        for first, last in runs(np.isfinite(values)):
            if first == last:  # a line needs two ends
                parts.append(
                    f'<path d="M{thin_x[first]:.1f} {y(values[first])}h.01" class="dot {line.colour}"/>'
                )
            else:
                drawn = f'data-title="{escape(line.title)}" points="{points(slice(first, last + 1), values)}"'
                parts.append(f'<polyline class="curve {line.colour}" {drawn}/>')
    start = float(times.time_s[0])
    end = float(times.time_s[-1])
    marks = "".join(
        f'<span class="ytick" style="top:{y(t) / HEIGHT:.2%}">{t:g}</span>' for t in ticks
    )
    names = "".join(
        f'<span class="key {line.colour}">{escape(line.title)}</span>'
        for line in lines
        if line.title
    )
    return (
        f'<figure class="plot" data-low="{low}" data-high="{high}" data-start="{start}" data-end="{end}" '
        f'data-unit="{escape(unit)}"><figcaption><b>{escape(title)}</b> {names}'
        f'<output></output></figcaption><div class="area">{marks}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)} over time">{"".join(parts)}</svg></div>{time_marks(start, end)}</figure>'
    )


def time_marks(start_s: float, end_s: float) -> str:
    """The line of times below a plot."""
    if end_s <= start_s:
        return f'<div class="times"><span class="first" style="left:0">{start_s:.2f} s</span></div>'
    spans = ""
    for t in _ticks(start_s, end_s):
        share = (t - start_s) / (end_s - start_s)
        edge = (
            "first" if share < 0.04 else "last" if share > 0.96 else ""
        )  # labels must not overflow the axis
        spans += f'<span class="{edge}" style="left:{share:.2%}">{t:g} s</span>'
    return f'<div class="times">{spans}</div>'


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """[T, ...] -> at most `most` rows, evenly taken."""
    return values[np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))]


def row_statistic(values: np.ndarray, measure: Callable[..., np.ndarray]) -> np.ndarray:
    """[T, K] -> [T]: `measure` (nanmean, nanmax, ..) of each row with a finite value, NaN for
    others.
    """
    finite = np.isfinite(values).any(1)
    result = np.full(len(values), np.nan)
    if finite.any():
        result[finite] = measure(values[finite], axis=1)
    return result


def _x(time_s: np.ndarray) -> np.ndarray:
    span = time_s[-1] - time_s[0]
    return (time_s - time_s[0]) / span * WIDTH if span > 0 else np.full(len(time_s), WIDTH / 2)


def _range(values: np.ndarray, low: float | None, high: float | None) -> tuple[float, float]:
    """The ends of the axis: those that are given, else a little beyond the values."""
    finite = values[np.isfinite(values)]
    least = float(finite.min()) if low is None and len(finite) else (low or 0.0)
    most = float(finite.max()) if high is None and len(finite) else (high or 1.0)
    if most - least < 1e-6:
        return least - 0.5, most + 0.5
    slack = 0.06 * (most - least)
    return (least if low is not None else least - slack), (
        most if high is not None else most + slack
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers."""
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
