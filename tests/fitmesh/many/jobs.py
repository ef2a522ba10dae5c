"""Tasks for workers, in a module that a fresh process can import."""

import os
import signal
import time
from pathlib import Path

from fitmesh.many.executors import Notify


def square(task: int, notify: Notify) -> tuple[int, int]:
    """With the number of the process that did it."""
    notify({"task": task})
    return task * task, os.getpid()


def threads(task: int, notify: Notify) -> str:
    return os.environ["OMP_NUM_THREADS"]


def die_some_times(task: tuple[Path, int], notify: Notify) -> int:
    """Ends its process without a word until the file has so many bytes."""
    path, times = task
    with path.open("ab") as file:
        file.write(b"x")
    if path.stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return path.stat().st_size


def sleep(task: Path, notify: Notify) -> None:
    """Leaves the number of its process."""
    task.write_text(str(os.getpid()))
    time.sleep(60)


def meet(task: tuple[Path, int], notify: Notify) -> str:
    """The Ray node that it ran on; it ends when another one has begun beside it."""
    import ray

    folder, number = task
    (folder / str(number)).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.05)
    return str(ray.get_runtime_context().get_node_id())
