"""A table of the paper with our figures: on the terminal, as csv, as a plot."""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table as RichTable

from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class Column:
    """One figure of every row."""

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
    """One table, as far as it could be made."""

    name: str
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

    def as_rich(self) -> RichTable:
        shown = RichTable(title=self.title, header_style="bold", caption="\n".join(self.notes) or None)
        for label in self.labels:
            shown.add_column(label)
        for column, paper in self.shown_columns():
            shown.add_column(column.label + (", paper" if paper else ""), justify="right", style="dim" if paper else "")
        for line in self.lines():
            shown.add_row(*line)
        return shown

    def as_markdown(self) -> str:
        names = [*self.labels, *(c.label + (", paper" if paper else "") for c, paper in self.shown_columns())]
        rule = ["---"] * len(self.labels) + ["---:"] * len(self.shown_columns())
        return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *self.lines()))

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

    def draw(self, path: Path) -> None:
        """The first column: a bar a row, and the paper's figure as a mark."""
        from ccnet.comparison import check_plots

        key = self.columns[0].key
        drawn = [row for row in self.rows if key in row.ours or key in row.published]
        if drawn:
            check_plots().figure_bars(
                path,
                [", ".join(row.labels) for row in drawn],
                [row.ours.get(key) for row in drawn],
                [row.published.get(key) for row in drawn],
                self.columns[0].label,
                self.title,
            )


def figures(**values: float | None) -> dict[str, float]:
    """Those that are numbers: None and NaN are no figures."""
    return {key: float(value) for key, value in values.items() if value is not None and not math.isnan(value)}
