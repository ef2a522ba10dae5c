"""Rotations as axis-angle vectors, matrices, unit quaternions (x, y, z, w) and SPIN's six
numbers.
"""

import torch
from torch import Tensor


def rotation_matrices(axis_angle: Tensor) -> Tensor:
    """Convert axis-angle [..., 3] in radians to matrices [..., 3, 3] by Rodrigues' formula; smooth
    through the zero rotation.

    R = I + a K + b K^2 with K the cross-product matrix of the vector itself, a = sin(t) / t and b =
    (1 - cos t) / t^2 = (sin(t/2) / (t/2))^2 / 2, both by sinc, which knows its limit at zero.
    """
    # The tiny constant keeps the gradient of the norm finite at zero, far below any real angle's
    # rounding.
    angle = (axis_angle.square().sum(-1) + torch.finfo(axis_angle.dtype).tiny).sqrt()
    a = torch.sinc(angle / torch.pi)
    b = torch.sinc(angle / (2 * torch.pi)).square() / 2
    x, y, z = axis_angle.unbind(-1)
    ax = a * x
    ay = a * y
    az = a * z
    bx = b * x
    by = b * y
    xy = bx * y
    xz = bx * z
    yz = by * z
    xx = bx * x
    yy = by * y
    zz = b * z * z
    return torch.stack(
        (
            1 - yy - zz,
            xy - az,
            xz + ay,
            xy + az,
            1 - xx - zz,
            yz - ax,
            xz - ay,
            yz + ax,
            1 - xx - yy,
        ),
        -1,
    ).unflatten(-1, (3, 3))


def about_axis(axis: int, angle: Tensor) -> Tensor:
    """Return the rotations [..., 3, 3] about x, y or z (0, 1, 2) by angles [...] in radians."""
    return rotation_matrices(
        angle[..., None] * torch.eye(3, dtype=angle.dtype, device=angle.device)[axis]
    )


def shortest_turn(source: Tensor, target: Tensor) -> Tensor:
    """Return the rotations [..., 3, 3] that take directions [..., 3] to others, which must not be
    opposite.
    """
    axis = torch.linalg.cross(source, target)
    sine = axis.norm(dim=-1, keepdim=True)
    angle = torch.atan2(sine, (source * target).sum(-1, keepdim=True))
    return rotation_matrices(axis / sine.clamp(min=torch.finfo(sine.dtype).tiny) * angle)


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Apply rotations [..., 3, 3] to vectors [..., 3]; faster than a product of many tiny
    matrices.
    """
    first, second, third = rotation.unbind(-1)
    x, y, z = vector.unsqueeze(-2).unbind(-1)
    return torch.addcmul(torch.addcmul(first * x, second, y), third, z)


def matrix_to_axis_angle(matrix: Tensor) -> Tensor:
    """Convert matrices [..., 3, 3] to axis-angle [..., 3] in radians, of at most half a turn."""
    return quaternion_to_axis_angle(matrix_to_quaternion(matrix))


def matrix_to_quaternion(matrix: Tensor) -> Tensor:
    """Convert matrices [..., 3, 3] to unit quaternions [..., 4].

    Every row of 4 q q^T is a multiple of q; the one with the largest diagonal is used.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(-1) for row in matrix.unbind(-2))
    rows = torch.stack(
        (
            torch.stack((1 + xx - yy - zz, yx + xy, zx + xz, zy - yz), -1),
            torch.stack((yx + xy, 1 + yy - zz - xx, zy + yz, xz - zx), -1),
            torch.stack((zx + xz, zy + yz, 1 + zz - xx - yy, yx - xy), -1),
            torch.stack((zy - yz, xz - zx, yx - xy, 1 + xx + yy + zz), -1),
        ),
        -2,
    )
    largest = rows.diagonal(dim1=-2, dim2=-1).argmax(-1, keepdim=True).unsqueeze(-1)
    row = rows.gather(-2, largest.expand(*largest.shape[:-1], 4)).squeeze(-2)
    return row / row.norm(dim=-1, keepdim=True)


