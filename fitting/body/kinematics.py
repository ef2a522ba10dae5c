"""Rotations, and forward kinematics of the 24-joint tree that every body here shares.

Joints and points are in metres, in the body's own frame (x to the body's left, y up, z to the front) until a
translation is added. A pose holds each joint's rotation relative to its parent.

For a joint j with parent p, rest position J and local rotation R,

    G_j = G_p R_j,    P_j = P_p + G_p (J_j - J_p),    G_0 = R_0,  P_0 = J_0,

so a point x attached to bone j alone goes to P_j + G_j (x - J_j).

Rotations are axis-angle vectors, matrices, unit quaternions (x, y, z, w) and SPIN's six numbers.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

JOINT_NAMES = (
    "pelvis", "left_hip", "right_hip", "spine1", "left_knee", "right_knee", "spine2", "left_ankle",
    "right_ankle", "spine3", "left_foot", "right_foot", "neck", "left_collar", "right_collar", "head",
    "left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hand",
    "right_hand",
)  # fmt: skip
# For each joint its counterpart on the other side.
MIRROR = tuple(
    JOINT_NAMES.index(name.replace("left", "?").replace("right", "left").replace("?", "right")) for name in JOINT_NAMES
)
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
JOINT_COUNT = len(PARENTS)


class Placement(NamedTuple):
    """Where the bones are, for T frames."""

    rotation: Tensor  # [T, 24, 3, 3] G, from the rest pose to the posed body
    joints: Tensor  # [T, 24, 3] P, metres
    rest_joints: Tensor  # [24, 3] or [T, 24, 3] J, metres


class Tree(NamedTuple):
    """The joint tree as tensors."""

    parents: Tensor  # [23] parents of joints 1 to 23
    levels: tuple[tuple[int, int, Tensor], ...]  # (first, end, parents within the level above) by distance from root
    path: Tensor  # [24, 24] path[j, i] is 1 if i is j or above it


@cache
def tree(dtype: torch.dtype, device: torch.device) -> Tree:
    """The tree, made once for each kind of number and device."""
    depth = [0]
    for parent in PARENTS[1:]:
        depth.append(depth[parent] + 1)
    assert depth == sorted(depth), "joints of one level have consecutive numbers"
    first = [depth.index(level) for level in range(max(depth) + 1)] + [JOINT_COUNT]
    levels = []
    for level in range(1, max(depth) + 1):
        start, end = first[level], first[level + 1]
        above = [parent - first[level - 1] for parent in PARENTS[start:end]]
        levels.append((start, end, torch.tensor(above, device=device)))
    path = torch.eye(JOINT_COUNT, dtype=dtype, device=device)
    for joint, parent in enumerate(PARENTS[1:], 1):
        path[joint] += path[parent]
    return Tree(torch.tensor(PARENTS[1:], device=device), tuple(levels), path)


def rotation_matrices(axis_angle: Tensor) -> Tensor:
    """Rodrigues' formula, [..., 3] radians -> [..., 3, 3]; smooth through the zero rotation.

    R = I + a K + b K^2 with K the cross-product matrix of the vector itself, a = sin(t) / t and
    b = (1 - cos t) / t^2 = (sin(t/2) / (t/2))^2 / 2, both by sinc, which knows its limit at zero.
    """
    # The tiny constant keeps the gradient of the norm finite at zero, far below any real angle's rounding.
    angle = (axis_angle.square().sum(-1) + torch.finfo(axis_angle.dtype).tiny).sqrt()
    a = torch.sinc(angle / torch.pi)
    b = torch.sinc(angle / (2 * torch.pi)).square() / 2
    x, y, z = axis_angle.unbind(-1)
    ax, ay, az = a * x, a * y, a * z
    bx, by = b * x, b * y
    xy, xz, yz = bx * y, bx * z, by * z
    xx, yy, zz = bx * x, by * y, b * z * z
    return torch.stack(
        (1 - yy - zz, xy - az, xz + ay, xy + az, 1 - xx - zz, yz - ax, xz - ay, yz + ax, 1 - xx - yy), -1
    ).unflatten(-1, (3, 3))


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Rotations [..., 3, 3] times vectors [..., 3]; faster than a product of many tiny matrices."""
    first, second, third = rotation.unbind(-1)
    x, y, z = vector.unsqueeze(-2).unbind(-1)
    return torch.addcmul(torch.addcmul(first * x, second, y), third, z)


def forward_kinematics(rotation: Tensor, rest_joints: Tensor) -> Placement:
    """Local rotations [T, 24, 3, 3] and rest joints [24, 3] or [T, 24, 3] -> where every bone is.

    Rotations go down the tree level by level; a joint's position is then the sum of the turned bones above it.
    """
    parents, levels, path = tree(rotation.dtype, rotation.device)
    above = rotation[:, :1]
    turned = [above]
    for first, end, parent in levels:
        above = above.index_select(1, parent) @ rotation[:, first:end]
        turned.append(above)
    world = torch.cat(turned, 1)

    root, bone = rest_joints[..., :1, :], rest_joints[..., 1:, :] - rest_joints.index_select(-2, parents)
    steps = rotate(world.index_select(1, parents), bone)
    steps = torch.cat((root.expand(len(rotation), 1, 3), steps), 1)
    return Placement(world, path @ steps, rest_joints)


