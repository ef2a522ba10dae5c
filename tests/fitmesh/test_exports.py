"""BVH, OBJ, JSON and CSV, read back."""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fitmesh.exports import EXPORTERS, csv_json
from fitmesh.exports.angles import ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.scene import scene_frame
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_folder
from tests.fitmesh.walkers import NUMBER, walkers

QUIET = Reporter()


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    result = walkers(tmp_path_factory.mktemp("exports"), frames=12)
    for name in ("bvh", "obj", "json", "csv"):
        EXPORTERS[name].write(result, result.folder, QUIET)
    return result


@pytest.mark.parametrize(
    "name", [name for name in EXPORTERS if name not in ("report", "fbx", "c3d")]
)
def test_the_listed_files_are_written(name: str, tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=2)
    files = EXPORTERS[name].write(result, tmp_path, QUIET)
    assert {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    } == set(files)


@pytest.mark.parametrize(
    "name", [name for name in EXPORTERS if name not in ("report", "fbx", "c3d")]
)
def test_a_result_without_people_is_no_error(name: str, tmp_path: Path) -> None:
    result = replace(walkers(tmp_path, frames=2), people=[])
    assert all(
        (tmp_path / file).is_file() for file in EXPORTERS[name].write(result, tmp_path, QUIET)
    )


# BVH


def play_bvh(path: Path) -> tuple[list[str], np.ndarray, float]:
    """Names [J], joint positions [T, J, 3] and frame time, by forward kinematics from the text
    alone.
    """
    names: list[str] = []
    parents: list[int] = []
    offsets: list[list[float]] = []
    stack: list[int] = []
    lines = iter(path.read_text().splitlines())
    for line in lines:
        words = line.split()
        if words[0] in ("ROOT", "JOINT"):
            parents.append(stack[-1] if stack else -1)
            names.append(words[1])
        elif words[0] == "End":
            next(lines), next(lines), next(lines)
        elif words[0] == "{":
            stack.append(len(names) - 1)
        elif words[0] == "}":
            stack.pop()
        elif words[0] == "OFFSET":
            offsets.append([float(word) for word in words[1:]])
        elif words[0] == "CHANNELS":
            assert words[-3:] == ["Zrotation", "Xrotation", "Yrotation"]
        elif words[0] == "MOTION":
            break
    count = int(next(lines).split()[1])
    step_s = float(next(lines).split()[2])
    rows = np.array([[float(word) for word in line.split()] for line in lines])
    assert rows.shape == (count, 3 + 3 * len(names))
    places = np.zeros((count, len(names), 3))
    turns = np.zeros((count, len(names), 3, 3))
    for joint, parent in enumerate(parents):
        local = Rotation.from_euler(
            "ZXY", rows[:, 3 + 3 * joint : 6 + 3 * joint], degrees=True
        ).as_matrix()
        if parent < 0:
            places[:, joint] = rows[:, :3]
            turns[:, joint] = local
        else:
            places[:, joint] = places[:, parent] + turns[:, parent] @ np.array(offsets[joint])
            turns[:, joint] = turns[:, parent] @ local
    return names, places, step_s


def test_bvh_plays_back_to_the_joints(result: Result) -> None:
    for person in result.people:
        names, places, step_s = play_bvh(result.folder / "bvh" / f"person_{person.identity}.bvh")
        assert sorted(names) == sorted(JOINT_NAMES)
        expected = scene_frame(result).points(person.joints_m, person.frame)[
            :, [NUMBER[name] for name in names]
        ]
        late = int(
            np.searchsorted(result.frames, person.frame[0])
        )  # the first pose is held: all files line up
        expected = np.concatenate([np.repeat(expected[:1], late, 0), expected])
        assert np.linalg.norm(places - expected, axis=-1).max() < 1e-4
        assert step_s == pytest.approx(1001 / 30000, abs=1e-10)


