"""Skeletons of other programs: names, hierarchy and rest pose."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fitmesh.exports import EXPORTERS, RIGS
from fitmesh.exports.rig import Rig, rig_names, rig_of
from fitmesh.exports.scene import rest_body, scene_frame
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES
from tests.fitmesh.conftest import Fitmesh
from tests.fitmesh.test_export_glb import Glb
from tests.fitmesh.walkers import NUMBER, in_world, walkers

# Child and parent, as the programs' own skeletons have them.
BONES = {
    "smpl": (("left_knee", "left_hip"), ("right_elbow", "right_shoulder"), ("head", "neck")),
    "mixamo": (
        ("mixamorig:LeftLeg", "mixamorig:LeftUpLeg"),
        ("mixamorig:RightForeArm", "mixamorig:RightArm"),
        ("mixamorig:LeftShoulder", "mixamorig:Spine2"),
        ("mixamorig:Neck", "mixamorig:Spine2"),
        ("mixamorig:RightToeBase", "mixamorig:RightFoot"),
        ("mixamorig:HeadTop_End", "mixamorig:Head"),
    ),
    "rigify": (
        ("shin.L", "thigh.L"),
        ("thigh.R", "spine"),
        ("shoulder.L", "spine.003"),
        ("spine.006", "spine.005"),
        ("spine.005", "spine.004"),
        ("pelvis.L", "spine"),
        ("heel.02.R", "foot.R"),
        ("f_middle.01.L", "palm.02.L"),
    ),
    "unreal": (
        ("calf_l", "thigh_l"),
        ("thigh_r", "pelvis"),
        ("clavicle_l", "spine_03"),
        ("ball_r", "foot_r"),
        ("pelvis", "root"),
    ),
    "vrm": (
        ("leftLowerLeg", "leftUpperLeg"),
        ("leftShoulder", "upperChest"),
        ("rightToes", "rightFoot"),
    ),
    "unity": (
        ("LeftLowerLeg", "LeftUpperLeg"),
        ("LeftShoulder", "UpperChest"),
        ("RightToes", "RightFoot"),
    ),
}


OTHERS = RIGS[1:]
LEFT_AND_RIGHT = {
    "mixamo": ("Left", "Right"),
    "unity": ("Left", "Right"),
    "vrm": ("left", "right"),
    "rigify": (".L", ".R"),
    "unreal": ("_l", "_r"),
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return in_world(walkers(tmp_path_factory.mktemp("rigs"), frames=8))


def rig_at_rest(result: Result, name: str) -> Rig:
    return rig_of(rest_body(result.body, result.people[0]), name)


@pytest.mark.parametrize("name", RIGS)
def test_every_bone_has_a_name_of_its_own_and_its_programs_parent(
    result: Result, name: str
) -> None:
    rig = rig_at_rest(result, name)
    assert len(set(rig.names)) == len(rig.names)
    parent_of = {
        bone: rig.names[parent]
        for bone, parent in zip(rig.names, rig.parents, strict=True)
        if parent >= 0
    }
    for child, parent in BONES[name]:
        assert parent_of[child] == parent


@pytest.mark.parametrize("name", OTHERS)
def test_left_stays_left(name: str) -> None:
    names = dict(zip(JOINT_NAMES, rig_names(name, JOINT_NAMES), strict=True))
    left, right = LEFT_AND_RIGHT[name]
    for joint, bone in names.items():
        if joint.startswith("left_"):
            assert left in bone
            assert names[joint.replace("left", "right")] == bone.replace(left, right)


@pytest.mark.parametrize("name", OTHERS)
def test_at_rest_the_rig_stands_on_the_floor_over_the_origin(result: Result, name: str) -> None:
    rig = rig_at_rest(result, name)
    person = result.people[0]
    assert rig.vertices_m[:, 1].min() == pytest.approx(0, abs=1e-6)
    assert np.ptp(rig.vertices_m[:, 1]) == pytest.approx(person.height_m, rel=0.02)
    ankles_m = rig.place_m[[NUMBER["left_ankle"], NUMBER["right_ankle"]]]
    np.testing.assert_allclose(ankles_m.mean(0)[[0, 2]], 0, atol=1e-6)
    assert ankles_m[0, 0] > 0 > ankles_m[1, 0]
    t_pose = rest_body(result.body, person)
    hips_m = t_pose.joints_m[0, 1] - t_pose.vertices_m[:, 1].min()
    assert rig.place_m[0, 1] == pytest.approx(hips_m, abs=1e-6)
    if rig.root is not None:
        np.testing.assert_allclose(rig.place_m[rig.root], 0)


@pytest.mark.parametrize("name", OTHERS)
def test_arms_rest_level_or_lowered_as_the_programs_do(result: Result, name: str) -> None:
    rig = rig_at_rest(result, name)
    t_pose = rest_body(result.body, result.people[0]).joints_m
    for side in ("left", "right"):
        shoulder, wrist = (NUMBER[f"{side}_{part}"] for part in ("shoulder", "wrist"))
        way, level = (places[wrist] - places[shoulder] for places in (rig.place_m, t_pose))
        lowered = np.degrees(
            np.arctan2(-way[1], abs(way[0])) - np.arctan2(-level[1], abs(level[0]))
        )
        assert lowered == pytest.approx(45 if name == "unreal" else 0, abs=0.1)


@pytest.mark.parametrize("name", RIGS)
def test_glb_moves_the_mesh_as_the_fit_does(result: Result, tmp_path: Path, name: str) -> None:
    EXPORTERS["glb"].write(result, tmp_path, Reporter(), name)
    glb = Glb(tmp_path / "scene.glb")
    assert glb.json["asset"]["extras"]["rig"] == name
    person = result.people[0]
    for row in (0, 5):
        expected = scene_frame(result).points(
            result.vertices(person, row)[None], person.frame[[row]]
        )[0]
        error_mm = 1000 * np.linalg.norm(glb.posed(1, row) - expected, axis=1)
        assert np.median(error_mm) < 0.02
        assert error_mm.mean() < (1.0 if name == "unreal" else 0.1)


@pytest.mark.parametrize("name", RIGS)
def test_bvh_moves_the_bones_as_the_fit_does(result: Result, tmp_path: Path, name: str) -> None:
    EXPORTERS["bvh"].write(result, tmp_path, Reporter(), name)
    person = result.people[0]
    assert person.joints_world_m is not None
    places = bvh_places(tmp_path / "bvh" / "person_1.bvh", 5)
    for joint, bone in zip(JOINT_NAMES, rig_names(name, JOINT_NAMES), strict=True):
        expected = person.joints_world_m[5, NUMBER[joint]]
        np.testing.assert_allclose(places[bone], expected, atol=1e-4)


def bvh_places(path: Path, frame: int) -> dict[str, np.ndarray]:
    """Return where every bone of a BVH file begins in a frame."""
    lines = path.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("Frame Time")) + 1
    numbers = iter(map(float, lines[first + frame].split()))
    chain: list[tuple[Rotation, np.ndarray]] = []
    places = {}
    name = ""
    for line in lines:
        words = line.split()
        if words[0] in ("ROOT", "JOINT", "End"):
            name = words[1]
        elif words[0] == "OFFSET":
            offset_m = np.array(words[1:], float)
            turn, place_m = chain[-1] if chain else (Rotation.identity(), np.zeros(3))
            chain.append((turn, place_m + turn.apply(offset_m)))
        elif words[0] == "CHANNELS":
            values = [next(numbers) for _ in range(int(words[1]))]
            turn, place_m = chain.pop()
            if len(values) == 6:
                place_m = place_m + values[:3]
            chain.append((turn * Rotation.from_euler("ZXY", values[-3:], degrees=True), place_m))
            places[name] = place_m
        elif words[0] == "}":
            chain.pop()
        elif words[0] == "MOTION":
            break
    return places


def test_an_unknown_rig_is_refused_before_any_work(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path / "out", "--rig", "maya") == 2
    assert not list(tmp_path.glob("out/*.npz"))


def test_another_rig_makes_the_skeletons_anew_and_nothing_else(
    fitmesh: Fitmesh, walk: tuple, tmp_path: Path
) -> None:
    assert fitmesh("run", *walk, "--out", tmp_path, "--export", "bvh,csv") == 0
    assert fitmesh("run", *walk, "--out", tmp_path, "--export", "bvh,csv", "--rig", "mixamo") == 0
    assert fitmesh.stages_made() == ["glb", "bvh"]
