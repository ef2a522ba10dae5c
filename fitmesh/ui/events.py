"""Report progress as one stream of events: `Reporter.emit` passes each event to a sink.

A sink is a function of an event: bars on a terminal, lines in a file, JSON lines for programs, a
callback, or the pipe of a worker process.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rich import progress as bars
from rich.console import Console
from rich.table import Table

from fitmesh.ui.trouble import count

if TYPE_CHECKING:
    from fitmesh.many.status import ClipStatus


BEAT_S = 1.0  # between two events of work that goes on, whether or not it advances
STAGE_BEATS = 30  # between lines about a stage, where they go into a file
BUSY_BEATS = 10  # before such a file says what takes so long without steps to count
Tick = Callable[[int], None]  # so many more are done
_log = logging.getLogger("fitmesh")


@dataclass(frozen=True)
class Message:
    """Carry a text for people, and its kind and facts for programs.

    A "warning" is shown in quiet mode too. An "error" ends the work; the command itself prints it.
    """

    text: str
    kind: str = "info"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Tell how far a stage has got; "kept" means that its files are up to date."""

    name: str
    state: Literal["kept", "started", "running", "done", "failed"]
    done: int = 0  # steps
    total: int | None = None  # about, if that is known
    unit: str = ""  # what is counted: frames, people, ..; empty: nothing, and it is no stage
    seconds: float = 0.0  # since it started
    beat: int | None = None  # 1, 2, ..: BEAT_S have passed since the last one


@dataclass(frozen=True)
class FromClip:
    """Carry an event of one clip among many."""

    name: str
    event: "Event"


@dataclass(frozen=True)
class ClipEnded:
    """Tell that one clip among many has ended."""

    status: "ClipStatus"
    done: int  # clips
    total: int


Event = Message | Stage | FromClip | ClipEnded
Sink = Callable[[Event], None]


def to_log(event: Event) -> None:
    """Write an event to the log, for callers that show nothing (`fitmesh.ui.trouble`)."""
    if isinstance(event, Message) and event.kind == "warning":
        _log.warning("%s", event.text)
    elif text := describe(event):
        _log.info("%s", text)


def describe(event: Event) -> str:
    """Return an event as a line for people; empty if it needs none."""
    match event:
        case Message(text, kind) if kind not in ("warning", "error"):
            return text
        case Stage(name, "kept"):
            return f"{name:<10} is up to date, kept"
        case Stage(name, unit="" | "clips" as unit, beat=beat):  # every clip has a line of its own
            return f"{name} .." if beat == BUSY_BEATS and not unit else ""
        case Stage(name, "running", done, total, unit, seconds, beat) if (
            beat and beat % STAGE_BEATS == 0
        ):
            of = f" of {total}" if total else ""
            return f"{name:<10} {done}{of} {unit}, {done / seconds:.1f}/s"
        case Stage(name, "done", done, _, unit, seconds):
            return f"{name:<10} {count(done, unit)} in {seconds:.1f} s, {done / max(seconds, 1e-9):.1f}/s"
        case ClipEnded(status, done, total):
            return f"{done} of {total}  {status.name}: {status.describe()}"
    return ""


class Reporter:
    """Turn work into events: `with reporter.stage("fit", 10) as tick: .. tick(1)`."""

    def __init__(self, sink: Sink = to_log) -> None:
        self.emit = sink

    def say(self, text: str, kind: str = "info", **facts: Any) -> None:
        self.emit(Message(text, kind, facts))

    def warn(self, text: str) -> None:
        self.emit(Message(text, "warning"))

    def busy(self, text: str) -> AbstractContextManager[Tick]:
        """Report work that has no steps to count; `text` names it."""
        return self.stage(text, None, unit="")

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        """Report a stage of about `total` steps; None if the number is not known."""
        start = time.monotonic()
        done = 0

        def tell(
            state: Literal["started", "running", "done", "failed"], beat: int | None = None
        ) -> None:
            self.emit(Stage(name, state, done, total, unit, time.monotonic() - start, beat))

        def tick(steps: int) -> None:
            nonlocal done
            done += steps
            tell("running")

        tell("started")
        try:
            with heartbeat(partial(tell, "running"), BEAT_S):
                yield tick
        except BaseException:
            tell("failed")
            raise
        tell("done")