def test_bvh_angles_do_not_jump(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=60)
    person = result.people[0]
    spinning = person.pose_rad.copy()
    spinning[:, 0] = np.linspace(0, 6 * np.pi, 60)[:, None] * np.array([0, 1, 0])
    spinning[:, 16] = np.linspace(0, np.pi, 60)[:, None] * np.array(
        [1, 0, 0]
    )  # x beyond its quarter turn
    EXPORTERS["bvh"].write(
        replace(result, people=[replace(person, pose_rad=spinning)]), tmp_path, QUIET
    )
    text = (tmp_path / "bvh" / "person_1.bvh").read_text().split("Frame Time")[1].splitlines()[1:]
    angles = np.array([[float(word) for word in line.split()] for line in text])[:, 3:]
    assert np.abs(np.diff(angles, axis=0)).max() < 25


def test_bvh_of_uneven_frames_keeps_the_speed_of_the_motion(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=30, rate=Fraction(30))
    person = result.people[0]
    keep = np.delete(
        np.arange(30), [5, 6, 7, 19]
    )  # the video lost frames; 3.8 s to 4.8 s stays 1 s long
    thinned = person.rows(keep)
    uneven = replace(
        result, people=[thinned], frames=np.arange(100, 126), time_s=result.time_s[keep]
    )
    uneven = replace(uneven, people=[replace(thinned, frame=np.arange(100, 126))])
    EXPORTERS["bvh"].write(uneven, tmp_path, QUIET)
    _, places, _ = play_bvh(tmp_path / "bvh" / "person_1.bvh")
    assert len(places) == 30
    expected = scene_frame(replace(result, people=[person])).points(person.joints_m, person.frame)[
        :, 0
    ]
    np.testing.assert_allclose(places[:, 0], expected, atol=2e-3)


def test_bvh_of_every_third_frame_has_three_times_the_frame_time(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=30, rate=Fraction(30))
    person = result.people[0]
    third = slice(None, None, 3)
    thinned = person.rows(third)
    sparse = replace(
        result, people=[thinned], frames=result.frames[third], time_s=result.time_s[third]
    )
    EXPORTERS["bvh"].write(sparse, tmp_path, QUIET)
    _, places, step_s = play_bvh(tmp_path / "bvh" / "person_1.bvh")
    assert (len(places), step_s) == (10, pytest.approx(0.1))


# OBJ


def test_obj_holds_the_exact_mesh_of_a_frame(result: Result) -> None:
    person = result.people[1]
    text = (
        (result.folder / "obj" / "person_4" / f"frame_{person.frame[2]:06d}.obj")
        .read_text()
        .splitlines()
    )
    vertices = np.array([line.split()[1:] for line in text if line.startswith("v ")], float)
    faces = np.array([line.split()[1:] for line in text if line.startswith("f ")], int)
    np.testing.assert_allclose(
        vertices,
        scene_frame(result).points(result.vertices(person, 2)[None], person.frame[[2]])[0],
        atol=6e-5,
    )
    np.testing.assert_array_equal(faces - 1, result.body.faces.numpy())


def test_a_folder_is_written_atomically(tmp_path: Path) -> None:
    (tmp_path / "obj").mkdir()
    (tmp_path / "obj" / "old").touch()
    (tmp_path / ".obj.partial").mkdir()
    (tmp_path / ".obj.partial" / "left by a killed run").touch()

    def fill_the_disk() -> None:
        with atomic_folder(tmp_path / "obj") as folder:
            (folder / "half").touch()
            raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left"):
        fill_the_disk()
    assert [path.name for path in tmp_path.rglob("*")] == ["obj", "old"]
    with atomic_folder(tmp_path / "obj") as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["obj", "new"]


# JSON and CSV


