"""What a command says when it fails: one sentence for what the user can fix, two lines and a log file for the rest."""

import contextlib
import errno
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
