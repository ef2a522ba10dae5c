"""Fingers on their way out: the file, the result, and every format."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitmesh.exports import (
    EXPORTERS,
    RIGS,
    Motion,
    csv_json,
    person_files,
    scene_glb,
)
from fitmesh.exports.motion import change_motion
from fitmesh.exports.rig import rig_names
from fitmesh.exports.scene import joint_poses, rest_body
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitmesh.viewer.data import viewer_data
from fitting.body.fingers import FINGER_JOINTS, JOINT_NAMES_52, PARENTS_52
from pose2d.base.errors import UserError
from tests.fitmesh.walkers import walkers

GRIP = 1.2  # radians that every joint of the left middle finger bends


def with_hands(result: Result) -> Result:
    """Left middle fingers bend more and more; right hands are flat and not seen."""

    def of(person: Person) -> Person:
        hands = np.zeros((len(person), 30, 3), np.float32)
        hands[:, 3:6, 2] = -GRIP * np.linspace(0, 1, len(person))[:, None]
        seen = np.repeat([[True, False]], len(person), 0)
        return replace(
            person,
            hand_pose_rad=hands,
            hand_std_deg=np.full((len(person), 30), 7.0, np.float32),
            hand_seen=seen,
        )

    made = replace(result, people=[of(person) for person in result.people])
    made.__dict__["body"] = result.body
    return made


def fingers(result: Result) -> np.ndarray:
    """[T, 30, 3] of the first person."""
    pose = result.people[0].hand_pose_rad
    assert pose is not None
    return pose


def document(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 12)[0]
    return json.loads(data[20 : 20 + length]), data[28 + length :]


def array(path: Path, number: int) -> np.ndarray:
    about, binary = document(path)
    accessor = about["accessors"][number]
    view = about["bufferViews"][accessor["bufferView"]]
    kind = {5126: "<f4", 5123: "<u2", 5121: "|u1", 5125: "<u4"}[accessor["componentType"]]
    width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}[accessor["type"]]
    part = binary[view["byteOffset"] : view["byteOffset"] + view["byteLength"]]
    return np.frombuffer(part, kind).reshape(-1, width)


def test_a_glb_skinned_as_a_viewer_does_it_is_the_mesh_with_fingers(tmp_path: Path) -> None:
    result = with_hands(walkers(tmp_path, frames=6))
    scene_glb.write(result, tmp_path, Reporter())
    path = tmp_path / "scene.glb"
    about, _ = document(path)
    person = result.people[0]
    skin = about["skins"][0]
    names = [about["nodes"][joint]["name"] for joint in skin["joints"]]
    assert tuple(names) == JOINT_NAMES_52
    channels = about["animations"][0]["channels"]
    samplers = about["animations"][0]["samplers"]
    turns = {
        c["target"]["node"]: array(path, samplers[c["sampler"]]["output"])[-1]
        for c in channels
        if c["target"]["path"] == "rotation"
    }
    rest = rest_body(result.body, person)
    world = np.zeros((52, 3, 3))
    at = np.zeros((52, 3))
    for joint, parent in enumerate(PARENTS_52):
        local = Rotation.from_quat(turns[skin["joints"][joint]]).as_matrix()
        world[joint] = local if parent < 0 else world[parent] @ local
        at[joint] = 0 if parent < 0 else at[parent] + world[parent] @ rest.offsets_m[joint]
    attributes = about["meshes"][0]["primitives"][0]["attributes"]
    joints = array(path, attributes["JOINTS_0"])
    weights = array(path, attributes["WEIGHTS_0"])
    points = array(path, attributes["POSITION"]).astype(np.float64)
    skinned = np.zeros_like(points)
    for k in range(4):
        j = joints[:, k]
        moved = np.einsum("vij,vj->vi", world[j], points - rest.joints_m[j]) + at[j]
        skinned += weights[:, k, None] * moved
    mesh = result.vertices(person, -1).astype(np.float64)
    exact = (mesh - person.joints_m[-1][0]) * [1, -1, -1]  # the scene's axes, about the pelvis
    hand = np.flatnonzero(result.body.with_fingers().weights[:, 22:].sum(1) > 0.5)
    assert np.abs(skinned - exact)[hand].max() < 2e-3
    assert (
        np.linalg.norm(
            mesh
            - result.vertices(
                replace(person, hand_pose_rad=np.zeros((len(person), 30, 3), np.float32)), -1
            ),
            axis=1,
        ).max()
        > 0.05
    )


@pytest.mark.parametrize("convention", RIGS)
def test_finger_bones_have_names_of_their_own_and_end_at_the_hand(convention: str) -> None:
    names = rig_names(convention, JOINT_NAMES_52)
    assert len(set(names)) == 52
    expected = {
        "smpl": "left_index1",
        "mixamo": "mixamorig:LeftHandIndex1",
        "rigify": "f_index.01.L",
        "unreal": "index_01_l",
        "vrm": "leftIndexProximal",
        "unity": "LeftIndexProximal",
    }
    assert names[22] == expected[convention]


def test_bvh_has_a_channel_for_every_finger_joint(tmp_path: Path) -> None:
    result = with_hands(walkers(tmp_path, frames=4))
    EXPORTERS["bvh"].write(result, tmp_path, Reporter())
    lines = (tmp_path / "bvh" / "person_1.bvh").read_text().splitlines()
    names = [line.split()[1] for line in lines if line.split()[0] in ("ROOT", "JOINT")]
    assert sorted(names) == sorted(JOINT_NAMES_52)
    first = 3 * names.index("left_middle2") + 3  # after the pelvis's position
    assert float(lines[-1].split()[first]) == pytest.approx(-np.degrees(GRIP), abs=1e-3)
    assert sum("End Site" in line for line in lines) == 10 + 3  # fingers, head, toes


def test_amass_has_all_of_smpl_hs_156_numbers(tmp_path: Path) -> None:
    result = with_hands(walkers(tmp_path, frames=4))
    EXPORTERS["amass"].write(result, tmp_path, Reporter())
    with np.load(tmp_path / "amass" / "person_1.npz") as file:
        assert file["poses"].shape == (4, 156)
        np.testing.assert_allclose(
            file["poses"][:, 66:], np.reshape(fingers(result), (4, 90)), atol=1e-6
        )
        np.testing.assert_array_equal(file["poses"][:, 66:], file["pose_hand"])


def test_markers_of_finger_tips_and_hand_keypoints_are_those_of_the_body(tmp_path: Path) -> None:
    result = with_hands(walkers(tmp_path, frames=4))
    EXPORTERS["trc"].write(result, tmp_path, Reporter())
    csv_json.write_json(result, tmp_path, Reporter())
    csv_json.write_csv(result, tmp_path, Reporter())
    lines = (tmp_path / "trc" / "person_1.trc").read_text().splitlines()
    names = [name for name in lines[3].split("\t")[2:] if name]
    assert names[-10:] == person_files.marker_names(hands=True)[-10:]
    assert "LMiddleTip" in names
    tip = np.array(lines[-1].split("\t")[2:], float).reshape(-1, 3)[names.index("LMiddleTip")]
    hip = np.array(lines[-1].split("\t")[2:], float).reshape(-1, 3)[names.index("joint_pelvis")]
    written = json.loads((tmp_path / "motion.json").read_text())
    assert written["finger_joints"] == list(FINGER_JOINTS)
    frame = written["people"][0]["frames"][-1]
    hands = np.array(frame["hand_keypoints_camera_m"])
    assert frame["hand_seen"] == [True, False]
    assert frame["hand_std_deg"][0] == 7
    away = (hands[0, 12] - np.array(frame["joints_camera_m"][0])) * [1, -1, -1]
    np.testing.assert_allclose(tip - hip, away, atol=3e-4)
    header, *rows = (tmp_path / "motion.csv").read_text().splitlines()
    column = header.split(",").index("left_middle2_z_deg")
    assert float(rows[3].split(",")[column]) == pytest.approx(-np.degrees(GRIP), abs=0.01)
    assert {len(row.split(",")) for row in rows} == {len(header.split(","))}


def test_motion_at_another_rate_moves_fingers_along(tmp_path: Path) -> None:
    result = with_hands(walkers(tmp_path, frames=20))
    slower = change_motion(result, Motion(fps=10.0))
    bend = fingers(slower)[:, 4, 2]
    assert len(bend) < 20
    assert (np.diff(bend) < 0).all()
    assert bend[0] == pytest.approx(0, abs=1e-6)
    assert joint_poses(slower.people[0]).shape == (len(bend), 52, 3)


def test_the_viewer_is_told_whose_colours_finger_bones_have(tmp_path: Path) -> None:
    plain = json.loads(viewer_data(walkers(tmp_path, frames=4))[0])
    assert plain["joint_of_bone"] == list(range(24))
    assert not plain["has_hands"]
    meta = json.loads(viewer_data(with_hands(walkers(tmp_path, frames=4)))[0])
    assert len(meta["joint_of_bone"]) == 52
    assert meta["joint_of_bone"][-1] == 23
    assert meta["has_hands"]


def test_columns_of_hands_survive_the_file(tmp_path: Path) -> None:
    people = with_hands(walkers(tmp_path, frames=4)).people
    arrays = Person.to_groups(people)
    again = Person.from_groups(arrays, time_s=np.concatenate([person.time_s for person in people]))
    for one, other in zip(people, again, strict=True):
        np.testing.assert_array_equal(one.hand_pose_rad, other.hand_pose_rad)
        np.testing.assert_array_equal(one.hand_seen, other.hand_seen)
    assert "row_hand_pose_rad" not in Person.to_groups(walkers(tmp_path, frames=4).people)


def test_a_body_without_fingers_says_so() -> None:
    body = replace(fitting.load_body(), fingers=None)
    with pytest.raises(UserError, match="has no fingers"):
        body(torch.zeros(1, 24, 3), hands=torch.zeros(1, 30, 3))
    with pytest.raises(UserError, match=r"hands has size \[1, 30, 3\]; expected \[2, 30, 3\]"):
        fitting.load_body()(torch.zeros(2, 24, 3), hands=torch.zeros(1, 30, 3))
