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

unfinished: set[Path] = set()  # files and folders that are being written now
# Folders that this process is the only writer of. Nothing meant for them may end up elsewhere.
held: set[Path] = set()


def real_path(path: str | Path) -> Path:
    """Return the absolute path without links. A link that leads to itself stays as it is, where
    `Path.resolve` raises RuntimeError.
    """
    return Path(os.path.realpath(path))


def check_inside(path: Path) -> None:
    """Refuse a path in a folder that we hold if a link leads it out of that folder."""
    for folder in held:
        is_named_inside = path.absolute().is_relative_to(folder)
        if is_named_inside and not real_path(path.parent).is_relative_to(real_path(folder)):
            raise UserError(
                f"{path} would be written outside {folder}: {path.parent} is a link. "
                "Remove the link.",
                file=path,
            )


def remove_unfinished() -> None:
    """Remove half-written files and folders, for a process that exits at once."""
    for path in tuple(unfinished):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which is renamed to `path` if the block succeeds.

    The temporary name keeps the suffix, since writers (video, npz) choose their format by it."""
    path = Path(path)
    check_inside(path)
    temporary = path.with_name(f".{path.stem[:100]}.{secrets.token_hex(4)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}. Choose a folder you may write to.", file=path
        ) from error
    unfinished.add(temporary)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.", file=path) from error
    finally:
        temporary.unlink(missing_ok=True)
        unfinished.discard(temporary)


def remove_temporary(path: Path) -> None:
    """Remove the temporary files of `atomic_file(path)` that killed runs left behind."""
    for temporary in path.parent.glob(f".{path.stem[:100]}.????????{path.suffix}"):
        temporary.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Refuse a folder that results cannot be written to, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.", file=folder)
    with atomic_file(folder / ".probe") as probe:
        probe.touch()
    (folder / ".probe").unlink(missing_ok=True)  # another process may be probing too


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`, which replaces `path` if the block succeeds.

    Temporary folders that a killed run left behind are removed by the next one."""
    partial = path.with_name(f".{path.name}.partial")
    old = path.with_name(f".{path.name}.old")
    check_inside(path / "file")  # `path` itself may be a link to another place
    try:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        partial.mkdir(parents=True)
        unfinished.add(partial)
        yield partial
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.", file=path) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        unfinished.discard(partial)


def open_regular(path: str | Path) -> BinaryIO:
    """Open an ordinary file for reading, or raise OSError for anything else.

    A pipe may never answer, and a device never ends."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # checked before opening, which makes some devices act
            kind = "a pipe, a device or a socket, not an ordinary file"
            if stat.S_ISDIR(mode):
                kind = "a folder"
            raise OSError(errno.EINVAL, f"it is {kind}")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(path, flags), "rb")
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file has such a name ({error})") from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal text."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, at most one MiB at a time."""
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.", file=path) from error
