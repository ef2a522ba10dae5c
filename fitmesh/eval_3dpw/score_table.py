"""The table of `fitmesh eval-3dpw`: errors with intervals, by sequence, and what was left out."""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table as RichTable

from eval3dpw.bodies import Bodies, BodySet
from eval3dpw.scoring import Protocol, evaluate
from eval3dpw.sequences import TruthTrack, camera_params
from eval3dpw.stated import Stated, figures, rows, text_rows
from fitmesh.eval_3dpw.fits import PersonFit
from fitmesh.eval_3dpw.sequences import Skipped, summary
from pose2d.base.files import atomic_file
from pose2d.base.json_files import plain_value
from pose2d.base.resampling import RESAMPLES, Interval, clustered_means, draws, interval

METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm", "acceleration_mm")
Score = dict[str, np.ndarray]  # METRICS [N], NaN where not known; person [N], frame [N]


def true_bodies(track: TruthTrack, protocol: Protocol, bodies: BodySet) -> Bodies:
    """Return the truth on the body that the protocol uses."""
    gender = "neutral" if protocol.truth_body == "neutral" else track.gender
    truth = bodies.place(camera_params(track, bodies.load(gender)), gender)
    person = torch.zeros(len(track), dtype=torch.long)
    return replace(truth, track=person, frame=torch.from_numpy(track.frame))


def score_track(
    track: TruthTrack,
    predicted: Bodies,
    truth: Bodies,
    protocol: Protocol,
    stated: Stated | None = None,
) -> Score:
    """Return the errors of one person. With `stated` uncertainty of the same frames, errors of the
    joints are added beside it.
    """
    report = evaluate(predicted, truth, protocol.name).per_frame
    values = {name: getattr(report, name) for name in METRICS}
    missing = np.full(len(track), np.nan)
    score = {
        name: missing if value is None else value.double().numpy() for name, value in values.items()
    }
    score |= {"person": np.full(len(track), track.person), "frame": track.frame}
    if stated is None:
        return score
    assert predicted.kinematic is not None
    assert truth.kinematic is not None
    away = 1000 * (predicted.kinematic - truth.kinematic)
    return score | {"joint_error_mm": (away - away[:, :1]).numpy(), **stated.to_arrays("stated_")}


def score_fits(
    track: TruthTrack,
    keep: np.ndarray,
    fits: Mapping[str, PersonFit],
    protocol: Protocol,
    bodies: BodySet,
) -> dict[str, Score]:
    """Return the errors of one person's fits by label, at the frames where `keep` [T] is true."""
    part = track.rows(keep)
    truth = true_bodies(part, protocol, bodies)
    scores = {}
    for label, fit in fits.items():
        stated = Stated.empty().scatter([], len(part))
        if fit.stated is not None:
            stated = fit.stated.rows(keep)
        predicted = bodies.place(fit.params.rows(torch.from_numpy(keep)))
        scores[label] = score_track(part, predicted, truth, protocol, stated)
    return scores


LEAST_SEQUENCES = 3  # for an interval over sequences
NAMES = {
    "pa_mpjpe_mm": "PA-MPJPE",
    "mpjpe_mm": "MPJPE",
    "mve_mm": "MVE",
    "acceleration_mm": "accel",
}


@dataclass(frozen=True)
class Scores:
    """Errors of the same N person-frames under every row."""

    rows: Mapping[str, Score]  # label -> errors
    sequence: np.ndarray  # [N] number of the sequence
    names: tuple[str, ...]  # of the sequences

    @staticmethod
    def gather(people: Sequence[tuple[str, Mapping[str, Score]]]) -> "Scores":
        """Join the errors of all people: pairs of sequence and label -> errors."""
        names = tuple(dict.fromkeys(name for name, _ in people))
        first = people[0][1] if people else {}
        rows = {
            label: {
                key: np.concatenate([scores[label][key] for _, scores in people]) for key in score
            }
            for label, score in first.items()
        }
        number = [
            np.full(len(next(iter(scores.values()))["frame"]), names.index(name))
            for name, scores in people
        ]
        return Scores(rows, np.concatenate([np.zeros(0, np.int64), *number]), names)

    def __len__(self) -> int:
        return len(self.sequence)

    def where(self, keep: np.ndarray) -> "Scores":
        """Return the person-frames where `keep` [N] is true."""
        rows = {
            label: {key: value[keep] for key, value in score.items()}
            for label, score in self.rows.items()
        }
        return Scores(rows, self.sequence[keep], self.names)


@dataclass(frozen=True)
class Line:
    """One row's figures in millimetres."""

    label: str
    mean: Mapping[str, Interval]  # by metric
    difference: Mapping[str, Interval]  # to the base row, paired
    by_sequence: Mapping[str, Mapping[str, float]]


