"""Rotations are scipy's, in any form."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fitting.body.rotations import (
    axis_angle_to_quaternion,
    euler_zyx_to_matrix,
    matrix_to_axis_angle,
    matrix_to_quaternion,
    nearest_rotation,
    quaternion_product,
    quaternion_to_axis_angle,
    quaternion_to_matrix,
    rotation_matrices,
)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Axis-angle of every size up to half a turn, and about each axis by exactly that."""
    random = np.random.default_rng(0)
    axis = random.normal(size=(2000, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    angle = np.concatenate(
        [random.uniform(0, np.pi, 1000), 10.0 ** random.uniform(-12, 0, 999), [0.0]]
    )
    return np.concatenate([axis * angle[:, None], np.pi * np.eye(3)])


def test_every_form_goes_to_every_other_as_in_scipy(vectors: np.ndarray) -> None:
    expected = Rotation.from_rotvec(vectors)
    given = torch.from_numpy(vectors)
    quaternion = axis_angle_to_quaternion(given)
    np.testing.assert_allclose(quaternion, expected.as_quat(), atol=1e-14)
    np.testing.assert_allclose(quaternion_to_matrix(quaternion), expected.as_matrix(), atol=1e-14)
    matrix = rotation_matrices(given)
    np.testing.assert_allclose(matrix, expected.as_matrix(), atol=1e-14)
    sign = np.sign(
        (matrix_to_quaternion(matrix).numpy() * expected.as_quat()).sum(1, keepdims=True)
    )
    np.testing.assert_allclose(
        sign * matrix_to_quaternion(matrix).numpy(), expected.as_quat(), atol=1e-14
    )
    np.testing.assert_allclose(matrix_to_axis_angle(matrix)[:2000], vectors[:2000], atol=1e-7)
    np.testing.assert_allclose(quaternion_to_axis_angle(quaternion), vectors, atol=1e-14)
    np.testing.assert_allclose(quaternion_to_axis_angle(-quaternion), vectors, atol=1e-14)


def test_rotations_compose_as_in_scipy(vectors: np.ndarray) -> None:
    first = Rotation.from_rotvec(vectors)
    second = Rotation.from_rotvec(vectors[::-1].copy())
    product = quaternion_product(
        torch.from_numpy(first.as_quat()), torch.from_numpy(second.as_quat())
    )
    np.testing.assert_allclose(
        quaternion_to_matrix(product), (first * second).as_matrix(), atol=1e-14
    )
    expected = Rotation.from_euler("ZYX", vectors).as_matrix()
    np.testing.assert_allclose(euler_zyx_to_matrix(torch.from_numpy(vectors)), expected, atol=1e-14)


def test_the_nearest_rotation_is_one_and_is_nearest(vectors: np.ndarray) -> None:
    rotation = torch.from_numpy(Rotation.from_rotvec(vectors).as_matrix())
    noise = 0.2 * torch.randn(
        rotation.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    found = nearest_rotation(rotation + noise)
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(found @ found.mT, eye.expand_as(found))
    assert (torch.linalg.det(found) > 0).all()
    expected = Rotation.from_matrix(
        (rotation + noise).numpy()
    ).as_matrix()  # scipy makes it orthogonal likewise
    np.testing.assert_allclose(found, expected, atol=1e-7)
    torch.testing.assert_close(nearest_rotation(rotation), rotation)
    mirrored = torch.diag(torch.tensor([1.0, 1.0, -0.5]))
    assert torch.linalg.det(nearest_rotation(mirrored)) > 0
