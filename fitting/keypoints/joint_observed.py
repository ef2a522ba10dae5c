"""Which joints of a body rest on something that was seen."""

import numpy as np

from fitmesh.result import TRUSTED
from fitting.body.kinematics import PARENTS
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints

# The joint that each COCO keypoint tells of.
JOINT_OF = {
    "nose": 15, "left_eye": 15, "right_eye": 15, "left_ear": 15, "right_ear": 15,
    "left_shoulder": 16, "right_shoulder": 17, "left_elbow": 18, "right_elbow": 19, "left_wrist": 20, "right_wrist": 21,
    "left_hip": 1, "right_hip": 2, "left_knee": 4, "right_knee": 5, "left_ankle": 7, "right_ankle": 8,
}  # fmt: skip
PELVIS, HIPS = 0, (1, 2)
CARRIERS = {10: 7, 11: 8, 22: 20, 23: 21}  # toes and hands have no keypoint: they are as good as ankle and wrist


def supported_joints(known: Keypoints, size: tuple[int, int], trusted: float = TRUSTED) -> np.ndarray:
    """[T, 24]: a trusted keypoint inside the image of (width, height) lies at the joint or farther out on its limb.

    Everything hangs on the pelvis, so for the pelvis only the legs count; toes and hands follow ankle and wrist.
    """
    trust, xy_px = (known.confidence * known.presence).numpy(), known.xy_px.numpy()
    inside = ((xy_px >= 0) & (xy_px <= np.array(size) - 1)).all(-1)
    seen = (trust >= trusted) & inside
    supported = np.zeros((len(seen), 24), np.bool_)
    for keypoint, name in enumerate(COCO17.keypoints):
        supported[:, JOINT_OF[name]] |= seen[:, keypoint]
    for joint in range(23, 0, -1):  # children have higher numbers than their parents
        if joint not in CARRIERS:
            supported[:, PARENTS[joint]] |= supported[:, joint]
    supported[:, PELVIS] = supported[:, HIPS].any(1)
    for leaf, carrier in CARRIERS.items():
        supported[:, leaf] = supported[:, carrier]
    return supported
