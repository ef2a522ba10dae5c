"""Forward kinematics of the 24-joint tree that every body here shares.

Joints and points are in metres, in the body's own frame (x to the body's left, y up, z to the front) until a
translation is added. A pose holds each joint's rotation relative to its parent.

For a joint j with parent p, rest position J and local rotation R,

    G_j = G_p R_j,    P_j = P_p + G_p (J_j - J_p),    G_0 = R_0,  P_0 = J_0,

so a point x attached to bone j alone goes to P_j + G_j (x - J_j).
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
