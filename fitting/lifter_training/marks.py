"""Where 2D networks see joints, beside where the body has them.

COCO's annotators, and so the networks trained on them, mark a hip above its joint, a shoulder on top of it, an ear
before its canal. Each difference rides on one bone.
"""

import torch
from torch import Tensor

from fitting.body.kinematics import turn
from fitting.lifter_training.motion_bank import MIRROR
from pose2d.skeletons import COCO17

# Keypoint -> the bone that carries the difference, and millimetres along its axes at rest: x to the body's left, y up,
# z to the front. The right side is the mirror image.
_SHIFT_MM = {
    "nose": (15, (0, 11, -5)),
    "left_eye": (15, (-2, 0, 4)),
    "left_ear": (15, (0, 1, 13)),
    "left_shoulder": (9, (-2, 15, -8)),
    "left_elbow": (16, (-4, 2, 8)),
    "left_wrist": (18, (7, 0, 1)),
    "left_hip": (0, (-10, 35, 15)),
    "left_knee": (1, (-2, 11, 1)),
    "left_ankle": (4, (1, 10, 1)),
}


def _table() -> tuple[list[int], Tensor]:
    bones, shifts = [], []
    for name in COCO17.keypoints:
        bone, (x, y, z) = _SHIFT_MM[name.replace("right", "left")]
        right = name.startswith("right")
        bones.append(MIRROR[bone] if right else bone)
        shifts.append((-x if right else x, y, z))
    return bones, torch.tensor(shifts, dtype=torch.float32) / 1000


_BONES, _SHIFTS_M = _table()


def marks(turned: Tensor) -> Tensor:
    """From the body's keypoints to where they are marked, [..., 17, 3] metres, of turned bones [..., 24, 3, 3]."""
    return turn(turned[..., _BONES, :, :], _SHIFTS_M)
