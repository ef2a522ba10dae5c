"""The report's section about one person."""

from collections.abc import Callable
from functools import partial
from html import escape
from typing import cast

import numpy as np
import torch

from fitmesh.exports.angles import person_angles_deg
from fitmesh.exports.report.gait_section import gait_section
from fitmesh.exports.report.plots import Line, Times, plot, row_statistic, runs, thinned, time_marks
from fitmesh.exports.scene import on_every_frame
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.trouble import count
from fitting.body.kinematics import JOINT_NAMES
from fitting.keypoints.weights import Weighting, keypoint_weights
from pose2d.skeletons import HALPE26
from pose2d.types import AREA_OF_BOX, ConfidenceSource, Keypoints

MOST_ABSENCES = 5  # listed with their times

MIN_PRESENCE = 0.5  # a keypoint with a lower probability is "not present"
MIN_CONFIDENCE = 0.5  # a keypoint with a lower expected OKS has "low confidence"
# A keypoint is an "outlier" if the body is more standard deviations away from it.
OUTLIER_SIGMAS = 3.0

# Title, name of the angle, and the joint that must be observed for the angle to count as observed.
_PAIRS = (
    ("Knee flexion", "knee_flexion", "ankle"),
    ("Hip flexion", "hip_flexion", "knee"),
    ("Elbow flexion", "elbow_flexion", "wrist"),
    ("Shoulder elevation", "shoulder_elevation", "elbow"),
)


# The colours of the report: class name in report.css -> title and explanation. The solver weights
# keypoints and removes none: this is for readers.
STATUSES = {
    "reliable": (
        "reliable",
        f"confidence of at least {MIN_CONFIDENCE:g}, and the body within {OUTLIER_SIGMAS:g} "
        "standard deviations of it",
    ),
    "unobserved": (
        "frame not observed",
        "the person was not detected, or too little was visible: the frame was filled in",
    ),
    "absent": ("not present", f"probability of being in the image below {MIN_PRESENCE:g}"),
    "uncertain": ("low confidence", f"confidence below {MIN_CONFIDENCE:g}"),
    "outlier": (
        "outlier",
        f"the body ended up more than {OUTLIER_SIGMAS:g} standard deviations away from it",
    ),
    "swapped": (
        "side swapped",
        "the network gave it the name of the other side, which was corrected",
    ),
    "away": (
        "person absent",
        "the person was not detected for more than half a second: there is no body",
    ),
}
RELIABLE, UNOBSERVED, ABSENT, UNCERTAIN, OUTLIER, SWAPPED, AWAY = range(len(STATUSES))


def person_section(result: Result, person: Person) -> str:
    """Return plots over time and the status of every keypoint."""
    # From the first to the last row, NaN where the person is absent.
    spread = partial(on_every_frame, result, person)
    away = spread(np.zeros(len(person), np.bool_), True)
    first = int(np.searchsorted(result.frames, person.frame[0]))
    time_s = result.time_s[first : first + len(away)] - result.time_s[0]
    times = Times(time_s, spread(~person.observed, False), away)
    status = spread(keypoint_status(result, person).astype(np.int64), AWAY)
    plots = _quality(result, person, times, spread) + _angles(person, times, spread)
    legend = "".join(
        f'<li title="{escape(explanation)}"><span class="swatch {key}"></span>{escape(title)}</li>'
        for key, (title, explanation) in STATUSES.items()
    )
    return (
        f'<p class="soft">{_when(person, times)}; the fit stopped: {escape(person.stopped)}. '
        f"Dotted angles were not observed.</p><p>{_shape(result, person)}</p>"
        f'<div class="card plots">{plots}</div>{gait_section(result, person)}'
        "<h3>Which keypoints were reliable, and why the others were not</h3>"
        "<p>The solver removes no keypoint: each is weighted by its confidence. Where several "
        "reasons apply, the first one is shown.</p>"
        f'<ul class="legend">{legend}</ul>'
        f'<div class="card">{_strips(status, person, time_s)}</div>'
    )


def _shape(result: Result, person: Person) -> str:
    """Return a sentence with height and girths, and what they were measured from."""
    lengths = {"height": (person.height_m, person.height_std_m), **result.girths_m(person)}
    texts = []
    for name, (length_m, std_m) in lengths.items():
        error = f" ± {100 * std_m:.0f}" if std_m > 0 else ""
        texts.append(f"{name} {100 * length_m:.0f}{error}")
    source = f"keypoints and {count(person.masks, 'masks')}" if person.masks else "keypoints only"
    return f"Shape from {source}: {', '.join(texts)} cm (without clothes)."


def _when(person: Person, times: Times) -> str:
    """Return from when to when the person is in the video, and absences."""
    observed = f"{person.observed.mean():.0%} of {count(len(person), 'frames')} observed"
    text = f"{times.time_s[0]:.2f} to {times.time_s[-1]:.2f} s, {observed}"
    away = runs(times.away)
    if not away:
        return text
    spans = [f"{times.time_s[a]:.2f} to {times.time_s[b]:.2f} s" for a, b in away[:MOST_ABSENCES]]
    more_text = f" and {len(away) - MOST_ABSENCES} more times" if len(away) > MOST_ABSENCES else ""
    return f"{text}, absent from {', '.join(spans)}{more_text}"


