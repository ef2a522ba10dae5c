"""`motion.csv` and `motion.json`: the numbers, one row per person and frame, written as they are made.

Joint positions are metres, in the camera frame and, where gravity is known, in the world frame; angles are degrees,
keypoints pixels. docs/exports.md explains every column and key. A value that is unknown is an empty cell in the table
and null in the json. Frames in which a person is absent have no row."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.exports.angles import ANGLE_JOINTS, ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.scene import chunks, clip_time_s, frame_rate, rest_body
from fitmesh.exports.segments import absences
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


@dataclass(frozen=True)
class _Chunk:
    """Some frames of one person with what both formats derive from them."""

    person: Person  # of T frames
    time_s: np.ndarray  # [T] since the first processed frame
    joints_world_m: np.ndarray  # [T, 24, 3] NaN where gravity is not known
    world_from_camera: np.ndarray  # [T, 4, 4] NaN where gravity is not known
    angles_deg: dict[str, np.ndarray]  # name -> [T]
    angle_std_deg: dict[str, np.ndarray]  # name -> [T]
    speeds_m_s: tuple[np.ndarray, np.ndarray]  # [T, 24] and their standard deviations
    bounds_mm: np.ndarray  # [T, 24, 3] 95 % of errors are smaller
    reliable: np.ndarray  # [T, 2] probability that no joint is off by more than RELIABLE_MM
    hands_m: np.ndarray  # [T, 2, 21, 3] camera frame; no rows where hands were not looked for


def csv_files(result: Result) -> list[str]:
    return [CSV_FILE]


def json_files(result: Result) -> list[str]:
    return [JSON_FILE]


def write_csv(result: Result, out: Path, progress: Reporter) -> None:
    """For spreadsheets and statistics."""
    with (
        progress.stage("csv", _row_count(result), "rows") as tick,
        atomic_file(out / CSV_FILE) as temporary,
        temporary.open("w", newline="") as file,
    ):
        file.write(",".join(csv_columns(_with_hands(result))) + "\n")
        for person in result.people:
            for chunk in _chunks(result, person, tick):
                file.writelines(_csv_lines(chunk))


def write_json(result: Result, out: Path, progress: Reporter) -> None:
    """For any program; one line per person and frame, so that it can be searched and compared line by line."""
    with (
        progress.stage("json", _row_count(result), "rows") as tick,
        atomic_file(out / JSON_FILE) as temporary,
        temporary.open("w") as file,
    ):
        file.write(_json(_json_head(result))[:-1] + ',\n"people": [')
        for number, person in enumerate(result.people):
            file.write(("," if number else "") + "\n" + _json(_json_person(result, person))[:-1] + ',\n"frames": [\n')
            separator = ""
            for chunk in _chunks(result, person, tick):
                for record in _json_records(chunk):
                    file.write(separator + _json(record))
                    separator = ",\n"
            file.write("\n]}")
        file.write("\n]}\n")


def _row_count(result: Result) -> int:
    return sum(len(person) for person in result.people)


def _chunks(result: Result, person: Person, tick: Callable[[int], None]) -> Iterator[_Chunk]:
    for part, speeds in zip(chunks(person), _speeds(person), strict=True):
        blank = ~np.isfinite(part.joints_m).all((1, 2))  # by --keep-reliable
        angles_deg = joint_angles_deg(np.where(blank[:, None, None], 0, part.pose_rad), part.joints_m)
        angles_deg = {name: np.where(blank, np.nan, value) for name, value in angles_deg.items()}
        joints_world_m, world = part.joints_world_m, part.world_from_camera
        if joints_world_m is None or world is None:
            joints_world_m, world = np.full_like(part.joints_m, np.nan), np.full((len(part), 4, 4), np.nan)
        unknown = np.full((len(part), 24), np.nan)
        stds = angle_std_deg(unknown if part.pose_std_deg is None else part.pose_std_deg, ANGLE_JOINTS)
        reliable = np.stack([part.reliable(limit) for limit in RELIABLE_MM], -1)
        hands_m = np.zeros((0, 2, 21, 3))
        if part.hand_pose_rad is not None:
            there = ("pose_rad", "translation_m", "hand_pose_rad")
            whole = replace(part, **{name: np.nan_to_num(getattr(part, name)) for name in there})
            hands = result.body.at(result.params(whole)).hands
            hands_m = hands_m if hands is None else np.where(blank[:, None, None, None], np.nan, hands.numpy())
        yield _Chunk(
            part, clip_time_s(result, part), joints_world_m, world, angles_deg, stds, speeds, part.bounds_mm(),
            reliable, hands_m,
        )  # fmt: skip
        tick(len(part))


def _speeds(person: Person) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each of the `chunks`; a speed needs the frames around."""
    speed, std = person.speeds_m_s()
    first = 0
    for part in chunks(person):
        rows = slice(first, first + len(part))
        yield speed[rows], std[rows]
        first += len(part)


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
        "person", "frame", "time_s", "observed", "shot", *(f"reliable_{limit}" for limit in _RELIABLE), *angles,
        *contacts, *joints, *(f"2d_{name}" for name in keypoints), *_MATRIX, *(_HAND_COLUMNS if hands else ()),
    ]  # fmt: skip


