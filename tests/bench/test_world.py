"""bench/world.py measures nothing where there is no error, and exactly the error that is put in."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from bench.lib.simulation import Noise
from bench.lib.world_background import background, draw_room
from bench.lib.world_metrics import PersonEstimate, ShotEstimate, shot_metrics, turn_error_deg
from bench.lib.world_scenes import ShotTruth, simulated_shot
from eval3dpw.captured.feet import feet_over_sole_m
from eval3dpw.synth.motion import clips_by_kind
from fitting.body.load import load_body


@cache
def shot(number: int = 1) -> ShotTruth:
    """Number 1: two people who stand, a panning camera; 2: two who walk, a static one."""
    body = load_body()
    return simulated_shot(clips_by_kind(body, reporting=True), body, 2, number, seconds=4.0)


def exact(truth: ShotTruth) -> ShotEstimate:
    body = load_body()
    turn = truth.camera_from_world[:, :3, :3]
    people = [
        PersonEstimate(
            np.arange(truth.frames),
            truth.in_camera(p.joints_m),
            truth.in_camera(p.keypoints_m),
            p.size * feet_over_sole_m(body),
            p.height_m,
            p.standing.astype(float),
        )
        for p in truth.people
    ]
    kind = {"static": "static", "pan": "rotating", "hand": "moving"}[truth.camera_kind]
    return ShotEstimate(
        people,
        truth.up_cam,
        truth.camera_height_m,
        truth.camera.focal_px[0],
        kind,
        turn[0] @ turn.swapaxes(1, 2),
    )


@pytest.mark.parametrize("number", [1, 2])
def test_the_truth_itself_has_no_error(number: int) -> None:
    figures = shot_metrics(shot(number), exact(shot(number)))
    for name in (
        "gravity, deg",
        "stated floor, cm off",
        "focal length, %",
        "world MPJPE, mm",
        "root drift, cm",
        "place in the world, cm off",
        "height, %",
        "depth, %",
        "MPJPE, mm",
        "PA-MPJPE, mm",
    ):
        assert figures[name] == pytest.approx(0, abs=1e-2), name
    assert figures["contacts right, %"] == figures["camera kind right, %"] == 100
    assert figures["standing feet, cm/s"] < 3
    assert figures["feet under the floor, mm"] < 20


def test_errors_come_out_as_they_were_put_in() -> None:
    truth = shot(2)
    found = exact(truth)
    tilted = Rotation.from_euler("x", 7, degrees=True).apply(truth.up_cam)
    people = [
        None
        if p is None
        else replace(p, joints_cam_m=1.1 * p.joints_cam_m, height_m=1.1 * p.height_m)
        for p in found.people
    ]
    wrong = replace(
        found, up_cam=tilted, people=people, focal_px=1.2 * found.focal_px, kind="moving"
    )
    figures = shot_metrics(truth, wrong)
    side = np.cross(truth.up_cam, (1.0, 0.0, 0.0))  # a turn about x moves what is square to x
    assert figures["gravity, deg"] == pytest.approx(7 * np.linalg.norm(side), rel=0.02)
    assert figures["focal length, %"] == pytest.approx(20)
    assert figures["height, %"] == pytest.approx(10)
    assert figures["depth, %"] == pytest.approx(10)
    assert figures["PA-MPJPE, mm"] == pytest.approx(0, abs=1e-2)
    assert figures["camera kind right, %"] == 0


def test_a_pan_that_is_not_followed_is_as_wrong_as_it_is_wide() -> None:
    truth = shot(1)
    still = replace(exact(truth), first_from_camera=None)
    world = Rotation.from_matrix(truth.camera_from_world[:, :3, :3].swapaxes(1, 2))
    assert turn_error_deg(truth, still) == pytest.approx(
        float(np.degrees((world[0].inv() * world[-1]).magnitude())), abs=1e-6
    )
    assert turn_error_deg(truth, exact(truth)) == pytest.approx(0, abs=1e-5)


def test_everybody_is_in_view_and_read_with_the_stated_noise() -> None:
    truth = shot(2)
    for person in truth.people:
        read = person.keypoints
        assert read is not None
        assert read.xy_px.shape == (truth.frames, 26, 2)
        seen = truth.camera.project(torch.from_numpy(truth.in_camera(person.keypoints_m)).float())
        inside = ((seen > 0) & (seen < torch.tensor(truth.camera.size))).all(-1)
        assert inside.float().mean() > 0.93
        off = (read.xy_px - seen).norm(dim=-1)
        assert 0 < float(off.median()) < 0.1 * float(read.area_px2.sqrt().median())  # type: ignore[union-attr]


def test_the_same_seed_makes_the_same_shot() -> None:
    body = load_body()
    clips = clips_by_kind(body, reporting=True)
    a, b, other = (simulated_shot(clips, body, seed, 1, 1.0, Noise()) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a.camera_from_world, b.camera_from_world)
    assert torch.equal(a.people[0].keypoints.xy_px, b.people[0].keypoints.xy_px)  # type: ignore[union-attr]
    assert not np.array_equal(a.camera_from_world, other.camera_from_world)


def test_the_background_stays_with_a_static_camera_and_goes_with_a_pan() -> None:
    still = shot(2)
    pan = shot(1)
    for truth, same in ((still, True), (pan, False)):
        room = draw_room(truth, np.random.default_rng(0))
        a, b = (
            background(room, (64, 48), 50.0, truth.camera_from_world[t])
            for t in (0, truth.frames // 2)
        )
        assert a.std() > 5
        assert np.array_equal(a, b) == same
