"""When a person is there: rows of a result may have gaps, in which the person is absent; motion at even times."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from fitmesh.result import Person, Result
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder

SAME_TIME = 0.05  # of a frame: containers round time stamps, to a millisecond in mkv


def segments(result: Result, person: Person) -> list[slice]:
    """Rows of the person in frames that follow each other, in order."""
    place = np.searchsorted(result.frames, person.frame)
    edges = [0, *(np.flatnonzero(np.diff(place) > 1) + 1).tolist(), len(person)]
    return [slice(a, b) for a, b in pairwise(edges)]


def named_segments(result: Result, person: Person) -> list[tuple[str, slice]]:
    """The same with names for files: person_1, person_1_part_2, .."""
    found = enumerate(segments(result, person), 1)
    return [(f"person_{person.identity}" + (f"_part_{n}" if n > 1 else ""), rows) for n, rows in found]


def write_each_segment(
    result: Result, folder: Path, progress: Reporter, write_one: Callable[[Path, str, Person, slice], None]
) -> None:
    """A folder with a file per person and segment: write_one(folder, name, person, rows) makes one of them."""
    with progress.stage(folder.name, len(result.people), "people") as tick, atomic_folder(folder) as temporary:
        for person in result.people:
            for name, rows in named_segments(result, person):
                write_one(temporary, name, person, rows)
            tick(1)


def absences(result: Result, person: Person) -> list[tuple[int, int]]:
    """First and last frame number of every absence between the first and the last row."""
    place = np.searchsorted(result.frames, person.frame)
    return [
        (int(result.frames[place[before.stop - 1] + 1]), int(result.frames[place[after.start] - 1]))
        for before, after in pairwise(segments(result, person))
    ]


def on_every_frame(result: Result, person: Person, values: np.ndarray, absent: float = np.nan) -> np.ndarray:
    """Values [T, ...] of a person's rows -> the same for every frame from the first to the last row."""
    place = np.searchsorted(result.frames, person.frame)
    spread = np.full((place[-1] - place[0] + 1, *values.shape[1:]), absent, np.result_type(values, type(absent)))
    spread[place - place[0]] = values
    return spread


def evenly(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, step_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """Rotations of T frames and positions [T, ...] at times [T] -> the same every `step_s` from the first time on, for
    formats with one frame rate. Frames that are at even times already stay as they are."""
    at = (time_s - time_s[0]) / step_s  # in frames
    if np.abs(at - np.arange(len(at))).max() < SAME_TIME:
        return rotations, position_m
    wanted = np.minimum(np.arange(int(np.floor(at[-1] + SAME_TIME)) + 1), at[-1])
    flat = position_m.reshape(len(position_m), -1)
    position_m = np.stack([np.interp(wanted, at, axis) for axis in flat.T], -1).reshape(-1, *position_m.shape[1:])
    return [Slerp(at, rotation)(wanted) for rotation in rotations], position_m
