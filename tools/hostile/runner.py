"""Runs cases one by one in forked processes with a limit on memory and time, and says how each
ended.

One process imports everything once and forks for each case, so that a case costs as little as it
does itself.
"""

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_BYTES = 4 << 30  # more than the process that forks has mapped already
TIME_S = 60
REFUSED = 2
DONE = 0
SOME_FAILED = 3
INSIDE = "something went wrong inside fitmesh"  # the handler's words for an unforeseen error


@dataclass(frozen=True)
class Case:
    """Something hostile, and what must come of it."""

    name: str
    run: Callable[[], object]  # raises UserError, SystemExit, or returns
    must_refuse: bool = True  # False: it may succeed too
    must_succeed: bool = False


@dataclass(frozen=True)
class Outcome:
    case: str
    ended: str  # fine, traceback, hang, memory, wrong success, wrong refusal
    code: int
    seconds: float
    said: str  # the last lines


def command(*arguments: str | bytes | Path) -> Callable[[], object]:
    """`fitmesh ARGUMENTS` in this process."""

    def run() -> None:
        from fitmesh import cli

        sys.argv = ["fitmesh", *(os.fsdecode(argument) for argument in arguments)]
        cli.main()

    return run


def run_case(case: Case, folder: Path) -> Outcome:
    """Run the case in a child process of its own, in an empty folder."""
    log = folder / "said.txt"
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(case, folder, log)
    left = _wait(child, TIME_S)
    seconds = time.monotonic() - start
    said = log.read_text("utf-8", "replace") if log.exists() else ""
    return Outcome(
        case.name,
        _judge(case, left, said),
        left if left is not None else -1,
        seconds,
        said.strip()[-600:],
    )


def _wait(child: int, limit_s: float) -> int | None:
    """Return the exit code, negative for a signal; None after the time limit."""
    end = time.monotonic() + limit_s
    pause = 0.002
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.1, pause * 1.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _judge(case: Case, code: int | None, said: str) -> str:
    if code is None:
        return "hang"
    if (
        code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
        or "not enough memory for this" in said
    ):
        return "memory"
    if (
        "Traceback (most recent call last)" in said
        or INSIDE in said
        or code not in (DONE, REFUSED, SOME_FAILED)
    ):
        return "traceback"
    if code == DONE and case.must_refuse:
        return "wrong success"
    if code != DONE and case.must_succeed:
        return "wrong refusal"
    return "fine"


def _child(case: Case, folder: Path, log: Path) -> None:
    """Never returns."""
    code = 1
    try:
        os.chdir(folder)
        tempfile.tempdir = str(folder)
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(
            os.fdopen(stream, "wb", 0), "utf-8", "backslashreplace", write_through=True
        )
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = _outcome(case)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _outcome(case: Case) -> int:
    from pose2d.base.errors import UserError

    try:
        case.run()
        return DONE
    except UserError as error:
        print(f"Error: {error}")
        return REFUSED
    except SystemExit as left:
        return int(left.code or 0)


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    kinds = ("fine", "traceback", "hang", "memory", "wrong success", "wrong refusal")
    return {kind: sum(outcome.ended == kind for outcome in outcomes) for kind in kinds}
