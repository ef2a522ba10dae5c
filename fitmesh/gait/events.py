"""Foot strikes and toe-offs of walking, with the uncertainty of their times.

A foot strikes where its heel is farthest in front of the pelvis, and leaves the floor where its
toes are farthest behind it (Zeni, Richards and Higginson 2008), along the direction of walking. This
needs neither a floor nor force plates, and no threshold in metres per second. The time of such an
extremum is as uncertain as the foot's velocity over its acceleration there, and the method itself
is off by some 20 ms against force plates.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.signal import find_peaks

from fitmesh.gait.motion import SIDES, BodyMotion, forward_and_left, walking_velocity

Kind = Literal["foot_strike", "toe_off"]
METHOD_STD_S = 0.02
LARGEST_STD_S = 0.1  # less certain extrema are no events
# Of an extremum: how far it stands out, and the time to the next one of the same foot.
PROMINENCE_M = 0.1
SHORTEST_STRIDE_S = 0.5


@dataclass(frozen=True)
class GaitEvent:
    """A foot that strikes or leaves the floor."""

    kind: Kind
    side: int  # 0 left, 1 right
    time_s: float
    std_s: float

    @property
    def side_name(self) -> str:
        """Return left or right."""
        return SIDES[self.side]


def find_gait_events(motion: BodyMotion) -> list[GaitEvent]:
    """Return foot strikes and toe-offs in order of time; none where the person does not walk."""
    if len(motion.time_s) < 3:
        return []
    forward, _ = forward_and_left(walking_velocity(motion))
    events = []
    for side in (0, 1):
        heel_m = _ahead_m(motion.heels_m[:, side] - motion.pelvis_m, forward)
        toes_m = _ahead_m(motion.toes_m[:, side] - motion.pelvis_m, forward)
        events += _extrema(motion, heel_m, "foot_strike", side)
        events += _extrema(motion, -toes_m, "toe_off", side)
    return sorted(events, key=lambda event: event.time_s)


def _ahead_m(offset_m: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Return how far points [T, 3] relative to the pelvis are in front of it [T]."""
    return (offset_m * forward).sum(-1)


def _extrema(motion: BodyMotion, ahead_m: np.ndarray, kind: Kind, side: int) -> list[GaitEvent]:
    """Return the events at the maxima of a distance [T]; it is NaN where the person stands."""
    walks = np.isfinite(ahead_m)
    if not walks.any():
        return []
    filled = np.where(walks, ahead_m, ahead_m[walks].min())
    apart = max(1, round(SHORTEST_STRIDE_S / motion.step_s))
    peaks, _ = find_peaks(filled, prominence=PROMINENCE_M, distance=apart)
    acceleration = np.gradient(np.gradient(filled, motion.time_s), motion.time_s)
    events = []
    for peak in peaks.tolist():
        if not walks[peak - 1 : peak + 2].all():
            continue
        before, here, after = filled[peak - 1 : peak + 2].tolist()
        curvature = before - 2 * here + after
        shift = 0.5 * (before - after) / curvature if curvature < 0 else 0.0
        time_s = float(motion.time_s[peak]) + shift * motion.step_s
        speed_std = float(motion.foot_speed_std_m_s[peak, side])
        own_std_s = speed_std / max(abs(float(acceleration[peak])), 1e-6)
        std_s = float(np.hypot(METHOD_STD_S, own_std_s))
        if std_s <= LARGEST_STD_S:
            events.append(GaitEvent(kind, side, time_s, std_s))
    return events
