"""Flip test: outputs for mirrored crops, mapped back to the crops as they were."""

from collections.abc import Sequence

import torch
from torch import Tensor


def maps_back(maps: Tensor, flip_order: Sequence[int]) -> Tensor:
    """Maps [N, K, h, w] of mirrored crops: left and right change places, then columns are reversed."""
    return maps[:, list(flip_order)].flip(-1)


def shift_right(maps: Tensor) -> Tensor:
    """One cell to the right, the first column kept.

    Sampling every fourth pixel is not symmetric under a mirror: an un-mirrored map lies about one cell to the
    left of the map of the crop itself.
    """
    return torch.cat([maps[..., :1], maps[..., :-1]], -1)


def points_back(xy: Tensor, flip_order: Sequence[int], mirror_sum: float) -> Tensor:
    """Points [N, K, 2] of mirrored crops: left and right change places, x becomes mirror_sum - x."""
    swapped = xy[:, list(flip_order)]
    return torch.stack([mirror_sum - swapped[..., 0], swapped[..., 1]], -1)
