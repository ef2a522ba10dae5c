"""Raise the shoulders of captured people with their arms.

CMU's collars are at rest in every pose, also with arms overhead. On real people the acromion rises.
The curve below was measured on UI-PRMD's markers (shoulder abduction and scaption, done correctly):
medians over C7 by the upper arm's angle from hanging.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fitting.body import Body
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices, shortest_turn

# Middle of each range of the arm's angle in degrees, and the rise in millimetres.
ARM_DEG = (12.0, 42.0, 75.0, 105.0, 135.0, 165.0)
RISE_MM = (0.0, 9.0, 27.0, 39.0, 55.0, 52.0)
ARMS = ((13, 16, 18), (14, 17, 19))  # collar, shoulder, elbow


def shoulder_rise_m(arm_rad: Tensor) -> Tensor:
    """Return how much higher a shoulder is than with the arm hanging, by the arm's angle from
    hanging.
    """
    knots_rad = torch.tensor(ARM_DEG).deg2rad()
    rise = torch.tensor(RISE_MM) / 1000
    right = torch.searchsorted(knots_rad, arm_rad.contiguous()).clamp(1, len(knots_rad) - 1)
    share = ((arm_rad - knots_rad[right - 1]) / (knots_rad[right] - knots_rad[right - 1])).clamp(
        0, 1
    )
    return torch.lerp(rise[right - 1], rise[right], share)


def arm_elevation_rad(thorax: Tensor, upper_arm: Tensor) -> Tensor:
    """Return the angle [N] between an upper arm [N, 3] and the thorax's [N, 3, 3] downward axis."""
    return torch.acos((-(normalize(upper_arm, dim=-1) * thorax[:, :, 1]).sum(-1)).clamp(-1, 1))


def collar_turn(collar_bone: Tensor, moved_m: Tensor) -> Tensor:
    """Return the turn [N, 3, 3] of a collar whose bone [3] has its end moved by [N, 3] in the
    thorax.

    The bone keeps its length, so movement along it is lost. The rise is kept exactly where
    possible.
    """
    length = collar_bone.norm()
    high = (collar_bone[1] + moved_m[:, 1]).clamp(-0.95 * length, 0.95 * length)
    level = collar_bone[[0, 2]] + moved_m[:, [0, 2]]
    level = normalize(level, dim=-1) * (length.square() - high.square()).sqrt()[:, None]
    target = torch.stack((level[:, 0], high, level[:, 1]), -1)
    return shortest_turn(collar_bone.expand_as(target), target)


def raise_collars(pose: Tensor, body: Body) -> Tensor:
    """Return poses [N, 24, 3] whose collars follow the arms; the arms' own directions stay."""
    rest_joints = body.rest_joints.float()
    rotation = rotation_matrices(pose)
    turned = body.placement(rotation, torch.zeros(body.shape_size)).rotation
    pose = pose.clone()
    for collar, shoulder, elbow in ARMS:
        arm = (turned[:, shoulder] @ (rest_joints[elbow] - rest_joints[shoulder])[:, None]).squeeze(
            -1
        )
        moved = shoulder_rise_m(arm_elevation_rad(turned[:, 9], arm))[:, None] * torch.tensor(
            [0.0, 1.0, 0.0]
        )
        turn = collar_turn(rest_joints[shoulder] - rest_joints[collar], moved)
        pose[:, collar] = matrix_to_axis_angle(turn)
        pose[:, shoulder] = matrix_to_axis_angle(turn.mT @ turned[:, 9].mT @ turned[:, shoulder])
    return pose
