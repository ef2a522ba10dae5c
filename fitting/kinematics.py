"""Forward kinematics of the 24-joint tree that every body here shares.

Frames and units: joints and points in metres, in the body's own frame (x to the body's left, y up, z to the front)
until a translation is added. A pose holds each joint's rotation relative to its parent.

For a joint j with parent p, rest position J and local rotation R,

    G_j = G_p R_j,    P_j = P_p + G_p (J_j - J_p),    G_0 = R_0,  P_0 = J_0,

so a point x that rides on bone j alone goes to P_j + G_j (x - J_j).
"""

from typing import NamedTuple

import torch
from torch import Tensor

JOINT_NAMES = (
    "pelvis", "left_hip", "right_hip", "spine1", "left_knee", "right_knee", "spine2", "left_ankle", "right_ankle",
    "spine3", "left_foot", "right_foot", "neck", "left_collar", "right_collar", "head", "left_shoulder",
    "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hand", "right_hand",
)  # fmt: skip
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
JOINT_COUNT = len(PARENTS)


class _Level(NamedTuple):
    """Joints at one distance from the root; in this tree their numbers are consecutive."""

    first: int
    end: int
    parents: tuple[int, ...]  # counted within the level above


def _levels() -> tuple[_Level, ...]:
    depth = [0]
    for parent in PARENTS[1:]:
        depth.append(depth[parent] + 1)
    assert depth == sorted(depth)
    first = [depth.index(d) for d in range(max(depth) + 1)] + [JOINT_COUNT]
    return tuple(
        _Level(first[d], first[d + 1], tuple(p - first[d - 1] for p in PARENTS[first[d] : first[d + 1]]))
        for d in range(1, max(depth) + 1)
    )


_LEVELS = _levels()


class Placement(NamedTuple):
    """Where the bones are, for T frames."""

    rotation: Tensor  # [T, 24, 3, 3] G, from the rest pose to the posed body
    joints: Tensor  # [T, 24, 3] P, metres
    rest_joints: Tensor  # [24, 3] or [T, 24, 3] J, metres


def rotation_matrices(axis_angle: Tensor) -> Tensor:
    """Rodrigues' formula, [..., 3] radians -> [..., 3, 3]; smooth through the zero rotation.

    R = I + a K + b K^2 with K the cross-product matrix of the vector itself, a = sin(t)/t, b = (1 - cos t)/t^2.
    Written with sinc, b = sinc(t/2)^2 / 2, which has no division by the angle.
    """
    # The tiny constant keeps the gradient of the norm finite at zero; it is far below the rounding of any real angle.
    squared = axis_angle.square().sum(-1) + torch.finfo(axis_angle.dtype).tiny
    angle = squared.sqrt()
    first = torch.sinc(angle / torch.pi)
    second = torch.sinc(angle / (2 * torch.pi)).square() / 2
    x, y, z = axis_angle.unbind(-1)
    sx, sy, sz = first * x, first * y, first * z
    bx, by = second * x, second * y
    xy, xz, yz = bx * y, bx * z, by * z
    xx, yy, zz = bx * x, by * y, second * z * z
    return torch.stack(
        (1 - yy - zz, xy - sz, xz + sy, xy + sz, 1 - xx - zz, yz - sx, xz - sy, yz + sx, 1 - xx - yy), -1
    ).unflatten(-1, (3, 3))


def forward_kinematics(rotation: Tensor, rest_joints: Tensor) -> Placement:
    """Local rotations [T, 24, 3, 3] and rest joints [24, 3] or [T, 24, 3] -> where every bone is."""
    offset = torch.cat(
        (rest_joints[..., :1, :], rest_joints[..., 1:, :] - rest_joints[..., PARENTS[1:], :]), -2
    )
    local = torch.cat((rotation, offset.unsqueeze(-1).expand(*rotation.shape[:-1], 1)), -1)  # [T, 24, 3, 4]
    above = local[:, :1]
    placed = [above]
    for level in _LEVELS:
        parent = above[:, level.parents]
        turned = parent[..., :3] @ local[:, level.first : level.end]
        above = torch.cat((turned[..., :3], turned[..., 3:] + parent[..., 3:]), -1)
        placed.append(above)
    bones = torch.cat(placed, 1)
    return Placement(bones[..., :3], bones[..., 3], rest_joints)
