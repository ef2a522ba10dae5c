"""Read .npz and .npy files, and check that their arrays look as expected.

`read_npz` and `read_npy` are the only readers of such files in the project; `Array` states the kind,
shape and limits of an array, and `check_arrays` refuses others. A file from outside may be cut,
damaged or hostile. Claimed sizes are checked against the bytes of the file and the free memory
before anything is allocated. No object is ever unpickled."""

import math
import os
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular
from pose2d.base.limits import MOST_ARRAY_BYTES, MOST_ON_DISK, most_bytes, size_text
from pose2d.base.scratch import has_scratch, release_scratch, scratch_array

MOST_ARRAYS = 20_000  # of one file; networks have a few hundred
MOST_GROWTH = 1100  # one compressed byte gives at most 1032 bytes with deflate
_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Headers are Python literals, and Python 3.11 can fail to parse two in different threads at once.
_HEADER_LOCK = threading.Lock()
_BLOCK = 1 << 20  # bytes read at a time
_ROWS = 10_000  # rows checked at a time
# Kind of `Array` -> the dtype kinds that are accepted, and their name in messages
_KINDS = {
    "d": ("fiu", "numbers"),
    "f": ("fiu", "numbers"),
    "i": ("iu", "whole numbers"),
    "b": ("b", "truth values"),
    "U": ("U", "text"),
}


class _Unreadable(Exception):
    """The reason why arrays cannot be read, in words without the file's name."""


@dataclass(frozen=True)
class Array:
    """The kind, shape and limits that an array must have."""

    kind: str  # f: numbers, i: whole numbers, b: truth values, U: text
    shape: tuple[int | str, ...]  # sides of the same name must have the same length
    finite: bool = False  # neither NaN nor infinite
    optional: bool = False
    low: float | None = None
    high: float | None = None


def read_npz(
    path: str | Path, expected: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name: all, or those of `names` that it has.

    `expected` says what the file should be and ends the message where it cannot be read."""
    with _open_arrays(path, expected) as file:
        return dict(_read_arrays(file, None if names is None else set(names)))


def read_npy(path: str | Path, expected: str) -> np.ndarray:
    """Return the array of an .npy file; `expected` ends the message where it cannot be read."""
    with _open_arrays(path, expected) as file:
        size = Path(path).stat().st_size
        return _read_array(file, size, Path(path).name, most_bytes(MOST_ARRAY_BYTES))


def is_intact(path: str | Path) -> bool:
    """Tell whether every array of an .npz file can be read and its checksum is right."""
    try:
        with _open_arrays(path, "") as file:
            for _ in _read_arrays(file, None):  # one array in memory at a time
                pass
    except UserError:
        return False
    return True


def check_arrays(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Array], path: str | Path, what: str
) -> None:
    """Refuse arrays that are missing or do not look as `wanted`.

    `what` names the file's kind in messages, such as "a keypoints.npz of fitmesh"."""
    missing = [name for name, array in wanted.items() if name not in arrays and not array.optional]
    if missing:
        raise UserError(f"{path} is not {what}: it lacks {', '.join(missing)}.", file=path)
    lengths: dict[str, int] = {}
    for name, array in wanted.items():
        if name in arrays and (problem := _find_problem(arrays[name], array, lengths)):
            raise UserError(f"{path} is not {what}, or it is damaged: {name} {problem}.", file=path)


def _find_problem(array: np.ndarray, wanted: Array, lengths: dict[str, int]) -> str:
    """Say why an array is not as `wanted`; empty where it is.

    `lengths` collects the lengths of named sides over the arrays of a file."""
    codes, kind = _KINDS[wanted.kind]
    if array.dtype.kind not in codes:
        return f"holds {array.dtype}, not {kind}"
    if array.ndim == len(wanted.shape):
        for side, name in zip(array.shape, wanted.shape, strict=True):
            if isinstance(name, str):
                lengths.setdefault(name, side)
    sizes = [lengths.get(side, side) if isinstance(side, str) else side for side in wanted.shape]
    if list(array.shape) != sizes:
        return f"has size {list(array.shape)}, expected [{', '.join(map(str, sizes))}]"
    if array.dtype.kind not in "fiu":
        return ""
    rows = np.atleast_1d(array)
    for first in range(0, len(rows), _ROWS):
        block = rows[first : first + _ROWS]
        numbers = block[~np.isnan(block)]
        if wanted.finite and not np.isfinite(block).all():
            return "has a number that is not finite (NaN or infinity)"
        if numbers.size and wanted.low is not None and numbers.min() < wanted.low:
            return f"has {numbers.min()}, expected at least {wanted.low:g}"
        if numbers.size and wanted.high is not None and numbers.max() > wanted.high:
            return f"has {numbers.max()}, expected at most {wanted.high:g}"
        release_scratch()
    return ""


@contextmanager
def _open_arrays(path: str | Path, expected: str) -> Iterator[BinaryIO]:
    """Open a file; whatever reading it raises becomes a UserError."""
    try:
        with open_regular(path) as file:
            yield file
    except Exception as error:  # damaged bytes can raise almost anything
        raise UserError(
            f"{path} cannot be read: {_explain(error)}. {expected}", file=path
        ) from error


def _explain(error: Exception) -> str:
    """Say in words why a file's arrays cannot be read."""
    text = str(error).splitlines()[0].rstrip(".")[:200] if str(error) else type(error).__name__
    if isinstance(error, _Unreadable):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, OSError):
        return error.strerror or text
    if isinstance(error, zipfile.BadZipFile):
        return f"it is damaged, cut off, or no .npz file ({text})"
    if isinstance(error, MemoryError):
        return "there is not enough memory for its arrays"
    if isinstance(error, RuntimeError) and "password" in text:
        return "it is encrypted"
    return f"it is damaged or of another kind ({text})"


