"""Claim: calibrated confidence makes better bodies than a network's own.

MoveNet reads the pictures once; then the same keypoints and the same solver fit everyone again and again, and nothing
differs but how hard each keypoint pulls. In three of five ways to fit, all rows share the lifter's guess that CCNet's
confidence gave; in the last two, the lifter too is fed with each row's own confidence. Every weighting gets the one
number it is free to choose, the pixel error that a weight of one stands for, from a development set (--tune), so that
none wins by pulling harder beside the priors. Differences are paired, intervals are over sequences.

    python bench/weighting.py --tune synth_dev            # choose each weighting's scale: bench/weighting_scales.json
    python bench/weighting.py --data synth_test           # the table, docs/img/weighting.png, bench/README.md
"""

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from ccnet.metrics import expected_calibration_error
from eval3dpw.bodies import body_set
from eval3dpw.bootstrap import RESAMPLES, means
from fitmesh.eval3dpw_road import caches
from fitmesh.eval3dpw_road.road import Road, run
from fitmesh.eval3dpw_road.settings import EvalSettings, Row
from fitmesh.eval3dpw_road.source import works
from fitmesh.eval3dpw_road.table import NAMES, Line, Scores, cell, lines, show
from fitmesh.stages.progress import Reporter
from fitting.residuals import ROBUST_SCALE
from pose2d.files import whole_file
from pose2d.resampling import Interval, draws, interval

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SCALES = HERE / "weighting_scales.json"
PLOT = HERE.parent / "docs" / "img" / "weighting.png"
PAGE = HERE / "README.md"
BEGIN, END = "<!-- weighting: written by bench/weighting.py -->", "<!-- end of weighting -->"
RAW, CCNET, CCNET_PRECISION = "raw", "CCNet", "CCNet precision"
ROWS = {
    "ones": Row("ones", "ones"),
    RAW: Row("raw", "confidence"),
    "raw squared": Row("raw", "squared"),
    "raw, gate 0.3": Row("raw", "gate", 0.3),
    "raw, gate 0.5": Row("raw", "gate", 0.5),
    "raw, gate 0.7": Row("raw", "gate", 0.7),
    "closed form": Row("closed-form", "confidence"),
    "closed form precision": Row("closed-form", "precision"),
    CCNET: Row("ccnet", "confidence"),
    "CCNet squared": Row("ccnet", "squared"),
    CCNET_PRECISION: Row("ccnet", "precision"),
    "oracle": Row("oracle", "confidence"),
    "oracle precision": Row("oracle", "precision"),
}
GRID = (0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True)
class Mode:
    """A way to fit."""

    single_frames: bool
    robust_sigmas: float = ROBUST_SCALE
    rows: tuple[str, ...] = tuple(ROWS)
    own_start: bool = False  # the lifter is fed with the row's own confidence, not with CCNet's for all

    def row(self, name: str, sigma_scale: float) -> Row:
        row = replace(ROWS[name], robust_sigmas=self.robust_sigmas, sigma_scale=sigma_scale)
        return replace(row, start_source=row.source) if self.own_start else row


SINGLE, TIME = "single frames", "with time"
HARDLY_ROBUST = "single frames, hardly robust"
OWN_SINGLE, OWN_TIME = "single frames, each from its own start", "with time, each from its own start"
_OWN_ROWS = ("ones", RAW, "raw squared", CCNET, "CCNet squared", CCNET_PRECISION)
MODES = {
    SINGLE: Mode(single_frames=True),
    TIME: Mode(single_frames=False),
    # SMPLify and SPIN halve a keypoint at 100 pixels of a 224-pixel crop, about 30 of the reference sigmas.
    HARDLY_ROBUST: Mode(True, 30.0, (RAW, "raw squared", CCNET, "CCNet squared", CCNET_PRECISION, "oracle precision")),
    OWN_SINGLE: Mode(single_frames=True, rows=_OWN_ROWS, own_start=True),
    OWN_TIME: Mode(single_frames=False, rows=_OWN_ROWS, own_start=True),
}
SCALES_OF = {OWN_SINGLE: SINGLE, OWN_TIME: TIME}  # whose scales a mode uses, if not its own
# hidden keypoints (behind something else, or outside) of a person in a picture
OCCLUSION = {"none hidden": (0, 0), "1 to 4 hidden": (1, 4), "5 or more hidden": (5, 17)}
METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm", "acceleration_mm")
_BEHIND_SELF = 2  # the sidecar's visibility from which a keypoint is not hidden by something else


