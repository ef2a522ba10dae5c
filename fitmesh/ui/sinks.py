"""Where events go: bars on a terminal, lines in a file, JSON lines for programs, a function of the caller's.

On a terminal something moves at all times: a bar, or what is being done where there are no steps.
"""

import json
import sys
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fitmesh.ui.events import (
    BEAT_S,
    Busy,
    ClipEnded,
    ClipsEnded,
    ClipsStarted,
    Event,
    Failed,
    FromClip,
    Message,
    Reporter,
    Sink,
    StageAdvanced,
    StageEnded,
    StageKept,
    StageStarted,
    Warned,
    describe,
    to_log,
)

LONGEST_NAME = 30  # of a clip, shown in front of a bar


def on_stderr(quiet: bool = False) -> Sink:
    """For people who watch a command: bars on a terminal, lines elsewhere, in quiet mode only what went wrong."""
    console = Console(stderr=True, highlight=False)
    return Bars(console) if console.is_terminal and not quiet else Lines(console, quiet)


def starting(reporter: Reporter | None = None) -> AbstractContextManager[None]:
    """Around a command's imports: torch alone takes a second or two."""
    return (reporter or Reporter(on_stderr())).busy("starting")


class Lines:
    """A line for what deserves one. A quiet one tells the log, but for clips that failed."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet

    def __call__(self, event: Event) -> None:
        is_failure = isinstance(event, ClipEnded) and not event.status.is_good
        if isinstance(event, Warned) or (self.quiet and not is_failure):
            to_log(event)
        elif text := describe(event):
            self.console.print(text, markup=False, soft_wrap=True)


class Bars(Lines):
    """A bar for a stage, or for many clips one for all and one for each that is being done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Progress | None = None
        self._clips: dict[str, TaskID] = {}  # bars, by name

    def __call__(self, event: Event) -> None:
        match event:
            case Busy(text, 0):
                self._show(text, None, SpinnerColumn(), TextColumn("{task.description}", markup=False),
                           TimeElapsedColumn(), transient=True)  # fmt: skip
            case StageStarted(stage, total, unit):
                self._show(stage, total, SpinnerColumn(finished_text=" "), TextColumn("{task.description:<10}"),
                           BarColumn(bar_width=30), MofNCompleteColumn(), _Rate(unit),
                           TimeRemainingColumn(elapsed_when_finished=True))  # fmt: skip
            case ClipsStarted(total):
                self._show("all clips", total, TextColumn("{task.description}"), BarColumn(bar_width=30),
                           MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
                           TimeRemainingColumn())  # fmt: skip
            case StageAdvanced(_, done) if self._live:
                self._live.update(TaskID(0), completed=done)
            case StageEnded(_, done, _, _, finished) if self._live:
                # A stated number of frames may be off by a few.
                self._live.update(TaskID(0), completed=done, total=done if finished else None)
                self._hide()
            case Busy(_, None) | ClipsEnded():
                self._hide()
            case FromClip(name, StageStarted() | StageAdvanced() as inner) if self._live:
                if name not in self._clips:
                    self._clips[name] = self._live.add_task(name, total=None)
                title, done = f"{name[:LONGEST_NAME]}: {inner.stage}", getattr(inner, "done", 0)
                self._live.update(self._clips[name], description=title, total=inner.total, completed=done)
            case ClipEnded(status, done, _) if self._live:
                if (bar := self._clips.pop(status.name, None)) is not None:
                    self._live.remove_task(bar)
                self._live.update(TaskID(0), completed=done)
                if not status.is_good or status.warnings:
                    super().__call__(event)
            case Message() | Warned() | StageKept():
                super().__call__(event)

    def _show(self, title: str, total: int | None, *columns: ProgressColumn, transient: bool = False) -> None:
        self._live = Progress(*columns, console=self.console, transient=transient)
        self._live.add_task(title, total=total)
        self._live.start()

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None


class _Rate(ProgressColumn):
    """Steps a second over the whole stage so far; a word until there is a first one."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        if not task.completed:
            return Text("starting", style="progress.data.speed")
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{rate:5.1f} {self._unit}/s", style="progress.data.speed")


def as_json_lines(event: Event) -> None:
    """On stdout, each with an "event": info, busy, clip, stage, person, warning, result, ended or error."""
    if facts := _facts(event):
        try:
            # One string: lines come from more than one thread.
            print(json.dumps(facts) + "\n", end="", flush=True)
        except BrokenPipeError:  # nobody reads any more; the work goes on
            sys.stdout = None


def _facts(event: Event) -> dict[str, Any]:
    match event:
        case Message(text, kind, facts):
            return {"event": kind, **(facts or {"text": text})}
        case Warned(text):
            return {"event": "warning", "text": text}
        case Failed(text):
            return {"event": "error", "text": text}
        case Busy(text, beat) if beat:
            return {"event": "busy", "text": text, "seconds": beat * BEAT_S}
        case StageKept(stage):
            return {"event": "stage", "stage": stage, "state": "kept"}
        case StageStarted(stage, total, unit):
            return {"event": "stage", "stage": stage, "state": "started", "total": total, "unit": unit}
        case StageAdvanced(stage, done, total, unit, seconds, beat) if beat:
            counted = {"done": done, "total": total, "unit": unit, "per_second": round(done / seconds, 2)}
            return {"event": "stage", "stage": stage, "state": "running", **counted}
        case StageEnded(stage, done, unit, seconds, True):
            counted = {"done": done, "unit": unit, "seconds": round(seconds, 3)}
            return {"event": "stage", "stage": stage, "state": "done", **counted}
        case FromClip(name, inner):
            facts = _facts(inner)
            return facts and {**facts, "name": name}
        case ClipEnded(status, done, total):
            return {"event": "ended", **vars(status), "done": done, "total": total}
    return {}
