"""Folders appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pose2d.base.errors import UserError


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; it takes the place of `path` only if the block succeeds.

    What a killed run left behind under the temporary names is cleared away by the next one.
    """
    partial, old = path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.old")
    try:
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
