"""The Blender extension: what Blender installs, and a walk on a character of other proportions.

Name a Python with the package `bpy` (4.2 or later) in FITMESH_BLENDER_PYTHON to run what needs
Blender.
"""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import fitting
from eval3dpw.captured.feet import FEET_KEYPOINTS, feet_over_sole_m, find_contacts
from eval3dpw.synth.motion import load_clips
from fitmesh.exports import EXPORTERS, Motion
from fitmesh.exports.foot_holds import SHORTEST_S
from fitmesh.exports.scene import runs
from fitmesh.ui.events import Reporter
from fitting.camera.world import params_to_world
from pose2d.base.toml_files import parse_toml
from tests.fitmesh.walkers import SIZE, result_of, walker
from tools.blender_extension import SOURCE, build, presets

PROBE = Path(__file__).with_name("retarget_probe.py")
FRAMES = 80
CAMERA_M = 1.4  # height
AWAY_M = 6.0


@pytest.fixture(scope="module")
def retargeting() -> ModuleType:
    """The module of the extension that needs no Blender."""
    spec = importlib.util.spec_from_file_location("retarget", SOURCE / "retarget.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["retarget"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


def rest(module: ModuleType, scale: float = 1.0, turn_deg: float = 0.0) -> Any:
    """A skeleton of six joints and its soles, in Blender's axes, turned about z."""
    angle = np.radians(turn_deg)
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    places = {"pelvis": (0, 0, 0.9)}
    for side, x in (("left", 0.1), ("right", -0.1)):
        places[f"{side}_hip"] = (x, 0, 0.88)
        places[f"{side}_knee"] = (x, -0.08, 0.48)
        places[f"{side}_ankle"] = (x, 0, 0.08)
        places[f"{side}_foot"] = (x, -0.12, 0.02)
    at = {joint: scale * turn @ np.array(place) for joint, place in places.items()}
    return module.RestPose(at, dict.fromkeys(at, turn), 0.0)


def squat(module: ModuleType, skeleton: Any) -> Any:
    """The skeleton bends its knees over ten frames and travels; the feet stay."""
    down = np.linspace(0, 0.25, 10)
    place = {joint: np.tile(at, (10, 1)) for joint, at in skeleton.place_m.items()}
    turn = {joint: np.tile(axes, (10, 1, 1)) for joint, axes in skeleton.turn.items()}
    place["pelvis"][:, 2] -= down
    return module.Motion(place, turn)


def test_a_skeleton_on_itself_keeps_its_feet_and_its_hips(retargeting: ModuleType) -> None:
    skeleton = rest(retargeting)
    motion = squat(retargeting, skeleton)
    answer = retargeting.retarget(skeleton, motion, skeleton)
    np.testing.assert_allclose(answer.place_m["pelvis"], motion.place_m["pelvis"], atol=1e-6)
    for side in ("left", "right"):
        ankle = posed_ankle(answer, skeleton, side)
        np.testing.assert_allclose(ankle, motion.place_m[f"{side}_ankle"], atol=1e-6)


def posed_ankle(motion: Any, skeleton: Any, side: str) -> np.ndarray:
    place = motion.place_m["pelvis"]
    chain = ("pelvis", f"{side}_hip", f"{side}_knee", f"{side}_ankle")
    for first, second in pairwise(chain):
        way = skeleton.place_m[second] - skeleton.place_m[first]
        place = place + motion.turn[first] @ skeleton.turn[first].T @ way
    return place


@pytest.mark.parametrize("turn_deg", [0.0, 90.0, 180.0])
def test_a_larger_character_that_faces_elsewhere_moves_in_scale(
    retargeting: ModuleType, turn_deg: float
) -> None:
    skeleton = rest(retargeting)
    motion = squat(retargeting, skeleton)
    large = rest(retargeting, 1.5, turn_deg)
    answer = retargeting.retarget(skeleton, motion, large)
    np.testing.assert_allclose(answer.place_m["pelvis"], 1.5 * motion.place_m["pelvis"], atol=1e-6)
    for side in ("left", "right"):
        ankle = posed_ankle(answer, large, side)
        np.testing.assert_allclose(ankle, 1.5 * motion.place_m[f"{side}_ankle"], atol=1e-6)


def test_the_zip_has_a_manifest_and_the_bones_of_every_rig(tmp_path: Path) -> None:
    path = build(tmp_path)
    assert path.read_bytes() == build(tmp_path / "again").read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        manifest = parse_toml(archive.read("blender_manifest.toml").decode(), path)
        found = json.loads(archive.read("presets.json"))
    assert {"__init__.py", "retarget.py", "armatures.py", "importing.py", "LICENSE"} <= names
    assert manifest["schema_version"] == "1.0.0"
    assert manifest["blender_version_min"] == "4.2.0"
    assert found == presets()
    assert found["mixamo"]["left_elbow"] == "mixamorig:LeftForeArm"
    assert set(found) == {"fitmesh", "mixamo", "unreal", "rigify", "vrm", "unity"}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a result: a captured walk before a level camera, with its true contacts."""
    folder = tmp_path_factory.mktemp("captured")
    body = fitting.load_body()
    camera = fitting.Camera.default(SIZE)
    clips = [clip for clip in load_clips(body, "test") if len(clip.pose) > FRAMES]
    clip = max(clips, key=lambda clip: float((clip.root_m[FRAMES - 1] - clip.root_m[0]).norm()))
    frames = np.arange(FRAMES)
    person = walker(body, camera, 1, frames, frames / 30, 0.0, (0, 0, 5.0), tall=0.5)
    pose = clip.pose[:FRAMES]
    shape = torch.from_numpy(person.shape)
    zero = torch.zeros(FRAMES, 3)
    rest_root = body(pose, shape, zero).joints[:, 0]
    root_m = clip.root_m[:FRAMES] - clip.root_m[:1] * torch.tensor([1.0, 0, 1.0])
    posed = body(pose, shape, root_m - rest_root, vertices=True)
    assert posed.vertices is not None
    lift_m = torch.tensor([0.0, -float(posed.vertices[..., 1].min()), 0.0])
    world = np.tile(np.eye(4), (FRAMES, 1, 1))
    world[:, :3, :3] = np.diag([1.0, -1.0, -1.0])
    world[:, :3, 3] = (0, CAMERA_M, AWAY_M)
    params = fitting.BodyParams(pose, shape, root_m - rest_root + lift_m)
    in_camera = params_to_world(
        params, body(torch.zeros(1, 24, 3), shape).joints[0, 0], np.linalg.inv(world)
    )
    placed = body.at(in_camera)
    keypoints_m = body.at(params).keypoints.double().numpy()
    feet_m = keypoints_m[:, FEET_KEYPOINTS]
    contact = find_contacts(feet_m, feet_over_sole_m(body, shape), 30.0)
    person = replace(
        person,
        pose_rad=in_camera.pose.numpy().astype(np.float32),
        translation_m=in_camera.translation.numpy().astype(np.float32),
        joints_m=placed.joints.numpy(),
        contact=contact.astype(np.float32),
        joint_std_relative_mm=np.full((FRAMES, 24), 80, np.float32),
        world_from_camera=world.astype(np.float32),
    )
    result = result_of(folder, [person], camera, frames, frames / 30, Fraction(30), body)
    shot = replace(result.shots[0], camera="static", floor_known=True, camera_height_m=CAMERA_M)
    result = replace(result, shots=[shot], world_from_camera=world)
    result.__dict__["body"] = body
    EXPORTERS["glb"].write(result, folder, Reporter(), motion=Motion(plant_feet=True))
    np.save(folder / "contact.npy", contact)
    return folder


def held(stands: np.ndarray) -> np.ndarray:
    """Which frames belong to a contact that is long enough to be held."""
    long_enough = np.zeros_like(stands)
    for first, last in runs(stands):
        long_enough[first : last + 1] = last - first >= SHORTEST_S * 30
    return long_enough


@pytest.mark.slow
def test_a_character_of_other_proportions_walks_with_its_feet_on_the_floor(
    walk: Path, tmp_path: Path
) -> None:
    python = os.environ.get("FITMESH_BLENDER_PYTHON")
    if not python:
        pytest.skip("needs FITMESH_BLENDER_PYTHON: a Python with the package bpy")
    zip_file = build(tmp_path)
    command = [python, str(PROBE), str(zip_file), str(walk), "person_1"]
    environment = {**os.environ, "BLENDER_USER_RESOURCES": str(tmp_path / "user")}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["answer"] == ["FINISHED"]
    assert found["mapped"]["left_elbow"] == "mixamorig:LeftForeArm"
    assert found["frames"] == list(range(FRAMES))
    hips = np.array(found["hips"])
    assert np.linalg.norm(hips[-1, :2] - hips[0, :2]) > 1.0  # it walks
    lowest = []
    contact = np.load(walk / "contact.npy") > 0.5
    for side, heel in (("Left", 0), ("Right", 2)):
        foot = np.array(found["feet"][f"{side}Foot"])
        toes = np.array(found["feet"][f"{side}ToeBase"])
        lowest.append(np.minimum(foot[..., 2].min(1), toes[..., 2].min(1)))
        flat = held(contact[:, heel]) & held(contact[:, heel + 1])
        assert flat.sum() > 5
        assert np.abs(foot[flat][..., 2]).max() < 0.01  # the sole is on the floor
        follows = flat[1:] & flat[:-1]
        slide_m_s = 30 * np.linalg.norm(np.diff(foot[..., :2].mean(1), axis=0), axis=1)[follows]
        assert np.median(slide_m_s) < 0.01
    assert min(low.min() for low in lowest) > -0.005
    turned = np.einsum("ti,ti->t", np.array(found["left_arm"]), np.array(found["source_left_arm"]))
    assert turned.min() > 0.999  # an A-pose makes no difference
