"""Object keypoint similarity (OKS) of one keypoint, its expectation, and the pixel variance an expected OKS implies.

One keypoint's OKS is exp(-d^2 / 2 l^2) for a distance d and the falloff l^2 = (2 sigma_k)^2 * area. If the error is
Gaussian with variance sigma^2 on either axis, its expectation is l^2 / (sigma^2 + l^2); read the other way round, a
calibrated confidence is a pixel variance. Every function takes NumPy arrays or tensors and returns the same kind.
"""

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pose2d.skeletons import Skeleton

Array = TypeVar("Array", np.ndarray, Tensor)
AREA_OF_BOX = 0.53  # how much of a person's box COCO's segments cover, on average: an area where none is given


def l_squared(area_px2: Array, skeleton: Skeleton) -> Array:
    """Areas [...] -> the falloff l_k^2 in pixels^2, [..., K]."""
    if isinstance(area_px2, Tensor):
        variance = torch.as_tensor(skeleton.oks_variance, dtype=area_px2.dtype, device=area_px2.device)
        return area_px2[..., None] * variance
    return np.asarray(area_px2)[..., None] * skeleton.oks_variance


def keypoint_oks(d2_px2: Array, l2_px2: Array) -> Array:
    """Squared distances and falloffs, both [..., K] -> OKS of each keypoint in (0, 1]."""
    if isinstance(d2_px2, Tensor):
        return torch.exp(-d2_px2 / (2 * l2_px2))
    return np.exp(-d2_px2 / (2 * l2_px2))


def expected_oks(variance_px2: Array, l2_px2: Array) -> Array:
    """E[OKS] of an error that is Gaussian with this variance on either axis: l^2 / (sigma^2 + l^2)."""
    return l2_px2 / (variance_px2 + l2_px2)


def expected_oks_per_axis(sigma_px: Array, l2_px2: Array) -> Array:
    """E[OKS] of a Gaussian error whose axes differ: prod_i l / sqrt(l^2 + sigma_i^2); sigma [..., K, 2] -> [..., K]."""
    return l2_px2 / ((l2_px2 + sigma_px[..., 0] ** 2) * (l2_px2 + sigma_px[..., 1] ** 2)) ** 0.5


def variance_from_expected_oks(expected: Array, l2_px2: Array) -> Array:
    """The pixel variance on either axis that an expected OKS stands for: l^2 (1 - s) / s. Infinite at s = 0."""
    return l2_px2 * (1 - expected) / expected


def sigma_px(expected: Array, l2_px2: Array) -> Array:
    """The standard deviation in pixels on either axis that an expected OKS stands for."""
    return variance_from_expected_oks(expected, l2_px2) ** 0.5
