"""What the report says of one person."""

from collections.abc import Callable
from functools import partial
from html import escape

import numpy as np

from fitmesh.exports.angles import joint_angles_deg
from fitmesh.exports.draw import identity_colour
from fitmesh.exports.report.distrust import REASONS, TRUSTED, reasons
from fitmesh.exports.report.plots import MOST_POINTS, Axis, Line, plot, runs, time_marks
from fitmesh.exports.scene import clip_time_s
from fitmesh.result import Person, Result
from fitting.body.kinematics import JOINT_NAMES
from pose2d.skeletons import COCO17

# Title, name of the angle, and the joint that must have been observed for the angle to be more than a guess.
_PAIRS = (
    ("Knee flexion", "knee_flexion", "ankle"),
    ("Hip flexion", "hip_flexion", "knee"),
    ("Elbow flexion", "elbow_flexion", "wrist"),
    ("Shoulder elevation", "shoulder_elevation", "elbow"),
)


def person_section(result: Result, person: Person) -> str:
    """Plots and the strip of trust."""
    time_s, gaps = clip_time_s(result, person), ~person.observed
    colour = "#{:02x}{:02x}{:02x}".format(*identity_colour(person.identity))
    seen = f"{person.observed.mean():.0%} of {len(person)} frames observed"
    return (
        f'<section><h2><span class="swatch" style="background:{colour}"></span>Person {person.identity}</h2>'
        f'<p class="soft">{time_s[0]:.2f} to {time_s[-1]:.2f} s, {seen}; '
        f"the search ended: {escape(person.stopped)}. Dotted angles rest on nothing that was observed.</p>"
        f'<div class="card plots">{_quality(result, person, time_s, gaps)}{_angles(person, time_s, gaps)}</div>'
        f"<h3>Which keypoints were trusted, and why not</h3>{_legend()}"
        f'<div class="card">{_strips(reasons(result, person), person, time_s)}</div></section>'
    )


def _quality(result: Result, person: Person, time_s: np.ndarray, gaps: np.ndarray) -> str:
    seen = np.where(gaps[:, None], np.nan, person.confidence)
    confidence = plot(
        Axis(f"Keypoint confidence ({result.source}), mean and range of the middle 80 %", "", time_s, gaps, 0, 1),
        [Line("", _over(seen, np.nanmean), "one")],
        (_over(seen, partial(np.nanpercentile, q=10)), _over(seen, partial(np.nanpercentile, q=90))),
    )
    error = person.reprojection_px
    reprojection = plot(
        Axis("Reprojection error", " px", time_s, gaps, 0),
        [
            Line("median", _over(error, np.nanmedian), "one"),
            Line("largest of the trusted half", _over(_trusted_half(error, person), np.nanmax), "left"),
        ],
    )
    if not np.isfinite(person.joint_std_mm).any():
        return confidence + reprojection
    spread = plot(
        Axis("Uncertainty of joints relative to the pelvis, standard deviation", " mm", time_s, gaps, 0),
        [
            Line("mean", _over(person.joint_std_relative_mm, np.nanmean), "one"),
            Line("largest", _over(person.joint_std_relative_mm, np.nanmax), "left"),
        ],
    )
    return confidence + reprojection + spread


def _angles(person: Person, time_s: np.ndarray, gaps: np.ndarray) -> str:
    angles = joint_angles_deg(person.pose_rad, person.joints_m)
    plots = []
    for title, name, needed in _PAIRS:
        lines = []
        for side in ("left", "right"):
            values = angles[f"{side}_{name}"]
            seen = person.joint_observed[:, JOINT_NAMES.index(f"{side}_{needed}")]
            lines.append(Line(side, np.where(seen, values, np.nan), side))
            lines.append(Line("", np.where(seen, np.nan, values), f"{side} guess"))
        plots.append(plot(Axis(title, "°", time_s, gaps), lines))
    return "".join(plots)


def _trusted_half(error: np.ndarray, person: Person) -> np.ndarray:
    """The errors of the keypoints trusted most: an error of a keypoint nobody believes says little."""
    trust = person.confidence * person.presence
    return np.where(trust >= np.median(trust, 1, keepdims=True), error, np.nan)


def _over(values: np.ndarray, measure: Callable[..., np.ndarray]) -> np.ndarray:
    """[T, K] -> [T]: `measure` of each row that knows anything, NaN for others."""
    known = np.isfinite(values).any(1)
    result = np.full(len(values), np.nan)
    if known.any():
        result[known] = measure(values[known], axis=1)
    return result


def _legend() -> str:
    entries = "".join(
        f'<li title="{escape(reason.about)}"><span class="swatch {reason.key}"></span>{escape(reason.title)}</li>'
        for reason in REASONS
    )
    return f'<ul class="legend">{entries}</ul>'


def _strips(found: np.ndarray, person: Person, time_s: np.ndarray) -> str:
    """One strip over time for each keypoint, coloured by reason."""
    shown = _binned(found)
    cells = ['<span class="head">keypoint</span><span></span><span class="head num">trusted</span>']
    cells.append('<span class="head why">mostly because</span>')
    for keypoint, name in enumerate(COCO17.keypoints):
        share = np.bincount(found[:, keypoint], minlength=len(REASONS)) / len(found)
        others = share.copy()
        others[TRUSTED] = 0
        why = REASONS[others.argmax()].title if others.any() else ""
        title = f"{name}: mean confidence {person.confidence[:, keypoint].mean():.2f}"
        cells.append(
            f"<span>{name.replace('_', ' ')}</span>{_strip(shown[:, keypoint], title)}"
            f'<span class="num">{share[TRUSTED]:.0%}</span><span class="why soft">{escape(why)}</span>'
        )
    times = time_marks(float(time_s[0]), float(time_s[-1]))
    return f'<div class="trust">{"".join(cells)}{times}</div>'


def _strip(row: np.ndarray, title: str) -> str:
    rects = "".join(
        f'<rect class="{reason.key}" x="{first}" width="{last - first + 1}" height="1"/>'
        for number, reason in enumerate(REASONS)
        if number != TRUSTED
        for first, last in runs(row == number)
    )
    size = f'viewBox="0 0 {len(row)} 1" preserveAspectRatio="none"'
    return f'<svg {size} role="img"><title>{escape(title)}</title>{rects}</svg>'


def _binned(found: np.ndarray) -> np.ndarray:
    """[T, 17] -> at most MOST_POINTS rows: the most frequent reason of neighbours."""
    if len(found) <= MOST_POINTS:
        return found
    edges = np.linspace(0, len(found), MOST_POINTS + 1).round().astype(int)
    counts = np.stack([np.add.reduceat((found == number).astype(int), edges[:-1]) for number in range(len(REASONS))])
    return counts.argmax(0)
