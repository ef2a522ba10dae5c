"""What of the keypoints can be used in a fit, and which joints they show."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fitting.body.kinematics import PARENTS
from fitting.camera import Camera
from fitting.keypoints.weights import GATE, Weighting, keypoint_weights
from fitting.thresholds import LEAST_KEYPOINTS, OBSERVED_SCORE, USABLE_CONFIDENCE
from pose2d.base.errors import UserError
from pose2d.base.table import BLOCK, Column, blocks
from pose2d.skeletons import COCO17, HALPE26, HALPE26_IN, in_halpe26
from pose2d.types import MOST_LOG_RATIO, Keypoints, l_squared

FARTHEST_PX = 1e6  # from the image's corner


class TooFewKeypoints(UserError):
    """No frame of a track shows enough to be fitted."""


def body_keypoints(keypoints: Keypoints) -> Keypoints:
    """Halpe's 26 keypoints, checked, on the CPU in float32; what is not finite or not in the layout has presence 0."""
    k = keypoints
    if k.skeleton.keypoints[:17] != COCO17.keypoints:
        raise UserError(
            f"keypoints of {k.skeleton.name} cannot be fitted: expected COCO's 17 (or a set that begins with them)."
        )
    size = tuple(k.xy_px.shape)
    frames, count = size[0] if size else 0, k.skeleton.size
    if size != (frames, count, 2) or k.confidence.shape != size[:2] or k.presence.shape != size[:2]:
        raise UserError(
            f"keypoints have sizes xy {list(size)}, confidence {list(k.confidence.shape)}, presence "
            f"{list(k.presence.shape)}; expected [T, {count}, 2], [T, {count}] and [T, {count}]."
        )
    if frames == 0:
        raise UserError("there are no frames to fit: the track is empty.")
    if k.area_px2 is not None and tuple(k.area_px2.shape) != (frames,):
        raise UserError(f"area_px2 has size {list(k.area_px2.shape)}; expected [{frames}], one area per frame.")
    layout = k.skeleton.name if k.skeleton.name in HALPE26_IN else COCO17.name
    k = k.along("keypoints", lambda value, stated: _as_halpe26(value, layout, stated.fill))
    area = None if k.area_px2 is None else k.area_px2.detach().cpu().float()
    # A keypoint a million pixels away is a mistake of its source, and its square would drown everything else.
    finite = (k.xy_px.abs() <= FARTHEST_PX).all(-1) & torch.isfinite(k.confidence) & torch.isfinite(k.presence)
    if k.error is not None:
        weight, sigma, ratio = k.error.weight, k.error.sigma, k.error.log_ratio
        finite &= (torch.isfinite(weight) & (weight >= 0)).all(-1) & ((sigma > 0) & (sigma < FARTHEST_PX)).all(-1)
        if ratio is not None:
            finite &= ratio.abs() <= MOST_LOG_RATIO
    if area is not None:
        finite &= ((area > 0) & (area < FARTHEST_PX**2))[:, None]
        area = torch.where(finite.any(1), area, torch.ones_like(area))
    for name, value in (("confidence", k.confidence), ("presence", k.presence)):
        inside = value[finite]
        if ((inside < 0) | (inside > 1)).any():
            raise UserError(
                f"{name} must lie between 0 and 1; got {float(inside.min()):.3g} .. {float(inside.max()):.3g}."
            )

    def cleaned(value: Tensor, stated: Column) -> Tensor:
        fill = torch.tensor(0.0 if math.isnan(stated.fill) else stated.fill)
        return torch.where(finite.reshape(*finite.shape, *(1,) * (value.ndim - 2)), value, fill)

    return replace(k.along("keypoints", cleaned), area_px2=area, skeleton=HALPE26)


def _as_halpe26(values: Tensor, layout: str, missing: float) -> Tensor:
    """[T, K, ...] of a skeleton that begins with COCO's 17 -> [T, 26, ...]; `missing` where it has no such keypoint."""
    return torch.from_numpy(in_halpe26(values.detach().cpu().float().numpy(), layout, missing))


def undistorted(keypoints: Keypoints, cameras: Sequence[Camera]) -> Keypoints:
    """Pixels as a perfect lens would show them; presence 0 where the lens sees nothing."""
    if not any(camera.distortion for camera in cameras):
        return keypoints
    if len(cameras) == 1:
        xy = cameras[0].undistort(keypoints.xy_px)
    else:
        xy = torch.stack([camera.undistort(points) for camera, points in zip(cameras, keypoints.xy_px, strict=True)])
    finite = torch.isfinite(xy).all(-1)
    return replace(
        keypoints, xy_px=torch.where(finite[..., None], xy, torch.zeros(())), presence=keypoints.presence * finite
    )


def usable_frames(keypoints: Keypoints, cameras: Sequence[Camera], weighting: Weighting, gate: float = GATE) -> Tensor:
    """Frames [T] of checked keypoints that show enough to be fitted; raises TooFewKeypoints if none does."""
    seen = undistorted(keypoints, cameras)
    weight = [keypoint_weights(seen.rows(some), weighting, gate).weight for some in blocks(len(seen))]
    return frames_with_enough(seen, torch.cat(weight))


