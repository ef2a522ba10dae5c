"""Blender itself opens what is exported. Name a Python with the package `bpy` in FITMESH_BLENDER_PYTHON to run this."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import scene_frame
from fitmesh.progress import Reporter
from fitmesh.result import Result
from fitting.body.kinematics import JOINT_NAMES
from tests.fitmesh.walkers import walkers

ROW = 7
PROBE = Path(__file__).with_name("blender_probe.py")
Z_UP = np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]])  # glTF's y up -> Blender's z up


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("blender")
    result = walkers(folder)
    for name in ("glb", "bvh"):
        EXPORTERS[name].write(result, folder, Reporter(quiet=True))
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
    expected = scene_frame(result).points(result.vertices(result.people[0], ROW)) @ Z_UP.T
    error_mm = 1000 * np.linalg.norm(np.array(imported["vertices"]) - expected, axis=1)
    assert error_mm.mean() < 0.1
    assert np.median(error_mm) < 0.01


def test_blender_moves_the_bvh_skeleton_as_the_fit_does(result: Result, imported: dict[str, Any]) -> None:
    expected = scene_frame(result).points(result.people[0].joints_m[ROW]) @ Z_UP.T
    found = np.array([imported["joints"][name] for name in JOINT_NAMES])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_blenders_camera_is_the_videos(result: Result, imported: dict[str, Any]) -> None:
    expected = 2 * np.arctan(result.camera.size[1] / 2 / result.camera.focal_px[1])
    assert imported["fov_y"] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(imported["camera"], scene_frame(result).points(np.zeros((1, 3)))[0] @ Z_UP.T, atol=1e-6)
