"""Steps between foot strikes: time, length, width, speed, single and double support."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fitmesh.gait.events import GaitEvent
from fitmesh.gait.motion import SIDES, BodyMotion, forward_and_left, walking_velocity

# From the strike on, which comes while the heel still moves, until it stands and has not risen.
PLACED_S = 0.1
LONGEST_STEP_S = 1.5  # a longer time between strikes is a pause


@dataclass(frozen=True)
class Step:
    """One foot's strike after the other foot's; NaN: an event that it needs was not found."""

    side: int  # of the foot that strikes at the end
    start_s: float
    end_s: float
    time_std_s: float
    length_m: float  # between the heels where they stood, along the direction of walking
    length_std_m: float
    width_m: float  # between the heels across it
    speed_m_s: float  # of the pelvis
    double_support_s: float  # from the other foot's strike until this one leaves the floor
    single_support_s: float  # from then until this foot strikes
    stride_length_m: float  # of this foot, from its strike before
    stride_s: float

    @property
    def side_name(self) -> str:
        """Return left or right."""
        return SIDES[self.side]

    @property
    def time_s(self) -> float:
        """Return the time between the two strikes."""
        return self.end_s - self.start_s

    @property
    def cadence_per_min(self) -> float:
        """Return steps per minute."""
        return 60 / self.time_s


def find_steps(motion: BodyMotion, events: Sequence[GaitEvent]) -> list[Step]:
    """Return the steps between strikes of alternate feet, in order of time."""
    velocity = walking_velocity(motion)
    forward, left = forward_and_left(velocity)
    strikes = [event for event in events if event.kind == "foot_strike"]
    steps = []
    for number, (before, strike) in enumerate(pairwise(strikes), 1):
        if before.side == strike.side or strike.time_s - before.time_s > LONGEST_STEP_S:
            continue
        row = int(np.abs(motion.time_s - strike.time_s).argmin())
        own_m = _placed_heel_m(motion, strike)
        apart_m = own_m - _placed_heel_m(motion, before)
        during = (motion.time_s >= before.time_s) & (motion.time_s <= strike.time_s)
        leaves_s = _toe_off_s(events, strike.side, before.time_s, strike.time_s)
        own_before = next(
            (event for event in reversed(strikes[:number]) if event.side == strike.side), None
        )
        stride_s = strike.time_s - own_before.time_s if own_before is not None else np.nan
        stride_m = np.nan
        if own_before is not None and stride_s <= 2 * LONGEST_STEP_S:
            stride_m = float((own_m - _placed_heel_m(motion, own_before)) @ forward[row])
        else:
            stride_s = np.nan
        outward = 1 if strike.side == 0 else -1
        steps.append(
            Step(
                side=strike.side,
                start_s=before.time_s,
                end_s=strike.time_s,
                time_std_s=float(np.hypot(before.std_s, strike.std_s)),
                length_m=float(apart_m @ forward[row]),
                length_std_m=float(np.hypot(*motion.foot_std_m[row])),
                width_m=outward * float(apart_m @ left[row]),
                speed_m_s=float(np.linalg.norm(velocity[during], axis=-1).mean()),
                double_support_s=leaves_s - before.time_s,
                single_support_s=strike.time_s - leaves_s,
                stride_length_m=stride_m,
                stride_s=stride_s,
            )
        )
    return steps


def _placed_heel_m(motion: BodyMotion, strike: GaitEvent) -> np.ndarray:
    """Return where a heel [3] stands after its strike."""
    row = int(np.abs(motion.time_s - strike.time_s - PLACED_S).argmin())
    return motion.heels_m[row, strike.side]


def _toe_off_s(events: Sequence[GaitEvent], side: int, after_s: float, before_s: float) -> float:
    """Return when a foot leaves the floor between two times; NaN: not found."""
    times = [
        event.time_s
        for event in events
        if event.kind == "toe_off" and event.side == side and after_s <= event.time_s <= before_s
    ]
    return times[0] if times else float("nan")


# The numbers of a step in tables, with their names there.
STEP_NUMBERS = (
    ("step_time_s", "time_s"),
    ("step_length_m", "length_m"),
    ("step_width_m", "width_m"),
    ("cadence_per_min", "cadence_per_min"),
    ("speed_m_s", "speed_m_s"),
    ("double_support_s", "double_support_s"),
    ("single_support_s", "single_support_s"),
    ("stride_time_s", "stride_s"),
    ("stride_length_m", "stride_length_m"),
)


def summarize_steps(steps: Sequence[Step]) -> dict[str, tuple[float, float, int]]:
    """Return mean, standard deviation and number of each number of steps; NaN: fewer than two."""
    summary = {}
    for name, attribute in STEP_NUMBERS:
        values = np.array([getattr(step, attribute) for step in steps], float)
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else float("nan")
        spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
        summary[name] = (mean, spread, len(values))
    return summary
