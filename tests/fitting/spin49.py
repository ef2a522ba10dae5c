"""SPIN's 49 points: OpenPose's 25, then 24 that the data sets name. Several are there twice, in
slightly other places.

They are made of SMPL's 24 joints, 11 vertices of face and feet, and 9 points regressed from the
mesh by `J_regressor_extra.npy`, a file that comes with SPIN's data.
"""

import numpy as np
import torch

from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT
from fitting.smplify import FitPoints

NAMES = (
    "OP Nose",
    "OP Neck",
    "OP RShoulder",
    "OP RElbow",
    "OP RWrist",
    "OP LShoulder",
    "OP LElbow",
    "OP LWrist",
    "OP MidHip",
    "OP RHip",
    "OP RKnee",
    "OP RAnkle",
    "OP LHip",
    "OP LKnee",
    "OP LAnkle",
    "OP REye",
    "OP LEye",
    "OP REar",
    "OP LEar",
    "OP LBigToe",
    "OP LSmallToe",
    "OP LHeel",
    "OP RBigToe",
    "OP RSmallToe",
    "OP RHeel",
    "right_ankle",
    "right_knee",
    "right_hip",
    "left_hip",
    "left_knee",
    "left_ankle",
    "right_wrist",
    "right_elbow",
    "right_shoulder",
    "left_shoulder",
    "left_elbow",
    "left_wrist",
    "LSP neck",
    "LSP head_top",
    "MPII pelvis",
    "MPII thorax",
    "H36M spine",
    "H36M jaw",
    "H36M head",
    "nose",
    "left_eye",
    "right_eye",
    "left_ear",
    "right_ear",
)

# Where each of the 49 comes from: a joint by number, a vertex by name, or a row of the extra
# regressor ("+n").
_SOURCES: tuple[int | str, ...] = (
    "nose",
    12,
    17,
    19,
    21,
    16,
    18,
    20,
    0,
    2,
    5,
    8,
    1,
    4,
    7,
    "reye",
    "leye",
    "rear",
    "lear",
    "LBigToe",
    "LSmallToe",
    "LHeel",
    "RBigToe",
    "RSmallToe",
    "RHeel",
    8,
    5,
    "+0",
    "+1",
    4,
    7,
    21,
    19,
    17,
    16,
    18,
    20,
    "+2",
    "+3",
    "+4",
    "+5",
    "+6",
    "+7",
    "+8",
    "nose",
    "leye",
    "reye",
    "lear",
    "rear",
)

# Slots of the COCO-17 keypoints, in COCO's order: the second 24 have the same names.
COCO_SLOTS = (44, 45, 46, 47, 48, 34, 33, 35, 32, 36, 31, 28, 27, 29, 26, 30, 25)

# right and left hip, right and left shoulder
_OPENPOSE_TORSO = (9, 12, 2, 5)
_TORSO = (27, 28, 33, 34)
_IGNORED = (1, 9, 12, 27, 28)  # OpenPose's neck and all hips: no two data sets agree on them


def openpose49(body: Body, extra_regressor: np.ndarray) -> FitPoints:
    """The 49 points on an SMPL body; extra_regressor is [9, V] as in J_regressor_extra.npy."""
    vertices = len(body.v_template)
    extra = torch.as_tensor(extra_regressor, dtype=body.dtype)
    joint_part = torch.zeros(len(NAMES), JOINT_COUNT)
    vertex_part = torch.zeros(len(NAMES), vertices)
    for slot, source in enumerate(_SOURCES):
        if isinstance(source, int):
            joint_part[slot, source] = 1
        elif source.startswith("+"):
            vertex_part[slot] = extra[int(source)]
        else:
            vertex_part[slot, body.vertex_picks[source]] = 1
    return FitPoints(
        joint_part.to(extra), vertex_part.to(extra), (_OPENPOSE_TORSO, _TORSO), _IGNORED
    )
