"""Allow one writer at a time in a folder.

A second writer gets an error that says which process holds the folder; the lock of a dead process
is taken over. The lock is a file that names its holder, locked with flock. The system releases
flock when the process ends, however it ends, and Linux shares it between machines over NFS. Systems
without flock (Windows) have no lock."""

import contextlib
import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pose2d.base import files
from pose2d.base.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".fitmesh.lock"
MOST_BYTES = 400  # of the lock file
# Open neither through a link nor into a pipe that blocks.
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FolderBusy(UserError):
    """Another process is writing into the folder."""


@contextmanager
def folder_lock(folder: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is created if absent.

    Raises FolderBusy if another process still holds it after `patience_s`."""
    path = folder / FILE
    give_up = time.monotonic() + patience_s
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.", file=folder)
    handle = None
    while handle is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = _take_lock(path)
        except FolderBusy:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.1)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"cannot write {folder}: {reason}. Choose a folder you may write to.", file=folder
            ) from error
    files.unfinished.add(path)  # removed with a process that exits at once
    files.held.add(folder.absolute())
    try:
        yield
    finally:
        # Remove the file before the lock is released, while no other process can have taken it.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(handle)
        files.unfinished.discard(path)
        files.held.discard(folder.absolute())


def _take_lock(path: Path) -> int | None:
    """Return the handle of the locked file, or None if it was removed meanwhile: try again."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} in it is a link, no lock. Remove it")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o666)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EINVAL, f"{path.name} in it is no lock but another file. Remove it")
        if fcntl is not None:
            _flock(handle, path)
            if not path.exists() or not os.path.samestat(status, path.stat()):
                os.close(handle)
                return None
        os.ftruncate(handle, 0)
        os.write(handle, _describe_holder().encode(errors="replace"))
        return handle
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise


def _flock(handle: int, path: Path) -> None:
    """Lock an open file, or raise FolderBusy with the holder that the file names."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.read(handle, MOST_BYTES).decode("utf-8", "replace")
        holder = "".join(filter(str.isprintable, content)) or "another process"
        raise FolderBusy(
            f"{path.parent} is being written by {holder}. Two runs in one folder would destroy "
            "each other's files: wait for that one to end, stop it, or choose another --out."
        ) from None
    except OSError:  # a file system without flock
        pass


def _describe_holder() -> str:
    """Name this process, its machine, the time and its command."""
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[: MOST_BYTES // 2]
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} ({command})"
