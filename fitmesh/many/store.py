"""Read and write clips and results in object storage (s3://, gs://, ..), through fsspec.

Calls to a store fail now and then, so they are repeated. A store has no rename, so a folder of
results is complete only when its status file exists, which is written last and removed first.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pose2d.base.errors import UserError
from pose2d.base.files import real_path

STATUS_FILE = "status.json"
TRIES = 6  # of a call; at one failure in twenty, one call in 64 million fails for good
FIRST_PAUSE_S = 0.2  # between two tries; doubled each time
LONGEST_PAUSE_S = 10.0
_FINAL = (
    FileNotFoundError,
    PermissionError,
    NotImplementedError,
    IsADirectoryError,
    NotADirectoryError,
)


def matching(pattern: str) -> list[str]:
    """Return the URLs of the files that match a pattern, sorted."""
    return _call(lambda fs, path: sorted(map(fs.unstrip_protocol, fs.glob(path))), "list", pattern)


def version_of(url: str) -> str:
    """Return a text that changes with the content: an object's tag, or its size and time."""
    return str(_call(lambda fs, path: fs.ukey(path), "read", url))


def fetch(url: str, to: Path) -> None:
    """Download one file."""
    _call(lambda fs, path: fs.get_file(path, str(to)), "read", url)


def fetch_folder(url: str, to: Path) -> None:
    """Download every file below a URL; do nothing if there is no such folder."""
    try:
        names = _call(
            lambda fs, path: [file[len(path) :].lstrip("/") for file in fs.find(path)], "list", url
        )
    except UserError:
        return
    for name in names:
        if name and real_path(to / name).is_relative_to(real_path(to)):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            fetch(f"{url}/{name}", to / name)


def put_folder(folder: Path, url: str) -> None:
    """Upload every file of a folder, the status file last: it marks the folder as complete."""
    remove(f"{url}/{STATUS_FILE}")
    everything = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(everything, key=lambda path: path == folder / STATUS_FILE):
        content = path.read_bytes() if path.stat().st_size < 1 << 20 else path
        put(content, f"{url}/{path.relative_to(folder).as_posix()}")


def remove(url: str) -> None:
    """Remove one file, if it exists."""
    _call(lambda fs, path: fs.rm_file(path), "remove", url, gone_is_fine=True)


def put(content: bytes | Path, url: str) -> None:
    """Upload one file."""

    def send(fs: Any, path: str) -> None:
        # A store has no folders, but a file system behind fsspec does.
        fs.makedirs(fs._parent(path), exist_ok=True)
        if isinstance(content, bytes):
            fs.pipe_file(path, content)
        else:
            fs.put_file(str(content), path)

    _call(send, "write", url)


def read_bytes(url: str, gone_is_fine: bool = False) -> bytes:
    """Return the content of a file; None if it is absent and `gone_is_fine`."""
    return _call(lambda fs, path: fs.cat_file(path), "read", url, gone_is_fine)


def _call(call: Callable[[Any, str], Any], verb: str, url: str, gone_is_fine: bool = False) -> Any:
    """Return the answer of a call with a file system and a path in it, tried several times.

    gone_is_fine: return None if nothing is at the URL.
    """
    fs, path = _open(url)
    pause_s = FIRST_PAUSE_S
    for left in reversed(range(TRIES)):
        try:
            return call(fs, path)
        except _FINAL as error:
            if gone_is_fine and isinstance(error, FileNotFoundError):
                return None
            reason = "there is nothing" if isinstance(error, FileNotFoundError) else error
            raise UserError(f"cannot {verb} {url}: {reason}.") from error
        except Exception as error:  # every store has exceptions of its own
            if not left:
                why = f"{type(error).__name__}: {error}"
                raise UserError(f"cannot {verb} {url}, tried {TRIES} times: {why}") from error
            # Random, so that many machines do not all come back at once.
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
    raise AssertionError


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise UserError(
            f"{url} needs the package fsspec: pip install 'fitmesh[remote]'."
        ) from error
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # the first says which package
        known = " Known are s3://, gs://, file:// .." if isinstance(error, ValueError) else ""
        raise UserError(f"{url} cannot be opened: {str(error).rstrip('.')}.{known}") from error
    except Exception as error:
        raise UserError(f"{url} cannot be opened: {type(error).__name__}: {error}") from error
    fs.invalidate_cache()  # others write there too
    return fs, path
