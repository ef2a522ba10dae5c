"""The same bits on any machine: sums are split among threads, and the split shows in the last digits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


@contextmanager
def one_thread() -> Iterator[None]:
    """For matrices as small as a body's one thread is faster too: several wait for each other. Also a decorator."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()
        torch.set_num_threads(before)


class _Blas:
    """NumPy's and SciPy's own BLAS, whose number of threads is one for the whole process, unlike torch's."""

    def __init__(self) -> None:
        self._inside = 0  # how many threads of Python ask for it at present
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg.blas  # noqa: F401  # brings a BLAS of its own, which has to be there to be found

    return ThreadpoolController()


_blas = _Blas()
