"""`motion.csv` and `motion.json`: the numbers of the fit, one row per person and frame.

Joint positions are metres, in the camera frame and, where gravity is known, in the world frame;
angles are degrees, keypoints pixels. docs/exports.md explains every column and key. An unknown
value is an empty cell in the table and null in the json. Frames in which a person is absent have no
row. Rows are written in chunks, so that memory does not grow with the track."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.angles import ANGLE_NAMES, person_angle_std_deg, person_angles_deg
from fitmesh.exports.scene import absences, clip_time_s, frame_rate, rest_body
from fitmesh.person import Person, Shot
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitmesh.version import __version__
from fitting.body.fingers import FINGER_JOINTS
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from pose2d.base.files import atomic_file
from pose2d.hands import HAND_KEYPOINTS
from pose2d.skeletons import HALPE26

CSV_FILE = "motion.csv"
JSON_FILE = "motion.json"
JSON_SCHEMA = 2
CONTACTS = ("left_heel", "left_toes", "right_heel", "right_toes")
CHUNK_FRAMES = 500
# Names of the numbers of a value in the json.
_KEYS = {
    "contact": CONTACTS,
    "reliable": ("50_mm", "100_mm"),
    "angles_deg": ANGLE_NAMES,
    "angle_std_deg": ANGLE_NAMES,
}
# The csv's columns in groups. A group has subjects (joints, keypoints, ..) and, for each value of a
# subject, the suffixes of its columns: joint "pelvis", value "joint_std_mm" -> "pelvis_std_mm".
_Group = tuple[Sequence[str], dict[str, str]]
_COLUMNS: list[_Group] = [
    (("",), {name: name for name in ("person", "frame", "time_s", "observed", "shot")}),
    (("",), {"reliable": "reliable_50_mm reliable_100_mm"}),
    (ANGLE_NAMES, {"angles_deg": "_deg", "angle_std_deg": "_std_deg"}),
    (CONTACTS, {"contact": "_contact"}),
    (
        JOINT_NAMES,
        {
            "joints_world_m": "_world_x_m _world_y_m _world_z_m",
            "joints_camera_m": "_camera_x_m _camera_y_m _camera_z_m",
            "joint_std_mm": "_std_mm",
            "joint_std_relative_mm": "_relative_std_mm",
            "joint_speed_m_s": "_speed_m_s",
            "joint_speed_std_m_s": "_speed_std_m_s",
            "joint_observed": "_observed",
        },
    ),
    (
        [f"2d_{name}" for name in HALPE26.keypoints],
        {
            "keypoints_px": "_x_px _y_px",
            "keypoint_confidence": "_confidence",
            "keypoint_presence": "_presence",
            "reprojection_px": "_reprojection_px",
        },
    ),
    # Without its last row, which is 0 0 0 1.
    (("world_from_camera_",), {"world_from_camera": "00 01 02 03 10 11 12 13 20 21 22 23"}),
]
_HAND_COLUMNS: list[_Group] = [
    (("left_hand", "right_hand"), {"hand_seen": "_seen"}),
    (FINGER_JOINTS, {"hand_axis_angle_deg": "_x_deg _y_deg _z_deg", "hand_std_deg": "_std_deg"}),
]


_json = partial(json.dumps, allow_nan=False)
# Values that the json has outside of the frames.
_CSV_ONLY = ("person", "shot", "world_from_camera")


def write_csv(result: Result, out: Path, progress: Reporter) -> None:
    """Write motion.csv, for spreadsheets and statistics."""
    groups = [*_COLUMNS, *(_HAND_COLUMNS if _has_hands(result) else ())]
    with (
        progress.stage("csv", sum(map(len, result.people)), "rows") as tick,
        atomic_file(out / CSV_FILE) as temporary,
        temporary.open("w", newline="") as file,
    ):
        file.write(",".join(_column_names(groups)) + "\n")
        for person in result.people:
            for count, values in _chunks(result, person):
                formats, cells = _table(groups, count, values)
                for row in cells.tolist():
                    texts = [
                        "" if math.isnan(number) else text_format % number
                        for text_format, number in zip(formats, row, strict=True)
                    ]
                    file.write(",".join(texts) + "\n")
                tick(count)


def _column_names(groups: Sequence[_Group]) -> list[str]:
    """Return the csv's header."""
    names = []
    for subjects, values in groups:
        suffixes = " ".join(values.values()).split()
        names += [f"{subject}{suffix}" for subject in subjects for suffix in suffixes]
    return names


def _table(
    groups: Sequence[_Group], count: int, values: dict[str, tuple[int, Any]]
) -> tuple[list[str], np.ndarray]:
    """Return the format of every column and the numbers [count, columns]; NaN: unknown."""
    formats: list[str] = []
    tables = []
    for subjects, suffixes in groups:
        subject_formats = []
        columns = []
        for name, value_suffixes in suffixes.items():
            digits, value = values[name]
            width = len(value_suffixes.split())
            subject_formats += [f"%.{digits}f"] * width
            columns.append(_round_cells(value, digits, (count, len(subjects), width)))
        formats += subject_formats * len(subjects)
        tables.append(np.concatenate(columns, 2).reshape(count, -1))
    return formats, np.concatenate(tables, 1)


