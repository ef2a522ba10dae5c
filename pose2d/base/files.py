"""Files written atomically (complete under their name, or not there), and how much memory one may take when read:
sizes that a header states are checked first.

`read_json` is the one reader of JSON, with access that checks types on the way:

annotations = read_json(path, "Expected a COCO file.").item("annotations").items()
box = annotations[0].item("bbox").numbers(4)        # UserError: "x.json: annotations[0].bbox has 3 numbers .."

`read_npz` is the one reader of .npz and .npy; `Array` says what their arrays must look like. A file from outside may be
cut, damaged or hostile. Nothing is allocated because a header claims it: sizes are checked against the bytes that are
there and against the memory that is free. No object is ever unpickled."""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pose2d.base import scratch
from pose2d.base.errors import UserError

unfinished: set[Path] = set()  # files and folders being written now
held: set[Path] = set()  # folders that this process is the only writer of: what goes there goes nowhere else


def check_inside(path: Path) -> None:
    """Refuse a place that looks as if it were in a folder we hold, and lies elsewhere because of a link."""
    for folder in held:
        if path.absolute().is_relative_to(folder) and not path.parent.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{path} would be written outside {folder}: {path.parent} is a link. Remove the link.")


def remove_unfinished() -> None:
    """For a process that ends at once: what is half written goes with it."""
    for path in tuple(unfinished):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place only if the block succeeds. The temporary name keeps
    the suffix, since writers (video, npz) choose their format by it."""
    path = Path(path)
    check_inside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem[:100]}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes it private; the result should be an ordinary file
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Choose a folder you may write to.") from error
    temporary = Path(name)
    unfinished.add(temporary)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
        unfinished.discard(temporary)


def check_writable(folder: Path) -> None:
    """Say in words, before any work, why results cannot be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.")
    with atomic_file(folder / ".probe") as probe:
        probe.touch()
    (folder / ".probe").unlink(missing_ok=True)  # another process may be asking the same


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; it takes the place of `path` only if the block succeeds. What a killed run
    left behind under the temporary names is cleared away by the next one."""
    partial, old = path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.old")
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


_NOT_ORDINARY = "it is a pipe, a device or a socket, not an ordinary file"


def open_regular(path: str | Path) -> BinaryIO:
    """An ordinary file, to be read; OSError for anything else: a pipe may never answer, and a device never ends."""
    try:
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind):  # not opened: that alone makes some devices do something
            raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(kind) else _NOT_ORDINARY)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file has such a name ({error})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # exchanged in between
        os.close(handle)
        raise OSError(errno.EINVAL, _NOT_ORDINARY)
    return os.fdopen(handle, "rb")


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a MiB at a time."""
    try:
        with open_regular(path) as file:
            while block := file.read(1 << 20):
                yield block
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.") from error


