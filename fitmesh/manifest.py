"""Keep track of the files that runs wrote into a folder: names, sizes and digests, in run.json."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fitmesh.result import RUN_FILE
from pose2d.base.caching import read_cache_key
from pose2d.base.errors import UserError
from pose2d.base.files import file_sha256, real_path
from pose2d.base.json_files import read_json

MOST_FILES = 200
CACHE_FOLDER = ".cache_keys"  # of exports


@dataclass
class Manifest:
    """Hold the digests of the files that runs wrote into a folder, by name."""

    out: Path
    digests: dict[str, str] = field(default_factory=dict)  # "BYTES SHA-256"
    # Names in the folder that runs have written or begun to write.
    entries: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """Read what the last run recorded.

        Without a record, everything in a folder that holds our cache keys counts as ours.
        """
        try:
            run = read_json(out / RUN_FILE)
            digests = run.item("files").object()
            entries = run.item("entries").items()
        except UserError:
            is_ours = (out / CACHE_FOLDER).is_dir() or any(map(read_cache_key, out.glob("*.npz")))
            return cls(out, entries={path.name for path in out.iterdir()} if is_ours else set())
        texts = {name: value for name, value in digests.items() if isinstance(value, str)}
        return cls(out, texts, {str(entry.value) for entry in entries})

    def claim(self, names: Sequence[str], inputs: Iterable[Path], overwrite: bool) -> None:
        """Reserve names that this run writes.

        Raises UserError if one is an input, or a file that no run has written.
        """
        places = {real_path(self.out) / name for name in names}
        for path in inputs:
            if any(
                not places.isdisjoint((p, *p.parents))
                for p in (real_path(path), real_path(path.parent) / path.name)
            ):
                raise UserError(
                    f"{path} is an input of this run and would be overwritten: choose another --out.",
                    file=path,
                )
        foreign = [
            name for name in names if name not in self.entries and os.path.lexists(self.out / name)
        ]
        if foreign and not overwrite:
            raise UserError(
                f"{self.out} holds {', '.join(foreign)}, which fitmesh has not written and would replace: choose "
                "another --out, or --overwrite."
            )
        self.entries |= {*names}

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return the files that differ from what was written."""
        return [
            name
            for name in names
            if name in self.digests
            and (self.out / name).is_file()
            and _digest(self.out / name) != self.digests[name]
        ]

    def is_whole(self) -> bool:
        """Return whether files are recorded and all of them are as they were written."""
        has_all = all((self.out / name).is_file() for name in self.digests)
        return bool(self.digests) and has_all and not self.changed(self.digests)

    def record(self, names: Iterable[str]) -> None:
        """Record the digests of files.

        Exports of more files than MOST_FILES (an .obj a frame) are not recorded; their own note has
        the sizes.
        """
        files = [name for name in names if (self.out / name).is_file()]
        if len(files) <= MOST_FILES:
            self.digests |= {name: _digest(self.out / name) for name in files}

    def forget(self, names: Iterable[str]) -> bool:
        """Remove records and return whether there were any."""
        return any([self.digests.pop(name, "") for name in names])


def _digest(path: Path) -> str:
    """Return the size and SHA-256 of a file."""
    digest = file_sha256(path)  # first, because its error names the file
    return f"{path.stat().st_size} {digest}"
