"""`motion.json`: everything that is known of everyone, readable by people and by any program.

docs/exports.md explains the keys. One line per person and frame, so that it can be read, searched and compared line by
line. null: not known.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fitmesh
from fitmesh.exports.angles import joint_angles_deg
from fitmesh.exports.motion import clip_time_s, frame_rate, pieces, scene_frame
from fitmesh.exports.rest_body import rest_body
from fitmesh.exports.scene_frame import SceneFrame
from fitmesh.progress import Reporter
from fitmesh.result import Person, Result
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from pose2d.base.files import atomic_file
from pose2d.skeletons import COCO17

FILE = "motion.json"
SCHEMA = 1


def files(result: Result) -> list[str]:
    return [FILE]


def write(result: Result, out: Path, progress: Reporter) -> None:
    """Written as it is made: memory does not grow with the video."""
    scene = scene_frame(result)
    total = sum(len(person) for person in result.people)
    with (
        progress.stage("json", total, "rows") as tick,
        atomic_file(out / FILE) as temporary,
        temporary.open("w") as file,
    ):
        file.write(_text(_head(result, scene))[:-1] + ',\n"people": [')
        for number, person in enumerate(result.people):
            file.write(("," if number else "") + "\n" + _text(_about(result, person))[:-1] + ',\n"frames": [\n')
            before = ""
            for piece in pieces(person):
                for record in _records(result, piece, scene):
                    file.write(before + _text(record))
                    before = ",\n"
                tick(len(piece))
            file.write("\n]}")
        file.write("\n]}\n")


def _head(result: Result, scene: SceneFrame) -> dict[str, Any]:
    rate = frame_rate(result)
    return {
        "fitmesh": fitmesh.__version__,
        "schema": SCHEMA,
        "units": "metres, millimetres (_mm), degrees (_deg), pixels (_px), seconds (_s)",
        "axes": "x right, y up, z towards the camera; the camera is at (0, camera.height_m, 0) and looks along -z",
        "rate": [rate.numerator, rate.denominator],
        "frame_count": len(result.frames),
        "camera": {
            "width_px": result.camera.size[0],
            "height_px": result.camera.size[1],
            "focal_px": list(result.camera.focal_px),
            "center_px": list(result.camera.center_px),
            "height_m": scene.camera_height_m,
            "scene_from_camera": scene.from_camera.tolist(),
        },
        "body": result.body_name,
        "pose_model": result.pose_model,
        "confidence": result.source,
        "weighting": result.weighting,
        "init": result.init,
        "joints": list(JOINT_NAMES),
        "parents": list(PARENTS),
        "keypoints": list(COCO17.keypoints),
    }


def _about(result: Result, person: Person) -> dict[str, Any]:
    rest = rest_body(result.body, person.shape)
    return {
        "person": person.identity,
        "shape": _rounded(person.shape, 4),
        "height_m": round(float(np.ptp(rest.vertices_m[:, 1])), 3),
        "rest_joints_m": _rounded(rest.joints_m, 4),
    }


def _records(result: Result, person: Person, scene: SceneFrame) -> Iterator[dict[str, Any]]:
    angles = joint_angles_deg(person.pose_rad, person.joints_m)
    joints_m, time_s = scene.points(person.joints_m), clip_time_s(result, person)
    for row in range(len(person)):
        yield {
            "frame": int(person.frame[row]),
            "time_s": round(float(time_s[row]), 6),
            "observed": bool(person.observed[row]),
            "joints_m": _rounded(joints_m[row], 4),
            "joint_std_mm": _rounded(person.joint_std_mm[row], 1),
            "joint_observed": person.joint_observed[row].tolist(),
            "angles_deg": {name: round(float(value[row]), 2) + 0.0 for name, value in angles.items()},
            "pose_axis_angle_deg": _rounded(np.degrees(person.pose_rad[row]), 3),
            "translation_camera_m": _rounded(person.translation_m[row], 4),
            "keypoints_px": _rounded(person.keypoints_px[row], 2),
            "keypoint_confidence": _rounded(person.confidence[row], 3),
            "keypoint_presence": _rounded(person.presence[row], 3),
            "reprojection_px": _rounded(person.reprojection_px[row], 2),
            "box_px": _rounded(person.box_px[row], 1),
        }


def _rounded(values: np.ndarray, digits: int) -> Any:
    """Nested lists; what is not a number becomes null."""
    values = np.round(np.asarray(values, np.float64), digits)
    return values.tolist() if np.isfinite(values).all() else _nulls(values.tolist())


def _nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_nulls(part) for part in value]
    return value if np.isfinite(value) else None


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
