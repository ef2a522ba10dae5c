"""Claim: what calibrated confidence is worth to the bodies, in millimetres, where nothing is hidden
and where much is.

Rendered people are read once; the same keypoints are fitted over time with the confidence of four
sources: the network's own (raw), the closed form, CCNet, and the true OKS (oracle, a bound). All
weight the squared pixel error by confidence, as the paper does; one row is what ships, CCNet's
whole error distribution, and one counts every keypoint alike (its start is raw's). In whole runs
each source also feeds the initialiser; with a shared start all begin where CCNet's confidence led.
"No robust loss" lets a keypoint pull however far it is away. Differences are paired, intervals are
over sequences.

    fitmesh synth --out synth_test --seed 43
    python bench/downstream.py --data synth_test [--every 3]     # the tables, and docs/img/downstream.png
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
from rich.markup import escape
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from eval3dpw.synth.dataset import truth_path
from eval3dpw.synth.sequence import BEHIND_SELF
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.pipeline import run
from fitmesh.eval_3dpw.score_table import NAMES, Line, Scores, cell, lines
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_file

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PLOT = Path(__file__).parents[1] / "docs" / "img" / "downstream.png"
METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm")
RAW, SHIPS = "raw", "CCNet, as it ships"
ROWS = {
    RAW: Row("raw", "confidence"),
    "closed form": Row("closed-form", "confidence"),
    "CCNet": Row("ccnet", "confidence"),
    "oracle": Row("oracle", "confidence"),
    SHIPS: Row("ccnet", "likelihood"),
    "every keypoint alike": Row("raw", "ones"),
}
NOT_ROBUST = 1000.0  # standard deviations at which a keypoint counts half of its square
MODES = {
    "whole runs": (True, False),
    "whole runs, no robust loss": (True, True),
    "shared start": (False, False),
}
LEVELS = {"everybody": (0, 17), "nothing hidden": (0, 0), "half hidden (7 or more of 17)": (7, 17)}


def rows_of(mode: str) -> dict[str, Row]:
    own, not_robust = MODES[mode]
    rows = {
        name: replace(row, robust_sigmas=NOT_ROBUST) if not_robust else row
        for name, row in ROWS.items()
    }
    return {
        name: replace(row, start_source=row.source) if own else row for name, row in rows.items()
    }


def hidden(data: Path, scores: Scores) -> np.ndarray:
    """How many keypoints of each person-frame [N] are hidden, by the files that `fitmesh synth`
    leaves.
    """
    counts = {}
    for name in scores.names:
        with np.load(truth_path(data, name)) as file:
            counts[name] = (file["visibility"] < BEHIND_SELF).sum(-1)  # [P, T]
    score = next(iter(scores.rows.values()))
    owner = zip(scores.sequence, score["person"], score["frame"], strict=True)
    return np.array([counts[scores.names[s]][person, frame] for s, person, frame in owner])


def plot(result: Mapping[tuple[str, str], Sequence[Line]], title: str) -> None:
    figure, axes = plt.subplots(1, len(METRICS), figsize=(13, 5.4), sharey=True)
    labels = [name for name in ROWS if name != RAW]
    kinds = list(result)
    colours = ("#1f77b4", "#2a9d58", "#d9822b", "#8e5bb5", "#c94f7c")
    for axis, metric in zip(axes, METRICS, strict=True):
        for number, kind in enumerate(kinds):
            visible = {line.label: line.difference[metric] for line in result[kind]}
            value, low, high = (
                np.array([getattr(visible[n], end) for n in labels])
                for end in ("value", "low", "high")
            )
            place = np.arange(len(labels)) + 0.15 * (number - (len(kinds) - 1) / 2)
            style = {
                "fmt": "o",
                "ms": 4,
                "capsize": 2,
                "lw": 1.2,
                "color": colours[number],
                "label": ", ".join(kind),
            }
            axis.errorbar(value, place, xerr=[value - low, high - value], **style)
        axis.axvline(0, color="#888", lw=1)
        axis.set_xlabel(f"{NAMES[metric]} minus raw's, mm (left is better)")
        axis.grid(alpha=0.25)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=8, frameon=False
    )
    figure.suptitle(title, fontsize=11)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    with atomic_file(PLOT) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a set made by `fitmesh synth`")
    parser.add_argument(
        "--cache", type=Path, default=Path("downstream_cache"), help="of keypoints and fits"
    )
    parser.add_argument("--every", type=int, default=1, help="of the frames")
    arguments = parser.parse_args()
    console = Console(200)
    drawn = {}
    sources = tuple(dict.fromkeys(row.source for row in ROWS.values()))
    for mode in MODES:
        settings = EvalSettings(
            arguments.data,
            every=arguments.every,
            confidence=sources,
            named_rows=tuple(rows_of(mode).items()),
        )
        scores = run(settings, arguments.cache, Reporter()).scores
        selected = {name: scores.rows[name] for name in ROWS}
        count = hidden(arguments.data, scores)
        for level, (low, high) in LEVELS.items():
            mask = (count >= low) & (count <= high)
            part = replace(scores, rows=selected).where(mask)
            if not mask.any():
                continue
            result = lines(part, RAW)
            title = f"{mode}, {level}: {int(mask.sum())} person-frames in {len(np.unique(part.sequence))} sequences"
            table = Table("", *(NAMES[metric] for metric in METRICS), title=title)
            for line in result:
                table.add_row(line.label, *(escape(cell(line, metric, RAW)) for metric in METRICS))
            console.print(table)
            if mode == "whole runs" or level == "everybody":
                drawn[mode, level] = result
    plot(
        drawn,
        f"{len(scores)} rendered person-frames in {len(scores.names)} sequences; 95 % intervals over sequences",
    )
    console.print(str(PLOT.relative_to(PLOT.parents[2])))


if __name__ == "__main__":
    claim(main)
