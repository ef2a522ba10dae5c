"""The paper's figures: its analysis as curves, confidence of visible and invisible keypoints, the
heatmap's maximum, and people with raw and calibrated confidence side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ccnet.paper import theory
from ccnet.paper.panels import PersonPanel
from ccnet.plots import draw_figure

VISIBILITY = {2: "visible", 1: "occluded", 0: "not labelled"}
COLOURS = {2: "#0072B2", 1: "#009E73", 0: "#D55E00"}
TARGET_WIDTH = 2.0  # cells, at an input of 256x192
BINS = 25


def draw_theory(path: str | Path) -> None:
    """Draw expected OKS and the confidence of heatmaps and regression, by the uncertainty of the true
    place and by how far a prediction is off.
    """
    sigma = np.linspace(0, 6, 121)
    offset = np.linspace(0, 6, 121)
    with draw_figure(path, 12.6, 4.2) as figure:
        left, middle, right = figure.subplots(1, 3)
        for length, dashes in ((1.0, ":"), (2.0, "-"), (4.0, "--")):
            left.plot(
                sigma,
                theory.best_expected_oks(sigma, length),
                dashes,
                color="#000000",
                label=f"E[OKS], l = {length:g} (Eq. 12)",
            )
        left.plot(
            sigma,
            theory.heatmap_confidence(sigma, TARGET_WIDTH),
            color="#D55E00",
            label="heatmap's maximum, w = 2 (Eq. 17)",
        )
        unit = sigma / 6  # RLE's sigma is in shares of the crop: the largest here is 1
        left.plot(
            sigma, theory.regression_confidence(unit), color="#0072B2", label="1 - sigma (Eq. 19)"
        )
        left.plot(
            sigma,
            theory.laplace_confidence(unit),
            "-.",
            color="#56B4E9",
            label="1 - b, Laplace (Supp.)",
        )
        left.set(title="A perfect prediction", xlabel="sigma of the true place, cells")
        middle.plot(
            offset,
            theory.expected_oks(1.0, 2.0, offset),
            color="#000000",
            label="E[OKS], l = 2 (Eq. 11)",
        )
        middle.plot(
            offset,
            theory.imperfect_heatmap_confidence(1.0, TARGET_WIDTH, offset),
            color="#D55E00",
            label="heatmap (Supp.)",
        )
        middle.plot(
            offset,
            theory.imperfect_heatmap_confidence(1.0, TARGET_WIDTH, offset, as_printed=True),
            ":",
            color="#D55E00",
            label="heatmap, as printed",
        )
        middle.plot(
            offset,
            theory.imperfect_regression_confidence(1 / 6, offset / 6),
            color="#0072B2",
            label="regression (Supp.)",
        )
        middle.set(title="A prediction off the mean, sigma = 1", xlabel="offset, cells")
        right.plot(
            offset,
            np.sqrt(theory.imperfect_heatmap_variance(1.0, TARGET_WIDTH, offset)),
            color="#D55E00",
            label="heatmap",
        )
        right.plot(
            offset,
            theory.imperfect_regression_sigma(1.0, offset),
            color="#0072B2",
            label="regression",
        )
        right.set(title="The sigma that is learnt (Supp.)", xlabel="offset, cells", ylabel="cells")
        for axes in (left, middle):
            axes.set(ylabel="confidence", ylim=(0, 1.02))
        for axes in (left, middle, right):  # below: curves fill the axes
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def draw_visibility(
    path: str | Path, confidence: Mapping[str, np.ndarray], visibility: np.ndarray
) -> None:
    """Draw the distribution of each confidence [N, K] for visible, occluded and unlabelled
    keypoints (visibility [N, K], COCO's 2, 1 and 0).
    """
    with draw_figure(path, 4.6 * len(confidence), 3.8) as figure:
        all_axes = figure.subplots(1, len(confidence), squeeze=False)[0]
        for axes, (name, values) in zip(all_axes, confidence.items(), strict=True):
            for mark, label in VISIBILITY.items():
                chosen = values[visibility == mark]
                if len(chosen):
                    axes.hist(
                        np.clip(chosen, 0, 1),
                        bins=np.linspace(0, 1, BINS + 1),
                        density=True,
                        histtype="step",
                        color=COLOURS[mark],
                        label=f"{label} ({len(chosen):,})",
                    )
            axes.set(title=name, xlabel="confidence", xlim=(0, 1))
            axes.set_ylim(top=1.35 * axes.get_ylim()[1])  # room for the legend
            axes.legend(loc="upper center")
        all_axes[0].set_ylabel("density")


def draw_heatmap_maximum(path: str | Path, maximum: np.ndarray, estimated: np.ndarray) -> None:
    """Draw the maximum of each heatmap against w^2 / sigma^2 of the Gaussian fitted to it (Eq. 17),
    both flat.
    """
    with draw_figure(path, 4.6, 4.2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#777777", linewidth=1)
        axes.scatter(np.clip(estimated, 0, 1.5), maximum, s=3, alpha=0.3, color="#0072B2")
        correlation = np.corrcoef(estimated, maximum)[0, 1] if len(maximum) > 1 else float("nan")
        axes.set(
            title=f"Heatmap's maximum, {len(maximum):,} keypoints (r = {correlation:.2f})",
            xlabel="w^2 / sigma^2 of the fitted Gaussian",
            ylabel="maximum",
            xlim=(0, 1.05),
            ylim=(0, 1.05),
        )


def draw_people(path: str | Path, people: Sequence[PersonPanel]) -> None:
    """Draw people, one per row, with each confidence as the colour of the keypoints."""
    names = list(people[0].confidence)
    with draw_figure(path, 2.6 * len(names), 3.0 * len(people)) as figure:
        all_axes = figure.subplots(len(people), len(names), squeeze=False)
        for row, panel in zip(all_axes, people, strict=True):
            for axes, name in zip(row, names, strict=True):
                axes.imshow(panel.crop)
                labelled = np.isfinite(panel.confidence[name])
                dots = axes.scatter(
                    *panel.xy_px[labelled].T,
                    c=panel.confidence[name][labelled],
                    cmap="RdYlGn",
                    vmin=0,
                    vmax=1,
                    s=28,
                    edgecolors="black",
                    linewidths=0.5,
                )
                axes.set(title=f"{name} {panel.person[name]:.2f}", xticks=[], yticks=[])
                axes.set_xlim(-0.5, panel.crop.shape[1] - 0.5)
                axes.set_ylim(panel.crop.shape[0] - 0.5, -0.5)
                axes.grid(False)
        figure.colorbar(dots, ax=all_axes, fraction=0.03, pad=0.02, label="confidence")
