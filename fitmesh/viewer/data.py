"""What the page needs besides scene.glb and the video: names as JSON, numbers as one block of
float32.

The block holds, for each person, the arrays named in `people[i].arrays` one after the other; each
entry gives the first number and the shape."""

import itertools
import json
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from fitmesh.exports import PLAIN, Motion
from fitmesh.exports.angles import ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.draw import WORST_SCALE_MM, identity_colour
from fitmesh.exports.motion import change_motion
from fitmesh.exports.scene import (
    SceneFrame,
    about_frame,
    clip_name,
    foot_points,
    runs,
    scene_frame,
    segments,
)
from fitmesh.result import Person, Result
from fitmesh.version import __version__
from fitting.body.fingers import BODY_JOINTS
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.keypoints.observed import JOINT_OF, observed_bones
from pose2d.skeletons import HALPE26

STANDS = 0.5  # probability of contact
# of all uncertainties: the end of the colour scale, so that a few outliers do not compress it
SCALE_PERCENTILE = 95


def viewer_data(result: Result) -> tuple[bytes, bytes]:
    """The JSON, and the little-endian numbers, of all people as they move in scene.glb."""
    result = change_motion(result, _motion(result.settings))
    scene = scene_frame(result)
    blocks: list[bytes] = []
    people = []
    first = 0
    for person in result.people:
        arrays: dict[str, Any] = {}
        for name, values in _arrays(result, person, scene).items():
            arrays[name] = {"first": first, "shape": list(values.shape)}
            blocks.append(np.ascontiguousarray(values, "<f4").tobytes())
            first += values.size
        place = np.searchsorted(result.frames, person.frame)
        people.append(
            {
                "identity": person.identity,
                "colour": "#{:02x}{:02x}{:02x}".format(*identity_colour(person.identity)),
                "first": int(place[0]),
                "count": len(person),
                # Where the person is there: from which place in `frames`, from which row, how many.
                "spans": [
                    {
                        "first": int(place[rows.start]),
                        "row": rows.start,
                        "count": rows.stop - rows.start,
                    }
                    for rows in segments(result, person)
                ],
                "shot": person.shot,
                "footprints": footprints(result, person, scene),
                "arrays": arrays,
            }
        )
    has_fingers = any(person.hand_pose_rad is not None for person in result.people)
    run_again = ["fitmesh", "run", str(result.clip_path), "--out", f"{result.folder}-part"]
    meta = {
        "fitmesh": __version__,
        "name": clip_name(result),
        "frames": result.frames.tolist(),
        "time_s": (result.time_s - result.time_s[:1]).tolist(),
        "start_s": float(result.time_s[0]) if len(result.time_s) else 0.0,
        # What runs on the same clip into a folder of its own, without the times.
        "trim": "" if result.clip_path is None else shlex.join(run_again),
        "height_px": result.camera.size[1],
        "focal_y_px": (result.focal_px * (result.camera.focal_px[1] / result.camera.focal_px[0]))
        .round(3)
        .tolist(),
        "shots": [
            {
                "first": int(np.searchsorted(result.frames, shot.first_frame)),
                "upright": upright,
                "about": (f"shot {number}, " if len(result.shots) > 1 else "")
                + about_frame(shot, upright),
            }
            for number, (shot, upright) in enumerate(
                zip(result.shots, scene.upright, strict=True), 1
            )
        ],
        "has_video": result.overlay_path.is_file(),
        "has_report": (result.folder / "report.html").is_file(),
        "confidence": result.source,
        "joints": list(JOINT_NAMES),
        "bones": [[parent, joint] for joint, parent in enumerate(PARENTS) if joint],
        # For each bone of scene.glb the joint whose colours it has: those of fingers are the
        # hand's.
        "joint_of_bone": [*range(BODY_JOINTS), *[22] * 15, *[23] * 15]
        if has_fingers
        else [*range(len(JOINT_NAMES))],
        "has_hands": any(
            person.hand_seen is not None and person.hand_seen.any() for person in result.people
        ),
        "keypoints": list(HALPE26.keypoints),
        "joint_of_keypoint": [JOINT_OF[name] for name in HALPE26.keypoints],
        "angles": list(ANGLE_NAMES),
        "scale_mm": {
            "relative": _scale_mm([person.joint_std_relative_mm for person in result.people]),
            "absolute": _scale_mm([person.joint_std_mm for person in result.people]),
        },
        "worst_scale_mm": WORST_SCALE_MM,
        "people": people,
    }
    return json.dumps(meta, allow_nan=False).encode(), b"".join(blocks)


