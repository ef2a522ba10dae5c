"""Squats and jumps of one person."""

from dataclasses import dataclass

import numpy as np
from scipy.signal import find_peaks

from fitmesh.gait.motion import BodyMotion, walking_velocity

GRAVITY_M_S2 = 9.81
SLOW_M_S = 0.7  # faster people walk or run
# A squat lowers the pelvis by this much, with knees bent by this much.
SQUAT_DEPTH_M = 0.15
SQUAT_KNEES_DEG = 50.0
SHORTEST_SQUAT_S = 0.4
# In a jump the lowest points of both feet are this much over where they stand ..
OFF_FLOOR_M = 0.03
# .. for at least and at most so long.
FLIGHT_S = (0.12, 1.2)
# The pelvis rises, and the height is so many times its deviation.
LOWEST_RISE_M = 0.02
CERTAIN_STDS = 2.0
LONGEST_EXTRA_S = 0.04
SLOWEST_FEET_M_S = 0.3
_STANDING_QUANTILE = 0.1  # of the lower foot's height: where feet stand


@dataclass(frozen=True)
class Squat:
    """The lowest point of a squat."""

    time_s: float
    depth_m: float  # how far the pelvis came down from where it was before or after
    depth_std_m: float
    knee_flexion_deg: float  # of both knees, mean


@dataclass(frozen=True)
class Jump:
    """A flight of both feet."""

    take_off_s: float
    landing_s: float
    time_std_s: float  # of each
    rise_m: float  # of the pelvis over its height at take-off

    @property
    def flight_s(self) -> float:
        """Return the time in the air."""
        return self.landing_s - self.take_off_s

    @property
    def height_m(self) -> float:
        """Return the height that this time in the air takes, if body posture is the same at both
        ends.
        """
        return GRAVITY_M_S2 * self.flight_s**2 / 8

    @property
    def height_std_m(self) -> float:
        """Return the standard deviation of the height."""
        return GRAVITY_M_S2 * self.flight_s / 4 * self.time_std_s * np.sqrt(2.0)


def find_squats(motion: BodyMotion) -> list[Squat]:
    """Return the squats of a person who stays in place, in order of time."""
    if len(motion.time_s) < 3:
        return []
    height_m = motion.pelvis_m[:, 1]
    apart = max(1, round(SHORTEST_SQUAT_S / motion.step_s))
    lows, found = find_peaks(-height_m, prominence=SQUAT_DEPTH_M, distance=apart)
    knees = motion.knee_flexion_deg.mean(1)
    speed = np.linalg.norm(walking_velocity(motion), axis=-1)
    flights = find_jumps(motion)
    squats = []
    for low, depth_m in zip(lows.tolist(), found["prominences"].tolist(), strict=True):
        time_s = float(motion.time_s[low])
        is_in_air = any(jump.take_off_s <= time_s <= jump.landing_s for jump in flights)
        if knees[low] >= SQUAT_KNEES_DEG and speed[low] < SLOW_M_S and not is_in_air:
            std_m = float(motion.foot_std_m[low].mean())
            squats.append(Squat(time_s, depth_m, std_m, float(knees[low])))
    return squats


def find_jumps(motion: BodyMotion) -> list[Jump]:
    """Return the jumps of a person who does not run, in order of time."""
    feet_m = np.minimum(motion.heels_m[..., 1], motion.toes_m[..., 1])  # [T, 2]
    lower_m = feet_m.min(1)
    clearance_m = lower_m - np.quantile(lower_m, _STANDING_QUANTILE) - OFF_FLOOR_M
    speed = np.linalg.norm(walking_velocity(motion), axis=-1) if len(lower_m) > 2 else lower_m
    jumps = []
    edges = np.flatnonzero(np.diff(np.concatenate(([False], clearance_m > 0, [False])).astype(int)))
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if first == 0 or end == len(lower_m) or speed[first:end].max() > SLOW_M_S:
            continue  # begins or ends outside of the recording, or the person runs
        rise_s, fall_s = (_extra_s(motion, clearance_m, row) for row in (first, end - 1))
        take_off_s = _crossing_s(motion.time_s, clearance_m, first - 1) - rise_s
        landing_s = _crossing_s(motion.time_s, clearance_m, end - 1) + fall_s
        rise_m = float(motion.pelvis_m[first:end, 1].max() - motion.pelvis_m[first - 1, 1])
        jump = Jump(take_off_s, landing_s, _std_s(motion, clearance_m, first), rise_m)
        is_certain = jump.height_m > CERTAIN_STDS * jump.height_std_m and rise_m > LOWEST_RISE_M
        if FLIGHT_S[0] <= jump.flight_s <= FLIGHT_S[1] and is_certain:
            jumps.append(jump)
    return jumps


def _crossing_s(time_s: np.ndarray, values: np.ndarray, before: int) -> float:
    """Return when a line between two frames crosses 0."""
    step = values[before + 1] - values[before]
    share = -values[before] / step if step else 0.5
    return float(time_s[before] + share * (time_s[before + 1] - time_s[before]))


def _extra_s(motion: BodyMotion, clearance_m: np.ndarray, row: int) -> float:
    """Return the time that feet need for the first OFF_FLOOR_M, at their speed in a frame."""
    return min(OFF_FLOOR_M / _vertical_speed_m_s(motion, clearance_m, row), LONGEST_EXTRA_S)


def _std_s(motion: BodyMotion, clearance_m: np.ndarray, row: int) -> float:
    """Return the deviation of a crossing: that of half a frame, and the feet's over their speed."""
    own_s = motion.foot_std_m[row].mean() / _vertical_speed_m_s(motion, clearance_m, row)
    return float(np.hypot(motion.step_s / np.sqrt(12), own_s))


def _vertical_speed_m_s(motion: BodyMotion, clearance_m: np.ndarray, row: int) -> float:
    """Return how fast feet rise or fall in a frame, at least a little."""
    return max(abs(float(np.gradient(clearance_m, motion.time_s)[row])), SLOWEST_FEET_M_S)
