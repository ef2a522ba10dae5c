"""Write `summary.csv` and `index.html` over many clips."""

import contextlib
import csv
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from fitmesh.many import store
from fitmesh.many.sources import ClipSource, is_url
from fitmesh.many.status import ClipStatus, write_text
from fitmesh.result import OVERLAY_FILE
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.errors import UserError
from pose2d.base.files import open_regular
from pose2d.base.folder_lock import folder_lock

CSV_FILE = "summary.csv"
PAGE_FILE = "index.html"
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
PATIENCE_S = 120.0  # for other runs that write the same two files
MOST_WARNINGS_SHOWN = 3  # of a clip; the others are folded
_ORDER = {"failed": 0, "busy": 1, "done": 2, "kept": 2, "waiting": 3}
_STATE_WORDS = {"kept": "done", "busy": "in another run", "waiting": "not begun"}
# Spreadsheets evaluate cells that begin so, and a file name may.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_TITLE = " · fitmesh</title>"  # marks a page that fitmesh wrote


def write_summary(clips: Sequence[ClipSource], known: Mapping[str, ClipStatus], out: str) -> None:
    """Write both files, from the statuses of this run and those in the other clips' folders.

    known: statuses of this run by the name of the clip.
    """
    # The last of several machines to write has read what all others have done.
    with contextlib.nullcontext() if is_url(out) else folder_lock(Path(out), PATIENCE_S):
        statuses = []
        for clip in clips:
            status = known.get(clip.name) or ClipStatus.read(f"{out}/{clip.name}")
            waiting = ClipStatus(clip.name, clip.source, "waiting", worker="")
            statuses.append(status or waiting)
        write_text(csv_table(statuses), f"{out}/{CSV_FILE}")
        write_text(html_page(statuses), f"{out}/{PAGE_FILE}")


def check_out(out: str, overwrite: bool = False) -> None:
    """Raise UserError if results cannot be written, or would replace files of the user's own."""
    if is_url(out):
        store.put(b"", f"{out}/.fitmesh_probe")
        store.remove(f"{out}/.fitmesh_probe")
        return
    folder = Path(out)
    for name, mark in ((CSV_FILE, ",".join(COLUMNS)), (PAGE_FILE, _TITLE)):
        file = folder / name
        if overwrite or not file.is_file():
            continue
        with open_regular(file) as stream:
            head = stream.read(1 << 12).decode("utf-8", "replace")
        if mark not in head:
            raise UserError(
                f"{file} was not written by fitmesh: choose another --out, or --overwrite.",
                file=file,
            )
    with folder_lock(folder, PATIENCE_S):
        pass


def csv_table(statuses: Sequence[ClipStatus]) -> str:
    """Return the text of summary.csv."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for status in statuses:
        row = [
            status.source,
            status.name,
            status.state,
            status.people,
            status.frames,
            status.seconds,
            status.cpu_s,
            status.peak_mb or "",
            " | ".join(status.warnings),
            status.error,
            status.worker,
        ]
        rows.writerow([_escape_formula(cell) for cell in row])
    return text.getvalue()


def _escape_formula(cell: object) -> object:
    """Prefix a text that a spreadsheet would evaluate."""
    is_formula = isinstance(cell, str) and cell.startswith(_FORMULA_STARTS)
    return f"'{cell}" if is_formula else cell


def html_page(statuses: Sequence[ClipStatus]) -> str:
    """Return the text of index.html, failures first."""
    rows = sorted(statuses, key=lambda status: (_ORDER[status.state], not status.warnings))
    people = sum(status.people for status in statuses)
    seconds = sum(status.seconds for status in statuses)
    words = f"{in_words(statuses)}; {count(people, 'people')}, {seconds / 60:.1f} min of work"
    template = Template((Path(__file__).parent / PAGE_FILE).read_text(encoding="utf-8"))
    return template.substitute(
        count=count(len(statuses), "clips"),
        words=words,
        clips="".join(map(_list_item, rows)),
        version=escape(__version__),
    )


def in_words(statuses: Sequence[ClipStatus]) -> str:
    """Return how many clips are done, failed and waiting, as a sentence."""
    good = sum(status.is_good for status in statuses)
    failed = sum(status.state == "failed" for status in statuses)
    kept = sum(status.state == "kept" for status in statuses)
    with_warnings = sum(bool(status.warnings) for status in statuses)
    parts = [f"{good} of {count(len(statuses), 'clips')} done"]
    if kept:
        parts[0] += f" ({kept} before)"
    for number, words in (
        (failed, "failed"),
        (len(statuses) - good - failed, "not done yet"),
        (with_warnings, "with warnings"),
    ):
        if number:
            parts.append(f"{number} {words}")
    return ", ".join(parts)


def _list_item(status: ClipStatus) -> str:
    """Return the entry of one clip in index.html."""
    folder = quote(status.name, errors="replace")
    title = escape(status.name)
    image = '<span class="none"></span>'
    facts = _STATE_WORDS.get(status.state, status.state)
    if status.is_good:
        # The image is the overlay after one second.
        video = f'<video src="{folder}/{OVERLAY_FILE}#t=1" preload="metadata" muted></video>'
        image = f'<a href="{folder}/report.html">{video}</a>'
        title = f'<a href="{folder}/report.html">{title}</a>'
        facts += f" · {status.facts}"
    error = f'<p class="error">{escape(status.error)}</p>' if status.error else ""
    warnings = [f'<p class="warning">{escape(text)}</p>' for text in status.warnings]
    folded = "".join(warnings[MOST_WARNINGS_SHOWN:])
    if folded:
        number = len(warnings) - MOST_WARNINGS_SHOWN
        folded = f"<details><summary>{number} more</summary>{folded}</details>"
    return (
        f'<li class="{status.state}">{image}<div><h2>{title}</h2>'
        f'<p class="facts">{facts}</p>{error}{"".join(warnings[:MOST_WARNINGS_SHOWN])}{folded}'
        f'<p class="source">{escape(status.source)}</p></div></li>'
    )
