"""What became of one clip: kept in its folder, so that every later run and every other machine can tell."""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, read_json

FILE = "status.json"
MOST_WARNINGS = 50
_NOT_TRIED = " (as before; not tried again without --retry-failed)"
State = Literal["done", "kept", "failed", "busy", "waiting"]


@dataclass(frozen=True)
class ClipStatus:
    """done: results are there; kept: they were before; busy: another run works on it; waiting: nobody has begun."""

    name: str  # of its folder
    source: str  # path or URL of the clip
    state: State
    people: int = 0
    frames: int = 0
    seconds: float = 0.0  # that the work took, all starts together
    cpu_s: float = 0.0  # of all processor cores together
    made: tuple[str, ...] = ()  # stages that were not up to date
    warnings: tuple[str, ...] = ()
    error: str = ""  # why it failed, or who is busy with it
    worker: str = field(default_factory=lambda: f"{socket.gethostname()} {os.getpid()}")  # machine and process
    peak_mb: int = 0  # most memory that the process had so far, in MB; 0: not known
    key: str = ""  # digest of what a result in object storage was made from
    fitmesh: str = __version__

    @property
    def is_good(self) -> bool:
        return self.state in ("done", "kept")

    def again(self) -> "ClipStatus":
        """Of a run that found it so and did nothing."""
        if self.is_good:
            return replace(self, state="kept", made=())
        said = self.error.removesuffix(_NOT_TRIED)
        return replace(self, error=said + _NOT_TRIED)

    def describe(self) -> str:
        if not self.is_good:
            return f"failed. {self.error}"
        if self.state == "kept":
            return "up to date, kept"
        people = count(self.people, "people") if self.people else "nobody"
        warnings = f", {count(len(self.warnings), 'warnings')}" if self.warnings else ""
        return f"{people} in {count(self.frames, 'frames')}, {self.seconds:.1f} s{warnings}"

    def write(self, folder: Path) -> None:
        with atomic_file(folder / FILE) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "ClipStatus | None":
        """None: there is none, or nobody can make sense of it."""
        try:
            return cls.of(read_json(folder / FILE).object())
        except UserError:
            return None

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> "ClipStatus | None":
        """Of what a file says, which anyone may have edited."""
        kinds: dict[str, Any] = {"seconds": (int, float), "cpu_s": (int, float), "made": list, "warnings": list}
        kinds |= dict.fromkeys(("people", "frames", "peak_mb"), int)
        known = {f.name: stated[f.name] for f in fields(cls) if f.name in stated}
        if not all(isinstance(value, kinds.get(name, str)) for name, value in known.items()):
            return None
        if {"name", "source", "state"} - set(known) or known["state"] not in get_args(State):
            return None
        for name in ("made", "warnings"):
            known[name] = tuple(map(str, known.get(name, ())))
        return cls(**known)