@contextmanager
def heartbeat(beat: Callable[[int], None], every_s: float) -> Iterator[None]:
    """Call `beat` with 1, 2, .. every `every_s` seconds from a thread until the block ends."""
    done = threading.Event()

    def work() -> None:
        number = 0
        while not done.wait(every_s):
            number += 1
            beat(number)

    thread = threading.Thread(target=work, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


LONGEST_NAME = 30  # of a clip, shown in front of a bar


def on_stderr(quiet: bool = False) -> Sink:
    """Return a sink for people: bars on a terminal, lines elsewhere, only failures if quiet."""
    console = Console(stderr=True, highlight=False)
    return Bars(console) if console.is_terminal and not quiet else Lines(console, quiet)


def starting(reporter: Reporter | None = None) -> AbstractContextManager[Tick]:
    """Report a command's imports, of which torch alone takes one or two seconds."""
    return (reporter or Reporter(on_stderr())).busy("starting")


class Lines:
    """Print a line for each event that has one; if quiet, only for clips that failed."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet

    def __call__(self, event: Event) -> None:
        is_failure = isinstance(event, ClipEnded) and not event.status.is_good
        is_warning = isinstance(event, Message) and event.kind == "warning"
        if is_warning or (self.quiet and not is_failure):
            to_log(event)
        elif text := describe(event):
            self.console.print(text, markup=False, soft_wrap=True)


class Bars(Lines):
    """Show a bar for a stage; for many clips one for all and one for each clip in work."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: bars.Progress | None = None
        self._clips: dict[str, bars.TaskID] = {}  # bars, by name

    def __call__(self, event: Event) -> None:
        match event:
            case Stage(text, "started", unit=""):
                self._show(
                    text,
                    None,
                    bars.SpinnerColumn(),
                    bars.TextColumn("{task.description}", markup=False),
                    bars.TimeElapsedColumn(),
                    transient=True,
                )
            case Stage(stage, "started", _, total):
                self._show(
                    stage,
                    total,
                    bars.SpinnerColumn(finished_text=" "),
                    bars.TextColumn("{task.description:<10}"),
                    bars.BarColumn(bar_width=30),
                    bars.MofNCompleteColumn(),
                    bars.TextColumn("{task.fields[rate]}", "progress.data.speed"),
                    bars.TimeRemainingColumn(elapsed_when_finished=True),
                )
            case Stage(_, "running", done, _, unit, seconds) if self._live:
                rate = f"{done / seconds:5.1f} {unit}/s" if done and seconds else "starting"
                self._live.update(bars.TaskID(0), completed=done, rate=rate)
            case Stage(_, "done" | "failed" as state, done) if self._live:
                # A stated number of frames may be off by a few.
                self._live.update(
                    bars.TaskID(0), completed=done, total=done if state == "done" else None
                )
                self._live.stop()
                self._live = None
            case FromClip(name, Stage(stage, "started" | "running", done, total, unit)) if (
                self._live and unit
            ):
                if name not in self._clips:
                    self._clips[name] = self._live.add_task(name, total=None, rate="")
                title = f"{name[:LONGEST_NAME]}: {stage}"
                self._live.update(self._clips[name], description=title, total=total, completed=done)
            case ClipEnded(status) if self._live:
                if (bar := self._clips.pop(status.name, None)) is not None:
                    self._live.remove_task(bar)
                if not status.is_good or status.warnings:
                    super().__call__(event)
            case Message() | Stage(_, "kept"):
                super().__call__(event)

    def _show(
        self, title: str, total: int | None, *columns: bars.ProgressColumn, transient: bool = False
    ) -> None:
        self._live = bars.Progress(*columns, console=self.console, transient=transient)
        self._live.add_task(title, total=total, rate="starting")
        self._live.start()


def as_json_lines(event: Event) -> None:
    """Print an event as a JSON object on stdout; its "event" names the kind."""
    if facts := _facts(event):
        try:
            # One string: lines come from more than one thread.
            print(json.dumps(facts) + "\n", end="", flush=True)
        except BrokenPipeError:  # the reader has closed the pipe; the work goes on
            sys.stdout = None


def _facts(event: Event) -> dict[str, Any]:
    match event:
        case Message(text, kind, facts):
            return {"event": kind, **(facts or {"text": text})}
        case Stage(stage, "kept"):
            return {"event": "stage", "stage": stage, "state": "kept"}
        case Stage(text, unit="" | "clips" as unit, beat=beat):
            return (
                {"event": "busy", "text": text, "seconds": beat * BEAT_S}
                if beat and not unit
                else {}
            )
        case Stage(stage, state, done, total, unit, seconds, beat) if (
            state not in ("running", "failed") or beat
        ):
            counted = {"done": done, "total": total, "unit": unit, "seconds": round(seconds, 3)}
            return {"event": "stage", "stage": stage, "state": state, **counted}
        case FromClip(name, inner):
            facts = _facts(inner)
            return facts and {**facts, "name": name}
        case ClipEnded(status, done, total):
            return {"event": "ended", **vars(status), "done": done, "total": total}
    return {}


UNLIMITED = 10_000  # characters: a file or a pipe has no width, so no column may be cut


def table_console() -> Console:
    """Return a console as wide as the terminal, or without limit for a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=UNLIMITED)


def print_tables(tables: Iterable[Table]) -> None:
    console = table_console()
    for table in tables:
        console.print(table)
