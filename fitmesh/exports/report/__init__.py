"""`report.html`: one page that shows the quality of a run. It needs no other file and no server."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.draw import WORST_SCALE_MM, identity_colour, worst_colours
from fitmesh.exports.report.person_section import person_section
from fitmesh.exports.report.plots import thinned
from fitmesh.exports.scene import clip_name, frame_rate, on_every_frame, shot_rows
from fitmesh.result import Person, Result
from fitmesh.ui.events import Reporter
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.files import atomic_file

FILE = "report.html"
MOST_UNFOLDED = 4  # people; of more, the sections are folded
MOST_WARNINGS = 8  # shown at once; the others are folded
MOST_STOPS = 300  # of a bar's colours
DOUBTFUL_UP_DEG = 6.0  # standard deviation from which on gravity is worth a look
FAR_OFF, FAR_OFF_SHARE = (
    3.0,
    0.03,
)  # times the usual distance to the keypoints, and the share of the box's diagonal
WORDS = {"swap": "likely swap"}  # kinds of events whose name is too short to be understood
_CAMERA = {
    "static": "still",
    "rotating": "turns in one place",
    "moving": "moves",
    "unknown": "not known",
}
_HERE = Path(__file__).parent
# Nothing may be loaded but the overlay beside the page, whatever a file name in the page contains.
_POLICY = (
    "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)
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
        parts = [
            _head(result),
            _warnings(result),
            _tiles(result),
            _video(result),
            _usable(result),
            _shots(result),
        ]
        tick(1)
        for person in result.people:
            parts.append(_person(result, person))
            tick(1)
        parts += [
            _settings(result),
            _timings(result),
            f"<footer>fitmesh {escape(__version__)}</footer>",
        ]
        with atomic_file(out / FILE) as temporary:
            temporary.write_text(_page(result, "".join(parts)), encoding="utf-8", errors="replace")


def _page(result: Result, content: str) -> str:
    css, script = (
        (_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(clip_name(result))} · fitmesh report</title><style>{css}</style></head>"
        f"<body><main>{content}</main><script>{script}</script></body></html>\n"
    )


def _head(result: Result) -> str:
    width, height = result.camera.size
    who = count(len(result.people), "people") if result.people else "no person was found"
    rate = f"{count(len(result.frames), 'frames')} at {float(frame_rate(result)):.4g} per second"
    return (
        f'<h1>{escape(clip_name(result))}</h1><p class="soft">{who}, {rate}, {width}×{height}</p>'
    )


def _swatch(identity: int) -> str:
    colour = "#{:02x}{:02x}{:02x}".format(*identity_colour(identity))
    return f'<span class="swatch" style="background:{colour}"></span>'


def _moment(since_s: float) -> str:
    """Seconds since the first frame used, as a button that moves the page's player there."""
    return f'<button class="time" data-seconds="{max(0.0, since_s):.3f}">{since_s:.2f} s</button>'


def _to_check(result: Result, time_s: float, identity: int, what: str, text: str) -> str:
    """A line about somebody at a time of the video, which `fitmesh tracks` speaks of."""
    start_s = float(result.time_s[0]) if len(result.time_s) else 0.0
    when = _moment(time_s - start_s) + (f" ({time_s:.2f} s of the video)" if start_s > 0 else "")
    return f"<li>{when} {_swatch(identity)}person {identity}, <b>{escape(what)}</b>: {escape(text)}</li>"


