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


def raised_m(arm_rad: Tensor) -> Tensor:
    """How much higher a shoulder is than with the arm hanging, by the arm's angle from hanging."""
    at = torch.tensor(ARM_DEG).deg2rad()
    rise = torch.tensor(RISE_MM) / 1000
    right = torch.searchsorted(at, arm_rad.contiguous()).clamp(1, len(at) - 1)
    share = ((arm_rad - at[right - 1]) / (at[right] - at[right - 1])).clamp(0, 1)
    return torch.lerp(rise[right - 1], rise[right], share)


def elevation_rad(thorax: Tensor, upper_arm: Tensor) -> Tensor:
    """The angle [N] between an upper arm [N, 3] and the thorax's [N, 3, 3] downward axis."""
    return torch.acos((-(normalize(upper_arm, dim=-1) * thorax[:, :, 1]).sum(-1)).clamp(-1, 1))


def collar_turn(collar_bone: Tensor, moved_m: Tensor) -> Tensor:
    """The turn [N, 3, 3] of a collar whose bone [3] has its end moved by [N, 3], both in the
    thorax's frame. The bone keeps its length; what is moved along it is lost. How far it rises is
    kept exactly, as far as it can."""
    length = collar_bone.norm()
    high = (collar_bone[1] + moved_m[:, 1]).clamp(-0.95 * length, 0.95 * length)
    level = collar_bone[[0, 2]] + moved_m[:, [0, 2]]
    level = normalize(level, dim=-1) * (length.square() - high.square()).sqrt()[:, None]
    target = torch.stack((level[:, 0], high, level[:, 1]), -1)
    return shortest_turn(collar_bone.expand_as(target), target)


def with_raised_collars(pose: Tensor, body: Body) -> Tensor:
    """Poses [N, 24, 3] whose collars follow the arms; the arms' own directions stay."""
    rest = body.rest_joints.float()
    rotation = rotation_matrices(pose)
    turned = body.placement(rotation, torch.zeros(body.shape_size)).rotation
    pose = pose.clone()
    for collar, shoulder, elbow in ARMS:
        arm = (turned[:, shoulder] @ (rest[elbow] - rest[shoulder])[:, None]).squeeze(-1)
        moved = raised_m(elevation_rad(turned[:, 9], arm))[:, None] * torch.tensor([0.0, 1.0, 0.0])
        turn = collar_turn(rest[shoulder] - rest[collar], moved)
        pose[:, collar] = matrix_to_axis_angle(turn)
        pose[:, shoulder] = matrix_to_axis_angle(turn.mT @ turned[:, 9].mT @ turned[:, shoulder])
    return pose
