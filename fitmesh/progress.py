"""Progress of each stage: how far, how fast, how long still. A bar on a terminal, lines in a log, nothing if quiet.

On a terminal something moves at all times: a bar, or what is being done where there are no steps (`Reporter.busy`).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

PLAIN_EVERY_S = 30.0  # between lines about a stage, where they go into a file
BUSY_AFTER_S = 10.0  # before such a file says what takes so long without steps to count
Tick = Callable[[int], None]  # so many more are done
_log = logging.getLogger("fitmesh")


class Reporter:
    """Says on stderr what a run is doing. A quiet one tells the log (`fitmesh.logs`)."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(stderr=True, highlight=False)

    def say(self, text: str, event: str = "info", **facts: Any) -> None:
        """Tell people `text`. Programs that read a log get the kind of `event` and the `facts` instead."""
        if self.quiet:
            _log.info("%s", text)
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Something the user should know even in quiet mode."""
        _log.warning("%s", text)

    def failed(self, text: str) -> None:
        """The run ends here; the command itself tells people why."""

    def skipped(self, stage: str) -> None:
        self.say(f"{stage:<10} is up to date, kept")

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """While something is done that has no steps to count: `text` says what."""
        if self.quiet:
            yield
        elif self._console.is_terminal:
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            with Progress(*columns, console=self._console, transient=True) as progress:
                progress.add_task(text, total=None)
                yield
        else:
            with heartbeat(lambda beat: self.say(f"{text} ..") if beat == 1 else None, BUSY_AFTER_S):
                yield

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        """A stage of about `total` steps, if that is known."""
        if not self.quiet and self._console.is_terminal:
            yield from self._live(name, total, unit)
        else:
            yield from self._plain(name, total, unit)

    def _live(self, name: str, total: int | None, unit: str) -> Iterator[Tick]:
        columns = (
            SpinnerColumn(finished_text=" "),
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
        start = time.monotonic()
        done = 0

        def tick(steps: int) -> None:
            nonlocal done
            done += steps

        def beat(_: int) -> None:
            of = f" of {total}" if total else ""
            self.say(f"{name:<10} {done}{of} {unit}, {done / (time.monotonic() - start):.1f}/s")

        with heartbeat(beat, PLAIN_EVERY_S):
            yield tick
        seconds = time.monotonic() - start
        self.say(f"{name:<10} {done} {unit} in {seconds:.1f} s, {done / max(seconds, 1e-9):.1f}/s")


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


def starting(reporter: Reporter | None = None) -> AbstractContextManager[None]:
    """Around a command's imports: torch alone takes a second or two."""
    return (reporter or Reporter()).busy("starting")


@contextmanager
def heartbeat(beat: Callable[[int], None], every_s: float) -> Iterator[None]:
    """Calls `beat` with 1, 2, .. every so many seconds, from a thread of its own, until what is inside is done."""
    done = threading.Event()

    def work() -> None:
        count = 0
        while not done.wait(every_s):
            count += 1
            beat(count)

    thread = threading.Thread(target=work, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
