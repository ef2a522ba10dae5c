"""Arrays that may outgrow memory lie on disk: those that `empty` makes while `scratch_for(file)` holds.

An hour of five people has some gigabytes of keypoints and fits, each of which is needed a few times. They are mapped
from files that lose their names as soon as they are mapped, so nothing of them is left, however the process ends."""

import ctypes
import math
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import numpy as np

SEGMENT = 64 << 20  # bytes of a file in which small arrays lie one after the other
LEAST = 1 << 14  # smaller arrays stay in memory
_MADV_DONTNEED = 4


class _Scratch:
    def __init__(self, name: Path) -> None:
        self._name = name
        self._segment = np.empty(0, np.uint8)  # what small arrays share now, and how many bytes of it are taken
        self._used = 0
        self._all: list[weakref.ref[np.ndarray]] = []  # every file that arrays lie in

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST:
            return np.empty(shape, dtype)
        try:
            segment, at = self._place(size)
        except (OSError, RuntimeError):  # no room, or a file system that maps nothing
            return np.empty(shape, dtype)
        return segment[at : at + size].view(dtype).reshape(shape)

    def _place(self, size: int) -> tuple[np.ndarray, int]:
        """A file with that many bytes to spare, and where they begin: a large array has one of its own."""
        if size >= SEGMENT // 8:
            return self._mapped(size), 0
        if self._used + size > len(self._segment):
            self._segment, self._used = self._mapped(SEGMENT), 0
        at, self._used = self._used, self._used + -(-size // 64) * 64
        return self._segment, at

    def _mapped(self, size: int) -> np.ndarray:
        import torch

        # As `atomic_file` names what is not finished yet: should the process end right here, the next run removes it.
        handle, path = tempfile.mkstemp(prefix=f".{self._name.stem}.", suffix=self._name.suffix, dir=self._name.parent)
        try:
            with suppress(AttributeError):  # macOS has no such function
                os.posix_fallocate(handle, 0, size)  # a full disk is noticed here, not while an array is written to
            mapped = torch.from_file(path, shared=True, size=size, dtype=torch.uint8).numpy()  # keeps no file open
        finally:
            os.close(handle)
            os.unlink(path)
        self._all = [one for one in self._all if one() is not None] + [weakref.ref(mapped)]
        return mapped

    def release(self) -> None:
        madvise = ctypes.CDLL(None).madvise
        for segment in (one() for one in self._all):
            if segment is not None:
                madvise(ctypes.c_void_p(segment.ctypes.data), ctypes.c_size_t(len(segment)), _MADV_DONTNEED)


_CURRENT: ContextVar[_Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_for(path: Path) -> Iterator[None]:
    """While the file `path` is made, large arrays lie on disk beside it. Windows keeps the names of mapped files; there
    they stay in memory."""
    token = _CURRENT.set(None if sys.platform == "win32" else _Scratch(path))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_active() -> bool:
    """Whether `empty` makes arrays on disk."""
    return _CURRENT.get() is not None


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """As `numpy.empty`: on disk within `scratch_for`, in memory elsewhere."""
    scratch = _CURRENT.get()
    return np.empty(shape, dtype) if scratch is None else scratch.empty(shape, dtype)


def release() -> None:
    """What was read or written of arrays on disk no longer takes memory; the system would wait until it has none."""
    scratch = _CURRENT.get()
    if scratch is not None and sys.platform == "linux":
        scratch.release()
