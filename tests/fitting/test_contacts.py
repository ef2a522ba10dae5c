"""Contacts against feet whose speed and height are known exactly."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from eval3dpw.synth.motion import load_clips
from fitting.body.load import load_body
from fitting.scene.contact import (
    PointMotion,
    contact_probability,
    depth_speeds,
    intervals,
    point_motion,
    speeds,
)
from fitting.solver.terms.contact import FEET
from fitting.solver.terms.floor import foot_lifts
from fitting.windows import with_shape
from tests.fitting.people_scenes import FPS, HEIGHT_M, people_scene, world_joints

FOCAL_PX = 1000.0
CENTER = (640.0, 360.0)


def moving(
    xy_px: np.ndarray, sigma_px: float = 1.0, first_from_camera: np.ndarray | None = None
) -> PointMotion:
    count = len(xy_px)
    return point_motion(
        xy_px[:, None],
        np.full((count, 1), sigma_px),
        np.full(count, 300.0),
        np.arange(count) / 30,
        FOCAL_PX,
        CENTER,
        first_from_camera,
    )


def test_speed_is_in_body_heights_per_second() -> None:
    t = np.arange(30) / 30
    speed, _ = speeds(moving(np.stack((640 + 150 * t, np.full(30, 360.0)), 1)))
    assert np.allclose(speed[5:-5], 0.5, rtol=0.03)


def test_the_cameras_turning_is_taken_out() -> None:
    turn = Rotation.from_rotvec(np.radians(np.outer(np.arange(40), [0.1, 0.5, 0.05]))).as_matrix()
    ray = np.einsum("tji,j->ti", turn, [0.05, 0.3, 1.0])
    xy = ray[:, :2] / ray[:, 2:] * FOCAL_PX + np.array(CENTER)
    assert speeds(moving(xy))[0].min() > 0.5
    still = moving(xy, first_from_camera=turn)
    assert speeds(still)[0].max() < 1e-6
    assert contact_probability(still).min() > 0.8


@pytest.mark.parametrize("seed", range(3))
def test_stance_and_swing_of_walkers_are_told_apart(seed: int) -> None:
    body = fitting.load_body()
    clips = [
        clip
        for clip in load_clips(body, "test")
        if clip.name in ("05_01", "35_29", "45_01", "55_04", "90_22")
    ]
    rng = np.random.default_rng(seed)
    hits = 0
    rests = 0
    false = 0
    frees = 0
    for clip in clips:
        truth = people_scene(
            [world_joints(clip.pose, clip.root_m, body)], rng, [1.0], pitch_deg=rng.uniform(0, 20)
        )
        person = truth.people[0]
        joints = truth.people[0].joints_cam_m
        points = (1, 2, 4, 5)  # heels and toes
        motion = point_motion(
            person.feet_px[:, points],
            person.feet_sigma_px[:, points],
            truth.focal_px * HEIGHT_M / joints[:, 0, 2],
            person.frames / FPS,
            truth.focal_px,
            truth.camera.center_px,
        )
        by_depth = depth_speeds(joints[:, (7, 10, 8, 11)], joints[:, 0], motion.time_s, HEIGHT_M)
        contact = contact_probability(motion, by_depth) > 0.5
        height = truth.foot_height_m[0]
        speed = truth.foot_speed_m_s[0]
        rest = (speed < 0.15) & (height < 0.06)
        free = (speed > 0.8) | (height > 0.15)
        hits = hits + int((contact & rest).sum())
        rests = rests + int(rest.sum())
        false = false + int((contact & free).sum())
        frees = frees + int(free.sum())
    assert rests > 200
    assert frees > 200
    assert hits / rests > 0.95
    assert false / frees < 0.12


def test_a_short_wobble_does_not_end_a_contact() -> None:
    rng = np.random.default_rng(0)
    xy = np.array([640.0, 500.0]) + rng.normal(0, 1.5, (90, 2))
    xy[45] += (12, -8)  # one bad keypoint
    probability = contact_probability(moving(xy, 2.0))[:, 0]
    assert probability.min() > 0.6
    assert intervals(probability) == [(0, 90)]


def test_intervals_have_hysteresis() -> None:
    p = np.array([0.1, 0.5, 0.7, 0.5, 0.45, 0.7, 0.3, 0.5, 0.5, 0.9])
    assert intervals(p, 0.6, 0.4) == [(1, 6), (7, 10)]
    assert intervals(p[:2], 0.6, 0.4) == []


def test_a_still_foot_high_over_the_floor_bears_no_weight() -> None:
    still = moving(np.tile([640.0, 500.0], (60, 1)))
    assert contact_probability(still)[30, 0] > 0.9
    assert contact_probability(still, height_m=np.zeros((60, 1)))[30, 0] > 0.9
    assert contact_probability(still, height_m=np.full((60, 1), 0.4))[30, 0] < 0.1


def test_points_that_are_not_seen_and_single_frames_are_finite() -> None:
    xy = np.full((10, 1, 2), np.nan)
    sigma = np.full((10, 1), np.inf)
    got = contact_probability(
        point_motion(xy, sigma, np.full(10, 300.0), np.arange(10) / 30, FOCAL_PX, CENTER)
    )
    assert np.isfinite(got).all()
    assert (np.abs(got - 5 / 9) < 0.2).all()  # nothing but the prior
    for count in (1, 2):
        assert np.isfinite(contact_probability(moving(np.full((count, 2), 300.0)))).all()


def test_a_body_with_its_shape_built_in_can_stand_on_the_floor() -> None:
    """As in the windows of a track that is too long to solve at once."""
    body = load_body()
    shape = 0.5 * torch.ones(3)
    fixed = with_shape(body, shape)
    rest = body(torch.zeros(1, 24, 3), shape, vertices=True)
    assert rest.vertices is not None
    expected = rest.keypoints[0, FEET, 1] - rest.vertices[0, :, 1].min()
    torch.testing.assert_close(foot_lifts(fixed), expected, atol=1e-5, rtol=0)
