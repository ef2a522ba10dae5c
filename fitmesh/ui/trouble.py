"""Turn failures and signals into messages and exit codes, and show the log on stderr.

A mistake that the user can fix becomes one message, any other error two lines and a log file.
Ctrl-C, SIGTERM and SIGHUP end a command with one line, without temporary files, and with the exit
code that a shell expects. This module imports nothing heavy: it works before the slow imports.

Library code never prints. It logs to `fitmesh`, `pose2d`, `ccnet`, `fitting` and `eval3dpw`. The
commands show warnings, and with `fitmesh --log-level debug COMMAND` the rest.
"""

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
PATIENCE_S = 10.0  # after a first signal, before the process ends without cleaning up
WORDS = "Stopped. What is finished is kept; the same command goes on from there."
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # and clear the line that the bar was on
_WATCHED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Stopped(BaseException):
    """Interrupt the main thread at a signal, so that a command cleans up on its way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    working = False  # something may have to be cleaned up
    asked = False  # a first signal is being obeyed


def install() -> None:
    """Install the signal handlers. Signals that the caller ignores (nohup) stay ignored."""
    for number in _WATCHED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


class working:  # reads as a statement: with working():
    """Make signals raise Stopped inside this block; outside they end the process at once."""

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
    """End the process at once, from any thread, after removing unfinished files."""
    files = sys.modules.get("pose2d.base.files")
    if files is not None:
        files.remove_unfinished()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        # A progress bar had hidden the cursor.
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
    """Print what happened and return the exit code."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        say(WORDS)
        return getattr(error, "exit_code", INTERRUPTED)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # The reader is gone or the disk is full: Python must not try again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):  # `fitmesh models | head`
        return BROKEN_PIPE
    lines, code = describe_error(error)
    lines[0] = f"Error: {lines[0]}"
    for line in lines:
        say(line)
    return code


def error_facts(error: BaseException) -> dict[str, str | None]:
    """Return message, code, file and option of an error, as `--json` prints them.

    Errors that the user can fix know their code; `internal` is a mistake of the program.
    """
    errors = sys.modules.get("pose2d.base.errors")
    if errors is not None and isinstance(error, errors.UserError):
        return error.facts()
    first = (str(error).splitlines() or [""])[0][:300]
    facts: dict[str, str | None] = {"text": first or type(error).__name__}
    file = getattr(error, "filename", None)
    if _is_lack_of_memory(error) or (isinstance(error, OSError) and error.errno in _NO_ROOM):
        code = "resource"
    elif isinstance(error, RecursionError) or file is not None:
        code = "input"
    else:
        code = "internal"
    return {**facts, "code": code, "file": None if file is None else str(file), "option": None}


def _is_lack_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)


def describe_error(error: BaseException) -> tuple[list[str], int]:
    """Return the message lines of an error and the exit code; unexpected errors leave a log file."""
    # Nothing is imported here: the error may be an import that failed.
    errors = sys.modules.get("pose2d.base.errors")
    if errors is not None and isinstance(error, errors.UserError):
        return [str(error)], USER_ERROR
    path = _log(error)
    if _is_lack_of_memory(error):
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
    if isinstance(error, ImportError):
        return [
            f"a package does not load ({first}).",
            "`fitmesh doctor` names what is missing, broken, or of another project.",
        ], FAILED
    return [
        f"something went wrong inside fitmesh ({type(error).__name__}: {first}).",
        f"The details are in {path}: please report this with that file."
        if path
        else "Please report this.",
    ], FAILED


def say(text: str) -> None:
    """Print a line on stderr; a closed stream is ignored."""
    try:
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        print(f"\033[31m{text}\033[0m" if colour else text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def count(number: int, several: str) -> str:
    """Return a number with its noun: 1 frame, 2 frames; 1 person, 2 people."""
    if number != 1:
        return f"{number} {several}"
    irregular = {"people": "person", "processes": "process", "passes": "pass"}
    return f"1 {irregular.get(several) or several.removesuffix('s')}"


def _log(error: BaseException) -> Path | None:
    """Write the traceback to a new log file and return its path; None if that fails."""
    try:
        name = f"fitmesh-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-"
        # A new file, so that no link can redirect it.
        handle, log_path = tempfile.mkstemp(".log", name)
        os.close(handle)
        path = Path(log_path)
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
    """Print log records on the current stderr, which a progress bar replaces while it is shown.

    Records other than warnings carry time, level and logger.
    """

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "Warning"
        if record.levelno != logging.WARNING:
            when = time.strftime("%H:%M:%S", time.localtime(record.created))
            prefix = f"{when}.{record.msecs:03.0f} {record.levelname.lower()} {record.name}"
        with contextlib.suppress(OSError, ValueError):
            print(f"{prefix}: {record.getMessage()}", file=sys.stderr)


_HANDLER = _Stderr()


def show_log(level: str) -> None:
    """Show the packages' log records of this level and above on stderr."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.propagate = False
        logger.addHandler(_HANDLER)  # adding it twice has no effect
