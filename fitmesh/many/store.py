"""Clips and results in object storage (s3://, gs://, ..), through fsspec.

A store has no rename and its calls fail now and then: calls are repeated, and a folder of results counts only when its
status file is there, which is written last and removed first."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pose2d.base.errors import UserError

T = TypeVar("T")
STATUS_FILE = "status.json"
TRIES = 6  # of a call; at one failure in twenty, one call in 64 million fails for good
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0  # between two tries; twice as long each time
_FINAL = (FileNotFoundError, PermissionError, NotImplementedError, IsADirectoryError, NotADirectoryError)


def matching(pattern: str) -> list[str]:
    """URLs of the files that a pattern matches, in order."""
    fs, path = _open(pattern)
    paths = _again(lambda: fs.glob(path), f"list {pattern}")
    return sorted(fs.unstrip_protocol(one) for one in paths)


def version_of(url: str) -> str:
    """Another one for another content: an object's tag, or its size and time."""
    fs, path = _open(url)
    return str(_again(lambda: fs.ukey(path), f"read {url}"))


def fetch(url: str, to: Path) -> None:
    """One file."""
    fs, path = _open(url)
    _again(lambda: fs.get_file(path, str(to)), f"read {url}")


def fetch_folder(url: str, to: Path) -> None:
    """Every file below; none where there is no such folder."""
    fs, path = _open(url)
    try:
        paths = _again(lambda: fs.find(path), f"list {url}")
    except UserError:
        return
    for one in paths:
        below = one[len(path) :].lstrip("/")
        target = to / below
        if not below or not target.resolve().is_relative_to(to.resolve()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        _again(lambda one=one, target=target: fs.get_file(one, str(target)), f"read {url}/{below}")  # type: ignore[misc]


def put_folder(folder: Path, url: str) -> None:
    """Every file of a folder, the status last. Until it is there, nobody takes the folder for complete."""
    remove(f"{url}/{STATUS_FILE}")
    everything = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(everything, key=lambda path: path == folder / STATUS_FILE):
        content = path.read_bytes() if path.stat().st_size < 1 << 20 else path
        put(content, f"{url}/{path.relative_to(folder).as_posix()}")


def remove(url: str) -> None:
    """One file, if it is there."""
    fs, path = _open(url)
    _again(lambda: fs.rm_file(path), f"remove {url}", gone_is_fine=True)


def put(content: bytes | Path, url: str) -> None:
    """One file."""
    fs, path = _open(url)

    def send() -> None:
        fs.makedirs(fs._parent(path), exist_ok=True)  # a store has no folders; a file system behind fsspec does
        if isinstance(content, bytes):
            fs.pipe_file(path, content)
        else:
            fs.put_file(str(content), path)

    _again(send, f"write {url}")


def read_bytes(url: str, gone_is_fine: bool = False) -> bytes:
    """`gone_is_fine`: None where there is nothing."""
    fs, path = _open(url)
    return _again(lambda: fs.cat_file(path), f"read {url}", gone_is_fine)


def _again(call: Callable[[], T], what: str, gone_is_fine: bool = False) -> T:
    """The answer of a call, tried several times. `gone_is_fine`: None where there is nothing at the place."""
    pause_s = FIRST_PAUSE_S
    for left in reversed(range(TRIES)):
        try:
            return call()
        except _FINAL as error:
            if gone_is_fine and isinstance(error, FileNotFoundError):
                return None  # type: ignore[return-value]
            reason = "there is nothing" if isinstance(error, FileNotFoundError) else error
            raise UserError(f"cannot {what}: {reason}.") from error
        except Exception as error:  # every store has exceptions of its own
            if not left:
                raise UserError(f"cannot {what}, tried {TRIES} times: {type(error).__name__}: {error}") from error
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # many machines should not all come back at once
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
    raise AssertionError


def _open(url: str) -> tuple[Any, str]:
    """The file system and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise UserError(f"{url} needs the package fsspec: pip install 'fitmesh[remote]'.") from error
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # the first says which package
        known = " Known are s3://, gs://, file:// .." if isinstance(error, ValueError) else ""
        raise UserError(f"{url} cannot be opened: {str(error).rstrip('.')}.{known}") from error
    except Exception as error:
        raise UserError(f"{url} cannot be opened: {type(error).__name__}: {error}") from error
    fs.invalidate_cache()  # others write there too
    return fs, path
