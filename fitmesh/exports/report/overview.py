"""What a reader looks at first: what to check (who is who, the scene, frames far off), the video, and the shots."""

from html import escape

import numpy as np

from fitmesh.exports.draw import WORST_SCALE_MM, identity_colour, worst_colours
from fitmesh.exports.report.plots import thinned
from fitmesh.exports.scene import on_every_frame
from fitmesh.result import Result
from fitmesh.ui.trouble import count

MOST_WARNINGS = 8  # shown at once; the others are folded
DOUBTFUL_UP_DEG = 6.0  # standard deviation from which on gravity is worth a look
FAR_OFF, FAR_OFF_SHARE = 3.0, 0.03  # times the usual distance to the keypoints, and the share of the box's diagonal
WORDS = {"swap": "likely swap"}  # kinds of events whose name is too short to be understood
_CAMERA = {"static": "still", "rotating": "turns in one place", "moving": "moves", "unknown": "not known"}


MOST_STOPS = 300  # of a bar's colours


def swatch(identity: int) -> str:
    colour = "#{:02x}{:02x}{:02x}".format(*identity_colour(identity))
    return f'<span class="swatch" style="background:{colour}"></span>'


def moment(since_s: float) -> str:
    """Seconds since the first frame used, as a button that moves the page's player there."""
    return f'<button class="time" data-seconds="{max(0.0, since_s):.3f}">{since_s:.2f} s</button>'


def seconds(result: Result, time_s: float) -> str:
    """The same of a time of the video, which `fitmesh tracks` speaks of."""
    start_s = float(result.time_s[0]) if len(result.time_s) else 0.0
    return moment(time_s - start_s) + (f" ({time_s:.2f} s of the video)" if start_s > 0 else "")


def warnings(result: Result) -> str:
    """One line per event in order of time, then beliefs about the scene, then moments far from their keypoints."""
    events = [
        f"<li>{seconds(result, event.time_s)} {swatch(event.identity)}person {event.identity}, "
        f"<b>{escape(WORDS.get(event.kind, event.kind))}</b>: {escape(event.text)}</li>"
        for event in sorted(result.events, key=lambda event: event.time_s)
    ]
    lines = [*events, *_scene_doubts(result), *_far_off(result)]
    if not lines:
        return ""
    shown, rest = lines[:MOST_WARNINGS], lines[MOST_WARNINGS:]
    folded = f'<details><summary>{len(rest)} more</summary><ul class="events">{"".join(rest)}</ul></details>'
    by_hand = '<p class="soft">Who is who can be corrected by hand with <code>fitmesh tracks</code>.</p>'
    return (
        f'<section class="card warnings"><h2>{count(len(lines), "things")} to check</h2>'
        f'<ul class="events">{"".join(shown)}</ul>{folded if rest else ""}{by_hand if events else ""}</section>'
    )


def _scene_doubts(result: Result) -> list[str]:
    """Shots whose gravity, floor or contacts were dropped, softened, are uncertain or not known."""
    lines = []
    for number, shot in enumerate(result.shots, 1):
        where = f"shot {number}: " if len(result.shots) > 1 else ""
        uncertain = np.isfinite(shot.up_std_deg) and shot.up_std_deg > DOUBTFUL_UP_DEG
        if shot.scene in ("dropped", "softened"):
            lines.append(f"<li>{where}<b>scene {shot.scene}</b>: {escape(shot.scene_reason)}</li>")
        elif uncertain:
            words = f"the up direction is uncertain by {shot.up_std_deg:.0f} degrees"
            lines.append(f"<li>{where}<b>gravity doubtful</b>: {words} ({escape(shot.scene_reason)})</li>")
        elif not shot.floor_known and shot.scene_reason not in ("", "not looked for"):
            what = "gravity" if shot.up_cam is None else "floor"
            lines.append(f"<li>{where}<b>{what} not known</b>: {escape(shot.scene_reason)}</li>")
    return lines