def test_json_has_the_values_and_null_where_there_are_none(result: Result) -> None:
    read = json.loads((result.folder / "motion.json").read_text())
    assert read["rate"] == [30000, 1001]
    assert [person["person"] for person in read["people"]] == [1, 4]
    person = result.people[0]
    frames = read["people"][0]["frames"]
    np.testing.assert_allclose(
        [frame["joints_camera_m"] for frame in frames], person.joints_m, atol=6e-5
    )
    assert frames[3]["joints_world_m"] is None
    unseen = int(np.flatnonzero(~person.observed)[0])
    assert frames[unseen]["observed"] is False
    assert frames[unseen]["joint_std_mm"] == [None] * 24
    assert [frame["world_from_camera"] for frame in read["camera_frames"]] == [None] * len(
        result.frames
    )


def test_csv_has_one_row_per_person_and_frame(result: Result) -> None:
    with (result.folder / "motion.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(person) for person in result.people)
    person = result.people[0]
    row = rows[3]
    assert (row["person"], row["frame"], row["observed"]) == ("1", "103", "1")
    assert float(row["time_s"]) == pytest.approx(3 * 1001 / 30000, abs=1e-6)
    assert float(row["left_knee_camera_y_m"]) == pytest.approx(person.joints_m[3, 4, 1], abs=1e-4)
    assert row["left_knee_world_y_m"] == row["world_from_camera_00"] == ""
    assert float(row["2d_left_wrist_confidence"]) == pytest.approx(0.12)
    unseen = rows[int(np.flatnonzero(~person.observed)[0])]
    assert unseen["pelvis_std_mm"] == ""


@pytest.mark.parametrize("name", ["csv", "json"])
def test_a_long_track_is_written_in_chunks_that_join(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(csv_json, "CHUNK_FRAMES", 5)
    EXPORTERS[name].write(result, tmp_path, QUIET)
    file = EXPORTERS[name].entry
    assert (tmp_path / file).read_bytes() == (result.folder / file).read_bytes()


# Angles


def bent(result: Result, joint: str, axis_angle: tuple[float, float, float]) -> dict[str, float]:
    pose = np.zeros((1, 24, 3), np.float32)
    pose[0, NUMBER[joint]] = axis_angle
    joints = result.body(pose).joints.numpy()
    still = result.body(0 * pose).joints.numpy()
    zero = joint_angles_deg(0 * pose, still)
    return {
        name: float(value[0] - zero[name][0])
        for name, value in joint_angles_deg(pose, joints).items()
    }


@pytest.mark.parametrize(
    ("joint", "axis_angle", "angle", "degrees"),
    [
        ("left_hip", (-0.5, 0, 0), "left_hip_flexion", 28.65),  # thigh to the front
        ("right_hip", (-0.5, 0, 0), "right_hip_flexion", 28.65),
        (
            "left_hip",
            (0, 0, 0.3),
            "left_hip_abduction",
            17.19,
        ),  # to the body's own left, which is +x
        ("right_hip", (0, 0, -0.3), "right_hip_abduction", 17.19),
        ("left_hip", (0, -0.3, 0), "left_hip_internal_rotation", 17.19),  # toes to the middle
        ("right_hip", (0, 0.3, 0), "right_hip_internal_rotation", 17.19),
        ("left_ankle", (-0.2, 0, 0), "left_ankle_dorsiflexion", 11.46),  # toes up
        ("spine3", (0.4, 0, 0), "trunk_flexion", 22.92),  # bow
        ("spine3", (0, 0, 0.4), "trunk_bending_right", 22.92),  # the head goes to -x
        ("head", (0, 0.4, 0), "neck_rotation_left", 22.92),
    ],
)
def test_angles_are_named_after_what_moves(
    result: Result, joint: str, axis_angle: tuple[float, float, float], angle: str, degrees: float
) -> None:
    changed = bent(result, joint, axis_angle)
    assert changed[angle] == pytest.approx(degrees, abs=0.02)
    others = {name: value for name, value in changed.items() if name != angle and abs(value) > 0.02}
    assert not {name for name in others if "shoulder" not in name}


@pytest.mark.parametrize(("joint", "sign"), [("left_elbow", -1), ("right_elbow", 1)])
def test_a_bent_elbow_is_flexed_by_as_much(result: Result, joint: str, sign: int) -> None:
    assert bent(result, joint, (0, 1.2 * sign, 0))[f"{joint}_flexion"] == pytest.approx(
        np.degrees(1.2), abs=1
    )


def test_a_bent_knee_is_flexed_by_as_much(result: Result) -> None:
    assert bent(result, "left_knee", (1.2, 0, 0))["left_knee_flexion"] == pytest.approx(
        np.degrees(1.2), abs=5
    )


def test_an_arm_that_hangs_is_not_elevated_and_one_to_the_side_by_90_degrees(
    result: Result,
) -> None:
    pose = np.zeros((1, 24, 3), np.float32)
    side = joint_angles_deg(pose, result.body(pose).joints.numpy())
    pose[0, NUMBER["left_shoulder"]] = (0, 0, -np.pi / 2)
    hanging = joint_angles_deg(pose, result.body(pose).joints.numpy())
    assert side["left_shoulder_elevation"][0] == pytest.approx(90, abs=1)
    assert hanging["left_shoulder_elevation"][0] == pytest.approx(0, abs=1)
    assert tuple(side) == ANGLE_NAMES


@pytest.mark.parametrize(("side", "outward"), [("left", 1), ("right", -1)])
@pytest.mark.parametrize(
    ("turn", "plane", "elevation", "internal"),
    [
        ((0.0, 0.0, -90.0 * 1), None, 0, None),  # hangs
        ((0.0, 0.0, 0.0), 0, 90, 0),  # to the side
        ((0.0, -90.0, 0.0), 90, 90, 0),  # to the front
        ((0.0, 90.0, 0.0), -90, 90, 0),  # to the back
        ((0.0, 0.0, -45.0), 0, 45, 0),
        ((30.0, 0.0, 0.0), 0, 90, 30),  # the forearm would go down
    ],
)
def test_arms_have_isbs_plane_elevation_and_turn_with_one_sign(
    result: Result,
    side: str,
    outward: int,
    turn: tuple[float, float, float],
    plane: float | None,
    elevation: float,
    internal: float | None,
) -> None:
    x, y, z = np.radians(turn)
    pose = np.zeros((1, 24, 3), np.float32)
    pose[0, NUMBER[f"{side}_shoulder"]] = (x, outward * y, outward * z)
    angles = joint_angles_deg(pose, result.body(pose).joints.numpy())
    assert angles[f"{side}_shoulder_elevation"][0] == pytest.approx(elevation, abs=1)
    if plane is not None and internal is not None:
        assert angles[f"{side}_shoulder_plane"][0] == pytest.approx(plane, abs=0.1)
        assert angles[f"{side}_shoulder_internal_rotation"][0] == pytest.approx(internal, abs=0.1)


@pytest.mark.parametrize("facing", [0, 70, 150])
def test_the_tilt_of_the_pelvis_does_not_depend_on_where_the_person_faces(
    result: Result, facing: float
) -> None:
    turned = Rotation.from_euler("YZX", [facing, 5, 12], degrees=True)
    pose = np.zeros((1, 24, 3), np.float32)
    pose[0, 0] = turned.as_rotvec()
    joints = result.body(pose).joints.numpy()
    angles = joint_angles_deg(pose, joints, np.eye(4)[None])
    assert angles["pelvis_tilt_forward"][0] == pytest.approx(12, abs=1e-3)
    assert angles["pelvis_bending_right"][0] == pytest.approx(5, abs=1e-3)
    assert angles["pelvis_rotation_left"][0] == pytest.approx(facing, abs=1e-3)
    assert np.isnan(joint_angles_deg(pose, joints)["pelvis_tilt_forward"]).all()
