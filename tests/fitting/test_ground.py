"""Gravity, floor, sizes and focal length from people whose place is known exactly."""

import dataclasses
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import fitting
from eval3dpw.captured.motion import load_motion
from eval3dpw.synth.motion import load_clips
from fitting.scene.ground import estimate_ground
from fitting.scene.ground_problem import GivenGround, GroundEstimate
from fitting.scene.height_prior import head_share, likely_heights_m
from fitting.scene.person_evidence import PersonEvidence
from tests.fitting.people_scenes import (
    Errors,
    Truth,
    angle_deg,
    people_scene,
    refocused,
    standing_pose,
    world_joints,
)

WALKING = ("05_01", "35_29", "45_01", "55_04", "90_22")
EXACT = Errors(lean_deg=0, depth=0, joint_m=0, foot_px=1e-4)


@cache
def walkers() -> list[np.ndarray]:
    body = fitting.load_body()
    clips = [clip for clip in load_clips(body, "test") if clip.name in WALKING]
    return [world_joints(clip.pose, clip.root_m, body) for clip in clips]


@cache
def stander(seed: int = 0) -> np.ndarray:
    return world_joints(*standing_pose(90, np.random.default_rng(seed)), fitting.load_body())


def depth_errors(truth: Truth, ground: GroundEstimate) -> np.ndarray:
    used = truth.camera.focal.focal_px
    ratio = (used if ground.focal is None else ground.focal.focal_px) / used
    errors = []
    for person, scale, exact in zip(truth.people, ground.scale, truth.joints_cam_m, strict=True):
        joints = scale * refocused(person.joints_cam_m, person.joints_cam_m[:, 0], ratio)
        errors.append(abs(float(np.median(joints[:, 0, 2] / exact[:, 0, 2])) - 1))
    return np.array(errors)


