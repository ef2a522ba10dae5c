"""Rotations the way SPIN and CLIFF write them. Everything ordinary comes from `roma`."""

import roma
import torch
from torch import Tensor


def rot6d_to_matrix(six: Tensor) -> Tensor:
    """[..., 6] -> [..., 3, 3]: six numbers are a 3x2 matrix row by row, made orthonormal by Gram-Schmidt."""
    return roma.special_gramschmidt(six.unflatten(-1, (3, 2)), epsilon=1e-12)


def matrix_to_rot6d(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 6]: the first two columns, interleaved."""
    return matrix[..., :2].flatten(-2)


def spin_axis_angle_to_matrix(axis_angle: Tensor) -> Tensor:
    """[..., 3] -> [..., 3, 3] with SPIN's guard against zero: the angle is |v + 1e-8|, the axis v over it.

    It differs from Rodrigues' formula by about 1e-8; it is here for parity with SPIN's numbers.
    """
    angle = (axis_angle + 1e-8).norm(dim=-1, keepdim=True)
    xyzw = torch.cat((axis_angle / angle * (angle / 2).sin(), (angle / 2).cos()), dim=-1)
    return roma.unitquat_to_rotmat(roma.quat_normalize(xyzw))