def matrix_to_axis_angle(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 3] radians, of at most half a turn."""
    return quaternion_to_axis_angle(matrix_to_quaternion(matrix))


def matrix_to_quaternion(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 4]. Every row of 4 q q^T is a multiple of q; the one with the largest diagonal is used."""
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
    """Unit quaternions [..., 4] -> [..., 3] radians, of at most half a turn."""
    quaternion = torch.where(quaternion[..., 3:] > 0, quaternion, -quaternion)
    vector = quaternion[..., :3]
    half = torch.atan2(vector.norm(dim=-1), quaternion[..., 3])
    small = half < _series_below(half)
    ratio = half / torch.where(small, torch.ones_like(half), half.sin())
    ratio = torch.where(small, 1 + half**2 / 6 + 7 * half**4 / 360, ratio)  # half / sin(half)
    return (2 * ratio).unsqueeze(-1) * vector


def axis_angle_to_quaternion(axis_angle: Tensor) -> Tensor:
    """[..., 3] radians -> unit quaternions [..., 4]."""
    half = axis_angle.norm(dim=-1) / 2
    small = half < _series_below(half)
    ratio = half.sin() / torch.where(small, torch.ones_like(half), half)
    ratio = torch.where(small, 1 - half**2 / 6 + half**4 / 120, ratio)  # sin(half) / half
    return torch.cat(((ratio / 2).unsqueeze(-1) * axis_angle, half.cos().unsqueeze(-1)), -1)


def _series_below(angle: Tensor) -> float:
    """Angles below this are so small that three terms of a series are exact; 0.14 in float32."""
    return 2 * torch.finfo(angle.dtype).eps ** (1 / 6)


def quaternion_to_matrix(quaternion: Tensor) -> Tensor:
    """Unit quaternions [..., 4] -> [..., 3, 3]."""
    x, y, z, w = quaternion.unbind(-1)
    xx, yy, zz, ww = x * x, y * y, z * z, w * w
    xy, xz, yz, xw, yw, zw = x * y, x * z, y * z, x * w, y * w, z * w
    return torch.stack(
        (
            xx - yy - zz + ww, 2 * (xy - zw), 2 * (xz + yw),
            2 * (xy + zw), -xx + yy - zz + ww, 2 * (yz - xw),
            2 * (xz - yw), 2 * (yz + xw), -xx - yy + zz + ww,
        ),
        -1,
    ).unflatten(-1, (3, 3))  # fmt: skip


def quaternion_product(first: Tensor, second: Tensor) -> Tensor:
    """The quaternion [..., 4] of the second rotation followed by the first."""
    first, second = torch.broadcast_tensors(first, second)
    v, w, u, s = first[..., :3], first[..., 3:], second[..., :3], second[..., 3:]
    vector = w * u + s * v + torch.linalg.cross(v, u)
    return torch.cat((vector, w * s - (v * u).sum(-1, keepdim=True)), -1)


def euler_zyx_to_matrix(angles: Tensor) -> Tensor:
    """Angles about z, y and x [..., 3] radians -> Rz Ry Rx, [..., 3, 3]."""
    about_z, about_y, about_x = torch.diag_embed(angles).unbind(-2)  # each [..., 3] with one angle in its own place
    about_z, about_x = about_z.flip(-1), about_x.flip(-1)
    turns = [axis_angle_to_quaternion(vector) for vector in (about_z, about_y, about_x)]
    return quaternion_to_matrix(quaternion_product(turns[0], quaternion_product(turns[1], turns[2])))


def nearest_rotation(matrix: Tensor) -> Tensor:
    """The rotation [..., 3, 3] nearest to a matrix (orthogonal Procrustes), by a float64 SVD."""
    left, _, right = torch.linalg.svd(matrix.double())
    sign = torch.linalg.det(left @ right).sign()
    left = torch.cat((left[..., :2], left[..., 2:] * sign[..., None, None]), -1)
    return (left @ right).to(matrix.dtype)


def rot6d_to_matrix(six: Tensor) -> Tensor:
    """[..., 6] -> [..., 3, 3]: six numbers are a 3x2 matrix row by row, made orthonormal by Gram-Schmidt."""
    first, second = six.unflatten(-1, (3, 2)).unbind(-1)
    x = first / first.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    y = second - (x * second).sum(-1, keepdim=True) * x
    y = y / y.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return torch.stack((x, y, torch.linalg.cross(x, y)), -1)


def matrix_to_rot6d(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 6]: the first two columns, interleaved."""
    return matrix[..., :2].flatten(-2)
