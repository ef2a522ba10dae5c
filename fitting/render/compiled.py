"""Compile loops over triangles and pixels with numba when they are first called.

Two habits keep that first call short: compiled functions get the arrays that they fill, and they
write plain scalars. One line of array arithmetic in one of them (`normals[i] /= length`) took two
seconds to compile.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable)


def compiled(function: F) -> F:
    """Compile a function with numba when it is first called (a decorator).

    The result is cached on disk, so that the next process only reads it: in NUMBA_CACHE_DIR, in
    `__pycache__` beside the file, or in the user's cache folder, the first of them that is
    writable. Where none is, as in some containers, every process compiles again.
    """
    njit: Any = numba.njit  # what it returns is called as the function itself
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no place to keep it
        return njit(nogil=True)(function)
