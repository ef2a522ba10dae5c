"""What a file was made from: a stage is skipped when its file is there and its recipe still matches."""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fitmesh
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class Recipe:
    """Same recipe, same content."""

    stage: str
    settings: Mapping[str, Any]  # everything that changes the content; what json can hold
    inputs: Mapping[str, str]  # digest of every file or recipe that was read, by role

    @property
    def text(self) -> str:
        return json.dumps(
            {
                "stage": self.stage,
                "fitmesh": fitmesh.__version__,
                "settings": self.settings,
                "inputs": self.inputs,
            },
            sort_keys=True,
        )

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def content_digest(paths: Iterable[Path]) -> str:
    """Of the contents, one file after another: a file that was only moved or touched is the same file."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}.") from error
        digest.update(path.stat().st_size.to_bytes(8, "little"))
    return digest.hexdigest()


def write_npz(path: Path, recipe: Recipe, arrays: Mapping[str, Any]) -> None:
    with atomic_file(path) as temporary:
        np.savez_compressed(temporary, **{**arrays, "recipe": recipe.text})


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of a stage's file."""
    if not path.is_file():
        raise UserError(f"{path} is not there. Run `fitmesh run` to make it.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}). Run again with --overwrite to make it anew.") from error


def npz_is_current(path: Path, recipe: Recipe) -> bool:
    try:
        with np.load(path, allow_pickle=False) as file:
            return str(file["recipe"]) == recipe.text
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False  # absent or damaged: make it (again)


def clear_partial(path: Path) -> None:
    """Remove what a killed run had written of `path` so far (the names of pose2d.base.files.atomic_file)."""
    for left in path.parent.glob(f".{path.stem}.????????{path.suffix}"):
        left.unlink(missing_ok=True)
