"""`report.html`: one page that shows the quality of a run. It needs no other file and no server."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.draw import WORST_SCALE_MM, identity_colour, worst_colours
from fitmesh.exports.report.person_section import person_section
from fitmesh.exports.report.plots import thinned
from fitmesh.exports.report.style import styled_page
from fitmesh.exports.scene import clip_name, frame_rate, on_every_frame, shot_rows
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitmesh.ui.trouble import count
from fitmesh.version import __version__
from pose2d.base.files import atomic_file

FILE = "report.html"
MOST_UNFOLDED = 4  # with more people, their sections are folded
MOST_WARNINGS = 8  # that are thin_errors; the others are folded
MOST_STOPS = 300  # colours of a bar
DOUBTFUL_UP_DEG = 6.0  # gravity with a larger standard deviation is worth a check
# A body is far off its keypoints at this multiple of the median distance, and at this share of the
# box's diagonal.
FAR_OFF = 3.0
FAR_OFF_SHARE = 0.03
WORDS = {"swap": "likely swap"}  # clearer names for kinds of events
_CAMERA = {
    "static": "still",
    "rotating": "turns in one place",
    "moving": "moves",
    "unknown": "not known",
}
_SOURCES = {
    "ccnet": "calibrated by a head on the network's own features (CCNet): the expected OKS",
    "closed-form": "calibrated in closed form from the network's score or spread: the expected OKS",
    "raw": "the network's own score, not calibrated",
    "raw-heatmap": "the peak of the network's heatmap, not calibrated",
    "ones": "none: every keypoint had the same confidence",
}


def write(result: Result, out: Path, progress: Reporter) -> None:
    """Write the report. It shows overlay.mp4 of the result's folder, if that exists."""
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
            page = styled_page(f"{clip_name(result)} · fitmesh report", "".join(parts))
            temporary.write_text(page, encoding="utf-8", errors="replace")


def _head(result: Result) -> str:
    width, height = result.camera.size
    people = count(len(result.people), "people") if result.people else "no person was found"
    frames = f"{count(len(result.frames), 'frames')} at {float(frame_rate(result)):.4g} per second"
    facts = f"{people}, {frames}, {width}×{height}"
    return f'<h1>{escape(clip_name(result))}</h1><p class="soft">{facts}</p>'


def _swatch(identity: int) -> str:
    colour = "#{:02x}{:02x}{:02x}".format(*identity_colour(identity))
    return f'<span class="swatch" style="background:{colour}"></span>'


def _moment(since_s: float) -> str:
    """Return a button with the seconds since the first frame, which moves the player there."""
    return f'<button class="time" data-seconds="{max(0.0, since_s):.3f}">{since_s:.2f} s</button>'


def _to_check(result: Result, time_s: float, identity: int, kind: str, text: str) -> str:
    """Return a line about a person at a time of the video, which is what `fitmesh tracks` takes."""
    start_s = float(result.time_s[0]) if len(result.time_s) else 0.0
    moment = _moment(time_s - start_s)
    if start_s > 0:
        moment += f" ({time_s:.2f} s of the video)"
    person = f"{_swatch(identity)}person {identity}"
    return f"<li>{moment} {person}, <b>{escape(kind)}</b>: {escape(text)}</li>"


def _warnings(result: Result) -> str:
    """Return the card of things to check: events in order of time, then doubts about the scene,
    then moments at which a body is far from its keypoints.
    """
    events = []
    for event in sorted(result.events, key=lambda event: event.time_s):
        kind = WORDS.get(event.kind, event.kind)
        events.append(_to_check(result, event.time_s, event.identity, kind, event.text))
    lines = [*events, *_scene_doubts(result), *_far_off(result)]
    if not lines:
        return ""
    card = f"<h2>{count(len(lines), 'things')} to check</h2>"
    card += f'<ul class="events">{"".join(lines[:MOST_WARNINGS])}</ul>'
    if folded := lines[MOST_WARNINGS:]:
        items = "".join(folded)
        card += f"<details><summary>{len(folded)} more</summary>"
        card += f'<ul class="events">{items}</ul></details>'
    if events:
        card += '<p class="soft">Correct identities with <code>fitmesh tracks</code>.</p>'
    return f'<section class="card warnings">{card}</section>'


