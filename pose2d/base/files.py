"""Files written atomically (complete under their name, or not there), and how much memory one may take when read:
sizes that a header states are checked first."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
    """Yield a temporary path beside `path`; rename it into place only if the block succeeds.

    The temporary name keeps the suffix, since writers (video, npz) choose their format by it.
    """
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
    """Yield an empty folder beside `path`; it takes the place of `path` only if the block succeeds.

    What a killed run left behind under the temporary names is cleared away by the next one.
    """
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