@dataclass(frozen=True)
class Study:
    """What is common to all fits."""

    data: Path
    split: str
    init: str
    cache: Path
    sequences: tuple[str, ...] = ()
    every: int = 1

    def settings(self, rows: Mapping[str, Row], single_frames: bool) -> EvalSettings:
        return EvalSettings(
            self.data, split=self.split, init=self.init, sequences=self.sequences, every=self.every,
            single_frames=single_frames,
            confidence=("ones", "raw", "closed-form", "ccnet", "oracle"), named_rows=tuple(rows.items()),
        )  # fmt: skip

    def fit(self, rows: Mapping[str, Row], single_frames: bool) -> Scores:
        """Errors of every row on the same person-frames."""
        return run(self.settings(rows, single_frames), self.folder, Reporter(quiet=True)).scores

    @property
    def folder(self) -> Path:
        return self.cache / f"{self.data.name}-{self.every}"


def tune(study: Study, console: Console, picked: Sequence[str], modes: Mapping[str, Mode]) -> None:
    """The scale with the least PA-MPJPE, for each weighting and mode; kept in a file that the final run reads."""
    known = json.loads(SCALES.read_text()) if SCALES.is_file() else {}
    for name_of_mode, mode in ((name, mode) for name, mode in modes.items() if name not in SCALES_OF):
        table = Table(title=f"{study.data.name}, {name_of_mode}: PA-MPJPE by scale of the stated pixel error, mm")
        for column in ("", *(f"x{scale:g}" for scale in GRID), "chosen"):
            table.add_column(column, justify="right" if column else "left")
        for name in (name for name in picked if name in mode.rows):
            scaled = {f"{name} x{scale:g}": mode.row(name, scale) for scale in GRID}
            scores = study.fit(scaled, mode.single_frames)
            error = [float(scores.rows[label]["pa_mpjpe_mm"].mean()) for label in scaled]
            best = GRID[int(np.argmin(error))]
            known.setdefault(name_of_mode, {})[name] = best
            table.add_row(name, *(f"{value:.2f}" for value in error), f"x{best:g}")
            with whole_file(SCALES) as temporary:
                temporary.write_text(json.dumps(known, indent=1) + "\n")
        console.print(table)


def chosen(mode: str, picked: Sequence[str]) -> dict[str, Row]:
    """Rows with the scales that were chosen on the development set; 1 where none was."""
    known = json.loads(SCALES.read_text()).get(SCALES_OF.get(mode, mode), {}) if SCALES.is_file() else {}
    return {name: MODES[mode].row(name, float(known.get(name, 1.0))) for name in picked if name in MODES[mode].rows}


def hidden(study: Study, scores: Scores) -> np.ndarray:
    """How many keypoints of each person-frame [N] are hidden, by the files that `fitmesh synth` leaves."""
    counts = {}
    for name in scores.names:
        with np.load(study.data / "synthFiles" / f"{name}.npz") as file:
            counts[name] = (file["visibility"] < _BEHIND_SELF).sum(-1)  # [P, T]
    score = next(iter(scores.rows.values()))
    whose = zip(scores.sequence, score["person"], score["frame"], strict=True)
    return np.array([counts[scores.names[s]][person, frame] for s, person, frame in whose])


VISIBILITY = {"all": (1, 2, 3), "seen": (3,), "behind oneself": (2,), "behind something else": (1,)}


@dataclass(frozen=True)
class Judged:
    """Keypoints inside the picture, and what each source says of them."""

    says: Mapping[str, np.ndarray]  # [M] by source
    oks: np.ndarray  # [M] what is true
    visibility: np.ndarray  # [M] as in the sidecar

    def lines(self) -> list[list[str]]:
        """How well each source says what the OKS will be, over all keypoints and by what hides them."""
        rows = []
        for group, values in VISIBILITY.items():
            here = np.isin(self.visibility, values)
            oks = self.oks[here]
            cells = [f"{group} ({here.sum():,})", f"{oks.mean():.2f}"]
            for source in CALIBRATED:
                s = self.says[source][here]
                ece = expected_calibration_error(s, oks, bins=10)
                cells.append(f"{s.mean():.2f}, {np.corrcoef(s, oks)[0, 1]:.2f}, {ece:.3f}")
            rows.append(cells)
        return rows


CALIBRATED = ("raw", "closed-form", "ccnet")
CALIBRATION_HEAD = ("keypoints", "true OKS", *(f"{source}: mean, Pearson, ECE" for source in CALIBRATED))