def grid(
    motions: list[np.ndarray], people: int, trials: int, seed: int = 0, child: bool = False, **how
) -> list[tuple]:
    """Random cameras and sizes: errors of gravity (degrees), of height and depth (relative),
    gravity in deviations.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(trials):
        sizes = [float(np.clip(rng.normal(1, 0.045), 0.9, 1.1)) for _ in range(people)]
        if child:
            sizes[-1] = float(rng.uniform(0.6, 0.8))
        height = float(rng.uniform(0.8, 3.0))
        pitch = float(
            np.clip(math.degrees(math.atan((height - 0.9) / 6)) + rng.normal(0, 4), -10, 45)
        )
        chosen = [motions[rng.integers(len(motions))] for _ in range(people)]
        truth = people_scene(
            chosen,
            rng,
            sizes,
            pitch,
            float(rng.normal(0, 3)),
            height,
            focal_share=float(rng.uniform(0.6, 1.1)),
            **how,
        )
        ground = estimate_ground(truth.people, truth.camera).ground
        assert ground is not None
        off = angle_deg(ground.up_cam, truth.up_cam)
        tall = np.abs(ground.height_m / truth.height_m - 1)
        rows.append(
            (
                off,
                tall.mean(),
                depth_errors(truth, ground).mean(),
                off / ground.up_sigma_deg,
                tall[-1],
            )
        )
    return rows


def test_exact_walkers_of_known_size_give_gravity_and_floor() -> None:
    rng = np.random.default_rng(0)
    truth = people_scene(
        walkers()[:3],
        rng,
        [1.002] * 3,
        pitch_deg=20,
        roll_deg=-4,
        camera_height_m=2.0,
        errors=EXACT,
    )
    ground = estimate_ground(truth.people, truth.camera).ground
    assert ground is not None
    assert angle_deg(ground.up_cam, truth.up_cam) < 1.5
    assert ground.camera_height_m == pytest.approx(2.0, rel=0.06)
    assert np.allclose(ground.scale, 1.0, atol=0.05)
    assert ground.on_floor.all()
    assert np.isfinite(
        [ground.up_sigma_deg, ground.camera_height_sigma_m, *ground.scale_log_sigma]
    ).all()


def test_gravity_with_one_walker_is_within_three_degrees() -> None:
    rows = np.array(grid(walkers(), people=1, trials=9))
    assert np.median(rows[:, 0]) < 3
    assert np.median(rows[:, 3]) < 2  # in stated deviations


def test_gravity_with_somebody_standing_is_within_six_degrees() -> None:
    rows = np.array(grid([stander(0), stander(1)], people=1, trials=9))
    assert np.median(rows[:, 0]) < 6


def test_two_people_on_one_floor_have_their_height_to_five_percent_and_depth_to_ten() -> None:
    rows = np.array(grid(walkers(), people=2, trials=8, seed=2))
    assert np.median(rows[:, 0]) < 3
    assert np.median(rows[:, 1]) < 0.05
    assert np.median(rows[:, 2]) < 0.10


def test_a_child_among_adults_is_found_small() -> None:
    rows = np.array(grid(walkers(), people=4, trials=5, seed=3, child=True))
    assert (
        np.median(rows[:, 4]) < 0.08
    )  # the child was 26 to 40 % smaller than the body it was fitted with


def test_an_unknown_focal_length_is_narrowed_by_people_who_walk() -> None:
    rng = np.random.default_rng(4)
    before = []
    after = []
    deviations = []
    for share in (0.55, 0.62, 0.95, 1.15, 1.3):
        truth = people_scene(
            walkers()[:4],
            rng,
            [1.0, 0.97, 1.03, 1.0],
            pitch_deg=18,
            camera_height_m=2.4,
            focal_share=share,
            focal_log_sigma=0.3,
        )
        ground = estimate_ground(truth.people, truth.camera).ground
        assert ground is not None
        assert ground.focal is not None
        before.append(abs(math.log(truth.camera.focal.focal_px / truth.focal_px)))
        after.append(abs(math.log(ground.focal.focal_px / truth.focal_px)))
        deviations.append(after[-1] / ground.focal.log_sigma)
        assert ground.focal.log_sigma < 0.2
    assert np.median(after) < 0.5 * np.median(before)
    assert np.median(deviations) < 2


def test_a_panning_camera_changes_nothing() -> None:
    turn = Rotation.from_rotvec(np.radians(np.outer(np.arange(200) / 10, [0.1, 1, 0]))).as_matrix()
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = people_scene(walkers()[:2], rng, [1.0, 1.05], pitch_deg=15, first_from_camera=turn)
        ground = estimate_ground(truth.people, truth.camera).ground
        assert ground is not None
        errors.append(angle_deg(ground.up_cam, truth.up_cam))
    assert np.median(errors) < 3


def test_verticals_of_the_background_narrow_gravity_where_they_agree_and_widen_it_where_not() -> (
    None
):
    truth = one(stander())
    alone = estimate_ground(*_scene_args(truth)).ground
    heard = estimate_ground(truth.people, dataclasses.replace(truth.camera, vertical=truth.up_cam))
    wrong = Rotation.from_rotvec([0.0, 0.0, 0.5]).apply(truth.up_cam)
    doubted = estimate_ground(truth.people, dataclasses.replace(truth.camera, vertical=wrong))
    assert alone is not None
    assert heard.ground is not None
    assert heard.ground.up_sigma_deg < 0.75 * alone.up_sigma_deg
    assert angle_deg(heard.ground.up_cam, truth.up_cam) < min(
        2, angle_deg(alone.up_cam, truth.up_cam)
    )
    # Sources that disagree beyond their errors widen the claim or withdraw it, and both are named.
    assert doubted.ground is None or doubted.ground.up_sigma_deg > 1.5 * alone.up_sigma_deg
    assert "people" in doubted.reason
    assert "verticals" in doubted.reason


def changed(person: PersonEvidence, **fields) -> PersonEvidence:
    return dataclasses.replace(person, **fields)


def one(motion: np.ndarray, seed: int = 0) -> Truth:
    return people_scene([motion], np.random.default_rng(seed), [1.0])


def lying(motion: np.ndarray) -> np.ndarray:
    turn = Rotation.from_rotvec([0, 0, np.pi / 2]).as_matrix()
    return motion @ turn.T + np.array([0, 0.2, 0])


@pytest.mark.parametrize("yaw", [0, 1, 2, 3])
def test_somebody_lying_down_is_no_plumb_line(yaw: int) -> None:
    answer = estimate_ground(*_scene_args(one(lying(stander()), yaw)))
    if (
        answer.ground is not None
    ):  # lying along the line of sight looks like standing under a steep camera
        assert answer.ground.up_sigma_deg > 3
    else:
        assert "stand" in answer.reason


def _scene_args(truth: Truth) -> tuple:
    return truth.people, truth.camera


def test_nobody_standing_gives_no_floor() -> None:
    truth = one(stander())
    person = truth.people[0]
    frames = len(person.frames)
    rng = np.random.default_rng(0)
    flying = person.feet_px + np.cumsum(rng.normal(25, 5, person.feet_px.shape), 0)
    hidden = np.full((frames, 6), np.inf)
    no_joints = np.full((frames, 24, 3), np.nan)
    for people in (
        [],
        [
            changed(
                person,
                feet_px=flying,
                joints_cam_m=person.joints_cam_m + 0.1 * np.arange(frames)[:, None, None],
            )
        ],
        [changed(person, feet_sigma_px=hidden)],
        [changed(person, joints_cam_m=no_joints)],
        [changed(person, observed=np.zeros((frames, 24), bool))],
        [
            changed(
                person,
                **{
                    k: getattr(person, k)[:0]
                    for k in ("frames", "joints_cam_m", "observed", "feet_px", "feet_sigma_px")
                },
            )
        ],
        [
            changed(
                person,
                **{
                    k: getattr(person, k)[:2]
                    for k in ("frames", "joints_cam_m", "observed", "feet_px", "feet_sigma_px")
                },
            )
        ],
    ):
        answer = estimate_ground(people, truth.camera)
        assert answer.ground is None or not answer.ground.floor_known
        assert answer.reason


def test_broken_frames_among_good_ones_leave_a_finite_answer() -> None:
    truth = people_scene(walkers()[:2], np.random.default_rng(1), [1.0, 1.0])
    people = []
    for person in truth.people:
        joints = person.joints_cam_m.copy()
        feet = person.feet_px.copy()
        sigma = person.feet_sigma_px.copy()
        joints[::7] = np.nan
        feet[3::9] = np.nan
        sigma[5::11] = np.nan
        people.append(
            changed(
                person, joints_cam_m=joints, feet_px=feet, feet_sigma_px=sigma, height_m=math.nan
            )
        )
    people[1] = changed(people[1], height_m=1.7)
    people[0] = changed(people[0], height_m=1.7)
    ground = estimate_ground(people, truth.camera).ground
    assert ground is not None
    assert angle_deg(ground.up_cam, truth.up_cam) < 6
    assert np.isfinite(ground.scale).all()


def test_somebody_on_a_ladder_does_not_tilt_the_floor() -> None:
    high = walkers()[3] + np.array([0, 1.0, 0])
    truth = people_scene([*walkers()[:3], high], np.random.default_rng(2), [1.0] * 4, pitch_deg=15)
    ground = estimate_ground(truth.people, truth.camera).ground
    assert ground is not None
    assert angle_deg(ground.up_cam, truth.up_cam) < 4


def test_somebody_on_a_roof_is_no_doll_on_the_floor() -> None:
    roof = walkers()[3] + np.array([0, 2.0, 0])
    for motions in ([walkers()[0], roof], [*walkers()[:2], roof]):
        truth = people_scene(
            motions,
            np.random.default_rng(5),
            [1.0] * len(motions),
            pitch_deg=2,
            camera_height_m=1.6,
        )
        ground = estimate_ground(truth.people, truth.camera).ground
        assert ground is not None
        assert angle_deg(ground.up_cam, truth.up_cam) < 5
        assert np.abs(ground.height_m / truth.height_m - 1).max() < 0.12
        assert ground.level_m[-1] == pytest.approx(2.0, abs=0.4)
        assert np.abs(ground.level_m[:-1]).max() < 0.15


def test_all_walking_and_standing_clips_of_cmu_meet_the_targets(shared: Path) -> None:
    path = shared / "data" / "cmu" / "clips_30fps.npz"
    if not path.is_file():
        pytest.skip(f"needs CMU motion capture, not found at {path}")
    body = fitting.load_body()
    motion = load_motion(path, body, 30)
    assert motion.root_m is not None
    with np.load(path) as file:
        about = [str(text).lower() for text in file["clip_desc"]]

    def bank(words: tuple[str, ...]) -> list[np.ndarray]:
        spans = [
            motion.clip(c) for c, text in enumerate(about) if any(word in text for word in words)
        ]
        return [
            world_joints(motion.pose[s], motion.root_m[s], body)
            for s in spans
            if s.stop - s.start >= 60
        ]

    walking = np.array(
        grid(bank(("walk forward", "normal walk", "slow walk", "brisk walk")), 1, 12)
    )
    standing = np.array(
        grid(bank(("wave", "waving", "looking around", "giving", "drink", "shrug")), 1, 12)
    )
    assert np.median(walking[:, 0]) < 3
    assert np.median(standing[:, 0]) < 6


def test_a_large_head_belongs_to_a_child_and_a_small_one_to_an_adult() -> None:
    toddler, adult, nodding, unseen = likely_heights_m(np.array([0.33, 0.17, 0.10, math.nan]))
    assert toddler < 1.1
    assert adult == pytest.approx(1.7, abs=0.05)
    assert nodding == pytest.approx(1.7, abs=0.12)
    assert unseen == pytest.approx(1.7, abs=0.03)
    assert float(head_share(np.array(0.8))) > 2 * float(head_share(np.array(1.7)))


def test_children_come_in_groups_and_a_large_head_alone_makes_none() -> None:
    doubtful = 0.22  # larger than the head of any of 30 adults, smaller than most children's
    alone = likely_heights_m(np.array([doubtful, 0.18]))
    with_a_child = likely_heights_m(np.array([doubtful, 0.24, 0.18, math.nan]))
    assert alone[0] > 1.5
    assert with_a_child[0] < 1.4
    assert with_a_child[2:] == pytest.approx([1.7, 1.7], abs=0.05)


def test_people_on_a_moving_ramp_have_gravity_and_no_floor() -> None:
    """Everybody who rides stands still on the steps, far apart in height."""
    ramp = [stander(n) + np.array([1.6 * n - 1.6, 0.9 * n, 0.0]) for n in range(3)]
    truth = people_scene(
        ramp, np.random.default_rng(7), [1.0] * 3, pitch_deg=5, camera_height_m=1.5
    )
    answer = estimate_ground(truth.people, truth.camera)
    assert answer.ground is not None
    assert angle_deg(answer.ground.up_cam, truth.up_cam) < 10
    assert not answer.ground.floor_known or np.abs(answer.ground.level_m).max() > 0.3


def test_no_camera_is_under_its_floor() -> None:
    for seed in range(4):
        truth = people_scene(
            [stander(seed)], np.random.default_rng(seed), [1.0], pitch_deg=-14, camera_height_m=0.3
        )
        ground = estimate_ground(truth.people, truth.camera).ground
        assert ground is None or not ground.floor_known or ground.camera_height_m > 0.1


def first_frame(truth: Truth) -> Truth:
    def cut(person: PersonEvidence) -> PersonEvidence:
        rows = {
            n: v[:1]
            for n, v in vars(person).items()
            if isinstance(v, np.ndarray) and len(v) == len(person.frames)
        }
        return changed(person, **rows)

    return dataclasses.replace(truth, people=[cut(person) for person in truth.people])


def test_one_image_has_gravity_and_obeys_a_stated_floor() -> None:
    truth = first_frame(one(stander()))
    ground = estimate_ground(truth.people, truth.camera).ground
    assert ground is not None
    assert angle_deg(ground.up_cam, truth.up_cam) < 15
    up = np.array([0.1, -1.0, 0.2]) / np.linalg.norm([0.1, -1.0, 0.2])
    stated = GivenGround((float(up[0]), float(up[1]), float(up[2])), 1.5)
    for motion in (stander(), lying(stander())):  # also where nobody could say which way is up
        truth = first_frame(one(motion))
        ground = estimate_ground(truth.people, truth.camera, stated).ground
        assert ground is not None
        assert angle_deg(ground.up_cam, up) < 1
        assert ground.camera_height_m == pytest.approx(1.5, rel=0.05)
