"""Ctrl-C, SIGTERM and SIGHUP: a word, no temporary files, and the exit code that a shell expects.

Imports nothing heavy: it is at work before the slow imports begin.
"""

import os
import signal
import sys

TYPE_CHECKING = False  # type checkers take it for true
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130  # the exit code that a shell expects after Ctrl-C
PATIENCE_S = 10.0  # how long the work in hand may take to clean up before the process ends all the same
WORDS = "Stopped. What is finished is kept; the same command goes on from there."
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"  # and clear the line that the bar was on
_WATCHED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(BaseException):
    """Raised in the main thread by a signal while a command works, so that it cleans up on its way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    working = False  # something may have to be cleaned up
    asked = False  # a first signal is being obeyed


def install() -> None:
    """From now on signals end the process in order. Signals that the caller ignores (nohup) stay ignored."""
    for number in _WATCHED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


class working:  # reads as a statement: with working():
    """While there may be something to clean up: a signal raises Stopped. Elsewhere it ends the process at once."""

    def __enter__(self) -> None:
        self._before, _State.working = _State.working, True

    def __exit__(self, *_: object) -> None:
        _State.working = self._before


def _stop(number: int, _: "FrameType | None") -> None:
    if not _State.working or _State.asked:
        leave(128 + number)
    _State.asked = True
    import threading

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
        try:
            stream.flush()
        except Exception:
            continue
    try:
        # A progress bar had hidden the cursor, and nobody else will show it again.
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else "").encode() + f"{WORDS}\n".encode())
    finally:
        os._exit(code)