def _scene_doubts(result: Result) -> list[str]:
    """Return a line for each shot whose scene was dropped, softened, uncertain or not known."""
    lines = []
    for number, shot in enumerate(result.shots, 1):
        prefix = f"shot {number}: " if len(result.shots) > 1 else ""
        reason = escape(shot.scene_reason)
        if shot.scene in ("dropped", "softened"):
            lines.append(f"<li>{prefix}<b>scene {shot.scene}</b>: {reason}</li>")
        elif shot.up_std_deg > DOUBTFUL_UP_DEG:
            words = f"the up direction is uncertain by {shot.up_std_deg:.0f} degrees"
            lines.append(f"<li>{prefix}<b>gravity doubtful</b>: {words} ({reason})</li>")
        elif not shot.floor_known and shot.scene_reason not in ("", "not looked for"):
            subject = "gravity" if shot.up_cam is None else "floor"
            lines.append(f"<li>{prefix}<b>{subject} not known</b>: {reason}</li>")
    return lines


def _far_off(result: Result) -> list[str]:
    """Return a line for each person whose body is at one moment much farther from its keypoints
    than in the median, with the worst moment.
    """
    lines = []
    for person in result.people:
        used = person.used & np.isfinite(person.reprojection_px)
        rows = np.flatnonzero(used.sum(1) >= 5)
        if len(rows) < 5:
            continue
        off_px = np.array([person.reprojection_px[row][used[row]].mean() for row in rows])
        worst = int(off_px.argmax())
        median_px = float(np.median(off_px))
        box_px = person.box_px[rows[worst]]
        diagonal_px = float(np.hypot(*(box_px[2:] - box_px[:2])))
        if off_px[worst] > max(FAR_OFF * median_px, FAR_OFF_SHARE * diagonal_px):
            text = f"by {off_px[worst]:.0f} px, usually {median_px:.0f}"
            time_s = float(person.time_s[rows[worst]])
            lines.append(_to_check(result, time_s, person.identity, "body off its keypoints", text))
    return lines


def _tiles(result: Result) -> str:
    """Return the figures of all people together."""
    if not result.people:
        return "<p>No body was fitted, so there is nothing to plot.</p>"
    observed = np.concatenate([person.observed for person in result.people])
    confidence = np.concatenate([person.confidence for person in result.people])[observed]
    error_px = np.concatenate([person.reprojection_px for person in result.people])
    std_mm = np.concatenate([person.joint_std_relative_mm for person in result.people])
    mean_confidence = f"{confidence.mean():.2f}" if len(confidence) else "–"
    tiles = [
        (f"{observed.mean():.0%}", "of people's frames observed"),
        (mean_confidence, f"mean keypoint confidence ({result.source})"),
        (_median_text(error_px, " px"), "median reprojection error"),
        (_median_text(std_mm, " mm"), "median joint uncertainty, relative to the pelvis"),
    ]
    cells = [f"<div><b>{value}</b><span>{escape(title)}</span></div>" for value, title in tiles]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _median_text(values: np.ndarray, unit: str) -> str:
    finite = values[np.isfinite(values)]
    return f"{np.median(finite):.1f}{unit}" if len(finite) else "unknown"


def _video(result: Result) -> str:
    """Return a player of the overlay beside the page, with a text in case it is not there."""
    if not result.overlay_path.is_file():
        return '<p class="soft">No video: overlay.mp4 is not in the folder.</p>'
    name = escape(result.overlay_path.name)
    player = f'<video controls playsinline preload="metadata" src="{name}"></video>'
    missing = (
        f'<p class="soft" hidden>{name} is not in the folder of this page, or cannot be played: '
        f'<a href="{name}">open it</a> by itself.</p>'
    )
    return f'<h2>Video</h2><div class="video">{player}{missing}</div>'


