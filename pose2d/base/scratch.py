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

SEGMENT = 64 << 20  # bytes of a file that small arrays share, one after the other
LEAST = 1 << 14  # arrays of fewer bytes stay in memory
ALIGNMENT = 64  # bytes


class _Scratch:
    """Mapped files beside `name` that arrays are made in."""

    def __init__(self, name: Path) -> None:
        self._name = name
        self._segment = np.empty(0, np.uint8)  # the file that small arrays share now
        self._used = 0  # bytes of the segment that are taken
        self._mapped_files: list[weakref.ref[np.ndarray]] = []

    def array(self, size: int) -> np.ndarray:
        """Return bytes [size] on disk; a large array has a file of its own.

        Raises OSError or RuntimeError where there is no room."""
        if size >= SEGMENT // 8:
            return self._map_file(size)
        if self._used + size > len(self._segment):
            self._segment = self._map_file(SEGMENT)
            self._used = 0
        start = self._used
        self._used += -(-size // ALIGNMENT) * ALIGNMENT
        return self._segment[start : start + size]

    def _map_file(self, size: int) -> np.ndarray:
        """Map a new file of `size` bytes and remove its name."""
        import torch

        # The name is one of `atomic_file`: if the process ends right here, the next run removes it.
        handle, path = tempfile.mkstemp(
            prefix=f".{self._name.stem}.", suffix=self._name.suffix, dir=self._name.parent
        )
        try:
            # Notice a full disk here and not while an array is written to. macOS lacks the function.
            with suppress(AttributeError):
                os.posix_fallocate(handle, 0, size)
            # Python's mmap would keep the file open, and there may be more arrays than a process
            # may have open files.
            mapped = torch.from_file(path, shared=True, size=size, dtype=torch.uint8).numpy()
        finally:
            os.close(handle)
            os.unlink(path)
        self._mapped_files = [file for file in self._mapped_files if file() is not None]
        self._mapped_files.append(weakref.ref(mapped))
        return mapped

    def release(self) -> None:
        """Tell the system that mapped pages need no memory now."""
        madvise = ctypes.CDLL(None).madvise
        for reference in self._mapped_files:
            mapped = reference()
            if mapped is not None:
                address = ctypes.c_void_p(mapped.ctypes.data)
                madvise(address, ctypes.c_size_t(len(mapped)), mmap.MADV_DONTNEED)


_SCRATCH: ContextVar[_Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_for(path: Path) -> Iterator[None]:
    """Make large arrays on disk beside the file `path` while the block runs.

    On Windows, where the names of mapped files cannot be removed, arrays stay in memory."""
    token = _SCRATCH.set(None if sys.platform == "win32" else _Scratch(path))
    try:
        yield
    finally:
        _SCRATCH.reset(token)


def has_scratch() -> bool:
    """Tell whether `scratch_array` makes arrays on disk now."""
    return _SCRATCH.get() is not None


def scratch_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialised array: on disk within `scratch_for`, else in memory."""
    scratch = _SCRATCH.get()
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if scratch is not None and size >= LEAST:
        with suppress(OSError, RuntimeError):  # no room, or a file system without mapping
            return scratch.array(size).view(dtype).reshape(shape)
    return np.empty(shape, dtype)


def release_scratch() -> None:
    """Free the memory that pages of arrays on disk take; their content stays on disk.

    Without this, the system keeps the pages until it runs out of memory."""
    scratch = _SCRATCH.get()
    if scratch is not None and sys.platform == "linux":
        scratch.release()