def _far_off(result: Result) -> list[str]:
    """The worst moment of everyone whose body is at some time much farther from its keypoints than usual."""
    lines = []
    for person in result.people:
        used = person.used & np.isfinite(person.reprojection_px)
        enough = used.sum(1) >= 5
        if enough.sum() < 5:
            continue
        off_px = np.array(
            [row[good].mean() for row, good in zip(person.reprojection_px[enough], used[enough], strict=True)]
        )
        worst, usual = int(off_px.argmax()), float(np.median(off_px))
        size_px = float(np.hypot(*(person.box_px[enough][worst][2:] - person.box_px[enough][worst][:2])))
        if off_px[worst] > FAR_OFF * usual and off_px[worst] > FAR_OFF_SHARE * size_px:
            lines.append(
                f"<li>{seconds(result, float(person.time_s[enough][worst]))} {swatch(person.identity)}person "
                f"{person.identity}, <b>body off its keypoints</b>: by {off_px[worst]:.0f} px, usually {usual:.0f}</li>"
            )
    return lines


def video(result: Result) -> str:
    """The overlay beside the page. A page that was moved without it says so."""
    if not result.overlay_path.is_file():
        return '<p class="soft">No video: overlay.mp4 is not in the folder.</p>'
    name = escape(result.overlay_path.name)
    return (
        f'<h2>Video</h2><div class="video"><video controls playsinline preload="metadata" src="{name}"></video>'
        f'<p class="soft" hidden>{name} is not beside this page, or cannot be played: '
        f'<a href="{name}">open it</a> by itself.</p></div>'
    )


def usable(result: Result) -> str:
    """Of each person a bar under the video: blue frames can be used, red ones should not be."""
    known = [person for person in result.people if person.worst_error_mm is not None]
    if not known:
        return ""
    bars = []
    for person in known:
        assert person.worst_error_mm is not None
        worst = np.where(person.observed, person.worst_error_mm, np.nan)
        shown = thinned(on_every_frame(result, person, worst), MOST_STOPS)
        first, last = np.searchsorted(result.frames, person.frame[[0, -1]])
        left, width = 100 * first / len(result.frames), 100 * (last + 1 - first) / len(result.frames)
        colours = ",".join([*worst_colours(shown), *worst_colours(shown[-1:])])
        words = f"Person {person.identity}: no joint off by more than 100 / 200 mm in "
        words += " / ".join(f"{(person.reliable(limit) >= 0.5).mean():.0%}" for limit in (100, 200))
        words += " of frames, probably"
        if person.second_probability is not None and (second := person.second_probability > 0).any():
            share, likely = second.mean(), person.second_probability[second].mean()
            words += f"; in {share:.0%} another pose explains the keypoints nearly as well ({likely:.0%} probable)"
        bars.append(
            f'<div class="usable" title="{words}"><i style="margin-left:{left:.2f}%;width:{width:.2f}%;'
            f'background:linear-gradient(90deg,{colours})"></i></div>'
            f'<p class="soft">{swatch(person.identity)}{words}</p>'
        )
    return (
        '<h3>Which frames to use</h3><p class="soft">How far the worst joint may be off relative to the pelvis: blue '
        f"is nothing, red {WORST_SCALE_MM:.0f} mm or more, grey was not seen.</p>{''.join(bars)}"
    )


def shots(result: Result) -> str:
    """Where the video was cut, and who is in which shot; nothing for a video of one shot."""
    if len(result.shots) < 2:
        return ""
    first = [*np.searchsorted(result.frames, [shot.first_frame for shot in result.shots]).tolist(), len(result.frames)]
    since_s, rows = (result.time_s - result.time_s[0]).tolist(), ""
    for number, shot in enumerate(result.shots):
        inside = since_s[first[number] : first[number + 1]]
        span = f"{moment(inside[0])} to {inside[-1]:.2f} s" if inside else "no frame"
        people = [
            f"{swatch(p.identity)}{p.identity}{f' (the same as {p.same_as})' if p.same_as != p.identity else ''}"
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
