"""One writer a folder: a second one is told who is at work there, and the lock of a dead process is taken over.

The lock is a file that says who holds it, locked with flock, which the system gives back when its process ends however
it ends. Where a file system offers no flock, or keeps it to one machine, the holder's sign of life counts: it renews
the file's time every few seconds, and whoever comes from another machine watches whether that happens.
"""

import contextlib
import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pose2d.base import files
from pose2d.base.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".fitmesh.lock"
RENEW_S = 5.0  # between two signs of life
WATCH_S = 20.0  # a holder on another machine that shows none for so long is dead
SETTLE_S = 0.5  # without flock: how long two who come at the same moment may need to see each other
MOST_BYTES = 4096  # of the file
LONGEST_COMMAND = 200
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # neither through a link nor into a pipe


class FolderBusy(UserError):
    """Somebody else is writing into the folder."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: str  # date and time in UTC
    command: str

    @classmethod
    def this_process(cls) -> "Holder":
        command = " ".join(Path(word).name if n == 0 else word for n, word in enumerate(sys.argv))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        return cls(os.getpid(), socket.gethostname(), since, command[:LONGEST_COMMAND])

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def has_ended(self) -> bool:
        """Only of a process on this machine; of another nobody can say."""
        if not self.is_here or os.name == "nt":  # there os.kill would end the process
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since} ({self.command})"


@contextmanager
def folder_lock(folder: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is made if absent. Raises FolderBusy when it is held after `patience_s`."""
    path, give_up = folder / FILE, time.monotonic() + patience_s
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.")
    while True:
        try:
            handle = _take(path)
            break
        except FolderBusy:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.1)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"cannot write {folder}: {reason}. Choose a folder you may write to.") from error
    ended = threading.Event()
    threading.Thread(target=_renew, args=(path, ended), daemon=True).start()
    files.unfinished.add(path)  # goes with a process that ends at once
    files.held.add(folder.absolute())
    try:
        yield
    finally:
        ended.set()
        _release(path, handle)
        files.unfinished.discard(path)
        files.held.discard(folder.absolute())


def _release(path: Path, handle: int) -> None:
    """The file goes before the lock is given back, while nobody else can have taken it."""
    if fcntl is None:  # Windows removes no open file
        os.close(handle)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    if fcntl is not None:
        os.close(handle)


def _take(path: Path) -> int:
    """The open file, ours. Whoever was too late has a file that no longer has the name, and tries again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        if path.is_symlink():  # what it leads to is not ours
            raise OSError(errno.ELOOP, f"{path.name} in it is a link, no lock. Remove it")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o666)
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                raise OSError(errno.EINVAL, f"{path.name} in it is no lock but another file. Remove it")
            locked = _flock(handle)
            if locked and not _is_named(handle, path):
                os.close(handle)
                continue
            before = _read(handle)
            if before is not None and not (locked and before.is_here) and not before.has_ended and _lives(path):
                raise FolderBusy(_words(path.parent, before))
            us = Holder.this_process()
            _write(handle, us)
            if not locked:  # two may have found it free; the last one to write has it
                time.sleep(SETTLE_S)
                if (last := _read(handle)) != us:
                    raise FolderBusy(_words(path.parent, last))
            return handle
        except BlockingIOError:
            holder = _read(handle)
            os.close(handle)
            raise FolderBusy(_words(path.parent, holder)) from None
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(handle)
            raise


def _flock(handle: int) -> bool:
    """False where the file system has no such thing. BlockingIOError: somebody else has it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        raise
    except OSError:
        return False


def _is_named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _write(handle: int, holder: Holder) -> None:
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, json.dumps(asdict(holder)).encode())


def _read(handle: int) -> Holder | None:
    """None: free, or being written at this moment."""
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        said = json.loads(os.read(handle, MOST_BYTES))
        return Holder(int(said["pid"]), str(said["host"]), str(said["since"]), str(said["command"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lives(path: Path) -> bool:
    """Whether the file's time changes while we watch: clocks of two machines may differ, so they are not compared."""
    try:
        first, watched = path.stat().st_mtime_ns, time.monotonic()
        while time.monotonic() - watched < WATCH_S:
            time.sleep(min(0.2, WATCH_S / 10))
            if path.stat().st_mtime_ns != first:
                return True
    except OSError:  # it was given back
        pass
    return False


def _renew(path: Path, ended: threading.Event) -> None:
    while not ended.wait(RENEW_S):
        with contextlib.suppress(OSError):
            os.utime(path)


def _words(folder: Path, holder: Holder | None) -> str:
    who = str(holder) if holder is not None else "another process, which took it this very moment"
    return (
        f"{folder} is being written by {who}. Two runs in one folder would destroy each other's files: wait for that "
        "one to end, stop it, or choose another --out."
    )
