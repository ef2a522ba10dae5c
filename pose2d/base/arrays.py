"""Arrays from files: the one reader of .npz and .npy, and what their arrays must look like.

A file from outside may be cut, damaged or hostile. Nothing is allocated because a header claims it: sizes are checked
against the bytes that are there and against the memory that is free. No object is ever unpickled.
"""

import math
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pose2d.base import scratch
from pose2d.base.errors import UserError
from pose2d.base.files import MOST_ARRAY_BYTES, most_bytes, open_regular, size_text

MOST_ARRAYS = 20_000  # of one file; networks have some hundred
MOST_GROWTH = 1100  # deflate makes at most 1032 bytes of one
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ONE_HEADER = threading.Lock()  # they are Python literals, and Python 3.11 can fail to parse two at a time
_BLOCK, _ROWS = 1 << 20, 10_000  # bytes and rows that are looked at together
MOST_ON_DISK = 64 << 30  # of all arrays of one file, where they do not take memory
_KINDS = {"f": "fiu", "i": "iu", "b": "b", "U": "U"}  # what counts as a number, a whole number, a truth value, text
_KIND_NAMES = {"f": "numbers", "i": "whole numbers", "b": "truth values", "U": "text"}


class Unreadable(ValueError):
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


def read_npz(path: str | Path, expected: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Every array of an .npz file, or those of `names` that it has. `expected` ends the message when it cannot be."""
    path = Path(path)
    try:
        return dict(_arrays(path, None if names is None else set(names)))
    except Unreadable as reason:
        raise UserError(f"{path} cannot be read: {reason}. {expected}") from reason


def read_npy(path: str | Path, expected: str) -> np.ndarray:
    """The array of an .npy file."""
    path = Path(path)
    try:
        with _opened(path) as file:
            size = path.stat().st_size
            return _array(file, size, path.name, most_bytes(MOST_ARRAY_BYTES))
    except Unreadable as reason:
        raise UserError(f"{path} cannot be read: {reason}. {expected}") from reason
    except Exception as error:
        raise UserError(f"{path} cannot be read: {_words(error)}. {expected}") from error


def is_intact(path: str | Path) -> bool:
    """Whether every array of an .npz file can be read and has the checksum it was written with."""
    try:
        for _ in _arrays(Path(path), None):  # one in memory at a time
            pass
    except Unreadable:
        return False
    return True


def check_arrays(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Array], path: str | Path, what: str) -> None:
    """Refuse arrays that do not look as `wanted`. `what`: "a keypoints.npz of fitmesh"."""
    missing = [name for name, array in wanted.items() if name not in arrays and not array.optional]
    if missing:
        raise UserError(f"{path} is not {what}: it lacks {', '.join(missing)}.")
    lengths: dict[str, int] = {}
    for name, array in wanted.items():
        if name in arrays and (problem := _problem(arrays[name], array, lengths)):
            raise UserError(f"{path} is not {what}, or it is damaged: {name} {problem}.")


def _problem(given: np.ndarray, wanted: Array, lengths: dict[str, int]) -> str:
    if given.dtype.kind not in _KINDS[wanted.kind]:
        return f"holds {given.dtype}, not {_KIND_NAMES[wanted.kind]}"
    fits = given.ndim == len(wanted.shape) and all(
        side == (lengths.setdefault(want, side) if isinstance(want, str) else want)
        for side, want in zip(given.shape, wanted.shape, strict=True)
    )
    if not fits:
        sizes = ", ".join(str(lengths.get(want, want)) if isinstance(want, str) else str(want) for want in wanted.shape)
        return f"has size {list(given.shape)}, expected [{sizes}]"
    if given.dtype.kind not in "fiu":
        return ""
    rows = np.atleast_1d(given)
    for first in range(0, len(rows), _ROWS):
        if problem := _wrong_number(rows[first : first + _ROWS], wanted):
            return problem
        scratch.release()
    return ""


def _wrong_number(given: np.ndarray, wanted: Array) -> str:
    known = given[~np.isnan(given)] if given.dtype.kind == "f" else given
    if wanted.finite and (known.size < given.size or np.isinf(known).any()):
        return "has a number that is not finite (NaN or infinity)"
    if known.size and wanted.low is not None and known.min() < wanted.low:
        return f"has {known.min()}, expected at least {wanted.low:g}"
    if known.size and wanted.high is not None and known.max() > wanted.high:
        return f"has {known.max()}, expected at most {wanted.high:g}"
    return ""


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise Unreadable("there is no such file") from error
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def _arrays(path: Path, names: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """One after the other, with their names."""
    with _opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, names, path.stat().st_size)
                cap = MOST_ON_DISK if scratch.is_active() else most_bytes(MOST_ARRAY_BYTES)
                total = sum(member.file_size for member in members.values())
                if total > cap:
                    raise Unreadable(
                        f"its arrays would take {size_text(total)} of memory, and at most {size_text(cap)} may be used"
                    )
                for name, member in members.items():
                    with archive.open(member) as stream:
                        yield name, _array(stream, member.file_size, name, cap)
        except Unreadable:
            raise
        except Exception as error:  # what damaged bytes raise is as varied as the bytes
            raise Unreadable(_words(error)) from error


def _members(archive: zipfile.ZipFile, names: set[str] | None, file_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """By the name of the array; refuses what claims more than the file can hold."""
    entries = archive.infolist()
    if len(entries) > MOST_ARRAYS:
        raise Unreadable(f"it claims to hold {len(entries)} arrays")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename or (names is not None and name not in names):
            continue  # not an array, or one that nobody asked for
        if name in members:
            raise Unreadable(f"it has two arrays {name}")
        if entry.compress_size > file_bytes or entry.file_size > MOST_GROWTH * (entry.compress_size + 64):
            raise Unreadable(f"{name} claims {size_text(entry.file_size)}, more than the file can hold")
        members[name] = entry
    if not members and names is None and entries:
        raise Unreadable("it is a zip file without arrays")
    return members


def _array(stream: Any, size: int, name: str, cap: int) -> np.ndarray:
    """One array of a stream that holds `size` bytes."""
    shape, fortran, dtype, header_bytes = _header(stream, name)
    if dtype.hasobject:
        raise Unreadable(f"{name} holds Python objects, which could run code")
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "fiubUSc":
        raise Unreadable(f"{name} holds {dtype}, not plain numbers or text")
    count = math.prod(shape)
    if (dtype.itemsize == 0 and count) or (dtype.kind == "f" and dtype.itemsize > 8):
        raise Unreadable(f"{name} holds {dtype}, not numbers of at most 64 bits or text of some letters")
    if count * dtype.itemsize != size - header_bytes:
        claimed = size_text(count * dtype.itemsize)
        raise Unreadable(f"{name} claims {claimed} and there are {size_text(max(0, size - header_bytes))}")
    if count * dtype.itemsize > cap:
        raise Unreadable(
            f"{name} would take {size_text(count * dtype.itemsize)} of memory, {size_text(cap)} may be used"
        )
    flat = scratch.empty((count,), dtype)
    if count and dtype.itemsize:
        content = flat.view(np.uint8).data
        at = 0
        while at < len(content):
            block = stream.read(min(_BLOCK, len(content) - at))
            if not block:
                raise Unreadable(f"{name} breaks off")
            content[at : at + len(block)] = block
            at += len(block)
    stream.read(1)  # a zip entry compares its checksum at its end
    scratch.release()
    if not dtype.isnative:  # another machine's order of bytes, which torch does not know
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, Fortran order, type, and the bytes that the header took."""
    counted = _Counted(stream)
    version = np.lib.format.read_magic(counted)
    if version in _READ_HEADER:
        with _ONE_HEADER:
            shape, fortran, dtype = _READ_HEADER[version](counted)
    else:
        raise Unreadable(f"{name} is in version {version[0]}.{version[1]} of NumPy's format; expected 1.0 or 2.0")
    if any(not isinstance(side, int) or isinstance(side, bool) or side < 0 for side in shape) or len(shape) > 32:
        raise Unreadable(f"{name} claims the impossible size {str(shape)[:80]}")
    return shape, bool(fortran), dtype, counted.taken


class _Counted:
    """Counts what is read of a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.taken = stream, 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.taken += len(data)
        return data


def _words(error: Exception) -> str:
    if isinstance(error, zipfile.BadZipFile):
        return f"it is damaged, cut off, or no .npz file ({str(error).rstrip('.')})"
    if isinstance(error, MemoryError):
        return "there is not enough memory for its arrays"
    if isinstance(error, RuntimeError) and "password" in str(error):
        return "it is encrypted"
    text = str(error).splitlines()[0].rstrip(".")[:200] if str(error) else type(error).__name__
    return f"it is damaged or of another kind ({text})"
