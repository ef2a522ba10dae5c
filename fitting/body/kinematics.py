"""The 24-joint tree that every body shares, and its forward kinematics.

Joints and points are in metres, in the body's own frame (x to the body's left, y up, z to the
front) until a translation is added. A pose holds each joint's rotation relative to its parent.

For a joint j with parent p, rest position J and local rotation R,

    G_j = G_p R_j,    P_j = P_p + G_p (J_j - J_p),    G_0 = R_0,  P_0 = J_0,

so a point x attached to bone j alone goes to P_j + G_j (x - J_j).
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body.rotations import rotate

JOINT_NAMES = (
    "pelvis",
    "left_hip",
    "right_hip",
    "spine1",
    "left_knee",
    "right_knee",
    "spine2",
    "left_ankle",
    "right_ankle",
    "spine3",
    "left_foot",
    "right_foot",
    "neck",
    "left_collar",
    "right_collar",
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hand",
    "right_hand",
)
# For each joint its counterpart on the other side.
MIRROR = tuple(
    JOINT_NAMES.index(name.replace("left", "?").replace("right", "left").replace("?", "right"))
    for name in JOINT_NAMES
)
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
JOINT_COUNT = len(PARENTS)
# Segments whose lengths are reported: name -> the joints at both ends.
SEGMENTS = {
    f"{side}_{name}": (JOINT_NAMES.index(f"{side}_{upper}"), JOINT_NAMES.index(f"{side}_{lower}"))
    for side in ("left", "right")
    for name, upper, lower in (
        ("thigh", "hip", "knee"),
        ("shin", "knee", "ankle"),
        ("upper_arm", "shoulder", "elbow"),
        ("forearm", "elbow", "wrist"),
    )
} | {"trunk": (JOINT_NAMES.index("pelvis"), JOINT_NAMES.index("neck"))}


class Placement(NamedTuple):
    """Positions and rotations of the bones, for T frames."""

    rotation: Tensor  # [T, 24, 3, 3] G, from the rest pose to the posed body
    joints: Tensor  # [T, 24, 3] P, metres
    rest_joints: Tensor  # [24, 3] or [T, 24, 3] J, metres


@cache
def tree(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the parents of joints 1 to 23 [23], and the path [24, 24] from the root: path[j, i] is
    1 if i is j or above it. Computed once for each dtype and device.
    """
    path = torch.eye(JOINT_COUNT, dtype=dtype, device=device)
    for joint, parent in enumerate(PARENTS[1:], 1):
        path[joint] += path[parent]
    return torch.tensor(PARENTS[1:], device=device), path


def forward_kinematics(rotation: Tensor, rest_joints: Tensor) -> Placement:
    """Place every bone, for local rotations [T, 24, 3, 3] and rest joints [24, 3] or [T, 24, 3].

    Rotations go down the tree; a joint's position is then the sum of the turned bones above it.
    """
    parents, path = tree(rotation.dtype, rotation.device)
    local = rotation.unbind(1)
    turned = [local[0]]
    for joint, parent in enumerate(PARENTS[1:], 1):
        turned.append(turned[parent] @ local[joint])
    world = torch.stack(turned, 1)

    root = rest_joints[..., :1, :]
    bone = rest_joints[..., 1:, :] - rest_joints.index_select(-2, parents)
    steps = rotate(world.index_select(1, parents), bone)
    steps = torch.cat((root.expand(len(rotation), 1, 3), steps), 1)
    return Placement(world, path @ steps, rest_joints)
