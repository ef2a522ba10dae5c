"""How many threads calculate. Sums are split among them, and the split shows in the last digits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from pose2d.base.errors import UserError


@contextmanager
def single_thread() -> Iterator[None]:
    """For matrices as small as a body's one thread is faster too: several wait for each other. Also a decorator.

    torch and the BLAS of NumPy and SciPy count threads for the whole process: for the main thread only, while no other
    thread calculates.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg.blas  # noqa: F401  # brings a BLAS of its own, which has to be there to be found

    return ThreadpoolController()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Of each operation of torch, and of OpenCV, in the whole process.

    With 1, several Python threads can run networks side by side, and nobody spins while waiting for another.
    """
    import cv2

    before, opencv_before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(count)
    cv2.setNumThreads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        cv2.setNumThreads(opencv_before)


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

        torch.set_num_threads(count)
        cv2.setNumThreads(count)