def _csv_lines(chunk: _Chunk) -> Iterator[str]:
    person, count = chunk.person, len(chunk.person)
    pairs = [(chunk.angles_deg[name], chunk.angle_std_deg[name]) for name in ANGLE_NAMES]
    angles = np.stack([value for pair in pairs for value in pair], -1).round(2) + 0.0  # + 0.0: no minus zero
    places = [chunk.joints_world_m, person.joints_m]
    each = (person.joint_std_mm, person.joint_std_relative_mm, *chunk.speeds_m_s, person.joint_observed)
    joints = np.concatenate([*places, np.stack(each, -1)], -1)
    keypoints = np.concatenate(
        [person.keypoints_px, np.stack([person.confidence, person.presence, person.reprojection_px], -1)], -1
    )
    matrix = chunk.world_from_camera[:, :3].reshape(count, -1)
    values = np.concatenate(
        [chunk.reliable, angles, person.contact, joints.reshape(count, -1), keypoints.reshape(count, -1), matrix], 1
    )
    formats = ["%.3f"] * len(RELIABLE_MM) + ["%.2f"] * 2 * len(ANGLE_NAMES) + ["%.3f"] * len(CONTACTS)
    formats += [*["%.4f"] * 6, "%.1f", "%.1f", "%.3f", "%.3f", "%d"] * len(JOINT_NAMES)
    formats += ["%.2f", "%.2f", "%.3f", "%.3f", "%.2f"] * HALPE26.size + ["%.6f"] * len(_MATRIX)
    if person.hand_pose_rad is not None and person.hand_std_deg is not None and person.hand_seen is not None:
        of_joints = np.concatenate([np.degrees(person.hand_pose_rad), person.hand_std_deg[..., None]], -1)
        values = np.concatenate([values, person.hand_seen, of_joints.reshape(count, -1) + 0.0], 1)
        formats += ["%d"] * 2 + ["%.2f", "%.2f", "%.2f", "%.1f"] * len(FINGER_JOINTS)
    heads = zip(person.frame.tolist(), chunk.time_s.tolist(), person.observed.tolist(), strict=True)
    for (frame, time_s, observed), row in zip(heads, values.tolist(), strict=True):
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


def _json_records(chunk: _Chunk) -> Iterator[dict[str, Any]]:
    person = chunk.person
    for row in range(len(person)):
        record: dict[str, Any] = {
            "frame": int(person.frame[row]),
            "time_s": round(float(chunk.time_s[row]), 6),
            "observed": bool(person.observed[row]),
            "joints_world_m": None if person.world_from_camera is None else _rounded(chunk.joints_world_m[row], 4),
            "joints_camera_m": _rounded(person.joints_m[row], 4),
            "contact": dict(zip(CONTACTS, _rounded(person.contact[row], 3), strict=True)),
            "joint_std_mm": _rounded(person.joint_std_mm[row], 1),
            "joint_std_relative_mm": _rounded(person.joint_std_relative_mm[row], 1),
            "joint_bounds_95_mm": _rounded(chunk.bounds_mm[row], 1),
            "joint_speed_m_s": _rounded(chunk.speeds_m_s[0][row], 3),
            "joint_speed_std_m_s": _rounded(chunk.speeds_m_s[1][row], 3),
            "reliable": dict(zip(_RELIABLE, _rounded(chunk.reliable[row], 3), strict=True)),
            "joint_observed": person.joint_observed[row].tolist(),
            "angles_deg": {name: _rounded(value[row] + 0.0, 2) for name, value in chunk.angles_deg.items()},
            "angle_std_deg": {name: _rounded(value[row], 2) for name, value in chunk.angle_std_deg.items()},
            "pose_axis_angle_deg": _rounded(np.degrees(person.pose_rad[row]), 3),
            "translation_camera_m": _rounded(person.translation_m[row], 4),
            "keypoints_px": _rounded(person.keypoints_px[row], 2),
            "keypoint_confidence": _rounded(person.confidence[row], 3),
            "keypoint_presence": _rounded(person.presence[row], 3),
            "reprojection_px": _rounded(person.reprojection_px[row], 2),
            "box_px": _rounded(person.box_px[row], 1),
        }
        if person.hand_pose_rad is not None and person.hand_std_deg is not None and person.hand_seen is not None:
            record["hand_seen"] = person.hand_seen[row].tolist()
            record["hand_axis_angle_deg"] = _rounded(np.degrees(person.hand_pose_rad[row]), 2)
            record["hand_std_deg"] = _rounded(person.hand_std_deg[row], 1)
            record["hand_keypoints_camera_m"] = _rounded(chunk.hands_m[row], 4)
        yield record


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
