"""What became of each clip of many, kept in its folder, so that every later run and every other
machine can tell; `summary.csv` and `index.html` over all of them.

Whether clips were done before and nothing has changed since, told without importing what could do
them.

A stage is valid by its own cache key. The key here is coarser, of a whole run: its options, the
clip, every file that an option names, and all code and weights of this project. Where it differs,
the stages' keys decide."""

import contextlib
import csv
import hashlib
import io
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args
from urllib.parse import quote

from fitmesh.inputs import ClipSource, is_url
from fitmesh.many import store
from fitmesh.many.store import STATUS_FILE
from fitmesh.options.run import RunOptions
from fitmesh.result import EDITS_FILE, OVERLAY_FILE, Manifest
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.caching import PACKAGES, CacheKey, content_digest
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, open_regular
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import read_json

MOST_WARNINGS = 50
State = Literal["done", "kept", "failed", "busy", "waiting"]


@dataclass(frozen=True)
class ClipStatus:
    """done: results are there; kept: they were before; busy: another run works on it; waiting:
    nobody has begun.
    """

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
    worker: str = field(
        default_factory=lambda: f"{socket.gethostname()} {os.getpid()}"
    )  # machine and process
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
        return replace(
            self, error=f"{self.error} (as before; not tried again without --retry-failed)"
        )

    @property
    def facts(self) -> str:
        people = count(self.people, "people") if self.people else "nobody"
        return f"{people} in {count(self.frames, 'frames')}, {self.seconds:.1f} s"

    def describe(self) -> str:
        if not self.is_good:
            return f"failed. {self.error}"
        if self.state == "kept":
            return "up to date, kept"
        return self.facts + (f", {count(len(self.warnings), 'warnings')}" if self.warnings else "")

    def write(self, folder: str) -> None:
        """Into a folder or URL."""
        _put(json.dumps(asdict(self), indent=1) + "\n", f"{folder}/{STATUS_FILE}")

    def note(self, folder: str) -> None:
        """For summaries of later runs and other machines, if that can be; whoever asked is told
        anyway.
        """
        with contextlib.suppress(Exception):
            self.write(folder)

    @classmethod
    def read(cls, folder: str | Path) -> "ClipStatus | None":
        """Of a folder or URL; None: there is none, or nobody can make sense of it."""
        place = f"{folder}/{STATUS_FILE}"
        try:
            if is_url(place):
                return cls.of(json.loads(store.read_bytes(place, gone_is_fine=True) or b"null"))
            return cls.of(read_json(place).value)
        except (UserError, ValueError):
            return None

    @classmethod
    def of(cls, stated: Any) -> "ClipStatus | None":
        """Of what a file says, which anyone may have edited."""
        if not isinstance(stated, dict):
            return None
        usual = asdict(cls("", "", "failed"))
        known = {name: stated[name] for name in usual if name in stated}
        kinds: dict[type, Any] = {float: (int, float), tuple: list}
        if not all(
            isinstance(known[name], kinds.get(type(usual[name]), type(usual[name])))
            for name in known
        ):
            return None
        if {"name", "source", "state"} - set(known) or known["state"] not in get_args(State):
            return None
        for name in ("made", "warnings"):
            known[name] = tuple(map(str, known.get(name, ())))
        return cls(**known)


CSV_FILE, PAGE_FILE = "summary.csv", "index.html"
COLUMNS = (
    "clip",
    "folder",
    "state",
    "people",
    "frames",
    "seconds",
    "cpu_seconds",
    "memory_mb",
    "warnings",
    "error",
    "worker",
)
PATIENCE_S = 120.0  # for others who write the same two files
_ORDER = {"failed": 0, "busy": 1, "done": 2, "kept": 2, "waiting": 3}
_WORDS = {"kept": "done", "busy": "in another run", "waiting": "not begun"}
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
)  # spreadsheets compute what begins so, whoever named a file so
_TITLE = " · fitmesh</title>"  # by which a page is known as ours
MOST_SHOWN = 3  # warnings of a clip; the rest are folded


def write_summary(clips: Sequence[ClipSource], known: Mapping[str, ClipStatus], out: str) -> None:
    """Both files, from what this run knows (by name) and, for the rest, from what is in the clips'
    folders.
    """
    waiting = {
        clip.name: ClipStatus(clip.name, clip.source, "waiting", worker="") for clip in clips
    }
    # Of several machines the last one to write has seen what all have done.
    with contextlib.nullcontext() if is_url(out) else folder_lock(Path(out), PATIENCE_S):
        statuses = [
            known.get(name) or ClipStatus.read(f"{out}/{name}") or one
            for name, one in waiting.items()
        ]
        _put(table(statuses), f"{out}/{CSV_FILE}")
        _put(page(statuses), f"{out}/{PAGE_FILE}")


