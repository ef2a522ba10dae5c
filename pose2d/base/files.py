"""Write files and folders atomically, and open files from outside safely.

A file appears under its name when it is complete, or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pose2d.base.errors import UserError

_BLOCK = 1 << 20  # bytes read at a time


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
