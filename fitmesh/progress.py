"""One line a stage: how far, how fast, how long still. Plain lines where nobody watches, nothing where nobody cares."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

PLAIN_EVERY_S = 30.0
Tick = Callable[[int], None]  # so many more are done


class Reporter:
    """Says on stderr what a run is doing."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(stderr=True, highlight=False)

    def say(self, text: str, event: str = "info", **facts: Any) -> None:
        """Tell people `text`. Programs that read a log get the kind of `event` and the `facts` instead."""
        if not self.quiet:
            self._console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Something the user should know even in quiet mode."""
        warn(text)

    def failed(self, text: str) -> None:
        """The run ends here; the command itself tells people why."""

    def skipped(self, stage: str) -> None:
        self.say(f"{stage:<10} is up to date, kept")

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        """A stage of about `total` steps, if that is known."""
        if self.quiet:
            yield lambda steps: None
        elif self._console.is_terminal:
            yield from self._live(name, total, unit)
        else:
            yield from self._plain(name, total, unit)

    def _live(self, name: str, total: int | None, unit: str) -> Iterator[Tick]:
        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            _Rate(unit),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(name, total=total)
            yield lambda steps: progress.advance(task, steps)
            done = progress.tasks[0].completed
            progress.update(task, total=done)  # a stated number of frames may be off by a few

    def _plain(self, name: str, total: int | None, unit: str) -> Iterator[Tick]:
        start = last = time.monotonic()
        done = 0

        def tick(steps: int) -> None:
            nonlocal done, last
            done += steps
            now = time.monotonic()
            if now - last >= PLAIN_EVERY_S:
                last = now
                of = f" of {total}" if total else ""
                self.say(f"{name:<10} {done}{of} {unit}, {done / (now - start):.1f}/s")

        yield tick
        seconds = time.monotonic() - start
        self.say(f"{name:<10} {done} {unit} in {seconds:.1f} s, {done / max(seconds, 1e-9):.1f}/s")


class _Rate(ProgressColumn):
    """Steps a second over the whole stage so far."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{rate:5.1f} {self._unit}/s", style="progress.data.speed")


def warn(text: str) -> None:
    """On stderr, whoever reports."""
    print(f"Warning: {text}", file=sys.stderr)
