"""What happens during the work, as one stream of events: `Reporter.emit` passes each to a sink (`fitmesh.ui.sinks`).

A sink is a function of an event: a progress bar, lines in a log, JSON lines, a callback, a worker's pipe.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fitmesh.ui.words import count

if TYPE_CHECKING:
    from fitmesh.many.status import ClipStatus

BEAT_S = 1.0  # between two events of work that goes on, whether or not it advances
STAGE_BEATS = 30  # between lines about a stage, where they go into a file
BUSY_BEATS = 10  # before such a file says what takes so long without steps to count
Tick = Callable[[int], None]  # so many more are done
_log = logging.getLogger("fitmesh")


@dataclass(frozen=True)
class Message:
    """`text` for people; programs get the kind of event and the facts instead."""

    text: str
    kind: str = "info"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Warned:
    """Something the user should know even in quiet mode."""

    text: str


@dataclass(frozen=True)
class Failed:
    """The work ends here; the command itself tells people why."""

    text: str


@dataclass(frozen=True)
class Busy:
    """Something without steps to count: begun (beat 0), still at it (1, 2, .. every BEAT_S), ended (None)."""

    text: str
    beat: int | None


@dataclass(frozen=True)
class StageKept:
    """A stage whose files are up to date."""

    stage: str


@dataclass(frozen=True)
class StageStarted:
    """A stage of about `total` steps, if that is known."""

    stage: str
    total: int | None
    unit: str  # what is counted: frames, people, ..


@dataclass(frozen=True)
class StageAdvanced:
    """Some steps more are done. With a `beat` (1, 2, ..): BEAT_S have passed since the last one."""

    stage: str
    done: int
    total: int | None
    unit: str
    seconds: float  # since it started
    beat: int | None = None


@dataclass(frozen=True)
class StageEnded:
    stage: str
    done: int
    unit: str
    seconds: float
    finished: bool  # False: an error ended it


@dataclass(frozen=True)
class ClipsStarted:
    """Many clips are to be done."""

    total: int


@dataclass(frozen=True)
class ClipsEnded:
    """All of them are, or an error ended the work."""


@dataclass(frozen=True)
class FromClip:
    """An event of one clip among many."""

    name: str
    event: "Event"


@dataclass(frozen=True)
class ClipEnded:
    """One clip among many came to its end."""

    status: "ClipStatus"
    done: int  # clips
    total: int


Event = (
    Message | Warned | Failed | Busy | StageKept | StageStarted | StageAdvanced | StageEnded
    | ClipsStarted | FromClip | ClipEnded | ClipsEnded
)  # fmt: skip
Sink = Callable[[Event], None]


def to_log(event: Event) -> None:
    """The sink of whoever wants to see nothing: what is said goes to the packages' log (`fitmesh.ui.logs`)."""
    if isinstance(event, Warned):
        _log.warning("%s", event.text)
    elif text := describe(event):
        _log.info("%s", text)


def describe(event: Event) -> str:
    """An event as a line for people; empty where it needs none."""
    match event:
        case Message(text):
            return text
        case StageKept(stage):
            return f"{stage:<10} is up to date, kept"
        case Busy(text, beat) if beat == BUSY_BEATS:
            return f"{text} .."
        case StageAdvanced(stage, done, total, unit, seconds, beat) if beat and beat % STAGE_BEATS == 0:
            of = f" of {total}" if total else ""
            return f"{stage:<10} {done}{of} {unit}, {done / seconds:.1f}/s"
        case StageEnded(stage, done, unit, seconds, True):
            return f"{stage:<10} {count(done, unit)} in {seconds:.1f} s, {done / max(seconds, 1e-9):.1f}/s"
        case ClipEnded(status, done, total):
            return f"{done} of {total}  {status.name}: {status.describe()}"
    return ""


class Reporter:
    """Makes events out of work: `with reporter.stage("fit", 10) as tick: .. tick(1)`."""

    def __init__(self, sink: Sink = to_log) -> None:
        self.emit = sink

    def say(self, text: str, kind: str = "info", **facts: Any) -> None:
        self.emit(Message(text, kind, facts))

    def warn(self, text: str) -> None:
        self.emit(Warned(text))

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """While something is done that has no steps to count: `text` says what."""
        self.emit(Busy(text, 0))
        try:
            with heartbeat(lambda beat: self.emit(Busy(text, beat)), BEAT_S):
                yield
        finally:
            self.emit(Busy(text, None))

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        """A stage of about `total` steps, if that is known."""
        start, done, finished = time.monotonic(), 0, False

        def advanced(beat: int | None = None) -> None:
            self.emit(StageAdvanced(name, done, total, unit, time.monotonic() - start, beat))

        def tick(steps: int) -> None:
            nonlocal done
            done += steps
            advanced()

        self.emit(StageStarted(name, total, unit))
        try:
            with heartbeat(advanced, BEAT_S):
                yield tick
            finished = True
        finally:
            self.emit(StageEnded(name, done, unit, time.monotonic() - start, finished))


@contextmanager
def heartbeat(beat: Callable[[int], None], every_s: float) -> Iterator[None]:
    """Calls `beat` with 1, 2, .. every so many seconds, from a thread of its own, until what is inside is done."""
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