def frames_with_enough(keypoints: Keypoints, weight: Tensor) -> Tensor:
    """The same for undistorted keypoints and their weights [T, K]."""
    counts = ((keypoints.confidence * keypoints.presence >= USABLE_CONFIDENCE) & (weight > 0)).sum(1)
    usable = counts >= LEAST_KEYPOINTS
    if not bool(usable.any()):
        raise TooFewKeypoints(
            f"no frame has {LEAST_KEYPOINTS} keypoints with a confidence of {USABLE_CONFIDENCE} or more (the best has "
            f"{int(counts.max())}): a body cannot be fitted. Check the detection, or choose a weighting without a gate."
        )
    return usable


# The joint at each keypoint.
JOINT_OF = {
    "nose": 15, "left_eye": 15, "right_eye": 15, "left_ear": 15, "right_ear": 15,
    "left_shoulder": 16, "right_shoulder": 17, "left_elbow": 18, "right_elbow": 19, "left_wrist": 20, "right_wrist": 21,
    "left_hip": 1, "right_hip": 2, "left_knee": 4, "right_knee": 5, "left_ankle": 7, "right_ankle": 8,
    "head_top": 15, "neck": 12, "pelvis": 0, "left_big_toe": 10, "right_big_toe": 11, "left_small_toe": 10,
    "right_small_toe": 11, "left_heel": 7, "right_heel": 8,
}  # fmt: skip
PELVIS, HIPS = 0, (1, 2)
FOLLOWED = {10: 7, 11: 8, 22: 20, 23: 21}  # toes and hands: what is seen of ankle and wrist is seen of them


# A keypoint counts as seen when the probability that it is in the image and within NEAR sqrt(area) of the truth is at
# least OBSERVED_PROBABILITY. NEAR is 7 cm on an adult who stands, the same for all keypoints: a face whose eyes are off
# by a finger is seen. Both were chosen on a rendered validation set by the mean of what is right and not called seen,
# and wrong and called seen (bench/observed.py; bench/README.md has the figures on the test set). The second is below
# 1/2 since the stated probability is too low there: 0.49 on average, where 0.65 of the keypoints are so close.
NEAR = 0.1
OBSERVED_PROBABILITY = 0.3


def probability_observed(keypoints: Keypoints, near: float = NEAR) -> Tensor:
    """[T, K] that a keypoint is in the image and within `near` sqrt(area) of the truth, as far as its confidence tells.

    From the stated error distribution, or from the Gaussian of variance (1 - s) / s l^2 that an expected OKS s implies.
    A network's own score states no probability: OBSERVED_SCORE is taken for OBSERVED_PROBABILITY.
    """
    if len(keypoints) > BLOCK:
        return torch.cat([probability_observed(keypoints.rows(some), near) for some in blocks(len(keypoints))])
    presence = keypoints.presence
    squared = near**2 / l_squared(torch.ones(()), keypoints.skeleton)  # [K] in units of l^2
    if keypoints.source == "raw":
        return (keypoints.confidence * presence * OBSERVED_PROBABILITY / OBSERVED_SCORE).clamp(max=1)
    stated = keypoints.error
    if stated is not None:
        return presence * stated.cdf(squared)
    s = keypoints.confidence.clamp(max=1 - 1e-6)
    return presence * -torch.expm1(-squared / 2 * s / (1 - s))


def observed_joints(keypoints: Keypoints, size: tuple[int, int]) -> np.ndarray:
    """[T, 24]: a keypoint that counts as seen, inside the image of (width, height), lies at the joint or farther out.

    Everything hangs on the pelvis, so for the pelvis only the legs count; toes and hands follow ankle and wrist.
    """
    xy_px = keypoints.xy_px.numpy()
    inside = ((xy_px >= 0) & (xy_px <= np.array(size) - 1)).all(-1)
    seen = (probability_observed(keypoints) >= OBSERVED_PROBABILITY).numpy() & inside
    observed = np.zeros((len(seen), 24), np.bool_)
    for keypoint, name in enumerate(HALPE26.keypoints):
        observed[:, JOINT_OF[name]] |= seen[:, keypoint]
    for joint in range(23, 0, -1):  # children have higher numbers than their parents
        if joint not in FOLLOWED:
            observed[:, PARENTS[joint]] |= observed[:, joint]
    observed[:, PELVIS] = observed[:, HIPS].any(1)
    for leaf, followed in FOLLOWED.items():
        observed[:, leaf] = observed[:, followed]
    return observed


# A joint turns the bone that ends at the next joint, so the surface of a limb is seen where its far end is.
FAR_END = {1: 4, 2: 5, 4: 7, 5: 8, 16: 18, 17: 19, 18: 20, 19: 21}


def observed_bones(joint_observed: np.ndarray) -> np.ndarray:
    """Of joints [..., 24] -> of the surface that each of them moves [..., 24]: a thigh is seen where the knee is."""
    bones = joint_observed.copy()
    for joint, end in FAR_END.items():
        bones[..., joint] = joint_observed[..., end]
    return bones
