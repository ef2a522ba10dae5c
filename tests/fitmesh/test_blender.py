"""Blender itself opens what is exported. Name a Python with the package `bpy` in
FITMESH_BLENDER_PYTHON to run this.
"""

import json
import os
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitting
from fitmesh.exports import EXPORTERS
from fitmesh.exports.rig import rig_names
from fitmesh.exports.scene import scene_frame
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting.body.kinematics import JOINT_NAMES
from tests.fitmesh.walkers import SIZE, in_world, result_of, walker, walkers

ROW = 7
PROBE, FBX_PROBE = (Path(__file__).with_name(name) for name in ("blender_probe.py", "fbx_probe.py"))
Z_UP = np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]])  # glTF's y up -> Blender's z up


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("blender")
    result = in_world(walkers(folder), pitch_deg=18, height_m=1.4, pan_deg=20)
    for name in ("glb", "bvh"):
        EXPORTERS[name].write(result, folder, Reporter())
    return result


@pytest.fixture(scope="module")
def imported(result: Result) -> dict[str, Any]:
    python = os.environ.get("FITMESH_BLENDER_PYTHON")
    if not python:
        pytest.skip("needs FITMESH_BLENDER_PYTHON: a Python with the package bpy")
    command = [python, str(PROBE), str(result.folder), str(float(result.rate)), str(ROW), "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def test_blender_moves_the_mesh_as_the_fit_does(result: Result, imported: dict[str, Any]) -> None:
    person = result.people[0]
    (expected,) = (
        scene_frame(result).points(result.vertices(person, ROW)[None], person.frame[[ROW]]) @ Z_UP.T
    )
    error_mm = 1000 * np.linalg.norm(np.array(imported["vertices"]) - expected, axis=1)
    assert error_mm.mean() < 0.1
    assert np.median(error_mm) < 0.01


def test_blender_moves_the_bvh_skeleton_as_the_fit_does(
    result: Result, imported: dict[str, Any]
) -> None:
    assert result.people[0].joints_world_m is not None
    expected = result.people[0].joints_world_m[ROW] @ Z_UP.T
    found = np.array([imported["joints"][name] for name in JOINT_NAMES])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_blender_writes_an_fbx_with_the_same_bones_motion_and_frames(
    result: Result, tmp_path: Path
) -> None:
    python = os.environ.get("FITMESH_BLENDER_PYTHON")
    if not python:
        pytest.skip("needs FITMESH_BLENDER_PYTHON: a Python with the package bpy")
    EXPORTERS["fbx"].write(result, tmp_path, Reporter(), "mixamo")
    command = [python, str(FBX_PROBE), str(tmp_path / "scene.fbx"), str(ROW)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["fps"] == pytest.approx(float(result.rate), rel=1e-3)
    # Blender's FBX importer takes 29.97 for 30 when it counts frames.
    assert found["frames"][1] - found["frames"][0] == pytest.approx(
        len(result.frames) - 1, rel=2e-3
    )
    names = rig_names("mixamo", JOINT_NAMES)
    assert set(found["armatures"]) == {f"person_{person.identity}" for person in result.people}
    assert all(set(names) <= set(bones) for bones in found["armatures"].values())
    assert all("mixamorig:HeadTop_End" in bones for bones in found["armatures"].values())
    assert result.people[0].joints_world_m is not None
    heads = np.array([found["armatures"]["person_1"][name] for name in names])
    np.testing.assert_allclose(heads, result.people[0].joints_world_m[ROW] @ Z_UP.T, atol=1e-3)


@pytest.mark.parametrize(("row", "there", "away"), [(4, 0, 1), (15, 1, 0)])
def test_an_fbx_has_sound_meshes_of_people_who_are_never_in_view_together(
    tmp_path: Path, row: int, there: int, away: int
) -> None:
    python = os.environ.get("FITMESH_BLENDER_PYTHON")
    if not python:
        pytest.skip("needs FITMESH_BLENDER_PYTHON: a Python with the package bpy")
    body = fitting.load_body()
    camera = fitting.Camera.default(SIZE)
    frames = np.arange(24)
    people = [
        walker(
            body,
            camera,
            1,
            frames[:9],
            frames[:9] / 30,
            heading_rad=1.5,
            start_m=(-1.2, 0.1, 5.0),
            tall=1.0,
        ),
        walker(
            body,
            camera,
            4,
            frames[12:],
            frames[12:] / 30,
            heading_rad=0.2,
            start_m=(0.9, 0.1, 6.5),
            tall=-1.5,
        ),
    ]
    result = in_world(result_of(tmp_path, people, camera, frames, frames / 30, Fraction(30), body))
    EXPORTERS["fbx"].write(result, tmp_path, Reporter())
    command = [python, str(FBX_PROBE), str(tmp_path / "scene.fbx"), str(row)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    meshes = {
        name: np.array(at)
        for name, at in json.loads(ended.stdout.splitlines()[-1])["meshes"].items()
    }
    assert set(meshes) == {"person_1_mesh", "person_4_mesh"}  # neither floor nor shapes of bones
    person = result.people[there]
    at = int(np.searchsorted(person.frame, row))
    (expected,) = (
        scene_frame(result).points(result.vertices(person, at)[None], person.frame[[at]]) @ Z_UP.T
    )
    shown, hidden = (meshes[f"person_{result.people[n].identity}_mesh"] for n in (there, away))
    assert np.median(np.linalg.norm(shown - expected, axis=1)) < 1e-3
    assert np.ptp(hidden, axis=0).max() < 0.005


def test_an_fbx_of_nobody_is_no_error(result: Result, tmp_path: Path) -> None:
    if not os.environ.get("FITMESH_BLENDER_PYTHON"):
        pytest.skip("needs FITMESH_BLENDER_PYTHON: a Python with the package bpy")
    EXPORTERS["fbx"].write(replace(result, people=[]), tmp_path, Reporter())
    assert (tmp_path / "scene.fbx").read_bytes().startswith(b"Kaydara FBX")


def test_blenders_camera_is_the_videos(result: Result, imported: dict[str, Any]) -> None:
    expected = 2 * np.arctan(result.camera.size[1] / 2 / result.camera.focal_px[1])
    assert imported["fov_y"] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(imported["camera"], (0, 0, 1.4), atol=1e-6)
    forward = result.world_from_camera[ROW, :3, :3] @ (0, 0, 1)  # panned and pitched
    np.testing.assert_allclose(imported["looks_along"], Z_UP @ forward, atol=1e-4)


def test_blenders_floor_is_at_zero_and_people_stand_on_it(
    result: Result, imported: dict[str, Any]
) -> None:
    low, high = imported["floor"]
    assert low[2] == high[2] == 0
    heights = np.array(imported["vertices"])[:, 2]
    assert -0.001 < heights.min() < 0.1
    assert heights.max() == pytest.approx(result.people[0].height_m, rel=0.06)
