"""Plots of calibration. Each function writes one file, SVG or PNG by its suffix, atomically."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from ccnet.coco_ap.average_precision import RECALL_POINTS, KeypointAP
from ccnet.coco_ap.matching import OKS_THRESHOLDS
from ccnet.metrics import ReliabilityBins, Sparsification, pearson
from ccnet.occlusion import OcclusionCurves
from pose2d.base.files import atomic_file
from pose2d.types import ConfidenceSource


class _Style(NamedTuple):
    """The style of a confidence source in every plot; marker and dashes differ, not only colour."""

    label: str
    colour: str  # from Okabe and Ito's palette for colour-blind readers
    marker: str
    dashes: str


_STYLES: dict[ConfidenceSource, _Style] = {
    "raw": _Style("raw score", "#D55E00", "s", "--"),
    "raw-heatmap": _Style("heatmap score", "#E69F00", "P", "--"),
    "closed-form": _Style("closed form", "#009E73", "^", "-."),
    "ccnet": _Style("CCNet", "#0072B2", "o", "-"),
    "oracle": _Style("oracle (true OKS)", "#000000", "D", ":"),
}
_PLURAL = {"keypoint": "keypoints", "person": "people"}
_QUIET = "#777777"
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "axes.edgecolor": "#444444",
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "fitmesh",  # the same image gives the same file
}


def reliability_diagram(
    path: str | Path, levels: Mapping[str, Mapping[ConfidenceSource, ReliabilityBins]]
) -> None:
    """Draw mean OKS against confidence, one column per level ("keypoint", "person"), one line per
    source. On the diagonal, confidence is calibrated. Below, the density of each confidence.
    """
    with draw_figure(path, 4.6 * len(levels), 5.6) as figure:
        grid = figure.add_gridspec(2, len(levels), height_ratios=(3.4, 1), hspace=0.04)
        for column, (level, sources) in enumerate(levels.items()):
            upper = figure.add_subplot(grid[0, column])
            lower = figure.add_subplot(grid[1, column], sharex=upper)
            upper.plot([0, 1], [0, 1], color=_QUIET, linewidth=1, zorder=1, label="perfect")
            for name, bins in sources.items():
                style = _STYLES[name]
                full = bins.count > 0
                error = f"(ECE {bins.expected_error:.3f})"
                _line(upper, name, bins.confidence[full], bins.oks[full], error, markers=True)
                share = bins.count / max(bins.count.sum(), 1)
                density = share / np.maximum(np.diff(bins.edge), 1e-9)
                lower.stairs(
                    density, bins.edge, color=style.colour, linestyle=style.dashes, linewidth=1.4
                )
            _from_0_to_1(upper)
            upper.set(title=f"{level} level".capitalize(), ylabel="mean OKS" if column == 0 else "")
            upper.tick_params(labelbottom=False)
            upper.legend(loc="best")
            lower.set(xlabel="confidence", ylabel="density" if column == 0 else "")
            lower.set_ylim(bottom=0)


def precision_recall(path: str | Path, sources: Mapping[ConfidenceSource, KeypointAP]) -> None:
    """Draw precision at every recall: the mean over the ten OKS thresholds (the area under it is
    AP), and at OKS 0.75.
    """
    three_quarters = int(np.argmin(abs(OKS_THRESHOLDS - 0.75)))
    with draw_figure(path, 9.2, 4.4) as figure:
        left, right = figure.subplots(1, 2)
        for name, figures in sources.items():
            for axes, curve, area in (
                (left, figures.precision[:, :, 0].mean(0), figures.ap),
                (right, figures.precision[three_quarters, :, 0], figures.ap75),
            ):
                _line(axes, name, RECALL_POINTS, curve, f"({100 * area:.1f})")
        left.set(title="Mean over OKS 0.50 to 0.95  (AP)", ylabel="precision")
        right.set(title="At OKS 0.75  (AP75)")
        for axes in (left, right):
            _from_0_to_1(axes)
            axes.set_xlabel("recall")
            axes.legend(loc="best")


def confidence_vs_oks(
    path: str | Path,
    sources: Mapping[ConfidenceSource, tuple[np.ndarray, np.ndarray]],
    level: str = "keypoint",
) -> None:
    """Draw the density of samples over confidence and OKS of each source ({name: (confidence,
    OKS)}).
    """
    with draw_figure(path, 4.7 * len(sources), 4.2) as figure:
        all_axes = figure.subplots(1, len(sources), squeeze=False)[0]
        drawn = []
        for axes, (name, samples) in zip(all_axes, sources.items(), strict=True):
            confidence, oks = samples
            style = _STYLES[name]
            colours = LinearSegmentedColormap.from_list(name, ["#eef1f4", style.colour, "#101010"])
            image = axes.hexbin(
                confidence,
                oks,
                gridsize=34,
                extent=(0, 1, 0, 1),
                mincnt=1,
                cmap=colours,
                linewidths=0.1,
            )
            drawn.append(image)
            axes.plot([0, 1], [0, 1], color=_QUIET, linewidth=1)
            _from_0_to_1(axes)
            axes.set(
                title=f"{style.label}  (Pearson {pearson(confidence, oks):.2f})",
                xlabel="confidence",
            )
        most = max(float(image.get_array().max()) for image in drawn)
        for image, axes in zip(drawn, all_axes, strict=True):
            image.set_norm(LogNorm(1, max(most, 10)))
            figure.colorbar(
                image, ax=axes, fraction=0.046, pad=0.03, label=f"{_PLURAL[level]} per cell"
            )
        all_axes[0].set_ylabel("OKS")


def sparsification_curve(
    path: str | Path, sources: Mapping[ConfidenceSource, Sparsification]
) -> None:
    """Draw the mean error of the remaining people when the lowest confidence is left out, between
    the best order and a random one.
    """
    with draw_figure(path, 5.6, 4.4) as figure:
        axes = figure.subplots()
        first = next(iter(sources.values()))
        axes.axhline(
            first.random, color=_QUIET, linewidth=1, linestyle=(0, (1, 2)), label="random order"
        )
        for name, curve in sources.items():
            _line(axes, name, curve.removed, curve.error, f"(AUSE {curve.ause:.2f})")
        _line(axes, "oracle", first.removed, first.oracle)
        axes.set(
            xlim=(0, 1),
            xlabel="share of people left out, lowest confidence first",
            ylabel="mean 1 - OKS of the rest",
            title="Sparsification, person level",
        )
        largest = max(float(curve.error.max()) for curve in sources.values())
        axes.set_ylim(0, 1.25 * max(first.random, largest))
        axes.legend(loc="best")


def occlusion_curve_plot(path: str | Path, curves: OcclusionCurves, keypoint: str) -> None:
    """Draw the confidence of each source, and the true OKS, as a blurred patch grows."""
    with draw_figure(path, 5.6, 4.4) as figure:
        axes = figure.subplots()
        for name, confidence in curves.confidence.items():
            _line(axes, name, curves.size, confidence, "(confidence)", markers=True)
        _line(axes, "oracle", curves.size, curves.oks, markers=True)
        axes.set(
            ylim=(0, 1),
            xlabel="side of the blurred patch / size of the person",
            ylabel=f"mean over {curves.people} crops",
            title=f"Hiding the {keypoint.replace('_', ' ')}",
        )
        axes.set_xlim(left=0)
        axes.legend(loc="best")


@contextmanager
def draw_figure(path: str | Path, width_in: float, height_in: float) -> Iterator[Figure]:
    """Yield a figure to draw on, saved when the block ends without an error. Needs no display and
    leaves no global state.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width_in, height_in), dpi=150, layout="constrained")
        yield figure
        with atomic_file(path) as temporary:
            undated = {"Date": None} if temporary.suffix == ".svg" else None
            figure.savefig(temporary, facecolor="white", metadata=undated)


def _line(
    axes: Axes,
    name: ConfidenceSource,
    x: np.ndarray,
    y: np.ndarray,
    figure: str = "",
    markers: bool = False,
) -> None:
    style = _STYLES[name]
    marker = style.marker if markers else None
    label = f"{style.label}  {figure}"
    axes.plot(
        x,
        y,
        style.dashes,
        marker=marker,
        color=style.colour,
        label=label,
        linewidth=1.8,
        markersize=5,
    )


def _from_0_to_1(axes: Axes) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
