"""A leg as a chain of hip, knee and ankle, and how it is turned so that the foot gets to a place."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.body.kinematics import JOINT_NAMES

_PARTS = ("hip", "knee", "ankle")
# Below this sine of its angle a knee bends about the thigh's own axis: the plane of an almost
# straight leg is noise.
_STRAIGHT = 0.1


@dataclass(frozen=True)
class Leg:
    """A leg over T frames, in the scene."""

    joints: tuple[int, int, int]  # hip, knee, ankle
    pelvis: Rotation
    thigh: Rotation
    shank: Rotation
    foot: Rotation
    hip_m: np.ndarray  # [T, 3]
    knee_m: np.ndarray
    ankle_m: np.ndarray

    @classmethod
    def of(cls, turns: list[Rotation], joints_m: np.ndarray, side: int) -> "Leg":
        """Return the left (0) or right (1) leg of the joints' rotations relative to their parents
        and of joints [T, 24, 3].
        """
        name = ("left", "right")[side]
        hip, knee, ankle = (JOINT_NAMES.index(f"{name}_{part}") for part in _PARTS)
        thigh = turns[0] * turns[hip]
        shank = thigh * turns[knee]
        return cls(
            (hip, knee, ankle),
            turns[0],
            thigh,
            shank,
            shank * turns[ankle],
            joints_m[:, hip],
            joints_m[:, knee],
            joints_m[:, ankle],
        )

    @property
    def length_m(self) -> float:
        """Return the length of thigh and shank."""
        thigh_m = np.linalg.norm(self.knee_m[0] - self.hip_m[0])
        return float(thigh_m + np.linalg.norm(self.ankle_m[0] - self.knee_m[0]))

    @property
    def reach_m(self) -> np.ndarray:
        """Return the distance [T] from hip to ankle."""
        return np.linalg.norm(self.ankle_m - self.hip_m, axis=1)


def turn_leg(
    leg: Leg,
    hip_shift_m: np.ndarray,
    ankle_m: np.ndarray,
    foot_turn: np.ndarray,
    straightest: float,
) -> tuple[Rotation, Rotation, Rotation]:
    """Return the rotations of hip, knee and ankle relative to their parents that bring the ankle to
    its place [T, 3] after the hip has moved, and turn the foot by rotation vectors [T, 3].

    The knee bends in the plane in which it is bent; the leg then turns as a whole the short way. A
    place beyond the leg's reach is approached as far as it reaches."""
    thigh_m = leg.knee_m - leg.hip_m
    shank_m = leg.ankle_m - leg.knee_m
    upper = np.linalg.norm(thigh_m, axis=1)
    lower = np.linalg.norm(shank_m, axis=1)
    longest = np.maximum(straightest * (upper + lower), leg.reach_m)
    way_m = ankle_m - leg.hip_m - hip_shift_m
    distance = np.clip(np.linalg.norm(way_m, axis=1), np.abs(upper - lower) + 1e-4, longest)
    cosine = (upper**2 + lower**2 - distance**2) / (2 * upper * lower)
    before = (upper**2 + lower**2 - leg.reach_m**2) / (2 * upper * lower)
    bend = np.arccos(np.clip(before, -1, 1)) - np.arccos(np.clip(cosine, -1, 1))
    axis = np.cross(thigh_m, shank_m) / (upper * lower)[:, None]
    own_axis = leg.thigh.apply([1.0, 0.0, 0.0])
    sine = np.linalg.norm(axis, axis=1, keepdims=True)
    own_share = np.clip(1 - sine / _STRAIGHT, 0, 1)
    axis = axis / np.maximum(sine, 1e-9) * (1 - own_share) + own_axis * own_share
    axis /= np.maximum(np.linalg.norm(axis, axis=1, keepdims=True), 1e-9)
    bent = Rotation.from_rotvec(bend[:, None] * axis)
    aim = Rotation.from_rotvec(turn_from_to(thigh_m + bent.apply(shank_m), way_m))
    thigh = aim * leg.thigh
    shank = aim * bent * leg.shank
    foot = Rotation.from_rotvec(foot_turn) * leg.foot
    return leg.pelvis.inv() * thigh, thigh.inv() * shank, shank.inv() * foot


def turn_from_to(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the rotation vectors [T, 3] of the smallest turns from directions [T, 3] to others."""
    a = first / np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-12)
    b = second / np.maximum(np.linalg.norm(second, axis=1, keepdims=True), 1e-12)
    axis = np.cross(a, b)
    sine = np.linalg.norm(axis, axis=1, keepdims=True)
    angle = np.arctan2(sine, (a * b).sum(1, keepdims=True))
    return axis / np.maximum(sine, 1e-12) * angle