def lines(scores: Scores, base: str) -> list[Line]:
    """Return the figures of every row with 95 % intervals over sequences, and paired differences to
    the row `base`. With fewer than LEAST_SEQUENCES there are no intervals (NaN).
    """
    counts = draws(len(scores.names), RESAMPLES if len(scores.names) >= LEAST_SEQUENCES else 0)
    samples = {
        label: {m: clustered_means(score[m], scores.sequence, counts) for m in METRICS}
        for label, score in scores.rows.items()
    }
    table = []
    for label, resampled in samples.items():
        by_sequence: dict[str, dict[str, float]] = {}
        for number, name in enumerate(scores.names):
            values = {m: scores.rows[label][m][scores.sequence == number] for m in METRICS}
            finite = {m: value[np.isfinite(value)] for m, value in values.items()}
            by_sequence[name] = {
                m: float(value.mean()) if len(value) else math.nan for m, value in finite.items()
            }
        difference = {m: interval(resampled[m] - samples[base][m]) for m in METRICS}
        mean = {m: interval(resampled[m]) for m in METRICS}
        table.append(Line(label, mean, difference, by_sequence))
    return table


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None
) -> RichTable:
    """Return a table with text in the first column and figures in the others."""
    table = RichTable(title=title, header_style="bold", caption=caption)
    min_width = 24 if columns[0] == "sequence" else None
    table.add_column(columns[0], overflow="fold", min_width=min_width)
    for column in columns[1:]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def show(
    console: Console, title: str, table: Sequence[Line], base: str, shown_metrics: Sequence[str]
) -> None:
    """Print one row per line of the table, with paired differences to the row `base`."""
    caption = (
        f"mm; d is the difference to {base!r}, paired, [its 95 % interval over sequences; none "
        f"for fewer than {LEAST_SEQUENCES}]"
    )
    rows = ([line.label, *(cell(line, metric, base) for metric in shown_metrics)] for line in table)
    columns = ["", *(NAMES[metric] for metric in shown_metrics)]
    console.print(_table(title, columns, rows, caption))


def cell(line: Line, metric: str, base: str) -> str:
    """Return a figure as text, with its difference to the row `base`."""
    value = line.mean[metric]
    difference = line.difference[metric]
    if line.label == base:
        return f"{value.value:.1f}"
    text = f"{value.value:.1f}, d {difference.value:+.1f}"
    if not math.isfinite(difference.low):
        return text
    return f"{text} [{difference.low:+.1f}, {difference.high:+.1f}]"


def stated_figures(scores: Scores) -> dict[str, dict[str, Any]]:
    """Return the figures of stated uncertainty for every row that has it: of all person-frames,
    and coverage by kind (`eval3dpw.stated`).
    """
    by_label = {}
    for label, score in scores.rows.items():
        has_stated = np.isfinite(score.get("stated_worst_error_mm", np.zeros(0)))
        if has_stated.any():
            stated = Stated.from_arrays(score, "stated_").rows(has_stated)
            error = score["joint_error_mm"][has_stated]
            by_label[label] = figures(error, stated) | {"by": rows(error, stated)}
    return by_label


def show_rest(
    console: Console, table: Sequence[Line], scores: Scores, skipped: Sequence[Skipped]
) -> None:
    """Print errors by sequence, the stated uncertainty of the rows, and what was left out."""
    by_sequence = []
    for number, name in enumerate(scores.names):
        values = (f"{line.by_sequence[name]['pa_mpjpe_mm']:.1f}" for line in table)
        by_sequence.append([name, str(int((scores.sequence == number).sum())), *values])
    columns = ["sequence", "frames", *(line.label for line in table)]
    console.print(_table("PA-MPJPE by sequence, mm", columns, by_sequence))
    for label, row_figures in stated_figures(scores).items():
        text = text_rows(row_figures)
        for name, part in row_figures["by"].items():
            inside = f"{100 * part['inside_68']:.0f} / {100 * part['inside_95']:.0f}"
            text.append((f"inside 68 / 95 %, {name}", inside))
        title = f"Stated uncertainty of {label!r}, joints relative to the pelvis"
        console.print(_table(title, ["", f"{row_figures['person_frames']} person-frames"], text))
    left_out = [
        (why, str(frames or "?"), str(wholes or "")) for why, frames, wholes in summary(skipped)
    ]
    if left_out:
        console.print(_table("Left out", ["why", "person-frames", "whole sequences"], left_out))


def metrics_of(scores: Scores) -> list[str]:
    """Return the metrics that the protocol and the data have."""
    return [
        m for m in METRICS if any(np.isfinite(score[m]).any() for score in scores.rows.values())
    ]


def write_json(
    path: Path,
    about: Mapping[str, Any],
    table: Sequence[Line],
    scores: Scores,
    skipped: Sequence[Skipped],
) -> None:
    """Write all figures to eval-3dpw.json."""
    content = {
        **about,
        "person_frames": len(scores),
        "sequences": len(scores.names),
        "rows": {
            line.label: {
                "mean": {m: asdict(line.mean[m]) for m in metrics_of(scores)},
                "difference": {m: asdict(line.difference[m]) for m in metrics_of(scores)},
                "by_sequence": line.by_sequence,
            }
            for line in table
        },
        "stated": stated_figures(scores),
        "left_out": [asdict(entry) for entry in skipped],
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(plain_value(content), indent=1))


def write_csv(path: Path, table: Sequence[Line], scores: Scores) -> None:
    """Write a line per sequence and row, and one for all sequences."""
    metrics = metrics_of(scores)
    with atomic_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sequence", "person_frames", "row", *metrics])
        for line in table:
            for number, name in enumerate(scores.names):
                values = [f"{line.by_sequence[name][m]:.4f}" for m in metrics]
                writer.writerow([name, int((scores.sequence == number).sum()), line.label, *values])
            writer.writerow(
                ["all", len(scores), line.label, *(f"{line.mean[m].value:.4f}" for m in metrics)]
            )