def judged(study: Study) -> Judged:
    """Every keypoint of the study."""
    settings = study.settings({}, single_frames=True)
    bodies = body_set(None, None)
    road = Road(settings, study.folder, bodies, Reporter(quiet=True))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*CALIBRATED, "oracle", "visibility")}
    for work in works(settings, []):
        reads = road.reads(work, caches.keypoints_recipe(work, settings, bodies))
        with np.load(study.data / "synthFiles" / f"{work.name}.npz") as file:
            visibility = file["visibility"]
        for track, read in zip(work.tracks, reads, strict=True):
            inside = (read.presence["oracle"] > 0) & np.isfinite(read.xy_px).all(-1)
            for source in (*CALIBRATED, "oracle"):
                parts[source].append(read.confidence[source][inside])
            parts["visibility"].append(visibility[track.person, read.frame][inside])
    flat = {name: np.concatenate(values) for name, values in parts.items()}
    return Judged({source: flat[source] for source in CALIBRATED}, flat["oracle"], flat["visibility"])


def differences(found: Sequence[Line], scores: Scores) -> list[str]:
    """The claims, each with its paired interval over sequences."""
    counts = draws(len(scores.names), RESAMPLES)
    samples = {
        line.label: {m: means(scores.rows[line.label][m], scores.sequence, counts) for m in METRICS} for line in found
    }
    claims = (
        ("start (lifter, ccnet)", "start (lifter, raw)"), (CCNET, RAW), (CCNET_PRECISION, RAW),
        (CCNET_PRECISION, CCNET), (CCNET_PRECISION, "raw squared"), (CCNET_PRECISION, "oracle precision"),
    )  # fmt: skip
    texts = []
    for better, worse in claims:
        if better in samples and worse in samples:
            text = []
            for metric in ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm"):
                d = interval(samples[better][metric] - samples[worse][metric])
                text.append(f"{NAMES[metric]} {d.value:+.2f} [{d.low:+.2f}, {d.high:+.2f}]")
            texts.append(f"{better} - {worse}: {', '.join(text)}")
    return texts


def markdown(tables: Mapping[str, Sequence[Line]], by_level: Mapping[str, Mapping[str, Sequence[Line]]]) -> str:
    parts = []
    for mode, found in tables.items():
        rows = [[line.label, *(cell(line, m, RAW) for m in METRICS)] for line in found]
        parts += [f"\n**{mode.capitalize()}**\n", *_table(["", *(NAMES[m] for m in METRICS)], rows)]
    for mode, levels in ((mode, by_level[mode]) for mode in (SINGLE, TIME, OWN_SINGLE) if mode in by_level):
        across = zip(*levels.values(), strict=True)
        rows = [[row[0].label, *(cell(line, "pa_mpjpe_mm", RAW) for line in row)] for row in across]
        parts += [f"\n**PA-MPJPE by occlusion, {mode}**\n", *_table(["", *levels], rows)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def plot(
    tables: Mapping[str, Sequence[Line]], by_level: Mapping[str, Mapping[str, Sequence[Line]]], title: str
) -> None:  # fmt: skip
    """How much better than raw each weighting is, overall and by occlusion."""
    figure, axes = plt.subplots(1, 2, figsize=(13, 7.5), gridspec_kw={"width_ratios": [1.5, 1]})
    colors = {SINGLE: "#1f77b4", TIME: "#d9822b", HARDLY_ROBUST: "#2a9d58", OWN_SINGLE: "#8e5bb5", OWN_TIME: "#c94f7c"}
    labels = [line.label for line in next(iter(tables.values())) if line.label != RAW]
    for number, (mode, found) in enumerate(tables.items()):
        shown = {line.label: line.difference["pa_mpjpe_mm"] for line in found}
        here = [label for label in labels if label in shown]
        height = np.array([labels.index(label) for label in here]) + 0.15 * (number - (len(tables) - 1) / 2)
        _bars(axes[0], height, [shown[label] for label in here], colors[mode], mode, across=True)
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
        found_here = [next((line for line in found if line.label == label), None) for found in by_level[mode].values()]
        differences = [line.difference["pa_mpjpe_mm"] for line in found_here if line]
        place, color = np.arange(len(differences)) + 0.12 * (number - 1), ("#1f77b4", "#8e5bb5", "#555555")[number]
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
    with whole_file(PLOT) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)


