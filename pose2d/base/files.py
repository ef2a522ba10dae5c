"""Files written atomically (complete under their name, or not there), their readers, and arrays on
disk.

`read_json` is the one reader of JSON, with access that checks types on the way:

annotations = read_json(path, "Expected a COCO file.").item("annotations").items() box =
annotations[0].item("bbox").numbers(4)        # UserError: "x.json: annotations[0].bbox has 3
numbers .."

`read_npz` is the one reader of .npz and .npy; `Array` says what their arrays must look like. A file
from outside may be cut, damaged or hostile. Nothing is allocated because a header claims it: sizes
are checked against the bytes that are there and against the memory that is free. No object is ever
unpickled.

Arrays that may outgrow memory lie on disk: those that `scratch_array` makes while
`scratch_for(file)` holds. An hour of five people has some gigabytes of keypoints and fits, each of
which is needed a few times. Their files have no names, so nothing of them is left, however the
process ends."""

import ctypes
import errno
import hashlib
import json
import math
import mmap
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pose2d.base.errors import UserError

unfinished: set[Path] = set()  # files and folders being written now
held: set[Path] = (
    set()
)  # folders that this process is the only writer of: what goes there goes nowhere else


def check_inside(path: Path) -> None:
    """Refuse a place that looks as if it were in a folder we hold, and lies elsewhere because of a
    link.
    """
    for folder in held:
        if path.absolute().is_relative_to(folder) and not path.parent.resolve().is_relative_to(
            folder.resolve()
        ):
            raise UserError(
                f"{path} would be written outside {folder}: {path.parent} is a link. Remove the link."
            )


def remove_unfinished() -> None:
    """For a process that ends at once: what is half written goes with it."""
    for path in tuple(unfinished):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place only if the block succeeds. The
    temporary name keeps the suffix, since writers (video, npz) choose their format by it."""
    path = Path(path)
    check_inside(path)
    temporary = path.with_name(f".{path.stem[:100]}.{secrets.token_hex(4)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}. Choose a folder you may write to."
        ) from error
    unfinished.add(temporary)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
        unfinished.discard(temporary)


def remove_temporary(path: Path) -> None:
    """Remove what a killed run had written of `path` so far, under the names that `atomic_file`
    gives.
    """
    for left in path.parent.glob(f".{path.stem[:100]}.????????{path.suffix}"):
        left.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Say in words, before any work, why results cannot be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.")
    with atomic_file(folder / ".probe") as probe:
        probe.touch()
    (folder / ".probe").unlink(missing_ok=True)  # another process may be asking the same


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; it takes the place of `path` only if the block succeeds.
    What a killed run left behind under the temporary names is cleared away by the next one."""
    partial = path.with_name(f".{path.name}.partial")
    old = path.with_name(f".{path.name}.old")
    check_inside(path / "file")  # what a link would be replaced by stays, too
    try:
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir(parents=True)
        unfinished.add(partial)
        yield partial
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        unfinished.discard(partial)


def open_regular(path: str | Path) -> BinaryIO:
    """An ordinary file, to be read; OSError for anything else: a pipe may never answer, and a
    device never ends.
    """
    try:
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind):  # not opened: that alone makes some devices do something
            what = (
                "a folder"
                if stat.S_ISDIR(kind)
                else "a pipe, a device or a socket, not an ordinary file"
            )
            raise OSError(errno.EINVAL, f"it is {what}")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(path, flags), "rb")
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file has such a name ({error})") from error


def file_sha256(path: Path) -> str:
    """Of a file's bytes, as digests are published."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a MiB at a time."""
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from error


MOST_ARRAY_BYTES = 4 << 30  # of all arrays of one file; an hour of ten people is a third of it
MOST_ON_DISK = 64 << 30  # the same where they lie on disk
MOST_JSON_BYTES = (
    2 << 30
)  # COCO-WholeBody's annotations, the largest file anyone passes, have 0.8 GB
JSON_GROWTH = (
    10  # Python objects take about so many times the bytes of the text they were read from
)
MOST_PIXELS = 100_000_000  # of one image or frame: 300 MB, of which some are in memory at once
FREE_SHARE = 0.5  # of the memory that is free, one file may take so much


