"""What a command says when it fails: one sentence for what the user can fix, two lines and a log
file for the rest.

And what of the log it shows on stderr, and how Ctrl-C, SIGTERM and SIGHUP end it: a word, no
temporary files, and the exit code that a shell expects. Imports nothing heavy: it is at work before
the slow imports begin.

Library code never prints: it logs to `fitmesh`, `pose2d`, `ccnet`, `fitting` and `eval3dpw`, and a
program that uses it decides where that goes. `fitmesh.run` logs its stages and warnings too. The
commands show warnings, and with `fitmesh --log-level debug COMMAND` the rest."""

import contextlib
import errno
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130  # the exit code that a shell expects after Ctrl-C
PATIENCE_S = (
    10.0  # how long the work in hand may take to clean up before the process ends all the same
)
WORDS = "Stopped. What is finished is kept; the same command goes on from there."
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # and clear the line that the bar was on
_WATCHED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Stopped(BaseException):
    """Raised in the main thread by a signal while a command works, so that it cleans up on its way
    out.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    working = False  # something may have to be cleaned up
    asked = False  # a first signal is being obeyed


def install() -> None:
    """From now on signals end the process in order. Signals that the caller ignores (nohup) stay
    ignored.
    """
    for number in _WATCHED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


class working:  # reads as a statement: with working():
    """While there may be something to clean up: a signal raises Stopped. Elsewhere it ends the
    process at once.
    """

    def __enter__(self) -> None:
        self._before = _State.working
        _State.working = True

    def __exit__(self, *_: object) -> None:
        _State.working = self._before


def _stop(number: int, _: "FrameType | None") -> None:
    if not _State.working or _State.asked:
        leave(128 + number)
    _State.asked = True
    timer = threading.Timer(PATIENCE_S, leave, (128 + number,))
    timer.daemon = True
    timer.start()
    raise Stopped(number)


def leave(code: int) -> None:
    """At once, from any thread, also when an exception would be lost in a callback."""
    files = sys.modules.get("pose2d.base.files")
    if files is not None:
        files.remove_unfinished()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        # A progress bar had hidden the cursor, and nobody else will show it again.
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else "").encode() + f"{WORDS}\n".encode())
    finally:
        os._exit(code)


USER_ERROR = 2
FAILED = 1
BROKEN_PIPE = 141
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Insufficient memory",
    "bad alloc",
    "bad_alloc",
    "Unable to allocate",
    "Cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "DefaultCPUAllocator",
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def exit_code_of(error: BaseException) -> int:
    """Say what happened, and with which code to leave."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        say(WORDS)
        return getattr(error, "exit_code", INTERRUPTED)
    try:
        sys.stdout.flush()
    except (
        OSError,
        ValueError,
    ):  # nobody reads it, or the disk is full: Python must not try once more
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(
        error, BrokenPipeError
    ):  # the reader of our output has left (`fitmesh models | head`)
        return BROKEN_PIPE
    lines, code = describe_error(error)
    lines[0] = f"Error: {lines[0]}"
    for line in lines:
        say(line)
    return code


def describe_error(error: BaseException) -> tuple[list[str], int]:
    """What to tell of an error, and the exit code; whatever is not the user's mistake leaves a log
    file.
    """
    errors = sys.modules.get(
        "pose2d.base.errors"
    )  # nothing is imported: it may be an import that failed
    if errors is not None and isinstance(error, errors.UserError):
        return [str(error)], USER_ERROR
    path = _log(error)
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return [
            "there is not enough memory for this. Give a smaller input (--end, --every, smaller images), or "
            "use a machine with more memory."
        ], FAILED
    if isinstance(error, RecursionError):
        return ["the input is nested too deeply."], USER_ERROR
    if isinstance(error, OSError) and error.filename is not None:
        return [f"{error.filename}: {error.strerror or error}."], USER_ERROR
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return [
            f"the output cannot be written: {error.strerror}. Make room, or write elsewhere."
        ], USER_ERROR
    first = (str(error).splitlines() or [""])[0][:300]
    return [
        f"something went wrong inside fitmesh ({type(error).__name__}: {first}).",
        f"The details are in {path}: please report this with that file."
        if path
        else "Please report this.",
    ], FAILED


def say(text: str) -> None:
    """On stderr, also when nobody listens."""
    try:
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        print(f"\033[31m{text}\033[0m" if colour else text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def count(number: int, several: str) -> str:
    """1 frame, 2 frames; 1 person, 2 people."""
    if number != 1:
        return f"{number} {several}"
    irregular = {"people": "person", "processes": "process", "passes": "pass"}
    return f"1 {irregular.get(several) or several.removesuffix('s')}"


def _log(error: BaseException) -> Path | None:
    """The traceback, in a file of its own."""
    try:
        name = f"fitmesh-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-"
        handle, made = tempfile.mkstemp(
            ".log", name
        )  # a new file: nobody else can have put a link there
        os.close(handle)
        path = Path(made)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        from fitmesh.version import (
            __version__,
        )  # reads the installed files: not before signals are watched for

        facts = f"fitmesh {__version__}\n{sys.version}\n{sys.argv}\n\n"
        path.write_text(facts + "".join(lines), "utf-8", "backslashreplace")
        return path
    except OSError:
        return None


PACKAGES = ("fitmesh", "pose2d", "ccnet", "fitting", "eval3dpw")
LEVELS = ("debug", "info", "warning", "error")


class _Stderr(logging.Handler):
    """To whatever stderr is at that moment: a progress bar takes its place while it is shown. A
    warning is for everybody; the rest says when and where it comes from."""

    def emit(self, record: logging.LogRecord) -> None:
        about = "Warning"
        if record.levelno != logging.WARNING:
            when = time.strftime("%H:%M:%S", time.localtime(record.created))
            about = f"{when}.{record.msecs:03.0f} {record.levelname.lower()} {record.name}"
        with contextlib.suppress(OSError, ValueError):
            print(f"{about}: {record.getMessage()}", file=sys.stderr)


_HANDLER = _Stderr()


def show_log(level: str) -> None:
    """From now on the packages' records of this level and above appear on stderr, once each."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.propagate = False
        logger.addHandler(_HANDLER)  # a second time it stays one
