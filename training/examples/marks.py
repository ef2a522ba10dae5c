"""Move the body's keypoints to where annotators mark them.

COCO's annotators, and so the networks trained on them, mark a hip above its joint, a shoulder on
top of it, an ear before its canal: each difference is attached to one bone.
"""

import torch
from torch import Tensor

from fitting.body.kinematics import MIRROR
from fitting.body.rotations import rotate
from pose2d.skeletons import HALPE26

# Keypoint -> the bone that carries the difference, and millimetres along its axes at rest: x to the
# body's left, y up, z to the front. The right side is the mirror image. Between those of RTMPose-s
# (bench/keypoint_offsets.py) and of MoveNet; MARKS_SPREAD_M covers their difference.
_SHIFT_MM = {
    "nose": (15, (0, 17, -7)),
    "left_eye": (15, (-1, 4, 3)),
    "left_ear": (15, (2, 2, 13)),
    "left_shoulder": (9, (-5, 9, -8)),
    "left_elbow": (16, (-2, 4, 8)),
    "left_wrist": (18, (5, 0, 1)),
    "left_hip": (0, (-4, 20, 19)),
    "left_knee": (1, (0, 12, -3)),
    "left_ankle": (4, (4, 15, 3)),
    "head_top": (15, (0, -1, -1)),
    "neck": (12, (0, -1, 12)),
    "pelvis": (0, (0, 11, 19)),
    "left_big_toe": (10, (2, 10, -1)),
    "left_small_toe": (10, (0, 9, -1)),
    "left_heel": (7, (1, -1, -1)),
}
MARKS_SPREAD_M = 0.008  # standard deviation per axis
_MARKS = [
    (name.startswith("right"), *_SHIFT_MM[name.replace("right", "left")])
    for name in HALPE26.keypoints
]
_BONES = [MIRROR[bone] if right else bone for right, bone, _ in _MARKS]
_SHIFTS_M = (
    torch.tensor(
        [(-x if right else x, y, z) for right, _, (x, y, z) in _MARKS], dtype=torch.float32
    )
    / 1000
)


def mark_offsets(turned: Tensor, spread_m: Tensor) -> Tensor:
    """Return the way from the body's keypoints to where they are marked, [B, T, 26, 3] metres.

    turned: bones [B, T, 24, 3, 3]. spread_m: [B, 26, 3] what each person's marks differ by.
    """
    return rotate(turned[..., _BONES, :, :], _SHIFTS_M + spread_m[:, None])
