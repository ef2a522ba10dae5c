"""The world frame: axes, handedness, and bodies that keep their shape on the way."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitting.camera.world import (
    params_to_world,
    points_to_world,
    rotation_to_world,
    world_from_camera,
)


def camera_up(pitch_deg: float, roll_deg: float) -> np.ndarray:
    """Up as a camera sees it that looks down by the pitch and is turned clockwise by the roll."""
    p, r = np.radians([pitch_deg, roll_deg])
    level = np.array([0.0, -np.cos(p), -np.sin(p)])  # looking down, up leans towards the viewer
    return Rotation.from_rotvec([0, 0, -r]).as_matrix() @ level


def test_a_level_camera_sees_right_as_x_up_as_y_and_ahead_as_minus_z() -> None:
    world = world_from_camera(np.array([0.0, -1.0, 0.0]), 1.5, None)
    points = np.array([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]])
    expected = [[1, 1.5, 0], [0, 0.5, 0], [0, 1.5, -1], [0, 1.5, 0]]
    assert np.allclose(points_to_world(points, world)[0], expected)


@pytest.mark.parametrize("pitch", [-40.0, 0.0, 18.0, 70.0, 90.0])
@pytest.mark.parametrize("roll", [-25.0, 0.0, 90.0])
def test_axes_are_right_handed_with_y_up_and_the_camera_over_minus_z(
    pitch: float, roll: float
) -> None:
    up = camera_up(pitch, roll)
    rotation = rotation_to_world(up)
    assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1)
    assert np.allclose(rotation @ up, [0, 1, 0])
    ahead = rotation @ [0, 0, 1]
    assert ahead[0] == pytest.approx(0, abs=1e-9)
    if pitch < 90:
        assert ahead[2] < 0
    assert ahead[1] == pytest.approx(-np.sin(np.radians(pitch)))


def test_looking_straight_down_the_top_of_the_image_is_ahead() -> None:
    rotation = rotation_to_world(np.array([0.0, 0.0, -1.0]))
    assert np.allclose(rotation @ [0, -1, 0], [0, 0, -1])
    assert np.allclose(rotation @ [1, 0, 0], [1, 0, 0])


def test_floor_points_lie_at_zero() -> None:
    up = camera_up(18, -5)
    height = 2.2
    rng = np.random.default_rng(0)
    points = rng.normal(0, 3, (1, 50, 3))
    points -= (points @ up + height)[..., None] * up  # up . x = -height
    world = world_from_camera(up, height, None)
    assert np.abs(points_to_world(points, world)[..., 1]).max() < 1e-12
    assert np.allclose(
        points_to_world(points_to_world(points, world), np.linalg.inv(world)), points
    )


def test_a_point_that_rests_in_the_world_rests_under_a_panning_camera() -> None:
    turn = Rotation.from_rotvec(
        np.radians(np.stack((np.zeros(20), np.arange(20.0), np.zeros(20)), 1))
    ).as_matrix()
    world = world_from_camera(camera_up(10, 0), 1.6, turn)
    point = np.array([0.3, 0.2, 5.0])  # in the first camera
    seen = np.einsum("tji,j->ti", turn, point)[:, None]
    assert np.ptp(points_to_world(seen, world), axis=0).max() < 1e-12


@pytest.mark.parametrize("size", [1.0, 0.7])
def test_parameters_in_the_world_give_the_same_body_there(size: float) -> None:
    body = fitting.load_body()
    generator = torch.Generator().manual_seed(0)
    params = fitting.BodyParams(
        0.4 * torch.randn(3, 24, 3, generator=generator),
        torch.randn(10, generator=generator),
        torch.tensor([[0.2, 0.1, 5.0], [0.0, 0, 6], [1, 0.5, 4]]),
        torch.tensor(size),
    )
    turn = Rotation.from_rotvec([[0, 0, 0], [0, 0.1, 0], [0.1, 0.3, 0]]).as_matrix()
    world = world_from_camera(camera_up(20, 4), 1.7, turn)
    pelvis = body.rest_joints[0] + body.rest_joint_shapedirs[0, :, :10] @ params.shape
    moved = params_to_world(params, pelvis, world)
    joints = body.at(params).joints.double().numpy()
    assert np.allclose(points_to_world(joints, world), body.at(moved).joints, atol=2e-6)


@pytest.mark.parametrize("up", [[0, 0, 0], [np.nan, 0, 1], [1.0, 2.0]])
def test_an_up_direction_that_is_none_is_refused(up: list[float]) -> None:
    with pytest.raises(ValueError, match="up direction"):
        rotation_to_world(np.array(up))
