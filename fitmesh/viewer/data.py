"""The data of the viewer's page besides scene.glb and the video: names as JSON, numbers as one
block of float32.

The block holds, for each person, the arrays named in `people[i].arrays` one after the other; each
entry gives the first number and the shape."""

import itertools
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fitmesh.exports import PLAIN, Motion
from fitmesh.exports.angles import ANGLE_NAMES, person_angles_deg
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
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.version import __version__
from fitting.body.fingers import BODY_JOINTS
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.keypoints.observed import JOINT_OF, observed_bones
from pose2d.skeletons import HALPE26

STANDS = 0.5  # least probability of contact of a foot that stands
# Percentile of all uncertainties at the end of the colour scale, so that a few outliers do not
# compress it.
SCALE_PERCENTILE = 95


def viewer_data(
    result: Result, report: str = "", editing: Mapping[str, Any] | None = None
) -> tuple[bytes, bytes]:
    """Return the JSON and the little-endian numbers of all people, with the motion of scene.glb.

    report: URL of report.html; empty: there is none. editing: what the page needs to correct
    identities; None: it cannot.
    """
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
        people.append(_about_person(result, person, scene) | {"arrays": arrays})
    meta = _about_result(result, scene) | {"people": people, "report": report}
    meta |= editing or {"edits": None}
    return json.dumps(meta, allow_nan=False).encode(), b"".join(blocks)


def _about_person(result: Result, person: Person, scene: SceneFrame) -> dict[str, Any]:
    """Return the JSON of a person without the arrays."""
    place = np.searchsorted(result.frames, person.frame)
    # The times during which the person is present: place in `frames`, row of the arrays, length.
    spans = [
        {"first": int(place[rows.start]), "row": rows.start, "count": rows.stop - rows.start}
        for rows in segments(result, person)
    ]
    return {
        "identity": person.identity,
        "name": result.name_of(person),
        "colour": "#{:02x}{:02x}{:02x}".format(*identity_colour(person.identity)),
        "first": int(place[0]),
        "count": len(person),
        "spans": spans,
        "shot": person.shot,
        "footprints": footprints(result, person, scene),
    }


def _about_result(result: Result, scene: SceneFrame) -> dict[str, Any]:
    """Return the JSON of the clip: times, cameras, names and scales."""
    has_fingers = any(person.hand_pose_rad is not None for person in result.people)
    has_hands = any(
        person.hand_seen is not None and person.hand_seen.any() for person in result.people
    )
    run_part = ["fitmesh", "run", str(result.clip_path), "--out", f"{result.folder}-part"]
    aspect = result.camera.focal_px[1] / result.camera.focal_px[0]
    relative_mm = [person.joint_std_relative_mm for person in result.people]
    absolute_mm = [person.joint_std_mm for person in result.people]
    return {
        "fitmesh": __version__,
        "name": clip_name(result),
        "frames": result.frames.tolist(),
        "time_s": (result.time_s - result.time_s[:1]).tolist(),
        "start_s": float(result.time_s[0]) if len(result.time_s) else 0.0,
        # The command for a part of the clip, without the times.
        "trim": "" if result.clip_path is None else shlex.join(run_part),
        "height_px": result.camera.size[1],
        "focal_y_px": (result.focal_px * aspect).round(3).tolist(),
        "shots": _about_shots(result, scene),
        "has_video": result.overlay_path.is_file(),
        "confidence": result.source,
        "joints": list(JOINT_NAMES),
        "bones": [[parent, joint] for joint, parent in enumerate(PARENTS) if joint],
        "joint_of_bone": _joints_of_bones(has_fingers),
        "has_hands": has_hands,
        "keypoints": list(HALPE26.keypoints),
        "joint_of_keypoint": [JOINT_OF[name] for name in HALPE26.keypoints],
        "angles": list(ANGLE_NAMES),
        "scale_mm": {"relative": _scale_mm(relative_mm), "absolute": _scale_mm(absolute_mm)},
        "worst_scale_mm": WORST_SCALE_MM,
    }


def _about_shots(result: Result, scene: SceneFrame) -> list[dict[str, Any]]:
    """Return the JSON of all shots."""
    shots = []
    for number, (shot, upright) in enumerate(zip(result.shots, scene.upright, strict=True), 1):
        name = f"shot {number}, " if len(result.shots) > 1 else ""
        first = int(np.searchsorted(result.frames, shot.first_frame))
        description = name + about_frame(shot, upright)
        shots.append({"first": first, "upright": upright, "about": description})
    return shots


def _joints_of_bones(has_fingers: bool) -> list[int]:
    """Return for each bone of scene.glb the joint whose colour it has; fingers have the hand's."""
    if not has_fingers:
        return [*range(len(JOINT_NAMES))]
    left_hand = JOINT_NAMES.index("left_hand")
    right_hand = JOINT_NAMES.index("right_hand")
    return [*range(BODY_JOINTS), *[left_hand] * 15, *[right_hand] * 15]


def _motion(settings: Mapping[str, Any]) -> Motion:
    """Return the exports' motion from the settings of run.json, without their frame rate: the page
    has the video's frames. Settings that are damaged change nothing.
    """
    try:
        smooth = float(settings["smooth"])
        in_place = settings["in_place"] is True
    except (TypeError, KeyError, ValueError):
        return PLAIN
    motion = Motion(
        smooth=smooth if 0 <= smooth <= 1 else 0.0,
        in_place=in_place,
        plant_feet=settings.get("plant_feet") is True,
    )
    keep = settings.get("keep_reliable")
    limit_mm = settings.get("reliable_mm")
    if not isinstance(keep, float) or not isinstance(limit_mm, float):
        return motion
    if not 0 <= keep <= 1 or limit_mm <= 0:
        return motion
    return replace(motion, keep_reliable=keep, reliable_mm=limit_mm)


def _arrays(result: Result, person: Person, scene: SceneFrame) -> dict[str, np.ndarray]:
    """Return the arrays [T, ...] of a person; NaN: unknown."""
    angles = person_angles_deg(person)
    return {
        "joints_m": scene.points(person.joints_m, person.frame),
        "relative_mm": person.joint_std_relative_mm,
        "absolute_mm": person.joint_std_mm,
        "worst_mm": person.worst_error_mm,
        "reliable": person.reliable(100),
        "joint_observed": person.joint_observed,
        "bone_observed": observed_bones(person.joint_observed),
        "observed": person.observed,
        "angles_deg": np.stack(list(angles.values()), -1),
        "confidence": person.confidence,
        "presence": person.presence,
        "reprojection_px": person.reprojection_px,
    }


def footprints(result: Result, person: Person, scene: SceneFrame) -> list[dict[str, Any]]:
    """Return where feet stood, in the scene frame, for every run of rows in which a heel or toes
    rest, in order of time; none if gravity is not known, because the scene then turns with the
    camera. `first` and `last` count the frames of the video; heel and toes are medians over the
    rows in which they stood, or over all if they never did.
    """
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
                positions_m = places[rows, point]
                is_resting = stands[rows, point]
                if is_resting.any():
                    positions_m = positions_m[is_resting]
                entry[name] = np.median(positions_m, axis=0).round(4).tolist()
            prints.append(entry)
    return sorted(prints, key=lambda entry: entry["first"])


def _scale_mm(values: list[np.ndarray]) -> float | None:
    """Return a round number for the end of the colour scale; None if no value is known."""
    finite = np.concatenate([np.zeros(0), *(value[np.isfinite(value)] for value in values)])
    if not len(finite):
        return None
    return float(max(10, np.ceil(np.percentile(finite, SCALE_PERCENTILE) / 10) * 10))
