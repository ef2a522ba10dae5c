"""One progress display over many clips: bars on a terminal, a line a clip elsewhere, JSON lines for programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fitmesh.batch.status import ClipStatus

LONGEST_NAME = 30  # shown in front of a bar


class Display(Protocol):
    """Somebody who wants to know how a batch goes."""

    def say(self, text: str) -> None:
        """About the batch as a whole."""

    def warn(self, text: str) -> None: ...

    def news(self, name: str, what: Any) -> None:
        """What a clip's worker tells: lines as of `run --json`."""

    def ended(self, status: ClipStatus, done: int, total: int) -> None:
        """A clip came to its end."""


class Silent:
    """Errors come back as statuses."""

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def news(self, name: str, what: Any) -> None: ...

    def ended(self, status: ClipStatus, done: int, total: int) -> None: ...


class Lines(Silent):
    """On stderr, a line a clip; in quiet mode only of those that failed."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.console = quiet, Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        self.console.print(f"Warning: {text}", markup=False)

    def ended(self, status: ClipStatus, done: int, total: int) -> None:
        if status.state == "failed":
            self.console.print(f"{done} of {total}  {status.name}: failed. {status.error}", markup=False)
        elif not self.quiet:
            self.console.print(f"{done} of {total}  {status.name}: {_facts(status)}", markup=False)


class Bars(Lines):
    """A bar for all clips, and one for each that is being done."""

    def __init__(self, progress: Progress, total: int) -> None:
        super().__init__(quiet=False)
        self.console = progress.console
        self._progress = progress
        self._clips: dict[str, TaskID] = {}  # bars, by name
        self._all = progress.add_task("all clips", total=total)

    def news(self, name: str, what: Any) -> None:
        if what.get("event") != "stage":
            return
        if name not in self._clips:
            self._clips[name] = self._progress.add_task(name, total=None)
        title = f"{name[:LONGEST_NAME]}: {what['stage']}"
        total, done = what.get("total"), what.get("done", 0)
        self._progress.update(self._clips[name], description=title, total=total, completed=done)

    def ended(self, status: ClipStatus, done: int, total: int) -> None:
        if (bar := self._clips.pop(status.name, None)) is not None:
            self._progress.remove_task(bar)
        self._progress.update(self._all, completed=done)
        if status.state == "failed" or status.warnings:
            super().ended(status, done, total)


class JsonLines(Silent):
    """Every line of every clip, with the clip's name in it; at a clip's end its status as event "ended"."""

    def say(self, text: str) -> None:
        self._line({"event": "info", "text": text})

    def warn(self, text: str) -> None:
        self._line({"event": "warning", "text": text})

    def news(self, name: str, what: Any) -> None:
        self._line({**what, "name": name})

    def ended(self, status: ClipStatus, done: int, total: int) -> None:
        self._line({"event": "ended", **vars(status), "done": done, "total": total})

    def _line(self, content: dict[str, Any]) -> None:
        try:
            print(json.dumps(content), flush=True)
        except BrokenPipeError:  # nobody reads any more; the work goes on
            sys.stdout = None


@contextmanager
def display(total: int, quiet: bool, as_json: bool) -> Iterator[Display]:
    """For a command, whoever watches it."""
    lines = JsonLines() if as_json else Lines(quiet)
    if not isinstance(lines, Lines) or quiet or not lines.console.is_terminal:
        yield lines
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=lines.console) as progress:
        yield Bars(progress, total)


def _facts(status: ClipStatus) -> str:
    if status.state == "kept":
        return "up to date, kept"
    people = "nobody" if not status.people else "1 person" if status.people == 1 else f"{status.people} people"
    count = len(status.warnings)
    warnings = f", {count} warning{'s' if count > 1 else ''}" if count else ""
    return f"{people} in {status.frames} frames, {status.seconds:.1f} s{warnings}"
