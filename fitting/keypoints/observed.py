"""Which joints and limbs a frame shows, by the confidence of its keypoints."""

import numpy as np
import torch
from torch import Tensor

from fitting.body.kinematics import PARENTS
from pose2d.base.table import BLOCK, blocks
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import Keypoints, l_squared

# The joint at each keypoint.
JOINT_OF = {
    "nose": 15,
    "left_eye": 15,
    "right_eye": 15,
    "left_ear": 15,
    "right_ear": 15,
    "left_shoulder": 16,
    "right_shoulder": 17,
    "left_elbow": 18,
    "right_elbow": 19,
    "left_wrist": 20,
    "right_wrist": 21,
    "left_hip": 1,
    "right_hip": 2,
    "left_knee": 4,
    "right_knee": 5,
    "left_ankle": 7,
    "right_ankle": 8,
    "head_top": 15,
    "neck": 12,
    "pelvis": 0,
    "left_big_toe": 10,
    "right_big_toe": 11,
    "left_small_toe": 10,
    "right_small_toe": 11,
    "left_heel": 7,
    "right_heel": 8,
}
PELVIS = 0
HIPS = (1, 2)
FOLLOWED = {
    10: 7,
    11: 8,
    22: 20,
    23: 21,
}  # toes and hands: what is seen of ankle and wrist is seen of them


# A keypoint counts as seen when the probability that it is in the image and within NEAR sqrt(area)
# of the truth is at least OBSERVED_PROBABILITY. NEAR is 7 cm on an adult who stands, the same for
# all keypoints: a face whose eyes are off by a finger is seen. Both were chosen on a rendered
# validation set by the mean of what is right and not called seen, and wrong and called seen
# (bench/observed.py; bench/README.md has the figures on the test set). The second is below 1/2
# since the stated probability is too low there: 0.49 on average, where 0.65 of the keypoints are so
# close.
NEAR = 0.1
OBSERVED_PROBABILITY = 0.3
# A frame is observed when this share of the body's keypoints in the image counts as seen. Of people
# in full view in data/real_clips no frame has less, but for 5 frames of a man who falls, in which
# arms are read as legs; shares from 1/4 to 1/2 change one frame of them.
BELIEVED = 1 / 3
INSIDE_PROBABILITY = 0.5  # least presence of a keypoint that is stated to be in the image
OBSERVED_SCORE = 0.25  # the same of a network's own score, which states no probability. Not tuned


def probability_observed(keypoints: Keypoints, near: float = NEAR) -> Tensor:
    """Return the probability [T, K] that a keypoint is in the image and within `near` sqrt(area) of
    the truth, as far as its confidence tells.

    It comes from the stated error distribution, or from the Gaussian of variance (1 - s) / s l^2
    that an expected OKS s implies. A network's own score states no probability: OBSERVED_SCORE then
    counts as OBSERVED_PROBABILITY.
    """
    if len(keypoints) > BLOCK:
        return torch.cat(
            [probability_observed(keypoints.rows(block), near) for block in blocks(len(keypoints))]
        )
    presence = keypoints.presence
    squared = near**2 / l_squared(torch.ones(()), keypoints.skeleton)  # [K] in units of l^2
    if keypoints.source == "raw":
        return (keypoints.confidence * presence * OBSERVED_PROBABILITY / OBSERVED_SCORE).clamp(
            max=1
        )
    error = keypoints.error
    if error is not None:
        return presence * error.cdf(squared)
    s = keypoints.confidence.clamp(max=1 - 1e-6)
    return presence * -torch.expm1(-squared / 2 * s / (1 - s))


def mostly_believed(keypoints: Keypoints) -> np.ndarray:
    """Return in which frames [T] at least BELIEVED of the body's keypoints that are stated to be in
    the image count as seen.

    Only calibrated confidence states what is in the image; with other sources all frames count."""
    if keypoints.source != "ccnet":
        return np.ones(len(keypoints), np.bool_)
    probability = probability_observed(keypoints)[:, : COCO17.size]
    is_inside = keypoints.presence[:, : COCO17.size] >= INSIDE_PROBABILITY
    is_believed = is_inside & (probability >= OBSERVED_PROBABILITY)
    return (is_believed.sum(1) >= BELIEVED * is_inside.sum(1).clamp(min=1)).numpy()


def observed_joints(keypoints: Keypoints, size: tuple[int, int]) -> np.ndarray:
    """Return which joints are observed, [T, 24]: an observed keypoint inside the image of (width,
    height) lies at the joint or farther out.

    Everything hangs on the pelvis, so for the pelvis only the legs count; toes and hands follow
    ankle and wrist.
    """
    xy_px = keypoints.xy_px.numpy()
    inside = ((xy_px >= 0) & (xy_px <= np.array(size) - 1)).all(-1)
    is_observed = (probability_observed(keypoints) >= OBSERVED_PROBABILITY).numpy() & inside
    observed = np.zeros((len(is_observed), 24), np.bool_)
    for keypoint, name in enumerate(HALPE26.keypoints):
        observed[:, JOINT_OF[name]] |= is_observed[:, keypoint]
    for joint in range(23, 0, -1):  # children have higher numbers than their parents
        if joint not in FOLLOWED:
            observed[:, PARENTS[joint]] |= observed[:, joint]
    observed[:, PELVIS] = observed[:, HIPS].any(1)
    for leaf, followed in FOLLOWED.items():
        observed[:, leaf] = observed[:, followed]
    return observed


# A joint turns the bone that ends at the next joint, so the surface of a limb is seen where its far
# end is.
FAR_END = {1: 4, 2: 5, 4: 7, 5: 8, 16: 18, 17: 19, 18: 20, 19: 21}


def observed_bones(joint_observed: np.ndarray) -> np.ndarray:
    """Return whether the surface that each joint moves is observed, for joints [..., 24]: a thigh
    is observed where the knee is.
    """
    bones = joint_observed.copy()
    for joint, end in FAR_END.items():
        bones[..., joint] = joint_observed[..., end]
    return bones
