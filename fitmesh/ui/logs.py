"""What the packages log, shown by the commands on stderr.

Library code never prints: it logs to `fitmesh`, `pose2d`, `ccnet`, `fitting` and `eval3dpw`, and a program that uses it
decides where that goes. `fitmesh.run` logs its stages and warnings too. The commands show warnings, and with
`fitmesh --log-level debug COMMAND` the rest.
"""

import logging
import sys

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


def show(level: str) -> None:
    """From now on the packages' records of this level and above appear on stderr, once each."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.propagate = False
        logger.addHandler(_HANDLER)  # a second time it stays one
