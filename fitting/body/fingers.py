"""Fingers: a layer of 30 joints on top of the 24 of the body.

Each hand has 15 joints in SMPL-H's order, where its wrist is. With fingers a body has SMPL-H's 52
joints: the first 22 of the body, then those of both hands; the two `hand` joints of the 24, which
turn all fingers at once, are left out. A finger's pose is relative to the flat hand of the T-pose,
as in SMPL-H, so a pose of zeros is a flat hand.

A finger bends about few axes: both ways at its first and second joint, one way at the third, 25
angles a hand. Its `flexion` turns it towards the palm (the thumb: towards its pad), its `spread`
turns it within the palm; at the second joint only the thumb has some.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from fitting.body.attached_points import AttachedPoints
from fitting.body.kinematics import JOINT_NAMES, PARENTS, Placement
from fitting.body.rotations import matrix_to_axis_angle, rotate, rotation_matrices
from fitting.body.skinning import Rows, mesh_rows

Record = TypeVar("Record")


FINGERS = ("index", "middle", "pinky", "ring", "thumb")  # SMPL-H's order
WRISTS = (20, 21)
BODY_JOINTS = 22
FINGER_JOINTS = tuple(
    f"{side}_{finger}{k}" for side in ("left", "right") for finger in FINGERS for k in (1, 2, 3)
)
JOINT_NAMES_52 = (*JOINT_NAMES[:BODY_JOINTS], *FINGER_JOINTS)
PARENTS_52 = (
    *PARENTS[:BODY_JOINTS],
    *(WRISTS[j // 15] if j % 3 == 0 else BODY_JOINTS + j - 1 for j in range(30)),
)
TO_MEDIAPIPE = (4, 0, 1, 3, 2)  # thumb, index, middle, ring, little among FINGERS
DOF_JOINT = (0, 0, 1, 1, 2)  # of a finger's five angles: which of its joints they turn
# The thumb's pad faces this much across the palm and the rest out of it, degrees: as on the open
# body, whose thumb is flat where nail and pad are.
THUMB_TURN_DEG = 55.0
# Where the hand network shows its 21 keypoints on a left hand of the open body, from joints and
# tips, in millimetres along the T-pose's axes, turning with the bone before: on rendered hands, by
# `bench/fingers.py --offsets`, to 0.5 mm. It shows the wrist nearer to the fingers than it turns,
# knuckles deeper in the palm, tips inside the fingers.
OPEN_KEYPOINTS_MM = (
    (13.8, -2.9, -3.6),
    *((0.1, -12.5, 6.4), (0.7, -4.6, -2.2), (0.1, -1.3, -5.1), (-4.7, 1.6, -6.3)),
    *((4.1, -3.6, -0.4), (1.6, -5.3, -0.2), (2.6, -3.7, -0.1), (-6.2, -1.5, -2.5)),
    *((3.3, -6.8, 1.3), (-0.2, -4.9, 1.7), (-1.6, -2.8, 1.2), (-7.9, 0.7, 1.2)),
    *((2.7, -8.6, -0.9), (0.6, -6.0, 0.1), (-0.3, -5.1, -0.1), (-9.4, -2.9, 1.9)),
    *((4.9, -7.5, -0.9), (1.4, -4.4, -0.4), (1.5, -3.7, -2.1), (-4.4, -2.0, -0.7)),
)


@dataclass(frozen=True, eq=False, repr=False)
class Fingers:
    """The fingers of one body, at zero shape and its directions, in the flat hand of the T-pose."""

    v_template: Tensor  # [V, 3] metres; the body's own, but for the hands
    shapedirs: Tensor  # [V, 3, S]
    weights: Tensor  # [V, 52] skinning weights
    rest_joints: Tensor  # [30, 3] metres
    rest_joint_shapedirs: Tensor  # [30, 3, S]
    tips: Tensor  # [10] vertices at the fingers' ends, in the order of the fingers
    # [2, 21, 3] metres in the T-pose, from joints and tips to where the hand network shows them
    offsets: Tensor
    # [V, 3, 270] metres per unit of (R - I) of the finger joints; None: no correctives
    posedirs: Tensor | None = None

    @cached_property
    def rows(self) -> Rows:
        return mesh_rows(self.v_template, self.shapedirs, self.posedirs, self.weights)

    def rest(self, shape: Tensor) -> tuple[Tensor, Tensor]:
        """Return joints [2, 5, 3, 3] and tips [2, 5, 3] of a shape [S] in the T-pose."""
        directions = self.rest_joint_shapedirs[..., : len(shape)]
        joints = self.rest_joints + directions @ shape
        tips = self.v_template[self.tips] + self.shapedirs[self.tips][..., : len(shape)] @ shape
        return joints.unflatten(0, (2, 5, 3)), tips.unflatten(0, (2, 5))

    def flat_points(self, rest_joints: Tensor, shape: Tensor | None = None) -> Tensor:
        """Return wrist, joints and tips of flat hands relative to the wrist, [2, 21, 3].
        rest_joints [24, 3] must be of the same shape.
        """
        joints, tips = self.rest(self.v_template.new_zeros(0) if shape is None else shape)
        wrists = rest_joints[list(WRISTS)].to(joints).unsqueeze(1)
        fingers = (
            torch.cat((joints, tips.unsqueeze(2)), 2)[:, list(TO_MEDIAPIPE)].flatten(1, 2) - wrists
        )
        return torch.cat((torch.zeros_like(wrists), fingers), 1)

    def placement(self, body: Placement, pose: Tensor, shape: Tensor) -> Placement:
        """Return all 52 joints of a placed body with finger rotations [T, 30, 3] axis-angle; shape
        [S] or [T, S].
        """
        rest_joints = self.rest_joints + torch.einsum(
            "jcs,...s->...jc", self.rest_joint_shapedirs, shape
        )
        turn = rotation_matrices(pose).unflatten(1, (10, 3))  # finger, joint
        of_finger = torch.tensor(WRISTS, device=pose.device).repeat_interleave(5)
        above = body.rotation[:, of_finger]
        position = body.joints[:, of_finger]
        rest_parent = body.rest_joints[..., of_finger, :]
        joints = []
        turned = []
        for k in range(3):
            rest_position = rest_joints[..., k::3, :]
            position = position + rotate(
                above, (rest_position - rest_parent).expand(len(pose), 10, 3)
            )
            above = above @ turn[:, :, k]
            rest_parent = rest_position
            joints.append(position)
            turned.append(above)
        return Placement(
            torch.cat((body.rotation[:, :BODY_JOINTS], torch.stack(turned, 2).flatten(1, 2)), 1),
            torch.cat((body.joints[:, :BODY_JOINTS], torch.stack(joints, 2).flatten(1, 2)), 1),
            torch.cat((body.rest_joints[..., :BODY_JOINTS, :], rest_joints), -2),
        )

    def points(self, placement: Placement, shape: Tensor) -> Tensor:
        """Return wrist, joints and tips in MediaPipe's order, [T, 2, 21, 3] metres, for a placement
        of 52 joints.
        """
        tips = self.v_template[self.tips] + torch.einsum(
            "ncs,...s->...nc", self.shapedirs[self.tips], shape
        )
        last = slice(BODY_JOINTS + 2, None, 3)
        arm = (tips - placement.rest_joints[..., last, :]).expand(len(placement.joints), 10, 3)
        ends = placement.joints[:, last] + rotate(placement.rotation[:, last], arm)
        joints = placement.joints[:, BODY_JOINTS:].unflatten(1, (2, 5, 3))
        fingers = torch.cat((joints, ends.unflatten(1, (2, 5)).unsqueeze(3)), 3)[
            :, :, list(TO_MEDIAPIPE)
        ]
        return torch.cat((placement.joints[:, list(WRISTS)].unsqueeze(2), fingers.flatten(2, 3)), 2)

    def pose_feature(self, placement: Placement) -> Tensor:
        """Return R - I of the finger joints for a placement of 52 joints, [T, 270]."""
        above = torch.tensor(PARENTS_52[BODY_JOINTS:], device=placement.rotation.device)
        local = placement.rotation[:, above].mT @ placement.rotation[:, BODY_JOINTS:]
        return (local - torch.eye(3, dtype=local.dtype, device=local.device)).flatten(1)

    @cached_property
    def axes(self) -> Tensor:
        """Return the unit vectors in the T-pose that a finger's angles turn about, [2, 5, 5, 3]:
        spread and flexion of the first joint, of the second, flexion of the third.
        """
        joints, tips = self.rest(self.v_template.new_zeros(0))
        along = torch.nn.functional.normalize(tips - joints[:, :, 0], dim=-1)
        # from the little finger's knuckle to the index finger's
        across = joints[:, 0, 0] - joints[:, 2, 0]
        # out of the left palm; the right hand is its mirror image
        palm = torch.linalg.cross(along[:, 1], across)
        palm = torch.nn.functional.normalize(palm * palm.new_tensor([[1.0], [-1.0]]), dim=-1)
        turn = torch.deg2rad(palm.new_tensor(THUMB_TURN_DEG))
        pad = turn.cos() * palm - turn.sin() * torch.nn.functional.normalize(across, dim=-1)
        pad = torch.cat((palm.unsqueeze(1).expand(2, 4, 3), pad.unsqueeze(1)), 1)
        flexion = torch.nn.functional.normalize(torch.linalg.cross(along, pad), dim=-1)
        spread = torch.linalg.cross(flexion, along)
        return torch.stack((spread, flexion, spread, flexion, flexion), 2)

    def pose(self, angles: Tensor) -> Tensor:
        """Convert angles [T, 2, 5, 5] in radians to axis-angle [T, 30, 3]."""
        turns = rotation_matrices(angles.unsqueeze(-1) * self.axes.to(angles))
        joints = torch.stack(
            (
                turns[..., 0, :, :] @ turns[..., 1, :, :],
                turns[..., 2, :, :] @ turns[..., 3, :, :],
                turns[..., 4, :, :],
            ),
            -3,
        )
        return matrix_to_axis_angle(joints.flatten(1, 3))

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> "Fingers":
        """Return the fingers in another precision or on another device."""
        return with_tensors_to(self, dtype, device)


def with_tensors_to(
    record: Record, dtype: torch.dtype | None, device: torch.device | str | None
) -> Record:
    """Return a dataclass with its tensors, and those of its fingers, in another precision or on
    another device. Derived fields are computed again.
    """
    names = [entry.name for entry in fields(record) if entry.init]  # type: ignore[arg-type]
    values: dict[str, Any] = {name: getattr(record, name) for name in names}
    for name, value in values.items():
        if isinstance(value, Fingers | AttachedPoints):
            values[name] = with_tensors_to(value, dtype, device)
        elif isinstance(value, Tensor):
            values[name] = value.to(
                device=device, dtype=dtype if value.is_floating_point() else None
            )
    return type(record)(**values)
