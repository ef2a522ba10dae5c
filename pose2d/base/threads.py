"""How many threads calculate. Sums are split among them, and the split shows in the last digits."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


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


def use_threads(count: int | None) -> None:
    """Of torch and OpenCV in this process; None leaves the choice to them."""
    if count is not None:
        import cv2

        torch.set_num_threads(count)
        cv2.setNumThreads(count)