def _read_arrays(file: BinaryIO, names: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and array one after the other, after the claimed sizes were checked."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        members = _members(entries, names, os.fstat(file.fileno()).st_size)
        if not members and names is None and entries:
            raise _Unreadable("it is a zip file without arrays")
        cap = MOST_ON_DISK if has_scratch() else most_bytes(MOST_ARRAY_BYTES)
        total = sum(member.file_size for member in members.values())
        if total > cap:
            raise _Unreadable(
                f"its arrays would take {size_text(total)} of memory, "
                f"and at most {size_text(cap)} may be used"
            )
        for name, member in members.items():
            with archive.open(member) as stream:
                yield name, _read_array(stream, member.file_size, name, cap)


def _members(
    entries: list[zipfile.ZipInfo], names: set[str] | None, file_bytes: int
) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of a zip file by name, limited to `names`.

    Refuses entries that claim more than a file of `file_bytes` can hold."""
    if len(entries) > MOST_ARRAYS:
        raise _Unreadable(f"it claims to hold {len(entries)} arrays")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename or (names is not None and name not in names):
            continue  # not an array, or not asked for
        if name in members:
            raise _Unreadable(f"it has two arrays {name}")
        most_growth = MOST_GROWTH * (entry.compress_size + 64)
        if entry.compress_size > file_bytes or entry.file_size > most_growth:
            raise _Unreadable(
                f"{name} claims {size_text(entry.file_size)}, more than the file can hold"
            )
        members[name] = entry
    return members


def _read_array(stream: Any, size: int, name: str, cap: int) -> np.ndarray:
    """Read the array of a stream that holds `size` bytes; at most `cap` bytes are allocated."""
    shape, is_fortran, dtype = _read_header(stream, name)
    count = math.prod(shape)
    claimed = count * dtype.itemsize
    available = size - stream.tell()
    if claimed != available:
        raise _Unreadable(
            f"{name} claims {size_text(claimed)} and there are {size_text(max(0, available))}"
        )
    if claimed > cap:
        raise _Unreadable(
            f"{name} would take {size_text(claimed)} of memory, {size_text(cap)} may be used"
        )
    flat = scratch_array((count,), dtype)
    content = flat.view(np.uint8).data if claimed else memoryview(b"")
    position = 0
    while position < len(content):
        count_read = stream.readinto(content[position : position + _BLOCK])
        if not count_read:
            raise _Unreadable(f"{name} breaks off")
        position += count_read
    stream.read(1)  # a zip entry compares its checksum at its end
    release_scratch()
    if not dtype.isnative:  # torch only takes the byte order of this machine
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _read_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read shape, Fortran order and type of an array; refuse what is not plain numbers or text."""
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise _Unreadable(
            f"{name} is in version {version[0]}.{version[1]} of NumPy's format; expected 1.0 or 2.0"
        )
    with _HEADER_LOCK:
        shape, is_fortran, dtype = _READ_HEADER[version](stream)
    if any(type(side) is not int or side < 0 for side in shape) or len(shape) > 32:
        raise _Unreadable(f"{name} claims the impossible size {str(shape)[:80]}")
    if dtype.hasobject:
        raise _Unreadable(f"{name} holds Python objects, which could run code")
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "fiubUSc":
        raise _Unreadable(f"{name} holds {dtype}, not plain numbers or text")
    count = math.prod(shape)
    if (dtype.itemsize == 0 and count) or (dtype.kind == "f" and dtype.itemsize > 8):
        raise _Unreadable(
            f"{name} holds {dtype}, not numbers of at most 64 bits or text of at least one letter"
        )
    return shape, is_fortran, dtype
