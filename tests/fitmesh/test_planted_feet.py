"""Feet that stand are exactly in place in the animation formats (`exports.feet`)."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fitting
from fitmesh.exports import Motion
from fitmesh.exports.feet import contact_points, plant_feet, rest_feet
from fitmesh.exports.motion import change_motion
from fitmesh.exports.scene import scene_frame
from fitmesh.person import Person
from fitmesh.result import Result
from tests.fitmesh.walkers import NUMBER, SIZE, in_world, result_of, walker

FRAMES = 40
WOBBLE_M = 0.01


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A person who stands with bent knees, whose fit wobbles, sinks and slides by a centimetre."""
    folder = tmp_path_factory.mktemp("standing")
    body = fitting.load_body()
    camera = fitting.Camera.default(SIZE)
    frames = np.arange(FRAMES)
    start_m = (0.3, 0.1, 5.0)
    person = walker(body, camera, 1, frames, frames / 30, 0.4, start_m, tall=1.0)
    pose = person.pose_rad.copy()
    pose[:, 1:] = 0
    for side in ("left", "right"):
        pose[:, NUMBER[f"{side}_hip"], 0] = -0.3
        pose[:, NUMBER[f"{side}_knee"], 0] = 0.6
        pose[:, NUMBER[f"{side}_ankle"], 0] = -0.3
    person = replace(person, pose_rad=pose)
    person = replace(person, translation_m=np.repeat(person.translation_m[:1], FRAMES, 0))
    result = in_world(result_of(folder, [person], camera, frames, frames / 30, Fraction(30), body))
    (person,) = result.people
    generator = np.random.default_rng(0)
    wobble_m = generator.normal(0, WOBBLE_M, (FRAMES, 3)).cumsum(0) / 4
    legs = [NUMBER["left_hip"], NUMBER["right_hip"], NUMBER["left_ankle"], NUMBER["right_ankle"]]
    pose = person.pose_rad.copy()
    pose[:, legs] += generator.normal(0, 0.02, (FRAMES, 4, 3)).astype(np.float32)
    moved = replace(
        person,
        pose_rad=pose,
        translation_m=(person.translation_m + wobble_m).astype(np.float32),
        contact=np.ones((FRAMES, 4), np.float32),
        joint_std_relative_mm=np.full((FRAMES, 24), 80, np.float32),
    )
    moved = replace(moved, joints_m=body.at(result.params(moved)).joints.numpy())
    changed = replace(result, people=[moved])
    changed.__dict__["body"] = body
    return changed


def contacts(result: Result) -> np.ndarray:
    return contact_points(result, result.people[0], scene_frame(result))


def test_points_in_contact_do_not_move_and_are_on_the_floor(standing: Result) -> None:
    before = contacts(standing)
    assert np.ptp(before, axis=0).max() > 0.01
    after = contacts(plant_feet(standing))
    assert np.ptp(after, axis=0).max() < 1e-3
    lift_m = rest_feet(standing, standing.people[0])[0]
    np.testing.assert_allclose(after[..., 1], np.tile(lift_m, (FRAMES, 1)), atol=1e-3)


def test_only_legs_and_the_place_of_the_body_change_and_by_centimetres(standing: Result) -> None:
    fitted = standing.people[0]
    planted = plant_feet(standing).people[0]
    changed = np.flatnonzero((planted.pose_rad != fitted.pose_rad).any((0, 2))).tolist()
    legs = [
        NUMBER[f"{side}_{part}"] for part in ("hip", "knee", "ankle") for side in ("left", "right")
    ]
    assert changed == legs
    assert np.linalg.norm(planted.joints_m - fitted.joints_m, axis=-1).max() < 0.08
    exact = standing.body.at(standing.params(planted)).joints.numpy()
    np.testing.assert_array_equal(planted.joints_m, exact)


def test_a_foot_that_lifts_off_leaves_its_place_without_a_jump(standing: Result) -> None:
    (person,) = standing.people
    contact = person.contact.copy()
    contact[20:, :2] = 0
    pose = person.pose_rad.copy()
    pose[20:, NUMBER["left_knee"], 0] += np.linspace(0, 0.8, FRAMES - 20)
    lifted = with_person(standing, replace(person, contact=contact, pose_rad=pose))
    after = contacts(plant_feet(lifted))
    assert np.ptp(after[:20, :2], axis=0).max() < 1e-3
    steps_m = np.linalg.norm(np.diff(after[:, :2], axis=0), axis=-1)
    fitted_steps_m = np.linalg.norm(np.diff(contacts(lifted)[:, :2], axis=0), axis=-1)
    assert steps_m.max() < fitted_steps_m.max() + 0.01
    lift_m = rest_feet(standing, person)[0]
    assert (after[:, :2, 1] - lift_m[:2]).min() > -1e-3


def with_person(result: Result, person: Person) -> Result:
    joints_m = result.body.at(result.params(person)).joints.numpy()
    changed = replace(result, people=[replace(person, joints_m=joints_m)])
    changed.__dict__["body"] = result.body
    return changed


def test_a_foot_that_moves_more_than_its_stated_error_is_not_held(standing: Result) -> None:
    (person,) = standing.people
    sliding_m = np.zeros((FRAMES, 3), np.float32)
    sliding_m[:, 0] = 2.0 * np.arange(FRAMES) / 30
    sliding = replace(
        person,
        translation_m=person.translation_m + sliding_m,
        joint_std_relative_mm=np.full((FRAMES, 24), 10, np.float32),
    )
    sliding = with_person(standing, sliding).people[0]
    planted = plant_feet(with_person(standing, sliding)).people[0]
    np.testing.assert_array_equal(planted.pose_rad, sliding.pose_rad)


@pytest.mark.parametrize("reason", ["no contacts", "no gravity", "a camera that travels"])
def test_without_evidence_nothing_changes(standing: Result, reason: str) -> None:
    (person,) = standing.people
    changed = standing
    if reason == "no contacts":
        changed = replace(standing, people=[replace(person, contact=0 * person.contact)])
    elif reason == "no gravity":
        unknown = np.full_like(standing.world_from_camera, np.nan)
        changed = replace(standing, world_from_camera=unknown)
    else:
        changed = replace(standing, shots=[replace(standing.shots[0], camera="moving")])
    changed.__dict__["body"] = standing.body
    after = plant_feet(changed).people[0]
    np.testing.assert_array_equal(after.pose_rad, person.pose_rad)
    np.testing.assert_array_equal(after.translation_m, person.translation_m)


def test_feet_stay_planted_after_smoothing_and_at_another_frame_rate(standing: Result) -> None:
    changed = change_motion(standing, Motion(fps=24, smooth=0.5, plant_feet=True))
    assert np.ptp(contacts(changed), axis=0).max() < 1e-3
