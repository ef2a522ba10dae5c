"""Where and in how many threads things are calculated, and work in a thread of its own, a few steps
ahead.

Sums are split among threads, and the split shows in the last digits. Decoding overlaps with the
rest."""

import contextlib
import ctypes
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from pose2d.base.errors import UserError


@contextmanager
def single_thread() -> Iterator[None]:
    """For matrices as small as a body's one thread is faster too: several wait for each other. Also
    a decorator. torch and the BLAS of NumPy and SciPy count threads for the whole process: for the
    main thread only, while no other thread calculates."""
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
    import scipy.linalg.blas  # noqa: F401  # brings a BLAS of its own, which has to be there to be found
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Of each operation of torch, and of OpenCV, in the whole process. With 1, several Python
    threads can run networks side by side, and nobody spins while waiting for another."""
    import cv2
    import torch

    before = torch.get_num_threads(), cv2.getNumThreads()
    use_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def cores() -> int:
    """Processor cores that this process may use: what --threads is unless given."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def use_threads(count: int | None) -> None:
    """Of torch and OpenCV in this process; None leaves the choice to them."""
    if count is not None:
        if count < 1:
            raise UserError(f"--threads must be 1 or more, got {count}.")
        import cv2
        import torch

        torch.set_num_threads(count)
        cv2.setNumThreads(count)


T = TypeVar("T")
DEPTH = 3  # items in waiting: frames are large, and more would only fill memory
_END: Any = object()  # after the last item


def return_memory() -> None:
    """Let glibc give freed frames and network buffers back: a run peaks 100 MB lower, and stage 1
    leaves 300 MB less. For programs, not for libraries: it changes malloc for the whole process.
    Elsewhere, and where the user has set malloc's variables, nothing happens. By itself glibc keeps
    such blocks in a heap of each thread."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: blocks from 1 MB on are mapped by themselves
        mallopt(-8, 2)  # M_ARENA_MAX


def prefetch(items: Iterable[T], depth: int = DEPTH) -> Iterator[T]:
    """The same items in the same order, made by another thread while the last one is being used. An
    error in making them is raised here, where they are used. Leaving early stops the thread."""
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
            # where this is garbage, its thread may have ended: nothing more may be asked of it
            worker.shutdown()
            if hasattr(source, "close"):  # a file left open here would only be closed by chance
                source.close()


_DEVICES = {"cpu": "processor", "cuda": "NVIDIA GPU", "mps": "Apple GPU"}


def default_device(process: int = 0) -> str:
    """A GPU where there is one, else the processor; several processes of one machine share its
    GPUs.
    """
    import torch

    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def check_device(name: str) -> None:
    """Refuse a --device that is unknown or absent."""
    import torch

    kind, _, number = name.partition(":")
    if kind not in _DEVICES or (number and not number.isdecimal()):
        raise UserError(
            f"unknown --device {name}: choose cpu, cuda (an NVIDIA GPU; cuda:1 is the second) or mps (Apple)."
        )
    try:
        if torch.zeros(1, device=name).cpu().sum() != 0:
            raise RuntimeError("it does not compute")
    except Exception as error:  # each device has errors of its own, in torch's words
        raise UserError(
            f"--device {name} cannot be used: torch {torch.__version__} finds no {_DEVICES[kind]} here"
            f"{f' with number {number}' if number else ''}. Use --device cpu, or install a torch for it."
        ) from error