def _warnings(result: Result) -> str:
    """One line per event in order of time, then beliefs about the scene, then moments far from
    their keypoints.
    """
    events = [
        _to_check(
            result, event.time_s, event.identity, WORDS.get(event.kind, event.kind), event.text
        )
        for event in sorted(result.events, key=lambda event: event.time_s)
    ]
    lines = [*events, *_scene_doubts(result), *_far_off(result)]
    if not lines:
        return ""
    shown = lines[:MOST_WARNINGS]
    rest = lines[MOST_WARNINGS:]
    folded = f'<details><summary>{len(rest)} more</summary><ul class="events">{"".join(rest)}</ul></details>'
    by_hand = (
        '<p class="soft">Who is who can be corrected by hand with <code>fitmesh tracks</code>.</p>'
    )
    return (
        f'<section class="card warnings"><h2>{count(len(lines), "things")} to check</h2>'
        f'<ul class="events">{"".join(shown)}</ul>{folded if rest else ""}{by_hand if events else ""}</section>'
    )


def _scene_doubts(result: Result) -> list[str]:
    """Shots whose gravity, floor or contacts were dropped, softened, are uncertain or not known."""
    lines = []
    for number, shot in enumerate(result.shots, 1):
        where = f"shot {number}: " if len(result.shots) > 1 else ""
        reason = escape(shot.scene_reason)
        if shot.scene in ("dropped", "softened"):
            lines.append(f"<li>{where}<b>scene {shot.scene}</b>: {reason}</li>")
        elif shot.up_std_deg > DOUBTFUL_UP_DEG:
            words = f"the up direction is uncertain by {shot.up_std_deg:.0f} degrees"
            lines.append(f"<li>{where}<b>gravity doubtful</b>: {words} ({reason})</li>")
        elif not shot.floor_known and shot.scene_reason not in ("", "not looked for"):
            what = "gravity" if shot.up_cam is None else "floor"
            lines.append(f"<li>{where}<b>{what} not known</b>: {reason}</li>")
    return lines


def _far_off(result: Result) -> list[str]:
    """The worst moment of everyone whose body is at some time much farther from its keypoints than
    usual.
    """
    lines = []
    for person in result.people:
        used = person.used & np.isfinite(person.reprojection_px)
        rows = np.flatnonzero(used.sum(1) >= 5)
        if len(rows) < 5:
            continue
        off_px = np.array([person.reprojection_px[row][used[row]].mean() for row in rows])
        worst = int(off_px.argmax())
        usual = float(np.median(off_px))
        box_px = person.box_px[rows[worst]]
        if off_px[worst] > max(
            FAR_OFF * usual, FAR_OFF_SHARE * float(np.hypot(*(box_px[2:] - box_px[:2])))
        ):
            text = f"by {off_px[worst]:.0f} px, usually {usual:.0f}"
            time_s = float(person.time_s[rows[worst]])
            lines.append(_to_check(result, time_s, person.identity, "body off its keypoints", text))
    return lines