def file_sha256(path: Path) -> str:
    """Of a file's bytes, as digests are published."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


MOST_ARRAY_BYTES = 4 << 30  # of all arrays of one file; an hour of ten people is a third of it
MOST_ON_DISK = 64 << 30  # the same where they lie on disk (`pose2d.base.scratch`)
MOST_JSON_BYTES = 2 << 30  # COCO-WholeBody's annotations, the largest file anyone passes, have 0.8 GB
JSON_GROWTH = 10  # Python objects take about so many times the bytes of the text they were read from
MOST_PIXELS = 100_000_000  # of one image or frame: 300 MB, of which some are in memory at once
FREE_SHARE = 0.5  # of the memory that is free, one file may take so much


def free_memory_bytes() -> int | None:
    """What this process could still allocate; None where the system does not say."""
    free = [value for value in (_physical(), _container(), _process_limit()) if value is not None]
    return max(0, min(free)) if free else None


def most_bytes(cap: int) -> int:
    """`cap`, or less on a machine or in a container with little memory."""
    free = free_memory_bytes()
    return cap if free is None else min(cap, int(FREE_SHARE * free))


def size_text(count: float) -> str:
    """Bytes as a person reads them."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def _physical() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def _container() -> int | None:
    """Of a control group (Docker, a cluster's job)."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text("ascii").strip()
        return int(limit) - int(used)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _process_limit() -> int | None:
    """Of `ulimit -v`."""
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft == resource.RLIM_INFINITY:
            return None
        return soft - int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None


WHOLE = 2**53  # the largest whole number that every reader of JSON keeps exactly


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

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, Mapping) and name in self.value

    def item(self, name: str) -> "Json":
        """An entry of an object."""
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        if name not in self.value:
            raise self.refuse(f'has no "{name}"')
        return Json(self.value[name], self.path, f"{self.where}.{name}" if self.where else name, self.expected)

    def get(self, name: str, default: Any) -> "Json":
        """The same, or the default where it is absent or null."""
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        if self.value.get(name) is None:
            return Json(default, self.path, f"{self.where}.{name}" if self.where else name, self.expected)
        return self.item(name)

    def items(self) -> Iterator["Json"]:
        """The entries of a list."""
        if not isinstance(self.value, list):
            raise self.refuse(f"is {_kind(self.value)}, not a list")
        return (Json(v, self.path, f"{self.where}[{n}]", self.expected) for n, v in enumerate(self.value))

    def object(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.refuse(f"is {_kind(self.value)}, not an object")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.refuse(f"is {_kind(self.value)}, not text" if self.value != "" else "is empty")
        return self.value

    def number(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Finite, and within the limits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.refuse(f"is {_kind(self.value)}, not a number")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.refuse("is not finite")
        if not low <= value <= high:
            raise self.refuse(f"is {value:g}; expected {_limits(low, high)}")
        return value

    def integer(self, low: int = -WHOLE, high: int = WHOLE) -> int:
        """A whole number within the limits; 3.0 is one, too."""
        value = self.number(low, high)
        if value != round(value):
            raise self.refuse(f"is {value:g}, not a whole number")
        return int(self.value)

    def numbers(self, *counts: int) -> np.ndarray:
        """A list of so many numbers (any of the counts; none given: any), float64. They may be NaN or infinite."""
        if not isinstance(self.value, list):
            raise self.refuse(f"is {_kind(self.value)}, not a list of numbers")
        if counts and len(self.value) not in counts:
            raise self.refuse(f"has {len(self.value)} numbers; expected {' or '.join(map(str, counts))}")
        if not all(type(value) in (int, float) for value in self.value):
            wrong = next(value for value in self.value if type(value) not in (int, float))
            raise self.refuse(f"holds {_kind(wrong)} where a number should be")
        try:
            return np.array(self.value, np.float64)
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
        if path.is_dir():
            raise UserError(f"{path} is a folder, not a JSON file. {expected}".rstrip())
        with open_regular(path) as file:
            size, cap = path.stat().st_size, most_bytes(MOST_JSON_BYTES * JSON_GROWTH) // JSON_GROWTH
            if size > cap:
                raise UserError(
                    f"{path} has {size_text(size)}; with the memory at hand at most {size_text(cap)} can be read."
                )
            content = file.read(cap)
        return Json(json.loads(content.decode("utf-8-sig")), path, expected=expected)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}. {expected}".rstrip()) from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be read. {expected}".rstrip()) from error
    except MemoryError as error:
        raise UserError(f"there is not enough memory to read {path} ({size_text(path.stat().st_size)}).") from error
    except ValueError as error:  # also UnicodeDecodeError, and numbers of too many digits
        reason = str(error).splitlines()[0][:200]
        raise UserError(f"{path} is not JSON ({reason}): it may be cut off. {expected}".rstrip()) from error


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _limits(low: float, high: float) -> str:
    if math.isinf(high):
        return f"{low:g} or more"
    return f"at most {high:g}" if math.isinf(low) else f"{low:g} to {high:g}"


def plain_value(value: Any) -> Any:
    """What JSON can hold: NaN and infinity become null, paths text."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


MOST_ARRAYS = 20_000  # of one file; networks have some hundred
MOST_GROWTH = 1100  # deflate makes at most 1032 bytes of one
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ONE_HEADER = threading.Lock()  # they are Python literals, and Python 3.11 can fail to parse two at a time
_BLOCK, _ROWS = 1 << 20, 10_000  # bytes and rows that are looked at together
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
