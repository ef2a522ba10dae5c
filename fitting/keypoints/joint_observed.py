"""Which joints of a body were observed: a keypoint of their limb was seen."""

import numpy as np

from fitting.body.kinematics import PARENTS
from fitting.thresholds import OBSERVED_CONFIDENCE
from pose2d.skeletons import COCO17
from pose2d.types import Keypoints

# The joint at each COCO keypoint.
JOINT_OF = {
    "nose": 15, "left_eye": 15, "right_eye": 15, "left_ear": 15, "right_ear": 15,
    "left_shoulder": 16, "right_shoulder": 17, "left_elbow": 18, "right_elbow": 19, "left_wrist": 20, "right_wrist": 21,
    "left_hip": 1, "right_hip": 2, "left_knee": 4, "right_knee": 5, "left_ankle": 7, "right_ankle": 8,
}  # fmt: skip
PELVIS, HIPS = 0, (1, 2)
FOLLOWED = {10: 7, 11: 8, 22: 20, 23: 21}  # toes and hands have no keypoint: they follow ankle and wrist


def observed_joints(keypoints: Keypoints, size: tuple[int, int]) -> np.ndarray:
    """[T, 24]: a keypoint that counts as seen, inside the image of (width, height), lies at the joint or farther out.

    Everything hangs on the pelvis, so for the pelvis only the legs count; toes and hands follow ankle and wrist.
    """
    confidence, xy_px = (keypoints.confidence * keypoints.presence).numpy(), keypoints.xy_px.numpy()
    inside = ((xy_px >= 0) & (xy_px <= np.array(size) - 1)).all(-1)
    seen = (confidence >= OBSERVED_CONFIDENCE) & inside
    observed = np.zeros((len(seen), 24), np.bool_)
    for keypoint, name in enumerate(COCO17.keypoints):
        observed[:, JOINT_OF[name]] |= seen[:, keypoint]
    for joint in range(23, 0, -1):  # children have higher numbers than their parents
        if joint not in FOLLOWED:
            observed[:, PARENTS[joint]] |= observed[:, joint]
    observed[:, PELVIS] = observed[:, HIPS].any(1)
    for leaf, followed in FOLLOWED.items():
        observed[:, leaf] = observed[:, followed]
    return observed
