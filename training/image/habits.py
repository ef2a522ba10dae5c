"""Give keypoints the habits of real readings that rendered people do not have.

Clothes hide the hip joints of real people: networks read hips low, by about a tenth of the thigh,
and by more or less from person to person. The truth stays, so the network learns to see through it.
"""

import torch
from torch import Tensor

from fitting.init.lifter_inputs import Observation

HIPS_AND_KNEES = ((11, 13), (12, 14))
PELVIS = 19
HABIT_SHARE = 0.7  # of people
LOW_MEAN = 0.10  # of the thigh in the image
LOW_SPREAD = 0.05  # standard deviation between people
LOW_RANGE = (-0.05, 0.25)


def draw_lowering(count: int, generator: torch.Generator) -> Tensor:
    """Draw by how much of the thigh [B] the hips of each person are read low."""
    low = LOW_MEAN + LOW_SPREAD * torch.randn(count, generator=generator)
    has_habit = torch.rand(count, generator=generator) < HABIT_SHARE
    return low.clamp(*LOW_RANGE) * has_habit


def lower_hips(
    keypoints: Observation, points_px: Tensor, low: Tensor
) -> tuple[Observation, Tensor]:
    """Move hips and pelvis towards the knees by shares [B] of the thigh.

    points_px: [B, 26, 2] the same keypoints in pixels of the crop.
    """
    rays = _lower(keypoints.rays, low)
    return keypoints._replace(rays=rays), _lower(points_px, low)


def _lower(points: Tensor, low: Tensor) -> Tensor:
    """Return points [B, 26, 2] with lowered hips and pelvis."""
    points = points.clone()
    shifts = []
    for hip, knee in HIPS_AND_KNEES:
        shift = low[:, None] * (points[:, knee] - points[:, hip])
        points[:, hip] += shift
        shifts.append(shift)
    points[:, PELVIS] += torch.stack(shifts).mean(0)
    return points
