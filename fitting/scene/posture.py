"""Find when a person stands or sits, and the axis of the body that then points up."""

import math
from dataclasses import dataclass

import numpy as np

from fitting.scene.person_evidence import (
    ANKLES,
    HIPS,
    KNEES,
    NECK,
    PELVIS,
    SHOULDERS,
    PersonEvidence,
)

# The neck lies in front of the ankles' middle: 5.9 degrees for walking, 6.3 for standing CMU
# subjects (deviation 1.7 between subjects), sideways 0.2 (1.0).
FORWARD_LEAN_DEG = 6.0
AXIS_IMAGE_DEG, AXIS_DEPTH_DEG = (
    2.0,
    7.0,
)  # deviation of one person's mean axis across and along the line of sight
STRAIGHT_KNEE_DEG, STRAIGHT_HIP_DEG = 40.0, 40.0  # bends up to which somebody counts as standing
# Lunges and side bends are no plumb lines. Walkers' legs are up to STRIDE_DEG apart, their trunk
# within BENT_DEG of the line from their feet to their hips; they pass one leg by the other, so that
# in a quarter of the time these are closer than HELD_DEG, and bend their knees by turns, by
# UNLIKE_DEG at most in the median. Beyond, the axis is as uncertain as a share of the excess, and
# soon none at all.
STRIDE_DEG = 50.0
HELD_DEG = 34.0
BENT_DEG = 12.0
UNLIKE_DEG = 18.0
EXCESS = 0.7
MOST_EXCESS_DEG = 25.0
# Trunks of people who sit, kneel or squat: most lean, forwards or back, so each says little of
# gravity.
SEATED_HIP_DEG = 55.0
SEATED_IMAGE_DEG = 9.0
SEATED_DEPTH_DEG = 16.0
SEATED_FROM_UP_DEG = 40.0
FARTHEST_FROM_UP_DEG = 65.0  # of a standing person's axis from the camera's own up direction


@dataclass(frozen=True)
class PostureAxis:
    """Where a body points up, as far as its posture tells."""

    holds: np.ndarray  # [T] bool: the posture is one that tells
    axis: np.ndarray  # [T, 3]
    excess_rad: np.ndarray  # [T] deviation beside the usual one
    deviation_deg: tuple[
        float, float
    ]  # of one person's mean axis, across and along the line of sight


def bend_deg(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Angle between directions [..., 3]."""
    size = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.degrees(
        np.arccos(np.clip(np.sum(first * second, -1) / np.maximum(size, 1e-9), -1, 1))
    )


def find_standing(person: PersonEvidence) -> PostureAxis:
    """Who stands or walks, and the axis that then points up: from the pose alone. A leg that bears
    weight is nearly straight at knee and hip; lying people pass that too, so the axis must also be
    within reach of the camera's own up direction. Legs wide apart and a bent trunk make it
    uncertain."""
    joints = person.joints_cam_m
    finite = np.isfinite(joints).all((1, 2))
    joints = np.where(finite[:, None, None], joints, 0.0)
    neck = joints[:, NECK]
    pelvis = joints[:, PELVIS]
    ankles = joints[:, ANKLES]
    thigh = joints[:, HIPS] - joints[:, KNEES]  # upwards
    shank = joints[:, KNEES] - ankles
    knees = bend_deg(thigh, shank)
    straight = (knees < STRAIGHT_KNEE_DEG) & (
        bend_deg(thigh, (neck - pelvis)[:, None]) < STRAIGHT_HIP_DEG
    )
    axis = _without_forward_lean(neck - ankles.mean(1), joints[:, HIPS[1]] - joints[:, HIPS[0]])
    near_up = bend_deg(axis, np.array([0.0, -1.0, 0.0])) < FARTHEST_FROM_UP_DEG
    seen = person.observed[:, ANKLES].any(1) & person.observed[:, SHOULDERS].any(1)
    stride = bend_deg(ankles[:, 0] - pelvis, ankles[:, 1] - pelvis)
    bent = bend_deg(neck - pelvis, pelvis - ankles.mean(1))
    unlike = float(np.median(np.abs(knees[:, 0] - knees[:, 1]))) if len(knees) else 0.0
    held = float(np.quantile(stride, 0.25)) if len(stride) else 0.0
    always = math.hypot(max(unlike - UNLIKE_DEG, 0.0), max(held - HELD_DEG, 0.0))
    excess = np.hypot(np.maximum(stride - STRIDE_DEG, 0), np.maximum(bent - BENT_DEG, 0))
    excess = EXCESS * np.hypot(excess, always)
    holds = (
        straight.any(1)
        & near_up
        & seen
        & finite
        & (joints[:, PELVIS, 2] > 0.2)
        & (excess < MOST_EXCESS_DEG)
    )
    return PostureAxis(holds, axis, np.radians(excess), (AXIS_IMAGE_DEG, AXIS_DEPTH_DEG))


def find_seated(person: PersonEvidence) -> PostureAxis:
    """Who sits, kneels or squats with both hips bent, and their trunk."""
    joints = person.joints_cam_m
    finite = np.isfinite(joints).all((1, 2))
    joints = np.where(finite[:, None, None], joints, 0.0)
    trunk = joints[:, NECK] - joints[:, PELVIS]
    bent = bend_deg(joints[:, HIPS] - joints[:, KNEES], trunk[:, None]).min(1) > SEATED_HIP_DEG
    near_up = bend_deg(trunk, np.array([0.0, -1.0, 0.0])) < SEATED_FROM_UP_DEG
    seen = person.observed[:, HIPS].all(1) & person.observed[:, SHOULDERS].all(1)
    trunk = trunk / np.maximum(np.linalg.norm(trunk, axis=-1, keepdims=True), 1e-9)
    holds = bent & near_up & seen & finite & (joints[:, PELVIS, 2] > 0.2)
    return PostureAxis(holds, trunk, np.zeros(len(joints)), (SEATED_IMAGE_DEG, SEATED_DEPTH_DEG))


def _without_forward_lean(axis: np.ndarray, to_the_right: np.ndarray) -> np.ndarray:
    """The axis [T, 3] turned back about the body's own left-right direction by the mean lean of
    people.
    """
    axis = axis / np.maximum(np.linalg.norm(axis, axis=-1, keepdims=True), 1e-9)
    right = to_the_right - np.sum(to_the_right * axis, -1, keepdims=True) * axis
    right = right / np.maximum(np.linalg.norm(right, axis=-1, keepdims=True), 1e-9)
    forward = np.cross(axis, right)
    lean = math.radians(FORWARD_LEAN_DEG)
    return math.cos(lean) * axis - math.sin(lean) * forward
