"""A table of the paper with our figures: on the terminal, as csv, as Markdown."""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table as RichTable

from pose2d.base.files import atomic_file

Printed = Mapping[tuple[str, str], Mapping[str, float]]  # model, confidence -> figures

# model, confidence -> AP; AR is the same for every confidence and stands beside the network's own.
COCO: Printed = {
    ("sbl-resnet50-256x192", "raw"): {"ap": 72.4, "ar": 75.6},
    ("sbl-resnet152-384x288", "raw"): {"ap": 76.5, "ar": 79.3}, ("hrnet-w32-256x192", "raw"): {"ap": 76.0, "ar": 79.3},
    ("hrnet-w48-384x288", "raw"): {"ap": 77.4, "ar": 80.9}, ("vitpose-b", "raw"): {"ap": 77.3, "ar": 80.4},
    ("rle-resnet50-256x192", "raw"): {"ap": 72.2, "ar": 75.4},
    ("rle-resnet152-384x288", "raw"): {"ap": 76.3, "ar": 79.2}, ("rle-hrnet-w32-256x192", "raw"): {"ap": 76.7},
    ("rle-hrnet-w48-384x288", "raw"): {"ap": 77.9}, ("poseur-resnet50-256x192", "raw"): {"ap": 76.8, "ar": 79.7},
    ("ipr-resnet50-256x256", "raw"): {"ap": 65.6, "ar": 74.9}, ("ipr-resnet50-256x256", "raw-heatmap"): {"ap": 69.5},
}  # fmt: skip
# The closed form by the area that it is given, on Simple Baselines' ResNet-50.
AREAS: Printed = {
    ("sbl-resnet50-256x192", "raw"): {"ap": 72.4}, ("sbl-resnet50-256x192", "ones"): {"ap": 67.5},
    ("sbl-resnet50-256x192", "closed-form"): {"ap": 72.2},
    ("sbl-resnet50-256x192", "closed-form-predicted"): {"ap": 73.0},
    ("sbl-resnet50-256x192", "closed-form-annotated"): {"ap": 73.6}, ("sbl-resnet50-256x192", "oracle"): {"ap": 75.6},
}  # fmt: skip
# Losses of the head, on RLE's ResNet-50 (72.2 with its own confidence).
LOSSES: Printed = {
    ("rle-resnet50-256x192", "raw"): {"ap": 72.2}, ("rle-resnet50-256x192", "aleatoric"): {"ap": 73.4},
    ("rle-resnet50-256x192", "cross-entropy"): {"ap": 73.5}, ("rle-resnet50-256x192", "ensemble"): {"ap": 73.5},
    ("rle-resnet50-256x192", "soap"): {"ap": 73.4},
}  # fmt: skip
MPII: Printed = {("sbl-resnet50-256x256-mpii", "raw"): {"pckh": 88.5, "pckh_0.1": 33.9}}
# SPIN without keypoints: the start of the fits.
THREE_DPW: Printed = {("spin", "none"): {"pa_mpjpe_mm": 60.2, "mpjpe_mm": 102.1, "mve_mm": 130.6}}


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """What was measured for one line, and what the paper prints there; a figure that is not there has no entry."""

    labels: tuple[str, ...]
    ours: Mapping[str, float]
    published: Mapping[str, float]


@dataclass(frozen=True)
class PaperTable:
    title: str
    labels: tuple[str, ...]  # names of the rows' labels
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()  # what the paper has and this table has not, and why
    notes: tuple[str, ...] = ()

    def shown_columns(self) -> list[tuple[Column, bool]]:
        """Columns with any figure; True: the paper's."""
        return [
            (column, paper)
            for column in self.columns
            for paper in (False, True)
            if any(column.key in (row.published if paper else row.ours) for row in self.rows)
        ]

    def header(self) -> list[str]:
        return [*self.labels, *(c.label + (", paper" if paper else "") for c, paper in self.shown_columns())]

    def as_rich(self) -> RichTable:
        shown = RichTable(title=self.title, header_style="bold", caption="\n".join(self.notes) or None)
        for number, name in enumerate(self.header()):
            style = "dim" if name.endswith(", paper") else ""
            shown.add_column(name, justify="left" if number < len(self.labels) else "right", style=style)
        for line in self.lines():
            shown.add_row(*line)
        return shown

    def as_markdown(self) -> str:
        rule = ["---"] * len(self.labels) + ["---:"] * len(self.shown_columns())
        return "\n".join(f"| {' | '.join(line)} |" for line in (self.header(), rule, *self.lines()))

    def lines(self) -> Iterable[list[str]]:
        """Every row as text; an empty cell where there is no figure."""
        for row in self.rows:
            figures = [(column, row.published if paper else row.ours) for column, paper in self.shown_columns()]
            yield [*row.labels, *(f"{of[c.key]:.{c.digits}f}" if c.key in of else "" for c, of in figures)]

    def write_csv(self, path: Path) -> None:
        shown = self.shown_columns()
        with atomic_file(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.labels, *(f"paper_{c.key}" if paper else c.key for c, paper in shown)])
            for row in self.rows:
                figures = ((row.published if paper else row.ours).get(c.key) for c, paper in shown)
                writer.writerow([*row.labels, *("" if value is None else f"{value:.6g}" for value in figures)])


def figures(**values: float | None) -> dict[str, float]:
    """Those that are numbers: None and NaN are no figures."""
    return {key: float(value) for key, value in values.items() if value is not None and not math.isnan(value)}