def quaternion_to_axis_angle(quaternion: Tensor) -> Tensor:
    """Convert unit quaternions [..., 4] to axis-angle [..., 3] in radians, of at most half
    a turn.
    """
    quaternion = torch.where(quaternion[..., 3:] > 0, quaternion, -quaternion)
    vector = quaternion[..., :3]
    half = torch.atan2(vector.norm(dim=-1), quaternion[..., 3])
    small = half < _series_below(half)
    ratio = half / torch.where(small, torch.ones_like(half), half.sin())
    ratio = torch.where(small, 1 + half**2 / 6 + 7 * half**4 / 360, ratio)  # half / sin(half)
    return (2 * ratio).unsqueeze(-1) * vector


def axis_angle_to_quaternion(axis_angle: Tensor) -> Tensor:
    """Convert axis-angle [..., 3] in radians to unit quaternions [..., 4]."""
    half = axis_angle.norm(dim=-1) / 2
    small = half < _series_below(half)
    ratio = half.sin() / torch.where(small, torch.ones_like(half), half)
    ratio = torch.where(small, 1 - half**2 / 6 + half**4 / 120, ratio)  # sin(half) / half
    return torch.cat(((ratio / 2).unsqueeze(-1) * axis_angle, half.cos().unsqueeze(-1)), -1)


def _series_below(angle: Tensor) -> float:
    """Return the angle below which three terms of a series are exact; 0.14 in float32."""
    return 2 * torch.finfo(angle.dtype).eps ** (1 / 6)


def quaternion_to_matrix(quaternion: Tensor) -> Tensor:
    """Convert unit quaternions [..., 4] to matrices [..., 3, 3]."""
    return rotation_matrices(quaternion_to_axis_angle(quaternion))


def quaternion_product(first: Tensor, second: Tensor) -> Tensor:
    """Return the quaternion [..., 4] of the second rotation followed by the first."""
    first, second = torch.broadcast_tensors(first, second)
    v = first[..., :3]
    w = first[..., 3:]
    u = second[..., :3]
    s = second[..., 3:]
    vector = w * u + s * v + torch.linalg.cross(v, u)
    return torch.cat((vector, w * s - (v * u).sum(-1, keepdim=True)), -1)


def euler_zyx_to_matrix(angles: Tensor) -> Tensor:
    """Convert angles about z, y and x [..., 3] in radians to Rz Ry Rx, [..., 3, 3]."""
    z, y, x = angles.unbind(-1)
    return about_axis(2, z) @ about_axis(1, y) @ about_axis(0, x)


def nearest_rotation(matrix: Tensor) -> Tensor:
    """Return the rotation [..., 3, 3] nearest to a matrix (orthogonal Procrustes), by a float64
    SVD.
    """
    left, _, right = torch.linalg.svd(matrix.double())
    sign = torch.linalg.det(left @ right).sign()
    left = torch.cat((left[..., :2], left[..., 2:] * sign[..., None, None]), -1)
    return (left @ right).to(matrix.dtype)


def rot6d_to_matrix(six: Tensor) -> Tensor:
    """Convert six numbers [..., 6] to matrices [..., 3, 3]: a 3x2 matrix row by row, made
    orthonormal by Gram-Schmidt.
    """
    first, second = six.unflatten(-1, (3, 2)).unbind(-1)
    x = first / first.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    y = second - (x * second).sum(-1, keepdim=True) * x
    y = y / y.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return torch.stack((x, y, torch.linalg.cross(x, y)), -1)


def matrix_to_rot6d(matrix: Tensor) -> Tensor:
    """Convert matrices [..., 3, 3] to six numbers [..., 6]: the first two columns, interleaved."""
    return matrix[..., :2].flatten(-2)