def _usable(result: Result) -> str:
    """Return a bar for each person under the video: blue frames are usable, red ones are not."""
    bars = []
    for person in result.people:
        if not np.isfinite(person.worst_error_mm).any():
            continue
        worst = np.where(person.observed, person.worst_error_mm, np.nan)
        thin_errors = thinned(on_every_frame(result, person, worst), MOST_STOPS)
        first, last = np.searchsorted(result.frames, person.frame[[0, -1]])
        left = 100 * first / len(result.frames)
        width = 100 * (last + 1 - first) / len(result.frames)
        colours = ",".join([*worst_colours(thin_errors), *worst_colours(thin_errors[-1:])])
        within_100, within_200 = (
            f"{(person.reliable(limit_mm) >= 0.5).mean():.0%}" for limit_mm in (100, 200)
        )
        text = (
            f"Person {person.identity}: no joint off by more than 100 / 200 mm in "
            f"{within_100} / {within_200} of frames, probably"
        )
        style = f"margin-left:{left:.2f}%;width:{width:.2f}%;"
        style += f"background:linear-gradient(90deg,{colours})"
        bars.append(
            f'<div class="usable" title="{text}"><i style="{style}"></i></div>'
            f'<p class="soft">{_swatch(person.identity)}{text}</p>'
        )
    if not bars:
        return ""
    return (
        '<h3>Which frames to use</h3><p class="soft">Expected error of the worst joint, relative '
        f"to the pelvis: blue is 0, red {WORST_SCALE_MM:.0f} mm or more, grey was not observed."
        f"</p>{''.join(bars)}"
    )


def _shots(result: Result) -> str:
    """Return the table of shots with their people; nothing for a video of one shot."""
    if len(result.shots) < 2:
        return ""
    rows = ""
    for number, (shot, frames) in enumerate(zip(result.shots, shot_rows(result), strict=True)):
        since_s = result.time_s[frames] - result.time_s[0]
        span = f"{_moment(since_s[0])} to {since_s[-1]:.2f} s" if len(since_s) else "no frame"
        people = []
        for person in result.people:
            if person.shot == number:
                is_other = person.same_as != person.identity
                same_as = f" (the same as {person.same_as})" if is_other else ""
                people.append(f"{_swatch(person.identity)}{person.identity}{same_as}")
        camera = escape(_CAMERA.get(shot.camera, shot.camera))
        rows += f"<tr><th>{number + 1}</th><td>{span}</td><td>{camera}</td>"
        rows += f"<td>{', '.join(people) or 'no person'}</td></tr>"
    return (
        f"<h2>{len(result.shots)} shots</h2><p>The video is cut between two shots. Tracks end at a "
        "cut, and each shot has its own camera and floor.</p>"
        '<div class="card scroll"><table>'
        f"<tr><th></th><th>from, to</th><th>camera</th><th>people</th></tr>{rows}</table></div>"
    )


def _person(result: Result, person: Person) -> str:
    heading = f"<h2>{_swatch(person.identity)}Person {person.identity}</h2>"
    content = person_section(result, person)
    if len(result.people) <= MOST_UNFOLDED:
        return f"<section>{heading}{content}</section>"
    facts = f"{count(len(person), 'frames')}, {person.observed.mean():.0%} observed"
    summary = f"<summary>{heading}<span>{facts}</span></summary>"
    return f'<details class="person">{summary}{content}</details>'


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
    all_settings = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in result.settings.items()
        if value not in (None, "", [])
    }
    all_settings_html = ""
    if all_settings:
        summary = f"<summary>all {len(all_settings)} settings of the run</summary>"
        all_settings_html = f"<details>{summary}{_table(all_settings)}</details>"
    return f'<h2>Settings</h2><div class="card scroll">{_table(main)}{all_settings_html}</div>'


def _table(entries: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in entries.items()
    )
    return f"<table>{rows}</table>"


def _timings(result: Result) -> str:
    if not result.timings_s:
        return ""
    longest = max(max(result.timings_s.values()), 1e-9)
    total = sum(result.timings_s.values())
    rows = ""
    for stage, seconds in result.timings_s.items():
        share = seconds / max(total, 1e-9)
        rows += f"<tr><th>{escape(stage)}</th><td>{seconds:.1f} s</td><td>{share:.0%}</td>"
        rows += f'<td class="bar"><i style="width:{seconds / longest:.1%}"></i></td></tr>'
    rate = f", {len(result.frames) / total:.1f} frames per second" if total > 0 else ""
    return (
        f'<h2>Timings</h2><p class="soft">{total:.1f} s in all{rate}.</p>'
        f'<div class="card"><table width="100%">{rows}</table></div>'
    )
