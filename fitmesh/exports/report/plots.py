"""Plots as inline SVG that stretch to any width: lines are in the SVG, text is HTML around it, so
that text is not stretched.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from fitmesh.exports.scene import runs

# Size of the view box, which is stretched to the page.
WIDTH = 1000
HEIGHT = 100
MOST_POINTS = 600  # of a line


@dataclass(frozen=True)
class Line:
    """A curve of a plot."""

    title: str
    values: np.ndarray  # [T]; NaN leaves a gap
    colour: str  # a class name of the page's style


@dataclass(frozen=True)
class Times:
    """The time axis that all plots of a person share."""

    time_s: np.ndarray  # [T]
    gaps: np.ndarray  # [T] bool, frames that were filled in: shaded
    away: np.ndarray  # [T] bool, frames in which the person is absent: shaded differently
    unit: str = "s"  # of time_s: % for a gait cycle


def plot(
    times: Times,
    title: str,
    unit: str,
    lines: Sequence[Line],
    band: tuple[np.ndarray, np.ndarray] | None = None,
    low: float | None = None,
    high: float | None = None,
    more_bands: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> str:
    """Return a titled plot. band: two curves [T] between which it is shaded, more_bands: others;
    low, high: ends of the axis, None: from the values.
    """
    bands = [*([] if band is None else [band]), *more_bands]
    edges = [edge for curves in bands for edge in curves]
    all_values = np.concatenate([*(line.values for line in lines), *edges])
    low, high = _axis_range(all_values, low, high)
    x = _x(times.time_s)
    half = WIDTH / max(len(times.time_s) - 1, 1) / 2
    thin_x = _x(thinned(times.time_s))

    def y(value: float) -> float:
        return round(HEIGHT * (high - value) / (high - low), 2)

    def points(rows: slice, values: np.ndarray) -> list[str]:
        pairs = zip(thin_x[rows].tolist(), values[rows].tolist(), strict=True)
        return [f"{place:.1f},{y(value)}" for place, value in pairs]

    parts = []
    for kind, flags in (("gap", times.gaps), ("away", times.away)):
        for first, last in runs(flags):
            left = max(0.0, x[first] - half)
            right = min(float(WIDTH), x[last] + half)
            place = f'x="{left:.1f}" width="{right - left:.1f}"'
            parts.append(f'<rect class="{kind}" {place} y="0" height="{HEIGHT}"/>')
    ticks = _ticks(low, high)
    parts += [f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y(t)}" y2="{y(t)}"/>' for t in ticks]
    for curves in bands:
        lower, upper = map(thinned, curves)
        for first, last in runs(np.isfinite(lower) & np.isfinite(upper)):
            run = slice(first, last + 1)
            outline = " ".join([*points(run, upper), *reversed(points(run, lower))])
            parts.append(f'<polygon class="band" points="{outline}"/>')
    for line in lines:
        values = thinned(line.values)
        for first, last in runs(np.isfinite(values)):
            if first == last:  # a line needs two ends
                start = f"M{thin_x[first]:.1f} {y(values[first])}"
                parts.append(f'<path d="{start}h.01" class="dot {line.colour}"/>')
            else:
                curve = " ".join(points(slice(first, last + 1), values))
                title_data = f'data-title="{escape(line.title)}"'
                parts.append(
                    f'<polyline class="curve {line.colour}" {title_data} points="{curve}"/>'
                )
    start_s = float(times.time_s[0])
    end_s = float(times.time_s[-1])
    marks = "".join(
        f'<span class="ytick" style="top:{y(t) / HEIGHT:.2%}">{t:g}</span>' for t in ticks
    )
    names = "".join(
        f'<span class="key {line.colour}">{escape(line.title)}</span>'
        for line in lines
        if line.title
    )
    return (
        f'<figure class="plot" data-low="{low}" data-high="{high}" data-start="{start_s}" '
        f'data-end="{end_s}" data-unit="{escape(unit)}" data-time-unit="{escape(times.unit)}"><figcaption><b>{escape(title)}</b> {names}'
        f'<output></output></figcaption><div class="area">{marks}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)} over time">{"".join(parts)}</svg></div>'
        f"{time_marks(start_s, end_s, times.unit)}</figure>"
    )


def time_marks(start_s: float, end_s: float, unit: str = "s") -> str:
    """Return the line of times below a plot."""
    if end_s <= start_s:
        only = f'<span class="first" style="left:0">{start_s:.2f} {unit}</span>'
        return f'<div class="times">{only}</div>'
    spans = ""
    for t in _ticks(start_s, end_s):
        share = (t - start_s) / (end_s - start_s)
        edge = ""  # labels must not overflow the axis
        if share < 0.04:
            edge = "first"
        elif share > 0.96:
            edge = "last"
        spans += f'<span class="{edge}" style="left:{share:.2%}">{t:g} {unit}</span>'
    return f'<div class="times">{spans}</div>'


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Return at most `most` rows of values [T, ...], evenly taken."""
    return values[np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))]


def row_statistic(values: np.ndarray, measure: Callable[..., np.ndarray]) -> np.ndarray:
    """Return `measure` (nanmean, nanmax, ..) of each row of values [T, K] with a finite value; NaN
    for others.
    """
    finite = np.isfinite(values).any(1)
    result = np.full(len(values), np.nan)
    if finite.any():
        result[finite] = measure(values[finite], axis=1)
    return result


def _x(time_s: np.ndarray) -> np.ndarray:
    span = time_s[-1] - time_s[0]
    return (time_s - time_s[0]) / span * WIDTH if span > 0 else np.full(len(time_s), WIDTH / 2)


def _axis_range(values: np.ndarray, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of the axis: `low` and `high`, where None a little beyond the values."""
    finite = values[np.isfinite(values)]
    least = float(finite.min()) if low is None and len(finite) else (low or 0.0)
    most = float(finite.max()) if high is None and len(finite) else (high or 1.0)
    if most - least < 1e-6:
        return least - 0.5, most + 0.5
    slack = 0.06 * (most - least)
    first = least if low is not None else least - slack
    last = most if high is not None else most + slack
    return first, last


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers between `low` and `high`."""
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
