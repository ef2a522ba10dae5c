"""Every script in examples/ runs as its docstring says."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fitmesh
from tests.imports import ROOT
from tests.videos import write_video

EXAMPLES = ROOT / "examples"
CLIP = EXAMPLES / "park.mp4"
COCO_KEYPOINTS = 17


def run_example(name: str, *arguments: object) -> str:
    """Run a script of examples/ and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_result_is_read_and_its_keypoints_are_fitted_again(tmp_path: Path) -> None:
    out = tmp_path / "park"
    printed = run_example("read_result.py", CLIP, out, "--end", 0.3)
    result = fitmesh.load(out)
    assert all(f"person {person.identity}:" in printed for person in result.people)

    person = result.people[0]
    keypoints = np.concatenate((person.keypoints_px, person.confidence[..., None]), axis=-1)
    file = tmp_path / "person.npy"
    np.save(file, keypoints[:, :COCO_KEYPOINTS])
    width, height = result.camera.size
    run_example("own_keypoints.py", file, "--width", width, "--height", height)
    joints_m = np.load(tmp_path / "person_joints_m.npy")
    assert joints_m.shape == (len(person), 24, 3)
    assert np.isfinite(joints_m).all()


@pytest.mark.slow
def test_two_cameras_give_one_result(tmp_path: Path, shared: Path) -> None:
    data = shared / "data" / "pose2sim"
    if not data.is_dir():
        pytest.skip("data/pose2sim is not in FITMESH_SHARED")
    videos = []
    for number in (1, 3):  # the calibration names its cameras cam_01, cam_02, ..
        video = tmp_path / f"cam_0{number}.mp4"
        video.write_bytes((data / f"cam0{number}.mp4").read_bytes())
        videos.append(video)
    rig = data / "Calib_qualisys.toml"
    printed = run_example("two_cameras.py", *videos, rig, tmp_path / "out", "--end", 0.5)
    assert "camera cam_01" in printed
    assert "camera cam_03" in printed


@pytest.mark.slow
def test_a_scene_is_written_for_blender(tmp_path: Path) -> None:
    out = tmp_path / "park"
    run_example("export_for_blender.py", CLIP, out, "--end", 0.3)
    assert (out / "scene.glb").stat().st_size > 0
    assert list((out / "bvh").glob("person_*.bvh"))


@pytest.mark.slow
def test_many_videos_run_in_one_call(tmp_path: Path) -> None:
    clips = [
        write_video(tmp_path / f"empty_{number}.mp4", [0, 33, 66], size=(320, 240))
        for number in range(2)
    ]
    (tmp_path / "clips.txt").write_text("\n".join(map(str, clips)))
    printed = run_example("batch_with_ray.py", tmp_path / "clips.txt", tmp_path / "out")
    assert "2 of 2 videos done" in printed
