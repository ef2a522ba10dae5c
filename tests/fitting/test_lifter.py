"""The lifter: a first guess from keypoints alone."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import torch

import fitting
from fitting.camera import Camera
from fitting.init.lifter import _windows, lift, lift_frames
from fitting.init.lifter_inputs import Observation, fill_between, make_inputs, rotation_towards
from fitting.init.lifter_network import load_lifter
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints


@pytest.fixture(scope="module")
def body():
    return fitting.load_body()


@pytest.fixture(scope="module")
def camera():
    return Camera.from_focal(1000.0, (1280, 960))


def walking(body, camera, frames, fps=30.0):
    """Somebody who swings arms and legs once a second, four metres away; exact keypoints."""
    swing = torch.sin(torch.arange(frames) / fps * 2 * torch.pi)
    pose = torch.zeros(frames, 24, 3)
    pose[:, 0, 0] = torch.pi
    pose[:, 16, 2] = -1.2
    pose[:, 17, 2] = 1.2
    pose[:, 16, 1] = -0.4 * swing
    pose[:, 17, 1] = -0.4 * swing
    pose[:, 1, 0] = 0.5 * swing
    pose[:, 2, 0] = -0.5 * swing
    pose[:, 4, 0] = 0.3 - 0.2 * swing
    pose[:, 5, 0] = 0.3 + 0.2 * swing
    truth = fitting.BodyParams(
        pose, torch.zeros(10), torch.tensor([[0.3, 0.1, 4.0]]).repeat(frames, 1)
    )
    ones = torch.ones(frames, 17)
    return truth, Keypoints(
        camera.project(body.at(truth).keypoints[:, :17]), 0.98 * ones, ones, "oracle"
    )


def away_mm(body, found, truth):
    """Mean distance of joints from the truth, pelvis on pelvis, [T]."""
    a = body.at(found).joints
    b = body.at(truth).joints
    return 1000 * (a - a[:, :1] - b + b[:, :1]).norm(dim=-1).mean(1)


def pixels(body, camera, found, keypoints):
    return (camera.project(body.at(found).keypoints[:, :17]) - keypoints.xy_px).norm(dim=-1)


def test_the_embedded_weights_are_under_ten_megabytes():
    assert (files("fitting") / "data" / "lifter.npz").stat().st_size < 10e6
    assert sum(p.numel() for p in load_lifter().parameters()) > 1e5


def test_a_walk_is_lifted_close_to_where_it_is(body, camera):
    truth, keypoints = walking(body, camera, 40)
    found = lift(keypoints, camera, body, fps=30.0)
    assert found.visible.all()
    assert away_mm(body, found.params, truth).mean() < 90
    assert pixels(body, camera, found.params, keypoints).mean() < 20  # of a person of 430 pixels
    assert (found.params.translation[:, 2] - 4).abs().max() < 0.6


def test_one_frame_is_a_track_like_any_other(body, camera):
    truth, keypoints = walking(body, camera, 1)
    alone = lift_frames(keypoints, [camera], body)
    track = lift(keypoints, camera, body, fps=30.0)
    assert away_mm(body, alone.params, truth).mean() < 110
    torch.testing.assert_close(alone.params.pose, track.params.pose, atol=1e-4, rtol=0)


def test_frames_by_themselves_do_not_hear_each_other(body, camera):
    _, keypoints = walking(body, camera, 6)
    together = lift_frames(keypoints, [camera], body).params
    for t in range(6):
        one = replace(
            keypoints,
            xy_px=keypoints.xy_px[t : t + 1],
            confidence=keypoints.confidence[t : t + 1],
            presence=keypoints.presence[t : t + 1],
        )
        alone = lift_frames(one, [camera], body).params
        torch.testing.assert_close(alone.pose[0], together.pose[t], atol=1e-4, rtol=0)
        torch.testing.assert_close(alone.translation[0], together.translation[t], atol=1e-3, rtol=0)


def test_the_place_in_the_image_only_turns_the_answer_a_little(body, camera):
    """The same person, turned about the camera: the network sees the same keypoints and answers in
    its own frame.
    """
    truth, _ = walking(body, camera, 1)
    points = body.at(truth).keypoints[:, :17]
    turn = torch.linalg.matrix_exp(torch.tensor([[0, 0, 0.15], [0, 0, 0], [-0.15, 0, 0]]))
    ones = torch.ones(1, 17)

    def read(where):
        return lift_frames(
            Keypoints(camera.project(where), 0.98 * ones, ones, "oracle"), [camera], body
        ).params

    straight = body.at(read(points)).joints @ turn.T
    aside = body.at(read(points @ turn.T)).joints
    assert 1000 * (straight - aside).norm(dim=-1).mean() < 120


def test_missing_keypoints_cost_little(body, camera):
    truth, keypoints = walking(body, camera, 30)
    presence = keypoints.presence.clone()
    presence[:, [0, 3, 7, 9]] = 0
    somewhere = torch.where(presence[..., None] > 0, keypoints.xy_px, torch.full((2,), 7.0))
    found = lift(replace(keypoints, presence=presence, xy_px=somewhere), camera, body, fps=30.0)
    assert away_mm(body, found.params, truth).mean() < 120


def test_legs_out_of_the_image_rest_in_a_likely_pose(body, camera):
    truth, keypoints = walking(body, camera, 10)
    presence = keypoints.presence.clone()
    presence[:, 13:] = 0
    pose = lift(replace(keypoints, presence=presence), camera, body, fps=30.0).params.pose
    assert pose[:, [4, 5]].norm(dim=-1).max() < 1.2  # knees
    feet = body.at(fitting.BodyParams(pose, truth.shape, truth.translation)).joints[:, [7, 8], 1]
    assert (feet > truth.translation[:, None, 1] + 0.3).all()  # below the pelvis: y points down


def test_numbers_that_are_not_finite_are_as_good_as_missing(body, camera):
    _, keypoints = walking(body, camera, 12)
    presence = keypoints.presence.clone()
    broken = keypoints.xy_px.clone()
    presence[3, 9] = presence[4] = 0
    broken[3, 9] = torch.nan
    broken[4] = torch.inf
    with_nan = lift(replace(keypoints, xy_px=broken), camera, body, fps=30.0)
    without = lift(replace(keypoints, presence=presence), camera, body, fps=30.0)
    assert torch.isfinite(with_nan.params.pose).all()
    assert not with_nan.visible[4]
    assert with_nan.visible.sum() == 11
    torch.testing.assert_close(with_nan.params.pose, without.params.pose, atol=1e-4, rtol=0)


def test_frames_that_show_nothing_are_spoken_for_by_their_neighbours(body, camera):
    truth, keypoints = walking(body, camera, 40)
    presence = keypoints.presence.clone()
    presence[18:21] = 0
    found = lift(replace(keypoints, presence=presence), camera, body, fps=30.0)
    assert found.visible.logical_not().nonzero().squeeze(1).tolist() == [18, 19, 20]
    assert away_mm(body, found.params, truth)[18:21].mean() < 130
    assert (found.params.translation[18:21] - truth.translation[18:21]).norm(dim=-1).max() < 0.7


def test_a_track_that_shows_nothing_at_all_gives_finite_numbers(body, camera):
    _, keypoints = walking(body, camera, 5)
    found = lift(replace(keypoints, presence=torch.zeros(5, 17)), camera, body, fps=30.0)
    assert not found.visible.any()
    assert torch.isfinite(found.params.pose).all()
    assert torch.isfinite(found.params.translation).all()


@pytest.mark.parametrize("fps", [10.0, 24.0, 60.0, 120.0])
def test_any_frame_rate_will_do(body, camera, fps):
    truth, keypoints = walking(body, camera, round(1.2 * fps), fps)
    found = lift(keypoints, camera, body, fps=fps)
    assert away_mm(body, found.params, truth).mean() < 90


def test_frames_far_apart_in_time_are_frames_by_themselves(body, camera):
    _, keypoints = walking(body, camera, 4, 1.0)
    track = lift(keypoints, camera, body, fps=1.0)
    alone = lift_frames(keypoints, [camera], body)
    torch.testing.assert_close(track.params.pose, alone.params.pose)


def test_a_body_whose_shape_is_settled_is_lifted_too(body, camera):
    truth, keypoints = walking(body, camera, 3)
    rigid = replace(body, shapedirs=body.shapedirs[..., :0])
    found = lift(keypoints, camera, rigid, fps=30.0)
    assert found.params.shape.shape == (3, 0)
    assert (found.params.translation[:, 2] - truth.translation[:, 2]).abs().max() < 0.6


def test_every_frame_is_answered_for_once():
    for frames in (1, 2, 3, 7, 8, 9, 50):
        for stride in (1, 2, 3, 12):
            index, middle = _windows(frames, stride)
            assert sorted(index[middle].tolist()) == list(range(frames))


def test_a_frame_rate_that_is_no_rate_is_refused(body, camera):
    _, keypoints = walking(body, camera, 3)
    with pytest.raises(UserError, match="fps"):
        lift(keypoints, camera, body, fps=0.0)


def test_a_file_that_is_no_lifter_is_refused(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(3))
    with pytest.raises(UserError, match=r"other\.npz"):
        load_lifter(other)
    with pytest.raises(UserError, match="there is no such file"):
        load_lifter(tmp_path / "nothing.npz")


def test_inputs_are_the_same_wherever_the_person_stands_in_the_image():
    generator = torch.Generator().manual_seed(1)
    rays = 0.1 * torch.randn(1, 26, 2, generator=generator)
    turn = rotation_towards(torch.tensor([0.4, -0.2]))
    moved = torch.cat((rays, torch.ones(1, 26, 1)), -1) @ rotation_towards(rays.mean(1))[0] @ turn.T
    moved = moved[..., :2] / moved[..., 2:]
    ones = torch.ones(1, 26)
    edges = torch.tensor([[-1.0, -1.0, 1.0, 1.0]])
    here, there = (
        make_inputs(
            Observation(
                where,
                ones[..., None],
                0.001 * ones[..., None],
                0.9 * ones,
                ones,
                edges,
                torch.zeros(1),
            )
        )
        for where in (rays, moved)
    )
    # The mean of the images is not quite the image of the mean, hence the tolerance.
    torch.testing.assert_close(here.points, there.points, atol=0.1, rtol=0)


def test_unknown_frames_lie_between_known_ones():
    values = torch.tensor([[[9.0], [1.0], [9.0], [9.0], [4.0], [9.0]]])
    known = torch.tensor([[False, True, False, False, True, False]])
    torch.testing.assert_close(
        fill_between(values, known)[0, :, 0], torch.tensor([1.0, 1.0, 2.0, 3.0, 4.0, 4.0])
    )
    assert (fill_between(values, torch.zeros_like(known)) == 0).all()


def test_a_fit_starts_from_the_lifter_by_name(body, camera):
    truth, keypoints = walking(body, camera, 12)
    found = fitting.fit(keypoints, camera, body, init="lifter", fps=30.0)
    assert found.converged.all()
    assert (
        found.reprojection_px.nanmean()
        < pixels(body, camera, lift(keypoints, camera, body, fps=30.0).params, keypoints).mean()
    )
    assert away_mm(body, found.params, truth).mean() < 70
    alone = fitting.fit_frames(keypoints, camera, body, init="lifter")
    assert away_mm(body, alone.params, truth).mean() < 90


@pytest.mark.parametrize("name", ["spin", "cliff", "cliff-hr48"])
def test_a_guess_that_needs_images_says_how_to_get_it(body, camera, name):
    _, keypoints = walking(body, camera, 2)
    with pytest.raises(
        UserError,
        match=r"reads images.*regressors\.load\('(spin|cliff|cliff-hr48)'.*initialise_track",
    ):
        fitting.fit(keypoints, camera, body, init=name)


def test_a_mirrored_walk_is_lifted_to_a_mirrored_body(body, camera):
    """Nothing builds the symmetry in; training with mirror images must have taught it."""
    _, keypoints = walking(body, camera, 9)
    flipped = keypoints.xy_px[:, COCO17.flip_order].clone()
    flipped[..., 0] = 2 * camera.center_px[0] - flipped[..., 0]
    here = body.at(lift(keypoints, camera, body, fps=10.0).params).keypoints[:, :17]
    there = body.at(
        lift(replace(keypoints, xy_px=flipped), camera, body, fps=10.0).params
    ).keypoints[:, :17]
    mirrored = there[:, COCO17.flip_order] * torch.tensor([-1.0, 1.0, 1.0])
    assert (
        1000 * (here - here.mean(1, True) - mirrored + mirrored.mean(1, True)).norm(dim=-1).mean()
        < 40
    )
