"""Motion for animators: another frame rate, smoothing, on the spot; and FBX only where Blender is."""

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS, PLAIN, Motion, check_exports, fbx
from fitmesh.exports.motion import change_motion
from fitmesh.exports.scene import frame_rate, scene_frame, segments
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.errors import UserError
from tests.fitmesh.test_exports import play_bvh
from tests.fitmesh.walkers import in_world, walkers

QUIET = Reporter()


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """30 frames/s, a camera that pans; person 4 comes late."""
    return in_world(
        walkers(tmp_path, frames=31, rate=Fraction(30)), pitch_deg=18, height_m=1.4, pan_deg=20
    )


def joints(result: Result, person: Person) -> np.ndarray:
    return scene_frame(result).points(person.joints_m, person.frame)


def test_nothing_asked_changes_nothing(result: Result) -> None:
    assert change_motion(result, PLAIN) is result


@pytest.mark.parametrize(("fps", "old", "new"), [(60, 1, 2), (24, 5, 4), (15, 2, 1)])
def test_another_rate_has_the_same_poses_at_the_same_times(
    result: Result, fps: float, old: int, new: int
) -> None:
    made = change_motion(result, Motion(fps=fps))
    assert frame_rate(made) == fps
    assert len(made.frames) == fps + 1  # one second, both ends
    before = joints(result, result.people[0])
    after = joints(made, made.people[0])
    np.testing.assert_allclose(after[::new], before[::old], atol=1e-3)
    late = made.people[1]
    assert abs(late.time_s[0] - result.people[1].time_s[0]) < 1 / fps
    np.testing.assert_allclose(np.diff(late.time_s), 1 / fps)
    assert len(made.world_from_camera) == len(made.focal_px) == len(made.frames)


def test_who_stands_still_before_a_turning_camera_stands_still_at_another_rate(
    result: Result,
) -> None:
    person = result.people[0]
    scene = scene_frame(result)
    still_m = scene.points(person.joints_m, person.frame)[:1, 0] * np.ones((len(person), 1))
    from_camera = scene.at(person.frame)
    at_m = np.einsum("tji,tj->ti", from_camera[:, :3, :3], still_m - from_camera[:, :3, 3])
    moved = replace(
        person,
        translation_m=person.translation_m + (at_m - person.joints_m[:, 0]).astype(np.float32),
    )
    made = change_motion(replace(result, people=[moved]), Motion(fps=100))
    pelvis_m = joints(made, made.people[0])[:, 0]
    assert np.abs(pelvis_m - still_m[0]).max() < 1e-3


def test_absences_stay_absences(result: Result) -> None:
    person = result.people[0].rows(np.r_[0:10, 20:31])
    made = change_motion(replace(result, people=[person]), Motion(fps=60)).people[0]
    assert len(segments(replace(result, frames=np.arange(61)), made)) == 2
    assert not (
        (made.time_s > person.time_s[9] + 1e-6) & (made.time_s < person.time_s[10] - 1e-6)
    ).any()


def test_smoothing_takes_jitter_and_leaves_the_way(result: Result) -> None:
    person = result.people[0]
    noise = np.random.default_rng(0).normal(0, 0.05, person.pose_rad.shape).astype(np.float32)
    shaky = replace(result, people=[replace(person, pose_rad=person.pose_rad + noise)])
    rough, steady, very = (
        joints(made, made.people[0])
        for made in (change_motion(shaky, Motion(smooth=s)) for s in (1e-6, 0.3, 1.0))
    )
    jitter = [np.abs(np.diff(j - j[:, :1], 3, axis=0)).mean() for j in (rough, steady, very)]
    assert jitter[2] < jitter[1] < 0.4 * jitter[0]
    np.testing.assert_allclose(steady[5:-5, 0], rough[5:-5, 0], atol=0.02)


def test_in_place_keeps_the_root_over_the_origin_and_its_height(result: Result) -> None:
    made = change_motion(result, Motion(in_place=True))
    for before, after in zip(result.people, made.people, strict=True):
        pelvis_m = joints(made, after)[:, 0]
        np.testing.assert_allclose(pelvis_m[:, [0, 2]], 0, atol=2e-3)
        np.testing.assert_allclose(pelvis_m[:, 1], joints(result, before)[:, 0, 1], atol=1e-3)
        limbs = joints(made, after) - pelvis_m[:, None]
        np.testing.assert_allclose(
            limbs, joints(result, before) - joints(result, before)[:, :1], atol=1e-3
        )


def test_the_files_of_all_people_have_the_rate_and_line_up(result: Result, tmp_path: Path) -> None:
    for name in ("bvh", "amass", "trc", "glb"):
        EXPORTERS[name].write(result, tmp_path, QUIET, motion=Motion(fps=24))
    first, late = (play_bvh(tmp_path / "bvh" / f"person_{identity}.bvh") for identity in (1, 4))
    assert first[2] == late[2] == pytest.approx(1 / 24)
    made = change_motion(result, Motion(fps=24))
    assert len(first[1]) == 25
    assert len(late[1]) == made.people[1].frame[-1] + 1  # the first pose is held until it moves
    np.testing.assert_allclose(
        late[1][: made.people[1].frame[0]], late[1][:1].repeat(made.people[1].frame[0], 0)
    )
    assert np.load(tmp_path / "amass" / "person_1.npz")["mocap_framerate"] == 24
    assert (tmp_path / "trc" / "person_1.trc").read_text().splitlines()[2].startswith("24.000000\t")


def test_numbers_of_the_fit_are_not_touched(result: Result, tmp_path: Path) -> None:
    for folder, motion in ((tmp_path / "a", PLAIN), (tmp_path / "b", Motion(24, 1.0, True))):
        for name in ("csv", "json"):
            EXPORTERS[name].write(result, folder, QUIET, motion=motion)
    assert (tmp_path / "a" / "motion.csv").read_bytes() == (
        tmp_path / "b" / "motion.csv"
    ).read_bytes()


def test_fbx_without_blender_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fbx.PYTHON, raising=False)
    monkeypatch.setattr(fbx, "find_spec", lambda name: None)
    monkeypatch.setattr(fbx.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"--export fbx needs Blender.*pip install bpy"):
        check_exports(["fbx"], "smpl")
    monkeypatch.setattr(fbx.shutil, "which", lambda name: "/usr/bin/blender")
    check_exports(["fbx"], "smpl")


def test_what_blender_says_when_it_fails_is_passed_on(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fbx.PYTHON, sys.executable)  # has no bpy
    with pytest.raises(UserError, match=r"did not make scene.fbx: .*bpy"):
        EXPORTERS["fbx"].write(result, tmp_path, QUIET)
    assert not list(tmp_path.glob("*.fbx"))
