"""`motion.csv` and `motion.json`: the numbers, one row per person and frame, written as they are made.

Joint positions are metres, in the camera frame and, where gravity is known, in the world frame; angles are degrees,
keypoints pixels. docs/exports.md explains every column and key. A value that is unknown is an empty cell in the table
and null in the json. Frames in which a person is absent have no row."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.angles import ANGLE_JOINTS, ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.scene import absences, chunks, clip_time_s, frame_rate, rest_body
from fitmesh.result import Person, Result, Shot
from fitmesh.ui.events import Reporter
from fitmesh.version import __version__
from fitting.body.kinematics import FINGER_JOINTS, JOINT_NAMES, PARENTS
from fitting.stated import angle_std_deg
from pose2d.base.files import atomic_file
from pose2d.hands import HAND_KEYPOINTS
from pose2d.skeletons import HALPE26

CSV_FILE, JSON_FILE = "motion.csv", "motion.json"
JSON_SCHEMA = 2
CONTACTS = ("left_heel", "left_toes", "right_heel", "right_toes")
RELIABLE_MM = (50, 100)
_RELIABLE = tuple(f"{limit}_mm" for limit in RELIABLE_MM)
_OF_JOINTS = ("std_mm", "relative_std_mm", "speed_m_s", "speed_std_m_s", "observed")
_HAND_COLUMNS = ["left_hand_seen", "right_hand_seen"] + [
    f"{joint}_{part}_deg" for joint in FINGER_JOINTS for part in ("x", "y", "z", "std")
]
_MATRIX = [f"world_from_camera_{row}{column}" for row in range(3) for column in range(4)]  # its last row is 0 0 0 1


def write_csv(result: Result, out: Path, progress: Reporter) -> None:
    """For spreadsheets and statistics."""
    with (
        progress.stage("csv", sum(map(len, result.people)), "rows") as tick,
        atomic_file(out / CSV_FILE) as temporary,
        temporary.open("w", newline="") as file,
    ):
        file.write(",".join(csv_columns(_with_hands(result))) + "\n")
        for person in result.people:
            for part, values in _chunks(result, person):
                file.writelines(_csv_lines(part, values))
                tick(len(part))


def write_json(result: Result, out: Path, progress: Reporter) -> None:
    """For any program; one line per person and frame, so that it can be searched and compared line by line."""
    with (
        progress.stage("json", sum(map(len, result.people)), "rows") as tick,
        atomic_file(out / JSON_FILE) as temporary,
        temporary.open("w") as file,
    ):
        file.write(_json(_json_head(result))[:-1] + ',\n"people": [')
        for number, person in enumerate(result.people):
            file.write(("," if number else "") + "\n" + _json(_json_person(result, person))[:-1] + ',\n"frames": [\n')
            separator = ""
            for part, values in _chunks(result, person):
                rounded = {name: _rounded(values[name], digits) for name, digits in _DIGITS.items() if name in values}
                for row in range(len(part)):
                    record = {name: each and each[row] for name, each in rounded.items()}
                    record |= {name: dict(zip(keys, record[name], strict=True)) for name, keys in _KEYS.items()}
                    file.write(separator + _json(record))
                    separator = ",\n"
                tick(len(part))
            file.write("\n]}")
        file.write("\n]}\n")


# What both formats hold of every frame, in the json's order, and to how many digits it has it; -1: as it is.
_DIGITS = {
    "frame": -1, "time_s": 6, "observed": -1, "joints_world_m": 4, "joints_camera_m": 4, "contact": 3,
    "joint_std_mm": 1, "joint_std_relative_mm": 1, "joint_bounds_95_mm": 1, "joint_speed_m_s": 3,
    "joint_speed_std_m_s": 3, "reliable": 3, "second_probability": 3, "joint_observed": -1, "angles_deg": 2,
    "angle_std_deg": 2, "pose_axis_angle_deg": 3, "translation_camera_m": 4, "keypoints_px": 2,
    "keypoint_confidence": 3, "keypoint_presence": 3, "reprojection_px": 2, "box_px": 1, "hand_seen": -1,
    "hand_axis_angle_deg": 2, "hand_std_deg": 1, "hand_keypoints_camera_m": 4,
}  # fmt: skip
# Those whose numbers have names.
_KEYS = {"contact": CONTACTS, "reliable": _RELIABLE, "angles_deg": ANGLE_NAMES, "angle_std_deg": ANGLE_NAMES}


def _chunks(result: Result, person: Person) -> Iterator[tuple[Person, dict[str, np.ndarray | None]]]:
    """Some frames of a person at a time, with the values [T, ..] of _DIGITS; None: gravity is not known."""
    speed, speed_std = person.speeds_m_s()  # which need the frames around
    first = 0
    for part in chunks(person):
        rows = slice(first, first + len(part))
        first += len(part)
        blank = ~np.isfinite(part.joints_m).all((1, 2))  # by --keep-reliable
        angles = joint_angles_deg(np.where(blank[:, None, None], 0, part.pose_rad), part.joints_m)
        unknown = np.full((len(part), 24), np.nan)
        stds = angle_std_deg(unknown if part.pose_std_deg is None else part.pose_std_deg, ANGLE_JOINTS)
        values = {
            "frame": part.frame, "time_s": clip_time_s(result, part), "observed": part.observed,
            "joints_world_m": part.joints_world_m, "joints_camera_m": part.joints_m, "contact": part.contact,
            "joint_std_mm": part.joint_std_mm, "joint_std_relative_mm": part.joint_std_relative_mm,
            "joint_bounds_95_mm": part.bounds_mm(), "joint_speed_m_s": speed[rows],
            "joint_speed_std_m_s": speed_std[rows],
            "reliable": np.stack([part.reliable(limit) for limit in RELIABLE_MM], -1),
            "second_probability": np.zeros(len(part)) if part.second_probability is None else part.second_probability,
            "joint_observed": part.joint_observed,
            "angles_deg": np.stack([np.where(blank, np.nan, angles[name]) + 0.0 for name in ANGLE_NAMES], -1),
            "angle_std_deg": np.stack([stds[name] for name in ANGLE_NAMES], -1),
            "pose_axis_angle_deg": np.degrees(part.pose_rad), "translation_camera_m": part.translation_m,
            "keypoints_px": part.keypoints_px, "keypoint_confidence": part.confidence,
            "keypoint_presence": part.presence, "reprojection_px": part.reprojection_px, "box_px": part.box_px,
        }  # fmt: skip
        if part.hand_pose_rad is not None and part.hand_std_deg is not None and part.hand_seen is not None:
            there = ("pose_rad", "translation_m", "hand_pose_rad")
            whole = replace(part, **{name: np.nan_to_num(getattr(part, name)) for name in there})
            hands = result.body.at(result.params(whole)).hands
            assert hands is not None
            values |= {
                "hand_seen": part.hand_seen, "hand_axis_angle_deg": np.degrees(part.hand_pose_rad),
                "hand_std_deg": part.hand_std_deg,
                "hand_keypoints_camera_m": np.where(blank[:, None, None, None], np.nan, hands.numpy()),
            }  # fmt: skip
        yield part, values


def _with_hands(result: Result) -> bool:
    return any(person.hand_pose_rad is not None for person in result.people)


def csv_columns(hands: bool = False) -> list[str]:
    """The header; hands: they were looked for."""
    places = [f"{frame}_{axis}_m" for frame in ("world", "camera") for axis in "xyz"]
    joints = [f"{joint}_{part}" for joint in JOINT_NAMES for part in (*places, *_OF_JOINTS)]
    contacts = [f"{point}_contact" for point in CONTACTS]
    keypoints = [
        f"{keypoint}_{part}"
        for keypoint in HALPE26.keypoints
        for part in ("x_px", "y_px", "confidence", "presence", "reprojection_px")
    ]
    angles = [f"{angle}_{part}" for angle in ANGLE_NAMES for part in ("deg", "std_deg")]
    return [
        "person", "frame", "time_s", "observed", "shot", *(f"reliable_{limit}" for limit in _RELIABLE),
        "second_probability", *angles,
        *contacts, *joints, *(f"2d_{name}" for name in keypoints), *_MATRIX, *(_HAND_COLUMNS if hands else ()),
    ]  # fmt: skip


def _csv_lines(person: Person, values: Mapping[str, np.ndarray | None]) -> Iterator[str]:
    of: Mapping[str, Any] = values
    count, world = len(person), person.world_from_camera
    angles = np.stack([of["angles_deg"], of["angle_std_deg"]], -1).reshape(count, -1).round(2) + 0.0  # no minus zero
    joints_world_m = np.full_like(person.joints_m, np.nan) if world is None else of["joints_world_m"]
    each = [of[name] for name in ("joint_std_mm", "joint_std_relative_mm", "joint_speed_m_s", "joint_speed_std_m_s")]
    joints = np.concatenate([joints_world_m, person.joints_m, np.stack([*each, person.joint_observed], -1)], -1)
    keypoints = np.concatenate(
        [person.keypoints_px, np.stack([person.confidence, person.presence, person.reprojection_px], -1)], -1
    )
    matrix = np.full((count, len(_MATRIX)), np.nan) if world is None else world[:, :3].reshape(count, -1)
    columns = [of["reliable"], of["second_probability"][:, None], angles, person.contact]
    columns += [joints.reshape(count, -1), keypoints.reshape(count, -1), matrix]
    formats = ["%.3f"] * (len(RELIABLE_MM) + 1) + ["%.2f"] * 2 * len(ANGLE_NAMES) + ["%.3f"] * len(CONTACTS)
    formats += [*["%.4f"] * 6, "%.1f", "%.1f", "%.3f", "%.3f", "%d"] * len(JOINT_NAMES)
    formats += ["%.2f", "%.2f", "%.3f", "%.3f", "%.2f"] * HALPE26.size + ["%.6f"] * len(_MATRIX)
    if "hand_seen" in of:
        of_joints = np.concatenate([of["hand_axis_angle_deg"], of["hand_std_deg"][..., None]], -1)
        columns += [of["hand_seen"], of_joints.reshape(count, -1) + 0.0]
        formats += ["%d"] * 2 + ["%.2f", "%.2f", "%.2f", "%.1f"] * len(FINGER_JOINTS)
    heads = zip(person.frame.tolist(), of["time_s"].tolist(), person.observed.tolist(), strict=True)
    for (frame, time_s, observed), row in zip(heads, np.concatenate(columns, 1).tolist(), strict=True):
        cells = (one % value if value == value else "" for one, value in zip(formats, row, strict=True))  # NaN != NaN
        yield f"{person.identity},{frame},{time_s:.6f},{int(observed)},{person.shot + 1}," + ",".join(cells) + "\n"


def _json_head(result: Result) -> dict[str, Any]:
    rate = frame_rate(result)
    return {
        "fitmesh": __version__,
        "schema": JSON_SCHEMA,
        "units": "metres, millimetres (_mm), degrees (_deg), pixels (_px), seconds (_s)",
        "axes": {
            "camera": "x right, y down, z forward; the lens is at the origin",
            "world": "x right as the shot's first camera sees it, y up, z towards that camera; floor at y = 0, that "
            "camera above the origin; null where gravity is not known",
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
        "camera_frames": [
            {
                "frame": frame,
                "time_s": round(time_s - float(result.time_s[0]), 6),
                "shot": result.shot_at(frame) + 1,
                "focal_px": round(float(focal_px), 3),
                "world_from_camera": _rounded(matrix, 6) if np.isfinite(matrix).all() else None,
            }
            for frame, time_s, focal_px, matrix in zip(
                result.frames.tolist(), result.time_s.tolist(), result.focal_px, result.world_from_camera, strict=True
            )
        ],
        "body": result.body_name,
        "pose_model": result.pose_model,
        "confidence": result.source,
        "weighting": result.weighting,
        "init": result.init,
        "joints": list(JOINT_NAMES),
        "parents": list(PARENTS),
        "keypoints": list(HALPE26.keypoints),
        **(
            {"finger_joints": list(FINGER_JOINTS), "hand_keypoints": list(HAND_KEYPOINTS)}
            if _with_hands(result)
            else {}
        ),
    }


def _json_shot(shot: Shot) -> dict[str, Any]:
    return {
        "first_frame": shot.first_frame, "camera": shot.camera,
        "up_camera": None if shot.up_cam is None else _rounded(shot.up_cam, 6),
        "up_std_deg": _rounded(np.array(shot.up_std_deg), 2), "floor_known": shot.floor_known,
        "camera_height_m": _rounded(np.array(shot.camera_height_m), 3), "focal_px": round(shot.focal_px, 3),
        "focal_log_std": _rounded(np.array(shot.focal_log_std), 4), "focal_source": shot.focal_source,
    }  # fmt: skip


def _json_person(result: Result, person: Person) -> dict[str, Any]:
    rest = rest_body(result.body, person)
    return {
        "person": person.identity, "same_as": person.same_as, "shot": person.shot + 1,
        "shape": _rounded(person.shape, 4), "size": round(person.size, 4), "height_m": round(person.height_m, 3),
        "height_std_m": _rounded(np.array(person.height_std_m), 3),
        "masks": person.masks,
        "girths_m": {name: _rounded(np.array(pair), 3) for name, pair in result.girths_m(person).items()},
        "segments_m": {name: _rounded(np.array(pair), 4) for name, pair in result.segments_m(person).items()},
        "rest_joints_m": _rounded(rest.joints_m, 4), "absent_frames": [list(span) for span in absences(result, person)],
    }  # fmt: skip


def _rounded(values: np.ndarray | None, digits: int) -> Any:
    """Nested lists; what is not a finite number becomes null."""
    if values is None or digits < 0:
        return None if values is None else values.tolist()
    values = np.round(np.asarray(values, np.float64), digits)
    return values.tolist() if np.isfinite(values).all() else _nulls(values.tolist())


def _nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_nulls(part) for part in value]
    return value if np.isfinite(value) else None


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