def most_bytes(cap: int) -> int:
    """`cap`, or less where this process can allocate little: on a small machine, in a container, by
    `ulimit -v`.
    """
    free = [cap / FREE_SHARE]
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError):
        available = re.findall(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text("ascii"))
        free += [1024 * int(count) for count in available]
    with suppress(
        OSError, ValueError
    ):  # of a control group (Docker, a cluster's job), where there is one: not "max"
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii"))
            for name in ("max", "current")
        )
        free.append(limit - used)
    with suppress(ImportError, OSError, ValueError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
            free.append(limit - pages * resource.getpagesize())
    return max(0, int(FREE_SHARE * min(free)))


def size_text(count: float) -> str:
    """Bytes as a person reads them."""
    if count < 1000:
        return f"{count:.0f} bytes"
    power = min(4, int(math.log10(count) / 3))
    return f"{count / 1000**power:.3g} {' kMGT'[power]}B"


WHOLE = 2**53  # the largest whole number that every reader of JSON keeps exactly
_JSON_KINDS = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True)
class Json:
    """A value of a JSON file that knows where it stands."""

    value: Any
    path: Path
    where: str = ""  # "annotations[3].bbox"
    expected: str = ""  # what the file should be; ends every message

    def refuse(self, problem: str) -> UserError:
        """The error to raise."""
        place = f"{self.path}: {self.where}" if self.where else f"{self.path}"
        return UserError(f"{place} {problem}. {self.expected}".rstrip())

    def _of(self, kind: type, what: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.refuse(f"is {_JSON_KINDS[type(self.value)]}, not {what}")
        return self.value

    def _inner(self, value: Any, step: str) -> "Json":
        return Json(value, self.path, (self.where + step).removeprefix("."), self.expected)

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def object(self) -> dict[str, Any]:
        return self._of(dict, "an object")

    def item(self, name: str) -> "Json":
        """An entry of an object."""
        if name not in self.object():
            raise self.refuse(f'has no "{name}"')
        return self._inner(self.value[name], f".{name}")

    def get(self, name: str, default: Any) -> "Json":
        """The same, or the default where it is absent or null."""
        value = self.object().get(name)
        return self._inner(default if value is None else value, f".{name}")

    def items(self) -> Iterator["Json"]:
        """The entries of a list."""
        return (self._inner(value, f"[{n}]") for n, value in enumerate(self._of(list, "a list")))

    def text(self) -> str:
        if self.value == "":
            raise self.refuse("is empty")
        return self._of(str, "text")

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Finite, and within the limits."""
        if type(self.value) not in (int, float):
            raise self.refuse(f"is {_JSON_KINDS[type(self.value)]}, not a number")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.refuse("is not finite")
        if not low <= value <= high:
            limits = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
            raise self.refuse(
                f"is {value:g}; expected {f'at most {high:g}' if low == -math.inf else limits}"
            )
        return value

    def integer(self, low: int = -WHOLE, high: int = WHOLE) -> int:
        """A whole number within the limits; 3.0 is one, too."""
        value = self.number(low, high)
        if value != round(value):
            raise self.refuse(f"is {value:g}, not a whole number")
        return int(self.value)

    def numbers(self, *counts: int) -> np.ndarray:
        """A list of so many numbers (any of the counts; none given: any), float64. They may be NaN
        or infinite.
        """
        values = self._of(list, "a list of numbers")
        if counts and len(values) not in counts:
            raise self.refuse(
                f"has {len(values)} numbers; expected {' or '.join(map(str, counts))}"
            )
        if wrong := set(map(type, values)) - {int, float}:
            raise self.refuse(f"holds {_JSON_KINDS[wrong.pop()]} where a number should be")
        try:
            return np.array(values, np.float64)
        except OverflowError:
            raise self.refuse("holds a number that is too large") from None

    def finite_numbers(self, *counts: int) -> np.ndarray:
        values = self.numbers(*counts)
        if not np.isfinite(values).all():
            raise self.refuse("holds a number that is not finite")
        return values


def read_json(path: str | Path, expected: str = "") -> Json:
    """`expected` says what the file should be; it ends every message about it."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            size = path.stat().st_size
            cap = most_bytes(MOST_JSON_BYTES * JSON_GROWTH) // JSON_GROWTH
            if size > cap:
                raise UserError(
                    f"{path} has {size_text(size)}; with the memory at hand at most {size_text(cap)} can be read."
                )
            return Json(json.loads(file.read(cap).decode("utf-8-sig")), path, expected=expected)
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror or error}"
    except RecursionError:
        problem = f"{path} is nested too deeply to be read"
    except MemoryError:
        problem = f"there is not enough memory to read {path} ({size_text(size)})"
    except ValueError as error:  # also UnicodeDecodeError, and numbers of too many digits
        problem = f"{path} is not JSON ({str(error).splitlines()[0][:200]}): it may be cut off"
    raise UserError(f"{problem}. {expected}".rstrip())


def plain_value(value: Any) -> Any:
    """What JSON can hold: NaN and infinity become null, paths text."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


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