def _tiles(result: Result) -> str:
    if not result.people:
        return "<p>No body was fitted, so there is nothing to plot.</p>"
    names = ("observed", "confidence", "reprojection_px", "joint_std_relative_mm")
    seen, confidence, error, spread = (
        np.concatenate([getattr(p, name) for p in result.people]) for name in names
    )
    confidence = confidence[seen]
    tiles = [
        (f"{seen.mean():.0%}", "of people's frames observed"),
        (
            f"{confidence.mean():.2f}" if len(confidence) else "–",
            f"mean keypoint confidence ({result.source})",
        ),
        (_typical(error, " px"), "median reprojection error"),
        (_typical(spread, " mm"), "median joint uncertainty, relative to the pelvis"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{a}</b><span>{escape(b)}</span></div>" for a, b in tiles)
        + "</div>"
    )


def _typical(values: np.ndarray, unit: str) -> str:
    finite = values[np.isfinite(values)]
    return f"{np.median(finite):.1f}{unit}" if len(finite) else "unknown"


def _video(result: Result) -> str:
    """The overlay beside the page. A page that was moved without it says so."""
    if not result.overlay_path.is_file():
        return '<p class="soft">No video: overlay.mp4 is not in the folder.</p>'
    name = escape(result.overlay_path.name)
    return (
        f'<h2>Video</h2><div class="video"><video controls playsinline preload="metadata" src="{name}"></video>'
        f'<p class="soft" hidden>{name} is not beside this page, or cannot be played: '
        f'<a href="{name}">open it</a> by itself.</p></div>'
    )


def _usable(result: Result) -> str:
    """Of each person a bar under the video: blue frames can be used, red ones should not be."""
    bars = []
    for person in result.people:
        if not np.isfinite(person.worst_error_mm).any():
            continue
        worst = np.where(person.observed, person.worst_error_mm, np.nan)
        shown = thinned(on_every_frame(result, person, worst), MOST_STOPS)
        first, last = np.searchsorted(result.frames, person.frame[[0, -1]])
        left = 100 * first / len(result.frames)
        width = 100 * (last + 1 - first) / len(result.frames)
        colours = ",".join([*worst_colours(shown), *worst_colours(shown[-1:])])
        words = f"Person {person.identity}: no joint off by more than 100 / 200 mm in "
        words += " / ".join(f"{(person.reliable(limit) >= 0.5).mean():.0%}" for limit in (100, 200))
        words += " of frames, probably"
        bars.append(
            f'<div class="usable" title="{words}"><i style="margin-left:{left:.2f}%;width:{width:.2f}%;'
            f'background:linear-gradient(90deg,{colours})"></i></div>'
            f'<p class="soft">{_swatch(person.identity)}{words}</p>'
        )
    if not bars:
        return ""
    return (
        '<h3>Which frames to use</h3><p class="soft">How far the worst joint may be off relative to the pelvis: blue '
        f"is nothing, red {WORST_SCALE_MM:.0f} mm or more, grey was not seen.</p>{''.join(bars)}"
    )


def _shots(result: Result) -> str:
    """Where the video was cut, and who is in which shot; nothing for a video of one shot."""
    if len(result.shots) < 2:
        return ""
    rows = ""
    for number, (shot, frames) in enumerate(zip(result.shots, shot_rows(result), strict=True)):
        since_s = result.time_s[frames] - result.time_s[0]
        span = f"{_moment(since_s[0])} to {since_s[-1]:.2f} s" if len(since_s) else "no frame"
        people = [
            f"{_swatch(p.identity)}{p.identity}{f' (the same as {p.same_as})' if p.same_as != p.identity else ''}"
            for p in result.people
            if p.shot == number
        ]
        rows += f"<tr><th>{number + 1}</th><td>{span}</td><td>{escape(_CAMERA.get(shot.camera, shot.camera))}</td>"
        rows += f"<td>{', '.join(people) or 'nobody'}</td></tr>"
    return (
        f"<h2>{len(result.shots)} shots</h2><p>Between two shots the video was cut: nobody is followed over a cut, "
        'and each shot has a camera and a floor of its own.</p><div class="card scroll"><table>'
        f"<tr><th></th><th>from, to</th><th>camera</th><th>people</th></tr>{rows}</table></div>"
    )


def _person(result: Result, person: Person) -> str:
    heading = f"<h2>{_swatch(person.identity)}Person {person.identity}</h2>"
    content = person_section(result, person)
    if len(result.people) <= MOST_UNFOLDED:
        return f"<section>{heading}{content}</section>"
    facts = f"{count(len(person), 'frames')}, {person.observed.mean():.0%} observed"
    return f'<details class="person"><summary>{heading}<span>{facts}</span></summary>{content}</details>'


def _settings(result: Result) -> str:
    fx, fy = result.camera.focal_px
    cx, cy = result.camera.center_px
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
    more = (
        f"<details><summary>all {len(every)} settings of the run</summary>{_table(every)}</details>"
        if every
        else ""
    )
    return f'<h2>Settings</h2><div class="card scroll">{_table(main)}{more}</div>'


def _table(entries: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in entries.items()
    )
    return f"<table>{rows}</table>"


def _timings(result: Result) -> str:
    if not result.timings_s:
        return ""
    most = max(result.timings_s.values())
    total = sum(result.timings_s.values())
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
