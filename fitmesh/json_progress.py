"""The same news for programs: one JSON object a line on stdout."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fitmesh.progress import Reporter, Tick, heartbeat

EVERY_S = 1.0  # between lines of progress


class JsonReporter(Reporter):
    """Every line has an "event": info, busy, clip, stage, person, warning, result or error."""

    def say(self, text: str, event: str = "info", **facts: Any) -> None:
        self.line(event, **(facts or {"text": text}))

    def warn(self, text: str) -> None:
        self.line("warning", text=text)

    def failed(self, text: str) -> None:
        self.line("error", text=text)

    def skipped(self, stage: str) -> None:
        self.line("stage", stage=stage, state="kept")

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        with heartbeat(lambda beat: self.line("busy", text=text, seconds=beat * EVERY_S), EVERY_S):
            yield

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        start = time.monotonic()
        done = 0
        self.line("stage", stage=name, state="started", total=total, unit=unit)

        def tick(steps: int) -> None:
            nonlocal done
            done += steps

        def beat(_: int) -> None:
            rate = round(done / (time.monotonic() - start), 2)
            self.line("stage", stage=name, state="running", done=done, total=total, unit=unit, per_second=rate)

        with heartbeat(beat, EVERY_S):
            yield tick
        seconds = round(time.monotonic() - start, 3)
        self.line("stage", stage=name, state="done", done=done, unit=unit, seconds=seconds)

    def line(self, event: str, **facts: Any) -> None:
        try:
            # One string: lines come from more than one thread.
            print(json.dumps({"event": event, **facts}) + "\n", end="", flush=True)
        except BrokenPipeError:  # nobody reads any more; the work goes on
            sys.stdout = None
