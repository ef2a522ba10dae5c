"""`report.html`: one page that shows the quality of a run. It needs no other file and no server."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.report.overview import shots, swatch, usable, video, warnings
from fitmesh.exports.report.person_section import person_section
from fitmesh.exports.scene import frame_rate
from fitmesh.result import Person, Result
from fitmesh.ui.events import Reporter
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.files import atomic_file

FILE = "report.html"
MOST_UNFOLDED = 4  # people; of more, the sections are folded
_HERE = Path(__file__).parent
# Nothing may be loaded but the overlay beside the page, whatever a file name in the page contains.
_POLICY = "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_SOURCES = {
    "ccnet": "calibrated by a head on the network's own features (CCNet): the expected OKS",
    "closed-form": "calibrated in closed form from the network's own score or spread: the expected OKS",
    "raw": "the network's own score, not calibrated",
    "raw-heatmap": "the peak of the network's heatmap, not calibrated",
    "ones": "none: every keypoint had the same confidence",
}


def write(result: Result, out: Path, progress: Reporter) -> None:
    """It shows overlay.mp4 of the result's folder, where there is one."""
    with progress.stage("report", len(result.people) + 1, "parts") as tick:
        parts = [_head(result), warnings(result), _tiles(result), video(result), usable(result), shots(result)]
        tick(1)
        for person in result.people:
            parts.append(_person(result, person))
            tick(1)
        parts += [_settings(result), _timings(result), f"<footer>fitmesh {escape(__version__)}</footer>"]
        with atomic_file(out / FILE) as temporary:
            temporary.write_text(_page(result, "".join(parts)), encoding="utf-8", errors="replace")


def _page(result: Result, content: str) -> str:
    css, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(_name(result))} · fitmesh report</title><style>{css}</style></head>"
        f"<body><main>{content}</main><script>{script}</script></body></html>\n"
    )


def _name(result: Result) -> str:
    return result.clip_path.name if result.clip_path is not None else result.folder.resolve().name


def _head(result: Result) -> str:
    width, height = result.camera.size
    who = count(len(result.people), "people") if result.people else "no person was found"
    rate = f"{count(len(result.frames), 'frames')} at {float(frame_rate(result)):.4g} per second"
    return f'<h1>{escape(_name(result))}</h1><p class="soft">{who}, {rate}, {width}×{height}</p>'


def _tiles(result: Result) -> str:
    if not result.people:
        return "<p>No body was fitted, so there is nothing to plot.</p>"
    each = [
        (p.observed, p.confidence[p.observed].ravel(), p.reprojection_px.ravel(), p.joint_std_relative_mm.ravel())
        for p in result.people
    ]
    seen, confidence, error, spread = (np.concatenate(part) for part in zip(*each, strict=True))
    tiles = [
        (f"{seen.mean():.0%}", "of people's frames observed"),
        (f"{confidence.mean():.2f}" if len(confidence) else "–", f"mean keypoint confidence ({result.source})"),
        (_typical(error, " px"), "median reprojection error"),
        (_typical(spread, " mm"), "median joint uncertainty, relative to the pelvis"),
    ]
    return (
        '<div class="tiles">' + "".join(f"<div><b>{a}</b><span>{escape(b)}</span></div>" for a, b in tiles) + "</div>"
    )


def _typical(values: np.ndarray, unit: str) -> str:
    finite = values[np.isfinite(values)]
    return f"{np.median(finite):.1f}{unit}" if len(finite) else "unknown"


def _person(result: Result, person: Person) -> str:
    heading = f"<h2>{swatch(person.identity)}Person {person.identity}</h2>"
    content = person_section(result, person)
    if len(result.people) <= MOST_UNFOLDED:
        return f"<section>{heading}{content}</section>"
    facts = f"{count(len(person), 'frames')}, {person.observed.mean():.0%} observed"
    return f'<details class="person"><summary>{heading}<span>{facts}</span></summary>{content}</details>'


def _settings(result: Result) -> str:
    (fx, fy), (cx, cy) = result.camera.focal_px, result.camera.center_px
    main: dict[str, Any] = {
        "2D network": result.pose_model,
        "confidence": f"{result.source}: {_SOURCES.get(result.source, 'given in a file')}",
        "weighting": result.weighting,
        "initialiser": result.init,
        "body": result.body_name,
        "camera": f"focal length {fx:.1f}, {fy:.1f} px, principal point {cx:.1f}, {cy:.1f} px",
    }
    every = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in result.settings.items()
        if value not in (None, "", [])
    }
    more = f"<details><summary>all {len(every)} settings of the run</summary>{_table(every)}</details>" if every else ""
    return f'<h2>Settings</h2><div class="card scroll">{_table(main)}{more}</div>'


def _table(entries: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in entries.items())
    return f"<table>{rows}</table>"


def _timings(result: Result) -> str:
    if not result.timings_s:
        return ""
    most, total = max(result.timings_s.values()), sum(result.timings_s.values())
    rows = "".join(
        f"<tr><th>{escape(stage)}</th><td>{seconds:.1f} s</td><td>{seconds / max(total, 1e-9):.0%}</td>"
        f'<td class="bar"><i style="width:{seconds / max(most, 1e-9):.1%}"></i></td></tr>'
        for stage, seconds in result.timings_s.items()
    )
    rate = f", {len(result.frames) / total:.1f} frames per second" if total > 0 else ""
    return (
        f'<h2>Timings</h2><p class="soft">{total:.1f} s in all{rate}.</p>'
        f'<div class="card"><table width="100%">{rows}</table></div>'
    )
