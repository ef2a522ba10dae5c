"""Arrays on disk, for what may outgrow memory.

An hour of five people has some gigabytes of keypoints and fits, and each array is needed a few
times. While `scratch_for(file)` is active, `scratch_array` makes large arrays in unnamed files
beside `file`. Since the files have no names, nothing of them is left, however the process ends."""

import ctypes
import math
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

SEGMENT = 64 << 20  # bytes of a file in which small arrays lie one after the other
LEAST = 1 << 14  # smaller arrays stay in memory


class _Scratch:
    def __init__(self, name: Path) -> None:
        self._name = name
        self._segment = np.empty(
            0, np.uint8
        )  # what small arrays share now, and how many bytes of it are taken
        self._used = 0
        self._all: list[weakref.ref[np.ndarray]] = []  # every file that arrays lie in

    def array(self, size: int) -> np.ndarray:
        """Bytes [size]: a large array has a file of its own. OSError or RuntimeError where there is
        no room.
        """
        if size >= SEGMENT // 8:
            return self._mapped(size)
        if self._used + size > len(self._segment):
            self._segment = self._mapped(SEGMENT)
            self._used = 0
        at = self._used
        self._used = self._used + -(-size // 64) * 64
        return self._segment[at : at + size]

    def _mapped(self, size: int) -> np.ndarray:
        import torch

        # As `atomic_file` names what is not finished yet: should the process end right here, the
        # next run removes it.
        handle, path = tempfile.mkstemp(
            prefix=f".{self._name.stem}.", suffix=self._name.suffix, dir=self._name.parent
        )
        try:
            with suppress(AttributeError):  # macOS has no such function
                os.posix_fallocate(
                    handle, 0, size
                )  # a full disk is noticed here, not while an array is written to
            # Not Python's mmap, which keeps the file open: there may be more arrays than files that
            # may be open.
            mapped = torch.from_file(path, shared=True, size=size, dtype=torch.uint8).numpy()
        finally:
            os.close(handle)
            os.unlink(path)
        self._all = [one for one in self._all if one() is not None] + [weakref.ref(mapped)]
        return mapped

    def release(self) -> None:
        madvise = ctypes.CDLL(None).madvise
        for mapped in (one() for one in self._all):
            if mapped is not None:
                madvise(
                    ctypes.c_void_p(mapped.ctypes.data),
                    ctypes.c_size_t(len(mapped)),
                    mmap.MADV_DONTNEED,
                )


_SCRATCH: ContextVar[_Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_for(path: Path) -> Iterator[None]:
    """While the file `path` is made, large arrays lie on disk beside it. Windows keeps the names of
    mapped files; there they stay in memory."""
    token = _SCRATCH.set(None if sys.platform == "win32" else _Scratch(path))
    try:
        yield
    finally:
        _SCRATCH.reset(token)


def has_scratch() -> bool:
    """Whether `scratch_array` makes arrays on disk."""
    return _SCRATCH.get() is not None


def scratch_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """As `numpy.empty`: on disk within `scratch_for`, in memory elsewhere."""
    scratch = _SCRATCH.get()
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if scratch is not None and size >= LEAST:
        with suppress(OSError, RuntimeError):  # no room, or a file system that maps nothing
            return scratch.array(size).view(dtype).reshape(shape)
    return np.empty(shape, dtype)


def release_scratch() -> None:
    """What was read or written of arrays on disk no longer takes memory; the system would wait
    until it has none.
    """
    scratch = _SCRATCH.get()
    if scratch is not None and sys.platform == "linux":
        scratch.release()
