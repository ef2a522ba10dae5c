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

MOST_ARRAYS = 20_000  # of one file; networks have some hundred
MOST_GROWTH = 1100  # deflate makes at most 1032 bytes of one
_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_ONE_HEADER = (
    threading.Lock()
)  # they are Python literals, and Python 3.11 can fail to parse two at a time
# bytes and rows that are looked at together
_BLOCK = 1 << 20
_ROWS = 10_000
# What counts as a number, a whole number, a truth value, text
_KINDS = {
    "d": ("fiu", "numbers"),
    "f": ("fiu", "numbers"),
    "i": ("iu", "whole numbers"),
    "b": ("b", "truth values"),
    "U": ("U", "text"),
}


class _Unreadable(Exception):
    """Why a file's arrays cannot be read, in words without the file's name."""


@dataclass(frozen=True)
class Array:
    """What an array must look like."""

    kind: str  # f: numbers, i: whole numbers, b: truth values, U: text
    shape: tuple[int | str, ...]  # a name stands for a length that is the same wherever the name is
    finite: bool = False  # neither NaN nor infinite
    optional: bool = False
    low: float | None = None
    high: float | None = None


def read_npz(
    path: str | Path, expected: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Every array of an .npz file, or those of `names` that it has. `expected` ends the message
    when it cannot be.
    """
    with _opened(path, expected) as file:
        return dict(_arrays(file, None if names is None else set(names)))


def read_npy(path: str | Path, expected: str) -> np.ndarray:
    """The array of an .npy file."""
    with _opened(path, expected) as file:
        return _array(
            file, Path(path).stat().st_size, Path(path).name, most_bytes(MOST_ARRAY_BYTES)
        )


def is_intact(path: str | Path) -> bool:
    """Whether every array of an .npz file can be read and has the checksum it was written with."""
    try:
        with _opened(path, "") as file:
            for _ in _arrays(file, None):  # one in memory at a time
                pass
    except UserError:
        return False
    return True


def check_arrays(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Array], path: str | Path, what: str
) -> None:
    """Refuse arrays that do not look as `wanted`. `what`: "a keypoints.npz of fitmesh"."""
    missing = [name for name, array in wanted.items() if name not in arrays and not array.optional]
    if missing:
        raise UserError(f"{path} is not {what}: it lacks {', '.join(missing)}.")
    lengths: dict[str, int] = {}
    for name, array in wanted.items():
        if name in arrays and (problem := _problem(arrays[name], array, lengths)):
            raise UserError(f"{path} is not {what}, or it is damaged: {name} {problem}.")


def _problem(given: np.ndarray, wanted: Array, lengths: dict[str, int]) -> str:
    codes, kind = _KINDS[wanted.kind]
    if given.dtype.kind not in codes:
        return f"holds {given.dtype}, not {kind}"
    if given.ndim == len(wanted.shape):
        for side, name in zip(given.shape, wanted.shape, strict=True):
            if isinstance(name, str):
                lengths.setdefault(name, side)
    sizes = [lengths.get(side, side) if isinstance(side, str) else side for side in wanted.shape]
    if list(given.shape) != sizes:
        return f"has size {list(given.shape)}, expected [{', '.join(map(str, sizes))}]"
    if given.dtype.kind not in "fiu":
        return ""
    rows = np.atleast_1d(given)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        known = some[~np.isnan(some)]
        if wanted.finite and not np.isfinite(some).all():
            return "has a number that is not finite (NaN or infinity)"
        if known.size and wanted.low is not None and known.min() < wanted.low:
            return f"has {known.min()}, expected at least {wanted.low:g}"
        if known.size and wanted.high is not None and known.max() > wanted.high:
            return f"has {known.max()}, expected at most {wanted.high:g}"
        release_scratch()
    return ""


@contextmanager
def _opened(path: str | Path, expected: str) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as file:
            yield file
    except Exception as error:  # what damaged bytes raise is as varied as the bytes
        text = str(error).splitlines()[0].rstrip(".")[:200] if str(error) else type(error).__name__
        reason = f"it is damaged or of another kind ({text})"
        if isinstance(error, _Unreadable):
            reason = str(error)
        elif isinstance(error, OSError):
            reason = (
                "there is no such file"
                if isinstance(error, FileNotFoundError)
                else error.strerror or text
            )
        elif isinstance(error, zipfile.BadZipFile):
            reason = f"it is damaged, cut off, or no .npz file ({text})"
        elif isinstance(error, MemoryError):
            reason = "there is not enough memory for its arrays"
        elif isinstance(error, RuntimeError) and "password" in text:
            reason = "it is encrypted"
        raise UserError(f"{path} cannot be read: {reason}. {expected}") from error


def _arrays(file: BinaryIO, names: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """One after the other, with their names; refuses what claims more than the file can hold."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        members = dict[str, zipfile.ZipInfo]()
        if len(entries) > MOST_ARRAYS:
            raise _Unreadable(f"it claims to hold {len(entries)} arrays")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if name == entry.filename or (names is not None and name not in names):
                continue  # not an array, or one that nobody asked for
            if name in members:
                raise _Unreadable(f"it has two arrays {name}")
            file_bytes = os.fstat(file.fileno()).st_size
            if entry.compress_size > file_bytes or entry.file_size > MOST_GROWTH * (
                entry.compress_size + 64
            ):
                raise _Unreadable(
                    f"{name} claims {size_text(entry.file_size)}, more than the file can hold"
                )
            members[name] = entry
        if not members and names is None and entries:
            raise _Unreadable("it is a zip file without arrays")
        cap = MOST_ON_DISK if has_scratch() else most_bytes(MOST_ARRAY_BYTES)
        total = sum(member.file_size for member in members.values())
        if total > cap:
            raise _Unreadable(
                f"its arrays would take {size_text(total)} of memory, and at most {size_text(cap)} may be used"
            )
        for name, member in members.items():
            with archive.open(member) as stream:
                yield name, _array(stream, member.file_size, name, cap)


def _array(stream: Any, size: int, name: str, cap: int) -> np.ndarray:
    """One array of a stream that holds `size` bytes."""
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise _Unreadable(
            f"{name} is in version {version[0]}.{version[1]} of NumPy's format; expected 1.0 or 2.0"
        )
    with _ONE_HEADER:
        shape, fortran, dtype = _READ_HEADER[version](stream)
    if any(type(side) is not int or side < 0 for side in shape) or len(shape) > 32:
        raise _Unreadable(f"{name} claims the impossible size {str(shape)[:80]}")
    if dtype.hasobject:
        raise _Unreadable(f"{name} holds Python objects, which could run code")
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "fiubUSc":
        raise _Unreadable(f"{name} holds {dtype}, not plain numbers or text")
    count = math.prod(shape)
    if (dtype.itemsize == 0 and count) or (dtype.kind == "f" and dtype.itemsize > 8):
        raise _Unreadable(
            f"{name} holds {dtype}, not numbers of at most 64 bits or text of some letters"
        )
    claimed = count * dtype.itemsize
    there = size - stream.tell()
    if claimed != there:
        raise _Unreadable(
            f"{name} claims {size_text(claimed)} and there are {size_text(max(0, there))}"
        )
    if claimed > cap:
        raise _Unreadable(
            f"{name} would take {size_text(claimed)} of memory, {size_text(cap)} may be used"
        )
    flat = scratch_array((count,), dtype)
    content = flat.view(np.uint8).data if claimed else memoryview(b"")
    at = 0
    while at < len(content):
        if not (taken := stream.readinto(content[at : at + _BLOCK])):
            raise _Unreadable(f"{name} breaks off")
        at += taken
    stream.read(1)  # a zip entry compares its checksum at its end
    release_scratch()
    if not dtype.isnative:  # another machine's order of bytes, which torch does not know
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")
