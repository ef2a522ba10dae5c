"""Skeletons under the names of other programs."""

import json
import struct
from pathlib import Path

import pytest

from fitmesh.exports import CHOICES, EXPORTERS, bone_names
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from pose2d.base.errors import UserError
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.walkers import walkers

# Child and parent, as the programs' own skeletons have them.
BONES = {
    "smpl": (("left_knee", "left_hip"), ("right_elbow", "right_shoulder"), ("head", "neck")),
    "mixamo": (
        ("mixamorig:LeftLeg", "mixamorig:LeftUpLeg"),
        ("mixamorig:RightForeArm", "mixamorig:RightArm"),
        ("mixamorig:LeftShoulder", "mixamorig:Spine2"),
        ("mixamorig:Neck", "mixamorig:Spine2"),
        ("mixamorig:RightToeBase", "mixamorig:RightFoot"),
    ),
    "rigify": (
        ("shin.L", "thigh.L"),
        ("thigh.R", "spine"),
        ("shoulder.L", "spine.003"),
        ("spine.006", "spine.004"),
    ),
    "unreal": (
        ("calf_l", "thigh_l"),
        ("thigh_r", "pelvis"),
        ("clavicle_l", "spine_03"),
        ("ball_r", "foot_r"),
    ),
    "unity": (
        ("LeftLowerLeg", "LeftUpperLeg"),
        ("LeftShoulder", "UpperChest"),
        ("RightToes", "RightFoot"),
    ),
}


@pytest.mark.parametrize("convention", CHOICES)
def test_every_bone_has_a_name_of_its_own_and_its_programs_parent(convention: str) -> None:
    names = bone_names(convention, JOINT_NAMES)
    assert len(set(names)) == len(names) == len(JOINT_NAMES)
    parent_of = {
        name: names[parent] for name, parent in zip(names, PARENTS, strict=True) if parent >= 0
    }
    for child, parent in BONES[convention]:
        assert parent_of[child] == parent


@pytest.mark.parametrize("convention", CHOICES[1:])
def test_left_stays_left(convention: str) -> None:
    names = dict(zip(JOINT_NAMES, bone_names(convention, JOINT_NAMES), strict=True))
    swap = {
        "mixamo": ("Left", "Right"),
        "unity": ("Left", "Right"),
        "rigify": (".L", ".R"),
        "unreal": ("_l", "_r"),
    }
    left, right = swap[convention]
    for joint, name in names.items():
        if joint.startswith("left_"):
            assert left in name
            assert names[joint.replace("left", "right")] == name.replace(left, right)


def test_an_unknown_convention_is_refused_before_any_work(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="smpl, mixamo, rigify, unreal, unity"):
        bone_names("maya", JOINT_NAMES)
    assert fitmesh("run", *walk, "--out", tmp_path / "out", "--bone-names", "maya") == 2
    assert not list(tmp_path.glob("out/*.npz"))


def test_bvh_and_glb_have_the_names(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=4)
    for name in ("bvh", "glb"):
        EXPORTERS[name].write(result, tmp_path, Reporter(), "unreal")
    lines = (tmp_path / "bvh" / "person_1.bvh").read_text().splitlines()
    in_bvh = [line.split()[1] for line in lines if line.split()[0] in ("ROOT", "JOINT")]
    assert sorted(in_bvh) == sorted(bone_names("unreal", JOINT_NAMES))
    data = (tmp_path / "scene.glb").read_bytes()
    document = json.loads(data[20 : 20 + struct.unpack_from("<I", data, 12)[0]])
    for skin in document["skins"]:
        assert tuple(document["nodes"][joint]["name"] for joint in skin["joints"]) == bone_names(
            "unreal", JOINT_NAMES
        )
    assert document["asset"]["extras"]["bone_names"] == "unreal"
    assert document["asset"]["extras"]["frames_per_second"] == pytest.approx(30000 / 1001)


def test_other_names_make_the_skeletons_anew_and_nothing_else(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--export", "bvh,csv") == 0
    assert (
        fitmesh("run", *walk, "--out", tmp_path, "--export", "bvh,csv", "--bone-names", "mixamo")
        == 0
    )
    assert fitmesh.stages_made() == ["glb", "bvh"]
