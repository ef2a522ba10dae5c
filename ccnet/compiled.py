"""Loops that numba compiles once and keeps on disk."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use, without fast-math (sums must round as NumPy's do), cached where a cache can be written."""
    try:
        return numba.njit(function, cache=True, nogil=True)
    except RuntimeError:  # no folder numba may write to: compile anew in every process
        return numba.njit(function, nogil=True)
