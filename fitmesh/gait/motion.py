"""What events are found from: pelvis, feet and knees of one person in a world with y up."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d

SIDES = ("left", "right")
# Standard deviation of the filter on the walking velocity: longer than a step, which sways it.
DIRECTION_S = 0.4
SLOWEST_M_S = 0.3  # slower people stand or shuffle
_UP = np.array([0.0, 1.0, 0.0])


@dataclass(frozen=True)
class BodyMotion:
    """One person over T frames at even times, without absences."""

    time_s: np.ndarray  # [T]
    pelvis_m: np.ndarray  # [T, 3]
    heels_m: np.ndarray  # [T, 2, 3] left, right
    toes_m: np.ndarray  # [T, 2, 3]
    knee_flexion_deg: np.ndarray  # [T, 2]
    foot_std_m: np.ndarray  # [T, 2] along one axis, relative to the pelvis
    foot_speed_std_m_s: np.ndarray  # [T, 2]

    @property
    def step_s(self) -> float:
        """Return the time between two frames."""
        return float(np.median(np.diff(self.time_s)))

    def smooth(self, values: np.ndarray, std_s: float) -> np.ndarray:
        """Return values [T, ..] averaged over time by a Gaussian."""
        return gaussian_filter1d(values, std_s / self.step_s, axis=0, mode="nearest")


def walking_velocity(motion: BodyMotion) -> np.ndarray:
    """Return the horizontal velocity [T, 3] of the pelvis in m/s without the sway of steps."""
    level_m = motion.pelvis_m * (1 - _UP)
    # Positions are smoothed as departures from a straight line, so that ends do not slow down.
    line_m = np.linspace(level_m[0], level_m[-1], len(level_m))
    smooth_m = line_m + motion.smooth(level_m - line_m, DIRECTION_S)
    return np.gradient(smooth_m, motion.time_s, axis=0)


def forward_and_left(velocity_m_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the directions [T, 3] in which a person walks and to the left of it; NaN: stands."""
    speed = np.linalg.norm(velocity_m_s, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        forward = np.where(speed >= SLOWEST_M_S, velocity_m_s / speed, np.nan)
    return forward, np.cross(_UP, forward)
