"""When a person is there: the rows of a result may have gaps, in which the person is absent."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from fitmesh.result import Person, Result
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder


def stretches(result: Result, person: Person) -> list[slice]:
    """Rows of the person in frames that follow each other, in order."""
    place = np.searchsorted(result.frames, person.frame)
    edges = [0, *(np.flatnonzero(np.diff(place) > 1) + 1).tolist(), len(person)]
    return [slice(a, b) for a, b in pairwise(edges)]


def named_stretches(result: Result, person: Person) -> list[tuple[str, slice]]:
    """The same with names for files: person_1, person_1_part_2, .."""
    found = enumerate(stretches(result, person), 1)
    return [(f"person_{person.identity}" + (f"_part_{n}" if n > 1 else ""), rows) for n, rows in found]


def write_each_stretch(
    result: Result, folder: Path, progress: Reporter, write_one: Callable[[Path, str, Person, slice], None]
) -> None:
    """A folder with a file per person and stretch: write_one(folder, name, person, rows) makes one of them."""
    with progress.stage(folder.name, len(result.people), "people") as tick, atomic_folder(folder) as temporary:
        for person in result.people:
            for name, rows in named_stretches(result, person):
                write_one(temporary, name, person, rows)
            tick(1)


def absences(result: Result, person: Person) -> list[tuple[int, int]]:
    """First and last frame number of every absence between the first and the last row."""
    place = np.searchsorted(result.frames, person.frame)
    return [
        (int(result.frames[place[before.stop - 1] + 1]), int(result.frames[place[after.start] - 1]))
        for before, after in pairwise(stretches(result, person))
    ]


def on_every_frame(result: Result, person: Person, values: np.ndarray, absent: float = np.nan) -> np.ndarray:
    """Values [T, ...] of a person's rows -> the same for every frame from the first to the last row."""
    place = np.searchsorted(result.frames, person.frame)
    spread = np.full((place[-1] - place[0] + 1, *values.shape[1:]), absent, np.result_type(values, type(absent)))
    spread[place - place[0]] = values
    return spread
