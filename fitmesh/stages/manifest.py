"""Is a file still what we wrote? Its size and digest are kept in run.json."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fitmesh.result import RUN_FILE
from pose2d.base.errors import UserError
from pose2d.base.files import file_sha256
from pose2d.base.json_files import read_json

MOST_FILES = 200


@dataclass
class Manifest:
    """Digests of the files that a run left in a folder, by name. A file without one is not vouched for by anybody."""

    out: Path
    digests: dict[str, str] = field(default_factory=dict)  # "BYTES SHA-256"

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """As the last run recorded them."""
        try:
            stated = read_json(out / RUN_FILE).get("files", {}).object()
        except UserError:
            return cls(out)
        return cls(out, {name: value for name, value in stated.items() if isinstance(value, str)})

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


def _digest(path: Path) -> str:
    digest = file_sha256(path)  # first: it says so where the file cannot be read
    return f"{path.stat().st_size} {digest}"
