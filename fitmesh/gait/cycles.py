"""Gait cycles: angles between two strikes of one foot, on a common scale of 0 to 100 %."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fitmesh.gait.events import GaitEvent
from fitmesh.gait.motion import SIDES
from fitmesh.gait.steps import LONGEST_STEP_S

PERCENT = np.arange(101)


@dataclass(frozen=True)
class Cycles:
    """N cycles of one foot's angles."""

    values: np.ndarray  # [N, 101] in degrees, from strike to strike
    std: np.ndarray  # [N, 101] stated deviations

    @property
    def mean(self) -> np.ndarray:
        """Return the mean [101] over cycles."""
        return self.values.mean(0)

    @property
    def spread(self) -> np.ndarray:
        """Return the standard deviation [101] over cycles; NaN with one cycle."""
        if len(self.values) < 2:
            return np.full(len(PERCENT), np.nan)
        return self.values.std(0, ddof=1)

    @property
    def mean_std(self) -> np.ndarray:
        """Return the stated deviation [101] of an angle of one cycle, averaged over cycles."""
        return np.sqrt(np.square(self.std).mean(0))


def cycle_times(events: Sequence[GaitEvent], side: int) -> list[tuple[float, float]]:
    """Return the times of successive strikes of one foot with a strike of the other in between."""
    strikes = [event for event in events if event.kind == "foot_strike"]
    own_s = [event.time_s for event in strikes if event.side == side]
    other_s = [event.time_s for event in strikes if event.side != side]
    return [
        (start, end)
        for start, end in pairwise(own_s)
        if end - start <= 2 * LONGEST_STEP_S and sum(start < time < end for time in other_s) == 1
    ]


def normalize_cycles(
    time_s: np.ndarray,
    angles_deg: Mapping[str, np.ndarray],
    std_deg: Mapping[str, np.ndarray],
    events: Sequence[GaitEvent],
) -> dict[str, Cycles]:
    """Return the cycles of every angle by name; empty without a whole cycle.

    Angles of a side go from strike to strike of that side's foot, others of the left foot.
    """
    spans = {side: cycle_times(events, side) for side in (0, 1)}
    cycles = {}
    for name, values in angles_deg.items():
        side = 1 if name.startswith(f"{SIDES[1]}_") else 0
        if not spans[side]:
            continue
        at = np.stack([start + PERCENT / 100 * (end - start) for start, end in spans[side]])
        cycles[name] = Cycles(np.interp(at, time_s, values), np.interp(at, time_s, std_deg[name]))
    return cycles
