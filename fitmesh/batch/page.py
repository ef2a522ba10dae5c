"""`index.html`: every clip with its thumbnail (in its folder), people, time, warnings and errors."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from fitmesh.batch import thumbnail
from fitmesh.batch.status import ClipStatus
from fitmesh.version import __version__

_HERE = Path(__file__).parent
# Nothing may be loaded but thumbnails beside the page, whatever a file name in the page contains.
_POLICY = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'"
_ORDER = {"failed": 0, "busy": 1, "done": 2, "kept": 2, "waiting": 3}
_WORDS = {"kept": "done", "busy": "in another run", "waiting": "not begun"}
MOST_SHOWN = 3  # warnings of a clip; the rest are folded


def page(statuses: Sequence[ClipStatus]) -> str:
    """Clips that failed come first, then those with warnings."""
    rows = sorted(statuses, key=lambda status: (_ORDER[status.state], not status.warnings))
    css = (_HERE / "index.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{_count(len(statuses), 'clip')} · fitmesh</title><style>{css}</style></head><body><main>"
        f"<h1>{_count(len(statuses), 'clip')}</h1>{_tiles(statuses)}"
        f"<ul>{''.join(map(_clip, rows))}</ul>"
        f'<footer>The same as a table: <a href="summary.csv">summary.csv</a> · fitmesh {escape(__version__)}</footer>'
        "</main></body></html>\n"
    )


def _tiles(statuses: Sequence[ClipStatus]) -> str:
    good = [status for status in statuses if status.is_good]
    failed = sum(status.state == "failed" for status in statuses)
    rest = len(statuses) - len(good) - failed
    seconds = sum(status.seconds for status in statuses)
    tiles = [
        (str(len(good)), "done", ""),
        (str(failed), "failed", "bad" if failed else ""),
        *([(str(rest), "not done yet", "")] if rest else []),
        (str(sum(status.people for status in good)), "people", ""),
        (str(sum(bool(status.warnings) for status in good)), "with warnings", ""),
        (_time(seconds), "of work", ""),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="{kind}"><b>{a}</b><span>{b}</span></div>' for a, b, kind in tiles)
        + "</div>"
    )


def _clip(status: ClipStatus) -> str:
    folder = quote(status.name, errors="replace")
    image = '<span class="none"></span>'
    if status.is_good:
        image = f'<a href="{folder}/report.html"><img src="{folder}/{thumbnail.FILE}" alt="" loading="lazy"></a>'
    name = escape(status.name)
    title = f'<a href="{folder}/report.html">{name}</a>' if status.is_good else name
    facts = [_WORDS.get(status.state, status.state)]
    if status.is_good:
        who = _count(status.people, "person", "people") if status.people else "nobody found"
        facts += [who, _count(status.frames, "frame"), _time(status.seconds)]
    error = f'<p class="error">{escape(status.error)}</p>' if status.error else ""
    return (
        f'<li class="{status.state}">{image}<div><h2>{title}</h2><p class="facts">{" · ".join(facts)}</p>'
        f'{error}{_warnings(status)}<p class="source">{escape(status.source)}</p></div></li>'
    )


def _warnings(status: ClipStatus) -> str:
    lines = [f'<p class="warning">{escape(text)}</p>' for text in status.warnings]
    rest = "".join(lines[MOST_SHOWN:])
    more = f"<details><summary>{len(lines) - MOST_SHOWN} more</summary>{rest}</details>" if rest else ""
    return "".join(lines[:MOST_SHOWN]) + more


def _count(number: int, what: str, several: str = "") -> str:
    return f"{number} {what if number == 1 else several or what + 's'}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.1f} min" if minutes < 60 else f"{hours:.1f} h"
