"""`motion.csv` and `motion.json`: the numbers, one row per person and frame, written as they are made.

Joint positions are metres in the scene frame (y up), angles degrees, keypoints pixels; docs/exports.md explains every
column and key. A value that is unknown is an empty cell in the table and null in the json. Frames in which a person is
absent have no row.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.angles import ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.scene import SceneFrame, chunks, clip_time_s, frame_rate, rest_body, scene_frame
from fitmesh.exports.stretches import absences
from fitmesh.progress import Reporter
from fitmesh.result import Person, Result
from fitmesh.version import __version__
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from pose2d.base.files import atomic_file
from pose2d.skeletons import HALPE26

CSV_FILE, JSON_FILE = "motion.csv", "motion.json"
JSON_SCHEMA = 1


@dataclass(frozen=True)
class _Chunk:
    """Some frames of one person with what both formats derive from them."""

    person: Person  # of T frames
    time_s: np.ndarray  # [T] since the first processed frame
    joints_m: np.ndarray  # [T, 24, 3] scene frame
    angles_deg: dict[str, np.ndarray]  # name -> [T]


def csv_files(result: Result) -> list[str]:
    return [CSV_FILE]


def json_files(result: Result) -> list[str]:
    return [JSON_FILE]


def write_csv(result: Result, out: Path, progress: Reporter) -> None:
    """For spreadsheets and statistics."""
    scene = scene_frame(result)
    with (
        progress.stage("csv", _row_count(result), "rows") as tick,
        atomic_file(out / CSV_FILE) as temporary,
        temporary.open("w", newline="") as file,
    ):
        file.write(",".join(csv_columns()) + "\n")
        for person in result.people:
            for chunk in _chunks(result, person, scene, tick):
                file.writelines(_csv_lines(chunk))


def write_json(result: Result, out: Path, progress: Reporter) -> None:
    """For any program; one line per person and frame, so that it can be searched and compared line by line."""
    scene = scene_frame(result)
    with (
        progress.stage("json", _row_count(result), "rows") as tick,
        atomic_file(out / JSON_FILE) as temporary,
        temporary.open("w") as file,
    ):
        file.write(_json(_json_head(result, scene))[:-1] + ',\n"people": [')
        for number, person in enumerate(result.people):
            file.write(("," if number else "") + "\n" + _json(_json_person(result, person))[:-1] + ',\n"frames": [\n')
            separator = ""
            for chunk in _chunks(result, person, scene, tick):
                for record in _json_records(chunk):
                    file.write(separator + _json(record))
                    separator = ",\n"
            file.write("\n]}")
        file.write("\n]}\n")


def _row_count(result: Result) -> int:
    return sum(len(person) for person in result.people)


def _chunks(result: Result, person: Person, scene: SceneFrame, tick: Callable[[int], None]) -> Iterator[_Chunk]:
    for part in chunks(person):
        angles_deg = joint_angles_deg(part.pose_rad, part.joints_m)
        yield _Chunk(part, clip_time_s(result, part), scene.points(part.joints_m), angles_deg)
        tick(len(part))


def csv_columns() -> list[str]:
    """The header."""
    joints = [f"{joint}_{part}" for joint in JOINT_NAMES for part in ("x_m", "y_m", "z_m", "std_mm", "observed")]
    keypoints = [
        f"{keypoint}_{part}"
        for keypoint in HALPE26.keypoints
        for part in ("x_px", "y_px", "confidence", "presence", "reprojection_px")
    ]
    angles = [f"{angle}_deg" for angle in ANGLE_NAMES]
    return ["person", "frame", "time_s", "observed", *angles, *joints, *(f"2d_{name}" for name in keypoints)]


def _csv_lines(chunk: _Chunk) -> Iterator[str]:
    person, count = chunk.person, len(chunk.person)
    angles = np.stack(list(chunk.angles_deg.values()), -1).round(2) + 0.0  # + 0.0: no minus zero
    joints = np.concatenate([chunk.joints_m, person.joint_std_mm[..., None], person.joint_observed[..., None]], -1)
    keypoints = np.concatenate(
        [person.keypoints_px, np.stack([person.confidence, person.presence, person.reprojection_px], -1)], -1
    )
    values = np.concatenate([angles, joints.reshape(count, -1), keypoints.reshape(count, -1)], 1)
    formats = ["%.2f"] * len(ANGLE_NAMES) + ["%.4f", "%.4f", "%.4f", "%.1f", "%d"] * len(JOINT_NAMES)
    formats += ["%.2f", "%.2f", "%.3f", "%.3f", "%.2f"] * HALPE26.size
    heads = zip(person.frame.tolist(), chunk.time_s.tolist(), person.observed.tolist(), strict=True)
    for (frame, time_s, observed), row in zip(heads, values.tolist(), strict=True):
        cells = (one % value if value == value else "" for one, value in zip(formats, row, strict=True))  # NaN != NaN
        yield f"{person.identity},{frame},{time_s:.6f},{int(observed)}," + ",".join(cells) + "\n"


def _json_head(result: Result, scene: SceneFrame) -> dict[str, Any]:
    rate = frame_rate(result)
    return {
        "fitmesh": __version__,
        "schema": JSON_SCHEMA,
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
        "keypoints": list(HALPE26.keypoints),
    }


def _json_person(result: Result, person: Person) -> dict[str, Any]:
    rest = rest_body(result.body, person.shape)
    return {
        "person": person.identity,
        "shape": _rounded(person.shape, 4),
        "height_m": round(float(np.ptp(rest.vertices_m[:, 1])), 3),
        "rest_joints_m": _rounded(rest.joints_m, 4),
        "absent_frames": [list(span) for span in absences(result, person)],
    }


def _json_records(chunk: _Chunk) -> Iterator[dict[str, Any]]:
    person = chunk.person
    for row in range(len(person)):
        yield {
            "frame": int(person.frame[row]),
            "time_s": round(float(chunk.time_s[row]), 6),
            "observed": bool(person.observed[row]),
            "joints_m": _rounded(chunk.joints_m[row], 4),
            "joint_std_mm": _rounded(person.joint_std_mm[row], 1),
            "joint_observed": person.joint_observed[row].tolist(),
            "angles_deg": {name: round(float(value[row]), 2) + 0.0 for name, value in chunk.angles_deg.items()},
            "pose_axis_angle_deg": _rounded(np.degrees(person.pose_rad[row]), 3),
            "translation_camera_m": _rounded(person.translation_m[row], 4),
            "keypoints_px": _rounded(person.keypoints_px[row], 2),
            "keypoint_confidence": _rounded(person.confidence[row], 3),
            "keypoint_presence": _rounded(person.presence[row], 3),
            "reprojection_px": _rounded(person.reprojection_px[row], 2),
            "box_px": _rounded(person.box_px[row], 1),
        }


def _rounded(values: np.ndarray, digits: int) -> Any:
    """Nested lists; what is not a finite number becomes null."""
    values = np.round(np.asarray(values, np.float64), digits)
    return values.tolist() if np.isfinite(values).all() else _nulls(values.tolist())


def _nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_nulls(part) for part in value]
    return value if np.isfinite(value) else None


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