def _motion(stated: Mapping[str, Any]) -> Motion:
    """What run.json says of the exports' motion, but for their rate: the page has the video's
    frames.
    """
    try:
        smooth = float(stated["smooth"])
        keep, limit = (stated.get(name) for name in ("keep_reliable", "reliable_mm"))
        known = (
            isinstance(keep, float) and isinstance(limit, float) and 0 <= keep <= 1 and limit > 0
        )
        kept = (keep, limit) if known else ()
        return Motion(None, smooth if 0 <= smooth <= 1 else 0.0, stated["in_place"] is True, *kept)
    except (TypeError, KeyError, ValueError):
        return PLAIN


def _arrays(result: Result, person: Person, scene: SceneFrame) -> dict[str, np.ndarray]:
    """All [T, ...]; NaN where a value is unknown."""
    return {
        "joints_m": scene.points(person.joints_m, person.frame),
        "relative_mm": person.joint_std_relative_mm,
        "absolute_mm": person.joint_std_mm,
        "worst_mm": person.worst_error_mm,
        "reliable": person.reliable(100),
        "joint_observed": person.joint_observed,
        "bone_observed": observed_bones(person.joint_observed),
        "observed": person.observed,
        "angles_deg": np.stack(
            list(joint_angles_deg(person.pose_rad, person.joints_m).values()), -1
        ),
        "confidence": person.confidence,
        "presence": person.presence,
        "reprojection_px": person.reprojection_px,
    }


def footprints(result: Result, person: Person, scene: SceneFrame) -> list[dict[str, Any]]:
    """Where feet stood, in the scene frame, for every run of rows in which a heel or toes rest, in
    order of time; none where gravity is not known, since a place in a turning camera's frame is no
    place. `first` and `last` count the frames of the video; heel and toes are medians over the rows
    in which they stood, or over all if they never did."""
    stands = person.contact >= STANDS
    if not scene.upright[person.shot] or not stands.any():
        return []
    places = foot_points(result, person, scene)
    place = np.searchsorted(result.frames, person.frame)
    prints: list[dict[str, Any]] = []
    for foot, part in itertools.product((0, 1), segments(result, person)):
        heel = 2 * foot
        toes = 2 * foot + 1
        for a, b in runs((stands[:, heel] | stands[:, toes])[part]):
            rows = slice(part.start + a, part.start + b + 1)
            entry: dict[str, Any] = {
                "left": foot == 0,
                "first": int(place[rows.start]),
                "last": int(place[rows.stop - 1]),
            }
            for name, point in (("heel_m", heel), ("toes_m", toes)):
                at = places[rows, point]
                resting = stands[rows, point]
                entry[name] = (
                    np.median(at[resting] if resting.any() else at, axis=0).round(4).tolist()
                )
            prints.append(entry)
    return sorted(prints, key=lambda entry: entry["first"])


def _scale_mm(values: list[np.ndarray]) -> float | None:
    """A round number at the end of the colour scale; None when none is known."""
    finite = (
        np.concatenate([value[np.isfinite(value)] for value in values]) if values else np.zeros(0)
    )
    if not len(finite):
        return None
    return float(max(10, np.ceil(np.percentile(finite, SCALE_PERCENTILE) / 10) * 10))
