"""What a command says when it fails: one sentence for what the user can fix, two lines and a log file for the rest.

And what of the log it shows on stderr. Library code never prints: it logs to `fitmesh`, `pose2d`, `ccnet`, `fitting`
and `eval3dpw`, and a program that uses it decides where that goes. `fitmesh.run` logs its stages and warnings too. The
commands show warnings, and with `fitmesh --log-level debug COMMAND` the rest.
"""

import contextlib
import errno
import logging
import os
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from fitmesh.ui.signals import INTERRUPTED, WORDS, Stopped
from fitmesh.version import __version__

USER_ERROR, FAILED, BROKEN_PIPE = 2, 1, 141
_NO_MEMORY = (
    "can't allocate memory", "not enough memory", "Insufficient memory", "bad alloc", "bad_alloc", "Unable to allocate",
    "Cannot allocate memory", "failed to map segment", "can't start new thread", "DefaultCPUAllocator",
)  # fmt: skip
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def exit_code_of(error: BaseException) -> int:
    """Say what happened, and with which code to leave."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        say(WORDS)
        return getattr(error, "exit_code", INTERRUPTED)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # nobody reads it, or the disk is full: Python must not try once more
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):  # the reader of our output has left (`fitmesh models | head`)
        return BROKEN_PIPE
    lines, code = describe_error(error)
    lines[0] = f"Error: {lines[0]}"
    for line in lines:
        say(line)
    return code


def describe_error(error: BaseException) -> tuple[list[str], int]:
    """What to tell of an error, and the exit code; whatever is not the user's mistake leaves a log file."""
    if _is_user_error(error):
        return [str(error)], USER_ERROR
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        _log(error)
        return [
            "there is not enough memory for this. Give a smaller input (--end, --every, smaller images), or "
            "use a machine with more memory."
        ], FAILED
    if isinstance(error, RecursionError):
        _log(error)
        return ["the input is nested too deeply."], USER_ERROR
    if isinstance(error, OSError) and error.filename is not None:
        _log(error)
        return [f"{error.filename}: {error.strerror or error}."], USER_ERROR
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        _log(error)
        return [f"the output cannot be written: {error.strerror}. Make room, or write elsewhere."], USER_ERROR
    first, path = (str(error).splitlines() or [""])[0][:300], _log(error)
    return [
        f"something went wrong inside fitmesh ({type(error).__name__}: {first}).",
        f"The details are in {path}: please report this with that file." if path else "Please report this.",
    ], FAILED


def say(text: str) -> None:
    """On stderr, whatever characters it holds, and also when nobody listens."""
    try:
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        print(f"\033[31m{printable(text)}\033[0m" if colour else printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def printable(text: object) -> str:
    """File names need not be valid UTF-8; what is not is shown as a question mark in a box."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def count(number: int, several: str) -> str:
    """1 frame, 2 frames; 1 person, 2 people."""
    if number != 1:
        return f"{number} {several}"
    irregular = {"people": "person", "processes": "process", "passes": "pass"}
    return f"1 {irregular.get(several) or several.removesuffix('s')}"


def watch_threads() -> None:
    """An error that ends a thread goes into a log file; whoever waits for the thread raises it again."""

    def note(about: threading.ExceptHookArgs) -> None:
        if about.exc_value is not None:
            _log(about.exc_value)

    threading.excepthook = note


def _is_user_error(error: BaseException) -> bool:
    """Without importing anything: it may be an import that failed."""
    module = sys.modules.get("pose2d.base.errors")
    return module is not None and isinstance(error, module.UserError)


def _log(error: BaseException) -> Path | None:
    """The traceback, in a file of its own."""
    try:
        name = f"fitmesh-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-"
        handle, made = tempfile.mkstemp(".log", name)  # a new file: nobody else can have put a link there
        os.close(handle)
        path = Path(made)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        facts = f"fitmesh {__version__}\n{sys.version}\n{[printable(word) for word in sys.argv]}\n\n"
        path.write_text(facts + "".join(lines), "utf-8", "backslashreplace")
        return path
    except OSError:
        return None


PACKAGES = ("fitmesh", "pose2d", "ccnet", "fitting", "eval3dpw")
LEVELS = ("debug", "info", "warning", "error")


class _Lines(logging.Formatter):
    """A warning is for everybody; the rest says when and where it comes from."""

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno == logging.WARNING:
            return f"Warning: {record.getMessage()}"
        when = self.formatTime(record, "%H:%M:%S")
        return f"{when}.{record.msecs:03.0f} {record.levelname.lower()} {record.name}: {record.getMessage()}"


class _Stderr(logging.Handler):
    """To whatever stderr is at that moment: a progress bar takes its place while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


_HANDLER = _Stderr()
_HANDLER.setFormatter(_Lines())


def show_log(level: str) -> None:
    """From now on the packages' records of this level and above appear on stderr, once each."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.propagate = False
        logger.addHandler(_HANDLER)  # a second time it stays one
