"""A table of our figures with the paper's beside them, as text, csv and Markdown."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table as RichTable

from ccnet.comparison import rich_table
from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class Column:
    """A column of figures."""

    key: str
    label: str
    digits: int = 1


@dataclass(frozen=True)
class Row:
    """Our figures and the paper's in one line; a figure that is not known has no entry."""

    labels: tuple[str, ...]
    ours: Mapping[str, float]
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Return all figures; the paper's have the prefix `paper_`."""
        return {**self.ours, **{f"paper_{key}": value for key, value in self.published.items()}}


@dataclass(frozen=True)
class PaperTable:
    """Rows of figures with labels in front."""

    title: str
    labels: tuple[str, ...]  # names of the rows' labels
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()  # rows of the paper that are missing here, and why
    notes: tuple[str, ...] = ()

    def shown(self) -> list[Column]:
        """Return the columns that have a figure, the paper's beside ours."""
        pairs = [
            (column, Column(f"paper_{column.key}", f"{column.label}, paper", column.digits))
            for column in self.columns
        ]
        return [
            column
            for pair in pairs
            for column in pair
            if any(column.key in row.figures for row in self.rows)
        ]

    def lines(self, exact: bool = False) -> list[list[str]]:
        """Return every row as text, rounded or exact; a missing figure is an empty cell."""
        formats = {column.key: ".6g" if exact else f".{column.digits}f" for column in self.shown()}
        return [
            [
                *row.labels,
                *(
                    format(row.figures[key], spec) if key in row.figures else ""
                    for key, spec in formats.items()
                ),
            ]
            for row in self.rows
        ]

    def header(self) -> list[str]:
        """Return the names of all columns."""
        return [*self.labels, *(column.label for column in self.shown())]

    def as_rich(self) -> RichTable:
        """Return the table for the terminal; the paper's figures are dim."""
        table = rich_table(self.title, self.header(), self.lines(), len(self.labels))
        table.caption = "\n".join(self.notes) or None
        for column in table.columns:
            column.style = "dim" if str(column.header).endswith(", paper") else ""
        return table

    def as_markdown(self) -> str:
        """Return the table in Markdown."""
        rule = ["---"] * len(self.labels) + ["---:"] * len(self.shown())
        return "\n".join(f"| {' | '.join(line)} |" for line in (self.header(), rule, *self.lines()))

    def write_csv(self, path: Path) -> None:
        """Write all figures with six digits."""
        with atomic_file(path) as temporary, temporary.open("w", newline="") as file:
            keys = [column.key for column in self.shown()]
            csv.writer(file).writerows([[*self.labels, *keys], *self.lines(exact=True)])


def figures(**values: float | None) -> dict[str, float]:
    """Return the values that are numbers, not None or NaN."""
    return {
        key: float(value)
        for key, value in values.items()
        if value is not None and not math.isnan(value)
    }
