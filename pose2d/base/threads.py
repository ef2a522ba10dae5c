"""Choose the device and the number of threads of computations, and prefetch items in a thread.

The number of threads changes the last digits of results, since sums are split among threads."""

import contextlib
import ctypes
import gc
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from pose2d.base.errors import OptionError


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread in torch, NumPy and SciPy; also usable as a decorator.

    Matrices as small as a body's are computed faster by one thread than by several that wait for
    each other. The setting holds for the whole process, so use it in the main thread only, while no
    other thread computes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _libraries() -> Any:
    """Return the controller of all BLAS libraries; SciPy brings one of its own."""
    import scipy.linalg.blas  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use `count` threads for each operation of torch and OpenCV while the block runs.

    With 1, several Python threads can run networks side by side without waiting for each other."""
    import cv2
    import torch

    torch_before = torch.get_num_threads()
    opencv_before = cv2.getNumThreads()
    use_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(torch_before)
        cv2.setNumThreads(opencv_before)


def cores() -> int:
    """Return the number of processor cores that this process may use, the default of --threads."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def use_threads(count: int | None) -> None:
    """Set the threads of torch and OpenCV in this process; None leaves the choice to them."""
    if count is not None:
        if count < 1:
            raise OptionError(f"--threads must be 1 or more, got {count}.")
        import cv2
        import torch

        torch.set_num_threads(count)
        cv2.setNumThreads(count)


T = TypeVar("T")
DEPTH = 3  # items that are ready ahead of use; frames are large, so more would fill memory
_END: Any = object()  # after the last item


def return_memory() -> None:
    """Let glibc return freed frames and network buffers to the system.

    By default glibc keeps such blocks in a heap of each thread. With this, a run peaks 100 MB
    lower, and stage 1 leaves 300 MB less behind. It changes malloc for the whole process, so
    programs may call it but libraries should not. It does nothing on other systems, or if the user
    has set malloc's variables."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: blocks from 1 MB on are mapped by themselves
        mallopt(-8, 2)  # M_ARENA_MAX


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Leave the objects that exist now out of Python's garbage collection while the block runs.

    Modules and networks are hundreds of thousands of objects, and looking through them again and
    again takes 5 % of the time of a run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Iterator[T]:
    """Yield the items in order, made by another thread while the previous item is being used.

    An error in making an item is raised here, where it is used. Leaving early stops the thread."""
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        waiting = deque(worker.submit(next, source, _END) for _ in range(depth + 1))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(worker.submit(next, source, _END))
                yield item
        finally:
            for future in waiting:
                future.cancel()
            # If this generator is being garbage-collected, its thread may have ended already, so
            # submit nothing more.
            worker.shutdown()
            if hasattr(source, "close"):  # close files now, not when the source is collected
                source.close()


_DEVICES = {"cpu": "processor", "cuda": "NVIDIA GPU", "mps": "Apple GPU"}


def default_device(process: int = 0) -> str:
    """Return a GPU if there is one, else the processor; processes are spread over the GPUs."""
    import torch

    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def check_device(name: str) -> None:
    """Refuse a --device that is unknown or does not work here."""
    import torch

    kind, _, number = name.partition(":")
    if kind not in _DEVICES or (number and not number.isdecimal()):
        raise OptionError(
            f"unknown --device {name}: choose cpu, cuda (an NVIDIA GPU; cuda:1 is the second) "
            "or mps (Apple)."
        )
    try:
        if torch.zeros(1, device=name).cpu().sum() != 0:
            raise RuntimeError("it does not compute")
    except Exception as error:  # the type depends on the device
        device = f"{_DEVICES[kind]} here" + (f" with number {number}" if number else "")
        raise OptionError(
            f"--device {name} cannot be used: torch {torch.__version__} finds no {device}. "
            "Use --device cpu, or install a torch for it."
        ) from error