def _bars(axis: Any, place: np.ndarray, differences: Sequence[Interval], color: str, label: str, across: bool) -> None:
    """Values with their intervals along x (across) or y."""
    value, low, high = (np.array([getattr(d, end) for d in differences]) for end in ("value", "low", "high"))
    reach = [value - low, high - value]
    style = {"fmt": "o", "ms": 4.5, "capsize": 2.5, "lw": 1.4, "color": color, "label": label}
    if across:
        axis.errorbar(value, place, xerr=reach, **style)
    else:
        axis.errorbar(place, value, yerr=reach, **style)


def into_page(text: str) -> None:
    """Put the section between its marks in bench/README.md, or at the end."""
    page = PAGE.read_text()
    section = f"{BEGIN}\n{text}\n{END}"
    if BEGIN in page:
        page = page[: page.index(BEGIN)] + section + page[page.index(END) + len(END) :]
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    with whole_file(PAGE) as temporary:
        temporary.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a set made by `fitmesh synth`")
    parser.add_argument("--tune", type=Path, help="the set to choose scales on; not the one that is reported")
    parser.add_argument("--split", default="test")
    parser.add_argument("--init", default="lifter")
    parser.add_argument("--rows", help="only these, with commas")
    parser.add_argument("--sequences", default="", help="only these, with commas")
    parser.add_argument("--every", type=int, default=1, help="every n-th frame only")
    parser.add_argument("--modes", default="", help="only these, with semicolons")
    parser.add_argument("--cache", type=Path, default=Path("weighting_cache"), help="kept between runs")
    parser.add_argument("--no-write", action="store_true", help="print only; leave README and plot alone")
    arguments = parser.parse_args()
    console, began = Console(width=150), time.monotonic()
    picked = [name.strip() for name in arguments.rows.split(",")] if arguments.rows else list(ROWS)
    modes = {name: MODES[name] for name in MODES if not arguments.modes or name in arguments.modes.split(";")}
    only = tuple(name for name in arguments.sequences.split(",") if name)
    if arguments.tune is not None:
        tune(
            Study(arguments.tune, "validation", arguments.init, arguments.cache, only, arguments.every),
            console,
            picked,
            modes,
        )
    if arguments.data is None:
        return
    study = Study(arguments.data, arguments.split, arguments.init, arguments.cache, only, arguments.every)
    tables: dict[str, list[Line]] = {}
    by_level: dict[str, dict[str, list[Line]]] = {}
    notes: list[str] = []
    for mode, how in modes.items():
        scores = study.fit(chosen(mode, picked), how.single_frames)
        tables[mode] = lines(scores, RAW)
        count = hidden(study, scores)
        masks = {level: (count >= low) & (count <= high) for level, (low, high) in OCCLUSION.items()}
        by_level[mode] = {
            f"{level} ({int(mask.sum()):,})": lines(scores.where(mask), RAW)
            for level, mask in masks.items()
            if mask.any()
        }
        title = f"{mode}: {len(scores):,} person-frames in {len(scores.names)} sequences"
        show(console, title, tables[mode], RAW, METRICS)
        for level, found in by_level[mode].items():
            console.print(f"[bold]{mode}, {level}[/bold]: " + "; ".join(
                f"{line.label} {cell(line, 'pa_mpjpe_mm', RAW)}" for line in found
            ), highlight=False)  # fmt: skip
        notes += [f"{mode}: {text}" for text in differences(tables[mode], scores)]
    trust = judged(study)
    for text in notes:
        console.print(text, highlight=False)
    shown = Table(title="the confidences themselves, over keypoints inside the picture")
    for head in CALIBRATION_HEAD:
        shown.add_column(head)
    for row in trust.lines():
        shown.add_row(*row)
    console.print(shown)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"{time.monotonic() - began:.0f} s (what was kept from earlier runs not counted), peak {peak:.0f} MB")
    if arguments.no_write:
        return
    title = f"{len(scores):,} rendered person-frames in {len(scores.names)} sequences, movenet-thunder"
    title += f", start: {arguments.init}"
    plot(tables, by_level, title)
    into_page(
        f"## Weightings\n\n`python bench/weighting.py --tune synth_dev && python bench/weighting.py --data "
        f"{arguments.data.name}`: {title}. Millimetres; in brackets the 95 % interval of the paired difference to raw, "
        "over sequences. Every weighting's one scale was chosen on another set (`bench/weighting_scales.json`).\n\n"
        f"![differences to raw](../docs/img/weighting.png)\n{markdown(tables, by_level)}\n\n"
        + "\n".join(f"- {text}" for text in notes)
        + "\n\nThe confidences themselves, over keypoints inside the picture:\n\n"
        + "\n".join(_table(CALIBRATION_HEAD, trust.lines()))
    )


if __name__ == "__main__":
    main()