def _quality(
    result: Result, person: Person, times: Times, spread: Callable[..., np.ndarray]
) -> str:
    """Return the plots of confidence, reprojection error and uncertainty."""
    confidence = np.where(person.observed[:, None], person.confidence, np.nan)

    def statistic(values: np.ndarray, measure: Callable[..., np.ndarray]) -> np.ndarray:
        return spread(row_statistic(values, measure))

    low, high = (statistic(confidence, partial(np.nanpercentile, q=q)) for q in (10, 90))
    title = f"Keypoint confidence ({result.source}), mean and range of the middle 80 %"
    mean_line = Line("", statistic(confidence, np.nanmean), "one")
    plots = plot(times, title, "", [mean_line], (low, high), 0, 1)
    error = person.reprojection_px
    weight = person.confidence * person.presence
    # The less confident half has little weight in the fit.
    is_confident = weight >= np.median(weight, 1, keepdims=True)
    confident_error = np.where(is_confident, error, np.nan)
    lines = [
        Line("median", statistic(error, np.nanmedian), "one"),
        Line("largest of the more confident half", statistic(confident_error, np.nanmax), "left"),
    ]
    plots += plot(times, "Reprojection error", " px", lines, low=0)
    if np.isfinite(person.joint_std_mm).any():
        std_mm = person.joint_std_relative_mm
        lines = [
            Line("mean", statistic(std_mm, np.nanmean), "one"),
            Line("largest", statistic(std_mm, np.nanmax), "left"),
        ]
        title = "Uncertainty of joints relative to the pelvis, standard deviation"
        plots += plot(times, title, " mm", lines, low=0)
    return plots


def _angles(person: Person, times: Times, spread: Callable[..., np.ndarray]) -> str:
    """Return the plots of joint angles, left and right together."""
    angles = person_angles_deg(person)
    plots = ""
    for title, name, required_joint in _PAIRS:
        lines = []
        for side in ("left", "right"):
            values = angles[f"{side}_{name}"]
            is_observed = person.joint_observed[:, JOINT_NAMES.index(f"{side}_{required_joint}")]
            observed = np.where(is_observed, values, np.nan)
            inferred = np.where(is_observed, np.nan, values)
            lines.append(Line(side, spread(observed), side))
            lines.append(Line("", spread(inferred), f"{side} inferred"))
        plots += plot(times, title, "°", lines)
    return plots


def _strips(statuses: np.ndarray, person: Person, time_s: np.ndarray) -> str:
    """Return a strip over time for each keypoint, coloured by status."""
    thin_statuses = thinned(statuses)
    cells = [
        '<span class="head">keypoint</span><span></span><span class="head num">reliable</span>',
        '<span class="head why">main reason otherwise</span>',
    ]
    size = f'viewBox="0 0 {len(thin_statuses)} 1" preserveAspectRatio="none"'
    titles = [title for title, _ in STATUSES.values()]
    for keypoint, name in enumerate(HALPE26.keypoints):
        frames_by_status = np.bincount(statuses[:, keypoint], minlength=len(STATUSES))[:AWAY]
        share = frames_by_status / (statuses[:, 0] != AWAY).sum()
        unreliable_share = np.where(np.arange(AWAY) == RELIABLE, 0, share)
        rects = "".join(
            f'<rect class="{key}" x="{first}" width="{last - first + 1}" height="1"/>'
            for number, key in enumerate(STATUSES)
            if number != RELIABLE
            for first, last in runs(thin_statuses[:, keypoint] == number)
        )
        main_reason = titles[unreliable_share.argmax()] if unreliable_share.any() else ""
        explanation = f"{name}: mean confidence {person.confidence[:, keypoint].mean():.2f}"
        cells.append(
            f"<span>{name.replace('_', ' ')}</span>"
            f'<svg {size} role="img"><title>{escape(explanation)}</title>{rects}</svg>'
            f'<span class="num">{share[RELIABLE]:.0%}</span>'
            f'<span class="why soft">{main_reason}</span>'
        )
    times = time_marks(float(time_s[0]), float(time_s[-1]))
    return f'<div class="keypoints">{"".join(cells)}{times}</div>'


def keypoint_status(result: Result, person: Person) -> np.ndarray:
    """Return the numbers [T, 26] of STATUSES; where several apply, the last of the list below."""
    with np.errstate(invalid="ignore"):
        far = person.reprojection_px > OUTLIER_SIGMAS * _sigma_px(result, person)
    status = np.full(person.confidence.shape, RELIABLE, np.uint8)
    for number, applies in (
        (SWAPPED, person.swapped),
        (OUTLIER, far),
        (UNCERTAIN, person.confidence < MIN_CONFIDENCE),
        (ABSENT, person.presence < MIN_PRESENCE),
        (UNOBSERVED, ~person.observed[:, None] | ~np.isfinite(person.keypoints_px).all(-1)),
    ):
        status[np.broadcast_to(applies, status.shape)] = number
    return status


def _sigma_px(result: Result, person: Person) -> np.ndarray:
    """Return the standard deviation [T, 26] of the pixel error that the solver assumed."""
    sides = person.box_px[:, 2:] - person.box_px[:, :2]
    area = np.nan_to_num(AREA_OF_BOX * sides.prod(1), nan=1.0).astype(np.float32)
    keypoints = Keypoints(
        xy_px=torch.from_numpy(np.nan_to_num(person.keypoints_px)),
        confidence=torch.from_numpy(person.confidence),
        presence=torch.from_numpy(person.presence),
        source=cast(ConfidenceSource, result.source),
        area_px2=torch.from_numpy(area),
        skeleton=HALPE26,
    )
    return keypoint_weights(keypoints, cast(Weighting, result.weighting)).sigma_px.numpy()
