"""What is known of any hand: a relaxed pose, ranges of joints, and how fast angles change."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

RIGID = 6  # unknowns of the palm: a rotation and a shift
ANGLES = 25  # unknowns of the fingers: five each
# Of the palm beside the body's wrist: radians, metres across the line of sight, and share of the
# distance along it.
WRIST_STD_RAD = 0.3
SHIFT_STD_M = 0.04
DEPTH_STD_SHARE = 0.1
# How far an angle wanders in a second (bench/fingers.py, camera 1); shifts wander as far as they
# may be off.
WANDER_DEG = 90.0
LIMIT_STD_DEG = 3.0  # by which an angle may exceed its limit
# Spread and flexion of the first joint, of the second, flexion of the third, in degrees, for
# SMPL-H's order of fingers. Ranges are those of textbooks on the hand; mean and deviations of a
# relaxed hand are chosen, not fitted.
RELAXED_DEG = np.array(
    [
        [0, 18, 0, 28, 15],
        [0, 22, 0, 32, 17],
        [0, 30, 0, 34, 18],
        [0, 26, 0, 34, 18],
        [0, 8, 0, 12, 15],
    ],
    np.float64,
)
PRIOR_STD_DEG = np.array([[8, 30, 1.5, 32, 12]] * 4 + [[20, 20, 10, 22, 28]], np.float64)
LIMITS_DEG = np.array(
    [[(-25, 25), (-30, 95), (-3, 3), (-8, 115), (-12, 80)]] * 4
    + [[(-50, 45), (-40, 60), (-25, 25), (-25, 70), (-30, 90)]],
    np.float64,
)
# An end joint flexes by this share of the one before it; the thumb's does not.
END_WITH_MIDDLE = 0.6


class HandPrior(NamedTuple):
    """A Gaussian of all 31 unknowns of a frame, limits of angles, and how far the unknowns go from
    a frame to the next.
    """

    mean: Tensor  # [31]
    precision: Tensor  # [T, 31, 31]
    low: Tensor  # [25] radians
    high: Tensor  # [25] radians
    step_precision: Tensor  # [31]

    def beyond_limits(self, unknowns: Tensor) -> Tensor:
        """Return how far angles [T, 25] of the unknowns [T, 31] are beyond their limits."""
        angles = unknowns[:, RIGID:]
        return angles - angles.clamp(self.low, self.high)


def make_prior(depth_m: Tensor, fps: float) -> HandPrior:
    """Return the prior of a hand at distances [T] from the camera."""
    depth_m = depth_m.clamp(min=0.1)
    low, high = torch.from_numpy(np.radians(LIMITS_DEG)).flatten(0, 1).unbind(-1)
    relaxed = torch.from_numpy(np.radians(RELAXED_DEG)).flatten()
    return HandPrior(
        mean=torch.cat((torch.zeros(RIGID, dtype=torch.float64), relaxed)),
        precision=_precision(depth_m),
        low=low,
        high=high,
        step_precision=fps / _wander_per_second(depth_m) ** 2,
    )


def _precision(depth_m: Tensor) -> Tensor:
    """Return the precision [T, 31, 31] of palms at these distances, and of fingers."""
    size = RIGID + ANGLES
    precision = torch.zeros(len(depth_m), size, size, dtype=torch.float64)
    rotation = [torch.full_like(depth_m, WRIST_STD_RAD**-2)] * 3
    shift = [torch.full_like(depth_m, SHIFT_STD_M**-2)] * 2
    along = [(DEPTH_STD_SHARE * depth_m) ** -2]
    precision[:, :RIGID, :RIGID] = torch.diag_embed(torch.stack(rotation + shift + along, -1))
    std = torch.from_numpy(np.radians(PRIOR_STD_DEG)).flatten()
    # Rows are combinations of angles that are independent of each other.
    independent = torch.eye(ANGLES, dtype=torch.float64)
    for finger in range(4):
        independent[5 * finger + 4, 5 * finger + 3] = -END_WITH_MIDDLE
    precision[:, RIGID:, RIGID:] = independent.T @ torch.diag(std**-2) @ independent
    return precision


def _wander_per_second(depth_m: Tensor) -> Tensor:
    """Return the deviation [31] of the change of each unknown in a second."""
    wander = torch.full((RIGID + ANGLES,), np.radians(WANDER_DEG), dtype=torch.float64)
    wander[:3] = WRIST_STD_RAD
    wander[3:5] = SHIFT_STD_M
    wander[5] = DEPTH_STD_SHARE * float(depth_m.median())
    return wander
