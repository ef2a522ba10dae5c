"""A contender in a process of its own, and the most memory it took."""

import contextlib
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal


def memory_mb(field: Literal["VmRSS", "VmHWM"]) -> float:
    """What this process holds now (VmRSS), or held at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


class Peak:
    """Memory above what the process held when the watch began."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # forget earlier peaks
        self.before = memory_mb("VmRSS")

    def mb(self) -> float:
        return memory_mb("VmHWM") - self.before


def alone(start: Literal["fork", "spawn"], task: Callable[..., Any], *arguments: Any) -> Any:
    """What `task` answers in a process of its own: forked from this one, or fresh, with nothing
    warm to inherit.
    """
    context: Any = multiprocessing.get_context(start)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, task, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _child(pipe: Any, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    pipe.send(task(*arguments))