def _round_cells(value: np.ndarray | None, digits: int, size: tuple[int, ...]) -> np.ndarray:
    """Return rounded numbers of this shape, without negative zeros; NaN: unknown."""
    if value is None:
        return np.full(size, np.nan)
    return np.reshape(value, size).astype(np.float64).round(digits) + 0.0


def write_json(result: Result, out: Path, progress: Reporter) -> None:
    """Write motion.json, with one line per person and frame, so that it can be searched and
    compared line by line.
    """
    with (
        progress.stage("json", sum(map(len, result.people)), "rows") as tick,
        atomic_file(out / JSON_FILE) as temporary,
        temporary.open("w") as file,
    ):
        file.write(_json(_json_head(result))[:-1] + ',\n"people": [')
        for number, person in enumerate(result.people):
            file.write(",\n" if number else "\n")
            file.write(_json(_json_person(result, person))[:-1] + ',\n"frames": [\n')
            separator = ""
            for count, values in _chunks(result, person):
                for record in _json_records(count, values):
                    file.write(separator + _json(record))
                    separator = ",\n"
                tick(count)
            file.write("\n]}")
        file.write("\n]}\n")


def _json_records(count: int, values: dict[str, tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the json of each frame of a chunk."""
    rounded = {
        name: _round_to_lists(value, digits)
        for name, (digits, value) in values.items()
        if name not in _CSV_ONLY
    }
    for row in range(count):
        record = {name: rows and rows[row] for name, rows in rounded.items()}
        for name, keys in _KEYS.items():
            record[name] = dict(zip(keys, record[name], strict=True))
        yield record


def _chunks(result: Result, person: Person) -> Iterator[tuple[int, dict[str, tuple[int, Any]]]]:
    """Yield the content of both formats for some frames at a time: how many frames, and by name the
    number of digits and the values [T, ..]; None: gravity is not known.
    """
    speed, speed_std = person.speeds_m_s()  # needs neighbouring frames, so not chunk by chunk
    for first in range(0, len(person), CHUNK_FRAMES):
        rows = slice(first, first + CHUNK_FRAMES)
        part = person.rows(rows)
        is_blank = ~np.isfinite(part.joints_m).all((1, 2))  # by --keep-reliable
        pose_rad = np.where(is_blank[:, None, None], 0, part.pose_rad)
        posed = replace(part, pose_rad=pose_rad)
        angles = person_angles_deg(posed)
        angles_deg = np.stack([angles[name] for name in ANGLE_NAMES], -1)
        stds = person_angle_std_deg(posed)
        world = part.world_from_camera
        values: dict[str, tuple[int, Any]] = {
            "person": (0, np.full(len(part), part.identity)),
            "shot": (0, np.full(len(part), part.shot + 1)),
            "world_from_camera": (6, None if world is None else world[:, :3]),
            "frame": (0, part.frame),
            "time_s": (6, clip_time_s(result, part)),
            "observed": (0, part.observed),
            "joints_world_m": (4, part.joints_world_m),
            "joints_camera_m": (4, part.joints_m),
            "contact": (3, part.contact),
            "joint_std_mm": (1, part.joint_std_mm),
            "joint_std_relative_mm": (1, part.joint_std_relative_mm),
            "joint_bounds_95_mm": (1, part.bounds_mm()),
            "joint_speed_m_s": (3, speed[rows]),
            "joint_speed_std_m_s": (3, speed_std[rows]),
            "reliable": (3, np.stack([part.reliable(limit) for limit in (50, 100)], -1)),
            "joint_observed": (0, part.joint_observed),
            "angles_deg": (2, np.where(is_blank[:, None], np.nan, angles_deg) + 0.0),
            "angle_std_deg": (2, np.stack([stds[name] for name in ANGLE_NAMES], -1)),
            "pose_axis_angle_deg": (3, np.degrees(part.pose_rad)),
            "translation_camera_m": (4, part.translation_m),
            "keypoints_px": (2, part.keypoints_px),
            "keypoint_confidence": (3, part.confidence),
            "keypoint_presence": (3, part.presence),
            "reprojection_px": (2, part.reprojection_px),
            "box_px": (1, part.box_px),
        }
        if part.hand_pose_rad is not None:
            values |= _hand_values(result, part, is_blank)
        yield len(part), values


def _hand_values(result: Result, part: Person, is_blank: np.ndarray) -> dict[str, tuple[int, Any]]:
    """Return the values of hands as `_chunks` does; is_blank [T]: rows without a body."""
    assert part.hand_pose_rad is not None
    filled = replace(
        part,
        pose_rad=np.nan_to_num(part.pose_rad),
        translation_m=np.nan_to_num(part.translation_m),
        hand_pose_rad=np.nan_to_num(part.hand_pose_rad),
    )
    hands = result.body.at(result.params(filled)).hands
    assert hands is not None
    keypoints_m = np.where(is_blank[:, None, None, None], np.nan, hands.numpy())
    return {
        "hand_seen": (0, part.hand_seen),
        "hand_axis_angle_deg": (2, np.degrees(part.hand_pose_rad)),
        "hand_std_deg": (1, part.hand_std_deg),
        "hand_keypoints_camera_m": (4, keypoints_m),
    }


def _has_hands(result: Result) -> bool:
    """Return whether hands were detected in the clip."""
    return any(person.hand_pose_rad is not None for person in result.people)


def _json_head(result: Result) -> dict[str, Any]:
    """Return the json of the whole clip."""
    rate = frame_rate(result)
    hands = {}
    if _has_hands(result):
        hands = {"finger_joints": list(FINGER_JOINTS), "hand_keypoints": list(HAND_KEYPOINTS)}
    return {
        "fitmesh": __version__,
        "schema": JSON_SCHEMA,
        "units": "metres, millimetres (_mm), degrees (_deg), pixels (_px), seconds (_s)",
        "axes": {
            "camera": "x right, y down, z forward; the lens is at the origin",
            "world": "x right as the shot's first camera sees it, y up, z towards that camera; "
            "floor at y = 0, that camera above the origin; null where gravity is not known",
        },
        "rate": [rate.numerator, rate.denominator],
        "frame_count": len(result.frames),
        "camera": {
            "width_px": result.camera.size[0],
            "height_px": result.camera.size[1],
            "focal_px": list(result.camera.focal_px),
            "center_px": list(result.camera.center_px),
        },
        "shots": [_json_shot(shot) for shot in result.shots],
        "camera_frames": [_json_camera(result, row) for row in range(len(result.frames))],
        "body": result.body_name,
        "pose_model": result.pose_model,
        "confidence": result.source,
        "weighting": result.weighting,
        "init": result.init,
        "joints": list(JOINT_NAMES),
        "parents": list(PARENTS),
        "keypoints": list(HALPE26.keypoints),
        **hands,
    }


def _json_camera(result: Result, row: int) -> dict[str, Any]:
    """Return the json of the camera in a frame."""
    frame = int(result.frames[row])
    world = result.world_from_camera[row]
    return {
        "frame": frame,
        "time_s": round(float(result.time_s[row]) - float(result.time_s[0]), 6),
        "shot": result.shot_at(frame) + 1,
        "focal_px": round(float(result.focal_px[row]), 3),
        "world_from_camera": _round_to_lists(world, 6) if np.isfinite(world).all() else None,
    }


def _json_shot(shot: Shot) -> dict[str, Any]:
    """Return the json of a shot."""
    return {
        "first_frame": shot.first_frame,
        "camera": shot.camera,
        "up_camera": None if shot.up_cam is None else _round_to_lists(shot.up_cam, 6),
        "up_std_deg": _round_to_lists(np.array(shot.up_std_deg), 2),
        "floor_known": shot.floor_known,
        "camera_height_m": _round_to_lists(np.array(shot.camera_height_m), 3),
        "focal_px": round(shot.focal_px, 3),
        "focal_log_std": _round_to_lists(np.array(shot.focal_log_std), 4),
        "focal_source": shot.focal_source,
    }


def _json_person(result: Result, person: Person) -> dict[str, Any]:
    """Return the json of a person without the frames."""
    rest_pose = rest_body(result.body, person)
    return {
        "person": person.identity,
        "same_as": person.same_as,
        "shot": person.shot + 1,
        "shape": _round_to_lists(person.shape, 4),
        "size": round(person.size, 4),
        "height_m": round(person.height_m, 3),
        "height_std_m": _round_to_lists(np.array(person.height_std_m), 3),
        "masks": person.masks,
        "girths_m": {
            name: _round_to_lists(np.array(pair), 3)
            for name, pair in result.girths_m(person).items()
        },
        "segments_m": {
            name: _round_to_lists(np.array(pair), 4)
            for name, pair in result.segments_m(person).items()
        },
        "rest_joints_m": _round_to_lists(rest_pose.joints_m, 4),
        "absent_frames": [list(span) for span in absences(result, person)],
    }


def _round_to_lists(values: np.ndarray | None, digits: int) -> Any:
    """Return nested lists in which NaN and infinity are None. Values with 0 digits are whole
    numbers or booleans and stay as they are.
    """
    if values is None or not digits:
        return None if values is None else values.tolist()
    rounded = np.array(np.round(np.asarray(values, np.float64), digits), object)
    rounded[~np.isfinite(values)] = None
    return rounded.tolist()