def _put(text: str, place: str) -> None:
    """Into a file or object storage."""
    if is_url(place):
        store.put(text.encode("utf-8", "replace"), place)
        return
    with atomic_file(place) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def table(statuses: Sequence[ClipStatus]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for s in statuses:
        row = [
            s.source,
            s.name,
            s.state,
            s.people,
            s.frames,
            s.seconds,
            s.cpu_s,
            s.peak_mb or "",
            " | ".join(s.warnings),
            s.error,
            s.worker,
        ]
        rows.writerow(
            f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
            for cell in row
        )
    return text.getvalue()


def check_out(out: str, overwrite: bool = False) -> None:
    """Before anything else: can results be written there at all, and without replacing somebody's
    own files?
    """
    if is_url(out):
        store.put(b"", f"{out}/.fitmesh_probe")
        store.remove(f"{out}/.fitmesh_probe")
        return
    folder = Path(out)
    for name, mark in ((CSV_FILE, ",".join(COLUMNS)), (PAGE_FILE, _TITLE)):
        if not overwrite and (folder / name).is_file():
            with open_regular(folder / name) as file:
                ours = mark in file.read(1 << 12).decode("utf-8", "replace")
            if not ours:
                raise UserError(
                    f"{folder / name} was not written by fitmesh: choose another --out, or --overwrite."
                )
    with folder_lock(folder, PATIENCE_S):
        pass


def page(statuses: Sequence[ClipStatus]) -> str:
    rows = sorted(statuses, key=lambda status: (_ORDER[status.state], not status.warnings))
    people = sum(status.people for status in statuses)
    seconds = sum(status.seconds for status in statuses)
    words = f"{in_words(statuses)}; {count(people, 'people')}, {seconds / 60:.1f} min of work"
    template = Template((Path(__file__).parent / PAGE_FILE).read_text(encoding="utf-8"))
    return template.substitute(
        count=count(len(statuses), "clips"),
        words=words,
        clips="".join(map(_clip, rows)),
        version=escape(__version__),
    )


def in_words(statuses: Sequence[ClipStatus]) -> str:
    """How many clips are done."""
    good, failed = (
        sum(one.state in states for one in statuses) for states in (("done", "kept"), ("failed",))
    )
    before = sum(one.state == "kept" for one in statuses)
    warned = sum(bool(one.warnings) for one in statuses)
    text = f"{good} of {count(len(statuses), 'clips')} done" + (
        f" ({before} before)" if before else ""
    )
    rest = (
        (failed, "failed"),
        (len(statuses) - good - failed, "not done yet"),
        (warned, "with warnings"),
    )
    return ", ".join([text, *(f"{number} {what}" for number, what in rest if number)])


def _clip(status: ClipStatus) -> str:
    folder = quote(status.name, errors="replace")
    image = '<span class="none"></span>'
    if status.is_good:
        # after a second
        video = f'<video src="{folder}/{OVERLAY_FILE}#t=1" preload="metadata" muted></video>'
        image = f'<a href="{folder}/report.html">{video}</a>'
    name = escape(status.name)
    title = f'<a href="{folder}/report.html">{name}</a>' if status.is_good else name
    facts = _WORDS.get(status.state, status.state) + (
        f" · {status.facts}" if status.is_good else ""
    )
    error = f'<p class="error">{escape(status.error)}</p>' if status.error else ""
    lines = [f'<p class="warning">{escape(text)}</p>' for text in status.warnings]
    rest = "".join(lines[MOST_SHOWN:])
    more = (
        f"<details><summary>{len(lines) - MOST_SHOWN} more</summary>{rest}</details>"
        if rest
        else ""
    )
    return (
        f'<li class="{status.state}">{image}<div><h2>{title}</h2><p class="facts">{facts}</p>{error}'
        f'{"".join(lines[:MOST_SHOWN])}{more}<p class="source">{escape(status.source)}</p></div></li>'
    )


_NO_MATTER = ("threads", "overwrite")  # options that change no number
_ROOT = Path(__file__).parents[2]


def recipe_of(options: RunOptions) -> str:
    """Digest of what the runs of all clips share; empty where an option names a folder, which is
    not looked into, or a plug-in, which may import others."""
    settings = {
        f.name: getattr(options, f.name) for f in fields(RunOptions) if f.name not in _NO_MATTER
    }
    named = {name: Path(value) for name, value in settings.items() if isinstance(value, str | Path)}
    if options.plugin is not None or any(path.is_dir() for path in named.values()):
        return ""
    inputs = {name: content_digest([path]) for name, path in named.items() if path.is_file()}
    return CacheKey("run", settings, inputs, _product_digest()).digest


def clip_key(recipe: str, source: str, out: str) -> str:
    """Of everything that what becomes of one clip depends on, without fetching it; empty without a
    recipe or a clip.
    """
    if not recipe or not (is_url(source) or Path(source).is_file()):
        return ""
    version = store.version_of(source) if is_url(source) else content_digest([Path(source)])
    edits = Path(out, EDITS_FILE)
    version += content_digest([edits]) if not is_url(out) and edits.is_file() else ""
    return hashlib.sha256(f"{recipe} {version}".encode()).hexdigest()


def as_before(source: str, out: str, recipe: str, retry_failed: bool) -> ClipStatus | None:
    """What became of a clip, if that stands: nothing has changed since, and its files here are as
    they were left. None where it has to be looked at."""
    status = ClipStatus.read(out)
    if status is None or not status.key or (retry_failed and not status.is_good):
        return None
    if status.is_good and not is_url(out) and not Manifest.read(Path(out)).is_whole():
        return None
    return status.again() if status.key == clip_key(recipe, source, out) else None


def kept(
    clips: Sequence[ClipSource], recipe: str, out: str, retry_failed: bool = False
) -> list[ClipStatus] | None:
    """What became of the clips, if that of all stands and no store has to be asked."""
    statuses: list[ClipStatus] = []
    for clip in clips:
        here = not is_url(out) and not is_url(clip.source)
        if (
            not here
            or (status := as_before(clip.source, f"{out}/{clip.name}", recipe, retry_failed))
            is None
        ):
            return None
        statuses.append(status)
    return statuses


@cache
def _product_digest() -> str:
    """Of all files of this project, code and weights: 50 MB, read in a tenth of a second."""
    files = (
        path for package in PACKAGES for path in (_ROOT / package).rglob("*") if path.is_file()
    )
    return content_digest(
        sorted(path for path in files if path.parent.name != "__pycache__")
    )  # of Python and numba
