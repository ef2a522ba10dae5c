"""What bench/weighting.py found, as a plot and by occlusion."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from rich.markup import escape
from rich.table import Table

from bench.lib.weighting_rows import (
    CCNET_PRECISION,
    HARDLY_ROBUST,
    OWN_SINGLE,
    OWN_TIME,
    RAW,
    SINGLE,
    TIME,
)
from fitmesh.eval_3dpw.score_table import Line, cell
from pose2d.base.files import atomic_file
from pose2d.base.resampling import Interval

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PLOT = Path(__file__).parents[2] / "docs" / "img" / "weighting.png"
METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm", "acceleration_mm")


def by_occlusion(mode: str, levels: Mapping[str, Sequence[Line]]) -> Table:
    """PA-MPJPE of every weighting by how many keypoints are hidden."""
    table = Table("", *levels, title=f"PA-MPJPE by occlusion, {mode}")
    for row in zip(*levels.values(), strict=True):
        table.add_row(row[0].label, *(escape(cell(line, "pa_mpjpe_mm", RAW)) for line in row))
    return table


def plot(
    tables: Mapping[str, Sequence[Line]],
    by_level: Mapping[str, Mapping[str, Sequence[Line]]],
    title: str,
) -> None:
    """How much better than raw each weighting is, overall and by occlusion."""
    figure, axes = plt.subplots(1, 2, figsize=(13, 7.5), gridspec_kw={"width_ratios": [1.5, 1]})
    colors = {
        SINGLE: "#1f77b4",
        TIME: "#d9822b",
        HARDLY_ROBUST: "#2a9d58",
        OWN_SINGLE: "#8e5bb5",
        OWN_TIME: "#c94f7c",
    }
    labels = [line.label for line in next(iter(tables.values())) if line.label != RAW]
    for number, (mode, result) in enumerate(tables.items()):
        visible = {line.label: line.difference["pa_mpjpe_mm"] for line in result}
        current = [label for label in labels if label in visible]
        height = np.array([labels.index(label) for label in current]) + 0.15 * (
            number - (len(tables) - 1) / 2
        )
        _bars(
            axes[0], height, [visible[label] for label in current], colors[mode], mode, across=True
        )
    for number in range(0, len(labels), 2):
        axes[0].axhspan(number - 0.5, number + 0.5, color="#f3f3f3", zorder=0)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].set_ylim(len(labels) - 0.5, -0.5)
    axes[0].set_xlim(-10, 10)
    axes[0].set_xlabel("PA-MPJPE minus that of raw confidence, mm (left is better)")
    axes[0].axvline(0, color="#888", lw=1)
    axes[0].legend(loc="lower right", fontsize=8)
    picks = ((SINGLE, CCNET_PRECISION), (OWN_SINGLE, CCNET_PRECISION), (SINGLE, "oracle precision"))
    for number, (mode, label) in enumerate(pick for pick in picks if pick[0] in by_level):
        found_here = [
            next((line for line in result if line.label == label), None)
            for result in by_level[mode].values()
        ]
        differences = [line.difference["pa_mpjpe_mm"] for line in found_here if line]
        place, color = (
            np.arange(len(differences)) + 0.12 * (number - 1),
            ("#1f77b4", "#8e5bb5", "#555555")[number],
        )
        _bars(axes[1], place, differences, color, f"{label}, {mode}", across=False)
    levels = list(next(iter(by_level.values())))
    axes[1].set_xticks(range(len(levels)), [level.replace(" (", "\n(") for level in levels])
    axes[1].set_title("by occlusion (person-frames)", fontsize=10)
    axes[1].set_ylabel("PA-MPJPE minus that of raw, mm (lower is better)")
    axes[1].axhline(0, color="#888", lw=1)
    axes[1].margins(y=0.18)
    axes[1].legend(loc="lower left", fontsize=8)
    for axis in axes:
        axis.grid(alpha=0.25)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    with atomic_file(PLOT) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)


def _bars(
    axis: Any,
    place: np.ndarray,
    differences: Sequence[Interval],
    color: str,
    label: str,
    across: bool,
) -> None:
    """Values with their intervals along x (across) or y."""
    value, low, high = (
        np.array([getattr(d, end) for d in differences]) for end in ("value", "low", "high")
    )
    reach = [value - low, high - value]
    style = {"fmt": "o", "ms": 4.5, "capsize": 2.5, "lw": 1.4, "color": color, "label": label}
    if across:
        axis.errorbar(value, place, xerr=reach, **style)
    else:
        axis.errorbar(place, value, yerr=reach, **style)
