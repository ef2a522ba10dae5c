"""Is a file ours, and still what we wrote? Names, sizes and digests are kept in run.json, and once more beside it."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fitmesh.result import RUN_FILE
from pose2d.base.caching import has_cache_key
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, file_sha256
from pose2d.base.json_files import read_json

MOST_FILES = 200
CACHE_FOLDER = ".cache_keys"  # also holds the notes of exports
COPY = f"{CACHE_FOLDER}/files.json"


@dataclass
class Manifest:
    """Digests of the files that a run left in a folder, by name. A file without one is not vouched for by anybody."""

    out: Path
    digests: dict[str, str] = field(default_factory=dict)  # "BYTES SHA-256"
    entries: set[str] = field(default_factory=set)  # names in the folder that runs have written or begun to write

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """As the last run recorded them. Where that is lost, a folder with notes of ours is ours as a whole."""
        for name in (RUN_FILE, COPY):
            try:
                stated = read_json(out / name)
                digests, entries = stated.item("files").object(), stated.get("entries", None).value
            except UserError:
                continue
            known = {name: value for name, value in digests.items() if isinstance(value, str)}
            return cls(out, known, set(map(str, entries)) if isinstance(entries, list) else _all_in(out))
        is_ours = (out / CACHE_FOLDER).is_dir() or any(has_cache_key(path) for path in out.glob("*.npz"))
        return cls(out, entries=_all_in(out) if is_ours else set())

    def write_copy(self) -> None:
        """For the case that run.json is lost, once there is a folder for it."""
        if not (self.out / CACHE_FOLDER).is_dir():
            return
        with atomic_file(self.out / COPY) as temporary:
            temporary.write_text(json.dumps({"files": self.digests, "entries": sorted(self.entries)}) + "\n")

    def claim(self, names: Sequence[str], inputs: Iterable[Path], overwrite: bool) -> None:
        """These names are written from now on. UserError where one is an input, or what no run has written."""
        places = {self.out.resolve() / name for name in names}
        for path in inputs:
            if any(not places.isdisjoint((p, *p.parents)) for p in (path.resolve(), path.parent.resolve() / path.name)):
                raise UserError(f"{path} is an input of this run, which would write over it: choose another --out.")
        foreign = [name for name in names if name not in self.entries and os.path.lexists(self.out / name)]
        if foreign and not overwrite:
            raise UserError(
                f"{self.out} holds {', '.join(foreign)}, which fitmesh has not written and would replace: choose "
                "another --out, or --overwrite."
            )
        self.entries |= {*names}

    def changed(self, names: Iterable[str]) -> list[str]:
        """Files that are there and differ from what was written."""
        return [
            name
            for name in names
            if name in self.digests and (self.out / name).is_file() and _digest(self.out / name) != self.digests[name]
        ]

    def is_whole(self) -> bool:
        """Whether every file that was written is there as it was; not so where nothing is recorded."""
        return bool(self.digests) and all(
            (self.out / name).is_file() and _digest(self.out / name) == digest for name, digest in self.digests.items()
        )

    def record(self, names: Iterable[str]) -> None:
        """Of an export of more files than MOST_FILES (an .obj a frame) only the sizes are known, in its own note."""
        known = [name for name in names if (self.out / name).is_file()]
        if len(known) <= MOST_FILES:
            self.digests |= {name: _digest(self.out / name) for name in known}

    def forget(self, names: Iterable[str]) -> bool:
        """Whether there was anything to forget."""
        known = [name for name in names if name in self.digests]
        for name in known:
            del self.digests[name]
        return bool(known)


def _all_in(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def _digest(path: Path) -> str:
    digest = file_sha256(path)  # first: it says so where the file cannot be read
    return f"{path.stat().st_size} {digest}"
