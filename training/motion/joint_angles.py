"""Build poses from joint angles in the body's own frame.

Angles in degrees. Forwards is positive for limbs and trunk; the left side's formulas serve the
right by mirroring.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import MIRROR
from fitting.body.rotations import about_axis, matrix_to_axis_angle


@dataclass(frozen=True)
class Leg:
    swing: Tensor  # [N] of the thigh forwards from the trunk's line
    out: Tensor
    bend: Tensor  # of the knee
    ankle: Tensor  # toes down is positive
    twist: Tensor  # of the thigh outwards


@dataclass(frozen=True)
class Arm:
    swing: Tensor  # [N] of the upper arm forwards from hanging
    out: Tensor
    bend: Tensor  # of the elbow
    twist: Tensor  # of the upper arm inwards
    pronation: Tensor  # of the forearm: 0 thumb forwards on a hanging arm
    wrist: Tensor  # bent back


@dataclass(frozen=True)
class Drawn:
    root_pitch: Tensor  # [N] forwards
    root_roll: Tensor  # [N] to the left
    spine: Tensor  # [N] forwards, all three together
    head: Tensor  # [N] forwards, with the neck
    head_turn: Tensor  # [N]
    legs: tuple[Leg, Leg]
    arms: tuple[Arm, Arm] | None  # None: as captured


def build_poses(drawn: Drawn, captured: Tensor) -> Tensor:
    """Build poses [N, 24, 3]; joints that are not drawn are taken from captured poses [N, 24,
    3].
    """
    count = len(captured)
    pose = captured.clone()
    mirror = torch.tensor([1.0, -1.0, -1.0])

    def about(x: Tensor | float = 0.0, y: Tensor | float = 0.0, z: Tensor | float = 0.0) -> Tensor:
        """Return Rz Rx Ry of degrees [N]: swing out, then about the side, after a twist."""
        angles = (
            torch.deg2rad(torch.as_tensor(angle, dtype=torch.float32).expand(count))
            for angle in (x, y, z)
        )
        by_x, by_y, by_z = (about_axis(axis, angle) for axis, angle in enumerate(angles))
        return by_x @ by_z @ by_y

    def put(joint: int, matrix: Tensor, right: int = 0) -> None:
        turn = matrix_to_axis_angle(matrix)
        pose[:, MIRROR[joint] if right else joint] = turn * mirror if right else turn

    if any(bool(value.any()) for value in vars(drawn.legs[0]).values()):
        put(0, about(drawn.root_pitch, 0.0, drawn.root_roll))
        for right, leg in enumerate(drawn.legs):
            put(1, about(-leg.swing, leg.twist, leg.out), right)
            put(4, about(leg.bend), right)
            put(7, about(leg.ankle), right)
            put(10, about(torch.where(leg.ankle < 0, -25.0, 0.0)), right)  # tucked
    for joint in (3, 6, 9):
        put(joint, about(drawn.spine / 3))
    for joint in (12, 15):
        put(joint, about(drawn.head / 2, drawn.head_turn / 2))
    for right, arm in enumerate(drawn.arms or ()):
        put(13, torch.eye(3).expand(count, 3, 3), right)
        put(16, about(-arm.swing) @ about(z=arm.out - 90) @ about(arm.twist), right)
        put(18, about(y=-arm.bend) @ about(arm.pronation), right)
        put(20, about(z=arm.wrist), right)
        put(22, torch.eye(3).expand(count, 3, 3), right)
    return pose
