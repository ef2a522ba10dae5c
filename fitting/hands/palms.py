"""Lay the palms of people who are on their hands flat on the floor."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.fingers import WRISTS
from fitting.body.kinematics import PARENTS
from fitting.body.rotations import (
    axis_angle_to_quaternion,
    matrix_to_axis_angle,
    nearest_rotation,
    rotation_matrices,
)

# A person is on the hands where the line from toes to wrists is level within this angle and at
# least so long, and where hips and neck are higher over the floor than this and wrists lower
# (tests/training/test_motion.py has planks, all fours, downward dogs, and others).
ON_HANDS_RAD = 0.5
ON_HANDS_M = 0.45
LOWEST_TRUNK_M = 0.08
HIGHEST_HAND_M = 0.15
_TOES = (10, 11)
_TRUNK = (0, 12)  # pelvis and neck


class _Support(NamedTuple):
    """How far people are on their hands, and on which plane."""

    share: Tensor  # [T, 2] 0..1 for the left and the right hand
    ahead: Tensor  # [T, 3] unit vectors from the toes to the wrists
    normal: Tensor  # [T, 3] unit normals of the plane through wrists and toes


def lay_palms_flat(params: BodyParams, body: Body, up: Tensor) -> BodyParams:
    """Return the bodies with palms flat and fingers ahead where people are on their hands: wrists
    bend back and forearms turn, which no keypoint of the body shows and which moves none.

    up [T, 3]: roughly, in each frame's camera. The floor is the plane through wrists and toes, so
    neither gravity nor a floor need be known.
    """
    support = _find_support(params, body, up)
    if not bool(support.share.any()):
        return params
    rest_shape = body.v_template.new_zeros(body.shape_size)
    rotation = body.placement(rotation_matrices(params.pose), rest_shape).rotation
    pose = params.pose.clone()
    for side, wrist in enumerate(WRISTS):
        elbow = PARENTS[wrist]
        share = support.share[:, side, None]
        # The T-pose has the left hand along +x and the right one along -x, palms along -y.
        along = support.ahead if side == 0 else -support.ahead
        third = torch.linalg.cross(along, support.normal)
        flat = torch.stack((along, support.normal, third), -1)
        forearm_axis = body.rest_joints[wrist] - body.rest_joints[elbow]
        twist = _twist_about(forearm_axis, rotation[:, elbow].mT @ flat, share)
        to_flat = matrix_to_axis_angle(rotation[:, wrist].mT @ flat)
        hand = rotation[:, wrist] @ rotation_matrices(share * to_flat)
        elbow_rad = matrix_to_axis_angle(rotation_matrices(pose[:, elbow]) @ twist)
        forearm = rotation[:, elbow] @ twist
        wrist_rad = matrix_to_axis_angle(nearest_rotation(forearm.mT @ hand))
        pose[:, elbow] = elbow_rad.where(share > 0, pose[:, elbow])
        pose[:, wrist] = wrist_rad.where(share > 0, pose[:, wrist])
    return replace(params, pose=pose)


def _find_support(params: BodyParams, body: Body, up: Tensor) -> _Support:
    """Return how far people are on their hands: wrists as low as the toes and far from them, hips
    and shoulders above both.
    """
    joints = body.at(replace(params, hands=None)).joints / params.size
    toes = joints[:, list(_TOES)]
    wrists = joints[:, list(WRISTS)]
    trunk = joints[:, list(_TRUNK)]
    ahead = wrists.mean(1) - toes.mean(1)
    distance_m = ahead.norm(dim=-1)
    ahead = ahead / distance_m.clamp(min=1e-6)[:, None]
    slope = (ahead * up).sum(-1, keepdim=True)
    normal = torch.nn.functional.normalize(up - slope * ahead, dim=-1)
    from_toes = torch.cat((trunk, wrists), 1) - toes.mean(1, keepdim=True)
    height_m = torch.einsum("tnc,tc->tn", from_toes, normal)
    levelness = ON_HANDS_RAD - torch.asin(slope.squeeze(-1).clamp(-1, 1)).abs()
    trunk_m = height_m[:, :2].amin(1) - LOWEST_TRUNK_M
    reach_m = distance_m - ON_HANDS_M
    posture = torch.stack((levelness / 0.2, reach_m / 0.1, trunk_m / 0.05)).amin(0)
    hand_is_low = (HIGHEST_HAND_M - height_m[:, 2:].abs()) / 0.05
    share = torch.minimum(posture[:, None], hand_is_low).clamp(0, 1)
    return _Support(share, ahead, normal)


def _twist_about(axis: Tensor, rotation: Tensor, share: Tensor) -> Tensor:
    """Return the part [T, 3, 3] of rotations [T, 3, 3] that turns about an axis [3], by this share
    [T, 1] of its angle.
    """
    quaternion = axis_angle_to_quaternion(matrix_to_axis_angle(rotation))
    axis = torch.nn.functional.normalize(axis, dim=0)
    real = quaternion[:, 3]
    real = real.where(real.abs() > 1e-6, quaternion.new_tensor(1e-6))
    half_angle = torch.atan((quaternion[:, :3] @ axis) / real)
    return rotation_matrices(share * 2 * half_angle[:, None] * axis)
