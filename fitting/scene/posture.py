"""Find when a person stands or walks, and the axis of the body that then points up.

The centre of mass of a person who does not fall is over the feet, whatever the arms and the trunk
do. Trunks alone lean: people who sit, crouch or lie say nothing of gravity."""

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
    TOES,
    PersonEvidence,
)

# Deviation of one person's mean axis across and along the line of sight. People who stand with
# their arms out, leaning or holding something are off by up to 8 degrees across in real clips of
# the choosing half (bench/facts.py); with 3 instead of 4 the roll of one of them comes out wrong.
AXIS_IMAGE_DEG, AXIS_DEPTH_DEG = 4.0, 7.0
STRAIGHT_KNEE_DEG, STRAIGHT_HIP_DEG = 40.0, 40.0  # bends up to which a person counts as standing
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
FARTHEST_FROM_UP_DEG = 65.0  # of a standing person's axis from the camera's own up direction


def _mass_of_joints() -> np.ndarray:
    """Return the share [24] of the body's mass at each joint."""
    mass = np.zeros(24)
    for upper, lower, share, centre in SEGMENT_MASS:
        mass[upper] += share * (1 - centre)
        mass[lower] += share * centre
    return mass / mass.sum()


# Segments between two joints: share of the body's mass, and where its centre lies from the first to
# the second (Winter, Biomechanics and Motor Control of Human Movement).
SEGMENT_MASS = (
    (PELVIS, NECK, 0.497, 0.5),
    (15, 15, 0.081, 0.5),
    *((hip, knee, 0.100, 0.433) for hip, knee in zip(HIPS, KNEES, strict=True)),
    *((knee, ankle, 0.0465, 0.433) for knee, ankle in zip(KNEES, ANKLES, strict=True)),
    *((ankle, toe, 0.0145, 0.5) for ankle, toe in zip(ANKLES, TOES, strict=True)),
    *((shoulder, elbow, 0.028, 0.436) for shoulder, elbow in ((16, 18), (17, 19))),
    *((elbow, wrist, 0.022, 0.68) for elbow, wrist in ((18, 20), (19, 21))),
)
JOINT_MASS = _mass_of_joints()


@dataclass(frozen=True)
class PostureAxis:
    """The axis of a body that points up, as far as its posture tells."""

    holds: np.ndarray  # [T] bool: the posture is one that tells
    axis: np.ndarray  # [T, 3]
    excess_rad: np.ndarray  # [T] deviation beside the usual one
    deviation_deg: tuple[
        float, float
    ]  # of one person's mean axis, across and along the line of sight


def bend_deg(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the angle between directions [..., 3]."""
    size = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.degrees(
        np.arccos(np.clip(np.sum(first * second, -1) / np.maximum(size, 1e-9), -1, 1))
    )


def find_standing(person: PersonEvidence) -> PostureAxis:
    """Return when a person stands or walks, by the pose alone, and the axis that then points up.

    A leg that bears weight is nearly straight at knee and hip; lying people pass that too, so the
    axis must also be within reach of the camera's own up direction. Legs wide apart and a bent
    trunk make it uncertain.
    """
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
    axis = find_centre_of_mass(joints) - find_support(joints)
    axis = axis / np.maximum(np.linalg.norm(axis, axis=-1, keepdims=True), 1e-9)
    near_up = bend_deg(axis, np.array([0.0, -1.0, 0.0])) < FARTHEST_FROM_UP_DEG
    is_visible = person.observed[:, ANKLES].any(1) & person.observed[:, SHOULDERS].any(1)
    stride = bend_deg(ankles[:, 0] - pelvis, ankles[:, 1] - pelvis)
    bent = bend_deg(neck - pelvis, pelvis - ankles.mean(1))
    unlike = float(np.median(np.abs(knees[:, 0] - knees[:, 1]))) if len(knees) else 0.0
    usual_stride_deg = float(np.quantile(stride, 0.25)) if len(stride) else 0.0
    always = math.hypot(max(unlike - UNLIKE_DEG, 0.0), max(usual_stride_deg - HELD_DEG, 0.0))
    excess = np.hypot(np.maximum(stride - STRIDE_DEG, 0), np.maximum(bent - BENT_DEG, 0))
    excess = EXCESS * np.hypot(excess, always)
    holds = (
        straight.any(1)
        & near_up
        & is_visible
        & finite
        & (joints[:, PELVIS, 2] > 0.2)
        & (excess < MOST_EXCESS_DEG)
    )
    return PostureAxis(holds, axis, np.radians(excess), (AXIS_IMAGE_DEG, AXIS_DEPTH_DEG))


def find_centre_of_mass(joints: np.ndarray) -> np.ndarray:
    """Return the centre of mass [T, 3] of bodies with these joints [T, 24, 3]."""
    return np.einsum("tji,j->ti", joints, JOINT_MASS)


def find_support(joints: np.ndarray) -> np.ndarray:
    """Return the middle of both feet [T, 3], between ankles and toes."""
    return joints[:, (*ANKLES, *TOES)].mean(1)
