"""Record the outcome of each clip of many in its folder, where later runs and machines read it."""

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fitmesh.many import store
from fitmesh.many.sources import is_url
from fitmesh.many.store import STATUS_FILE
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import read_json

MOST_WARNINGS = 50
State = Literal["done", "kept", "failed", "busy", "waiting"]


def _this_process() -> str:
    """Return the machine and the process id."""
    return f"{socket.gethostname()} {os.getpid()}"


@dataclass(frozen=True)
class ClipStatus:
    """Tell what became of one clip.

    done: this run made its results; kept: they were up to date; busy: another run works on it;
    waiting: no run has started it.
    """

    name: str  # of its folder
    source: str  # path or URL of the clip
    state: State
    people: int = 0
    frames: int = 0
    seconds: float = 0.0  # wall time, summed over interrupted runs
    cpu_s: float = 0.0  # of all processor cores together
    made: tuple[str, ...] = ()  # stages that were not up to date
    warnings: tuple[str, ...] = ()
    error: str = ""  # why it failed, or which run is busy with it
    code: str = ""  # what kind of error: input, option, data, resource or internal
    worker: str = field(default_factory=_this_process)  # machine and process
    peak_mb: int = 0  # largest memory of the process so far; 0: not known
    key: str = ""  # digest of everything that the results were made from
    fitmesh: str = __version__

    @property
    def is_good(self) -> bool:
        return self.state in ("done", "kept")

    def repeated(self) -> "ClipStatus":
        """Return the status for a run that found the clip unchanged and did nothing."""
        if self.is_good:
            return replace(self, state="kept", made=())
        return replace(
            self, error=f"{self.error} (as before; not tried again without --retry-failed)"
        )

    @property
    def facts(self) -> str:
        people = count(self.people, "people") if self.people else "no person"
        return f"{people} in {count(self.frames, 'frames')}, {self.seconds:.1f} s"

    def describe(self) -> str:
        """Return the outcome as a phrase for people."""
        if not self.is_good:
            return f"failed. {self.error}"
        if self.state == "kept":
            return "up to date, kept"
        return self.facts + (f", {count(len(self.warnings), 'warnings')}" if self.warnings else "")

    def write(self, folder: str) -> None:
        """Write the status into a folder or URL."""
        write_text(json.dumps(asdict(self), indent=1) + "\n", f"{folder}/{STATUS_FILE}")

    def try_to_write(self, folder: str) -> None:
        """Write the status if the folder allows it; the caller gets it in any case."""
        with contextlib.suppress(Exception):
            self.write(folder)

    @classmethod
    def read(cls, folder: str | Path) -> "ClipStatus | None":
        """Read the status in a folder or URL; None if there is none or it cannot be read."""
        place = f"{folder}/{STATUS_FILE}"
        try:
            if is_url(place):
                text = store.read_bytes(place, gone_is_fine=True) or b"null"
                return cls.from_json(json.loads(text))
            return cls.from_json(read_json(place).value)
        except (UserError, ValueError):
            return None

    @classmethod
    def from_json(cls, content: Any) -> "ClipStatus | None":
        """Return the status that a file holds; None if the file was edited to nonsense."""
        if not isinstance(content, dict):
            return None
        defaults = asdict(cls("", "", "failed"))
        values = {name: content[name] for name in defaults if name in content}
        json_types: dict[type, Any] = {float: (int, float), tuple: list}
        for name, value in values.items():
            default_type = type(defaults[name])
            if not isinstance(value, json_types.get(default_type, default_type)):
                return None
        if {"name", "source", "state"} - set(values) or values["state"] not in get_args(State):
            return None
        for name in ("made", "warnings"):
            values[name] = tuple(map(str, values.get(name, ())))
        return cls(**values)


def write_text(text: str, place: str) -> None:
    """Write a text to a file or to object storage."""
    if is_url(place):
        store.put(text.encode("utf-8", "replace"), place)
        return
    with atomic_file(place) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")
