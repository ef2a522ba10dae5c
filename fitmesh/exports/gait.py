"""`gait/`: events, steps, cycles, squats and jumps of all people, one csv each.

docs/biomechanics.md explains every column. Unknown values are empty cells. Times are seconds since
the first processed frame, as in the overlay.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fitmesh.exports.scene import scene_frame
from fitmesh.gait.cycles import PERCENT
from fitmesh.gait.people import Movement, join_cycles, movements
from fitmesh.gait.steps import STEP_NUMBERS, Step, summarize_steps
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder

FOLDER = "gait"
Row = Sequence[str | float | int]
EVENTS = ("person", "event", "side", "time_s", "time_std_s")
STEPS = (
    "person",
    "side",
    "start_s",
    "end_s",
    "time_std_s",
    "step_length_std_m",
    *(name for name, _ in STEP_NUMBERS),
)
SUMMARY = ("person", "side", "number", "mean", "standard_deviation", "count")
CYCLES = ("person", "angle", "percent", "mean_deg", "spread_deg", "stated_std_deg", "cycles")
SQUATS = ("person", "time_s", "depth_m", "depth_std_m", "knee_flexion_deg")
JUMPS = (
    "person",
    "take_off_s",
    "landing_s",
    "time_std_s",
    "flight_s",
    "height_m",
    "height_std_m",
    "pelvis_rise_m",
)


def write(result: Result, out: Path, progress: Reporter) -> list[str]:
    """Write the folder `gait` of a result and return the names of its files."""
    scene = scene_frame(result)
    tables: dict[str, tuple[Sequence[str], list[Row]]] = {
        "events": (EVENTS, []),
        "steps": (STEPS, []),
        "summary": (SUMMARY, []),
        "cycles": (CYCLES, []),
        "squats": (SQUATS, []),
        "jumps": (JUMPS, []),
    }
    with progress.stage(FOLDER, len(result.people), "people") as tick:
        for person in result.people:
            found = list(movements(result, scene, person))
            for name, rows in _rows(person, found).items():
                tables[name][1].extend(rows)
            tick(1)
    with atomic_folder(out / FOLDER) as temporary:
        for name, (columns, rows) in tables.items():
            _write_csv(temporary / f"{name}.csv", columns, rows)
    return [f"{FOLDER}/{name}.csv" for name in tables]


def _rows(person: Person, found: Sequence[Movement]) -> dict[str, Iterable[Row]]:
    """Return the rows of one person by table."""
    number = person.identity
    steps = [step for movement in found for step in movement.steps]
    return {
        "events": [
            (number, event.kind, event.side_name, event.time_s, event.std_s)
            for movement in found
            for event in movement.events
        ],
        "steps": [_step_row(number, step) for step in steps],
        "summary": [*_summary_rows(number, steps)],
        "cycles": [*_cycle_rows(number, found)],
        "squats": [
            (number, squat.time_s, squat.depth_m, squat.depth_std_m, squat.knee_flexion_deg)
            for movement in found
            for squat in movement.squats
        ],
        "jumps": [
            (
                number,
                jump.take_off_s,
                jump.landing_s,
                jump.time_std_s,
                jump.flight_s,
                jump.height_m,
                jump.height_std_m,
                jump.rise_m,
            )
            for movement in found
            for jump in movement.jumps
        ],
    }


def _step_row(person: int, step: Step) -> Row:
    """Return the row of one step."""
    numbers = (float(getattr(step, attribute)) for _, attribute in STEP_NUMBERS)
    return (
        person,
        step.side_name,
        step.start_s,
        step.end_s,
        step.time_std_s,
        step.length_std_m,
        *numbers,
    )


def _summary_rows(person: int, steps: Sequence[Step]) -> Iterator[Row]:
    """Yield mean and spread of all steps' numbers, of both feet and of each."""
    for side in ("both", "left", "right"):
        chosen = [step for step in steps if side in ("both", step.side_name)]
        if chosen:
            for name, (mean, spread, count) in summarize_steps(chosen).items():
                yield person, side, name, mean, spread, count


def _cycle_rows(person: int, found: Sequence[Movement]) -> Iterator[Row]:
    """Yield the mean cycle of every angle, a row per percent."""
    for name, cycles in join_cycles([movement.cycles for movement in found]).items():
        columns = zip(PERCENT, cycles.mean, cycles.spread, cycles.mean_std, strict=True)
        for percent, mean, spread, std in columns:
            yield person, name, int(percent), mean, spread, std, len(cycles.values)


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a table; numbers with four digits after the point."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: str | float | int) -> str:
    if isinstance(value, str | int):
        return str(value)
    return f"{value:.4f}" if math.isfinite(value) else ""
