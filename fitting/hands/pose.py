"""One hand in T frames: what is known of it, and its keypoints with their derivatives."""

from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body.fingers import DOF_JOINT, TO_MEDIAPIPE
from fitting.body.rotations import rotation_matrices
from fitting.hands.prior import ANGLES, RIGID
from fitting.solver.jacobian import cross_matrix, left_jacobian


class Hand(NamedTuple):
    """What is known of one hand in T frames, in float64."""

    wrist: Tensor  # [T, 3] metres in the camera frame
    rotation: Tensor  # [T, 3, 3] of the wrist, from the T-pose to the camera frame
    joints: Tensor  # [5, 3, 3] in the T-pose, from the wrist
    tips: Tensor  # [5, 3]
    offsets: Tensor  # [21, 3] from joints and tips to keypoints
    axes: Tensor  # [5, 5, 3] of the angles in the T-pose
    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 21, 2] of a perfect lens
    weight: Tensor  # [T, 21] 1 / px^2; 0: not seen
    depth_m: Tensor  # [T, 21] from the wrist, along the line of sight
    depth_weight: Tensor  # [T] 1 / m^2
    line: Tensor  # [T, 3] unit vectors of the line of sight
    palm_rad: Tensor  # [T, 3] where the palm's search begins

    def rows(self, index: slice) -> "Hand":
        """Return some of the frames."""
        same_in_all_frames = ("joints", "tips", "offsets", "axes")
        values = self._asdict().items()
        return Hand(*(v if name in same_in_all_frames else v[index] for name, v in values))


class PosedHand(NamedTuple):
    """A hand's 21 keypoints and how they move with the unknowns."""

    points: Tensor  # [T, 21, 3] metres in the camera frame
    jacobian: Tensor  # [T, 21, 3, 31]
    rotation: Tensor  # [T, 3, 3] of the palm


class _Chains(NamedTuple):
    """The five fingers as chains of three joints and a tip."""

    pivots: Tensor  # [T, 5, 4, 3] joints and tip
    rotations: Tensor  # [T, 5, 4, 3, 3] before and at each joint, and of the tip
    axes: list[Tensor]  # for each of 5 angles [T, 5, 3] in the camera frame


def pose_hand(hand: Hand, unknowns: Tensor) -> PosedHand:
    """Return keypoints and their derivatives at the unknowns [T, 31]."""
    turn = unknowns[:, :3]
    angles = unknowns[:, RIGID:].unflatten(1, (5, 5))
    palm = rotation_matrices(turn) @ hand.rotation
    wrist = hand.wrist + unknowns[:, 3:RIGID]
    chains = _pose_fingers(hand, palm, wrist, angles)
    order = list(TO_MEDIAPIPE)
    offsets = torch.empty(5, 4, 3, dtype=unknowns.dtype)
    offsets[order] = hand.offsets[1:].unflatten(0, (5, 4))
    finger_points = chains.pivots + (chains.rotations @ offsets.unsqueeze(-1)).squeeze(-1)
    wrist_point = (wrist + (palm @ hand.offsets[0]))[:, None]
    points = torch.cat((wrist_point, finger_points[:, order].flatten(1, 2)), 1)
    jacobian = unknowns.new_zeros(len(unknowns), 21, 3, RIGID + ANGLES)
    levers = cross_matrix(wrist.unsqueeze(1) - points)
    jacobian[..., :3] = levers @ left_jacobian(turn).unsqueeze(1)
    jacobian[..., 3:RIGID] = torch.eye(3, dtype=unknowns.dtype)
    by_angles = _angle_derivatives(chains, finger_points)
    jacobian[:, 1:, :, RIGID:] = by_angles[:, order].flatten(1, 2).flatten(3)
    return PosedHand(points, jacobian, palm)


def _pose_fingers(hand: Hand, palm: Tensor, wrist: Tensor, angles: Tensor) -> _Chains:
    """Return the fingers at angles [T, 5, 5], from palms [T, 3, 3] at wrists [T, 3]."""
    frames = len(angles)
    local = rotation_matrices(angles.unsqueeze(-1) * hand.axes)  # [T, 5, 5, 3, 3]
    rotation = palm.unsqueeze(1).expand(frames, 5, 3, 3)
    position = wrist.unsqueeze(1).expand(-1, 5, -1)
    previous_joint = torch.zeros(5, 3, dtype=angles.dtype)
    pivots = []
    rotations = []
    axes = []
    for number, joint in enumerate(DOF_JOINT):
        if number == 0 or DOF_JOINT[number - 1] != joint:
            bone = hand.joints[:, joint] - previous_joint
            position = position + (rotation @ bone.unsqueeze(-1)).squeeze(-1)
            previous_joint = hand.joints[:, joint]
            pivots.append(position)
            rotations.append(rotation)
        axes.append((rotation @ hand.axes[:, number].unsqueeze(-1)).squeeze(-1))
        rotation = rotation @ local[:, :, number]
    last_bone = hand.tips - previous_joint
    pivots.append(position + (rotation @ last_bone.unsqueeze(-1)).squeeze(-1))
    rotations.append(rotation)
    return _Chains(torch.stack(pivots, 2), torch.stack(rotations, 2), axes)


def _angle_derivatives(chains: _Chains, finger_points: Tensor) -> Tensor:
    """Return how points [T, 5, 4, 3] of fingers move with angles: [T, finger, its points, axis,
    finger, its angles].
    """
    moved = finger_points.new_zeros(len(finger_points), 5, 4, 3, 5, 5)
    for number, joint in enumerate(DOF_JOINT):
        arm = finger_points[:, :, joint + 1 :] - chains.pivots[:, :, joint : joint + 1]
        lever = torch.linalg.cross(chains.axes[number].unsqueeze(2).expand_as(arm), arm)
        for finger in range(5):
            moved[:, finger, joint + 1 :, :, finger, number] = lever[:, finger]
    return moved
