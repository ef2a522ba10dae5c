"""Object keypoint similarity (OKS) of one keypoint, its expectation, and the pixel variance an expected OKS implies.

One keypoint's OKS is exp(-d^2 / 2 l^2) for a distance d and the falloff l^2 = (2 sigma_k)^2 * area. If the error is
Gaussian with variance sigma^2 on either axis, its expectation is l^2 / (sigma^2 + l^2); read the other way round, a
calibrated confidence is a pixel variance. Every function takes NumPy arrays or tensors and returns the same kind.
`ErrorDistribution` is the whole distribution of an error, where a head states one.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pose2d.base.table import Table, column
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


ANGLES = 32  # of a quarter turn that `ErrorDistribution.cdf` takes the mean over: exact to 1e-6 for a ratio of 12


MOST_LOG_RATIO = 10.0  # of the error along x to that along y: no head states more than 2.5


@dataclass(frozen=True)
class ErrorDistribution(Table):
    """The error of each keypoint, in units of l: a mixture of Gaussians around 0, along the axes of the image."""

    TENSORS = True
    # [..., K, M] sums to 1
    weight: Tensor = column(("keypoints", "components"), "f", "share of each Gaussian", low=0, fill=1)
    # [..., K, M] of a component: the geometric mean of its standard deviations along x and y
    sigma: Tensor = column(("keypoints", "components"), "f", "its std", unit="l = 2 sigma_k sqrt(area)", low=0, fill=1)
    # [..., K] shared by the components; None: 0, isotropic
    log_ratio: Tensor | None = column(
        ("keypoints",), "f", "log of the std along x over that along y", low=-MOST_LOG_RATIO, high=MOST_LOG_RATIO,
        optional=True,
    )  # fmt: skip

    @property
    def axis_sigma(self) -> Tensor:
        """Standard deviations along x and y, [..., M, 2]."""
        return sigma_along_axes(self.sigma, self.log_ratio)

    def expected_oks(self) -> Tensor:
        """[...]"""
        return (self.weight / (1 + self.axis_sigma.square()).prod(-1).sqrt()).sum(-1)

    def log_likelihood(self, error: Tensor) -> Tensor:
        """Of errors [..., 2] in units of l: a density over the plane."""
        squared = (error[..., None, :] / self.axis_sigma).square().sum(-1)
        each = self.weight.log() - math.log(2 * math.pi) - 2 * self.sigma.log() - squared / 2
        return torch.logsumexp(each, -1)

    def cdf(self, distance2: Tensor) -> Tensor:
        """Probability of an error at most this large, whatever its direction; squared, in units of l^2, [...].

        An error is (sigma_x r cos a, sigma_y r sin a) with an even angle a and P(r > t) = exp(-t^2 / 2), so the
        probability of a larger one is the mean over a of exp(-distance^2 / 2 (sigma_x^2 cos^2 a + sigma_y^2 sin^2 a)).
        """
        angle = (torch.arange(ANGLES, dtype=self.sigma.dtype, device=self.sigma.device) + 0.5) * (math.pi / 2 / ANGLES)
        both = torch.stack([angle.cos().square(), angle.sin().square()])
        variance = self.axis_sigma.square() @ both  # [..., M, ANGLES]
        return (self.weight * -torch.expm1(-distance2[..., None, None] / 2 / variance).mean(-1)).sum(-1)


def sigma_along_axes(sigma: Tensor, log_ratio: Tensor | None) -> Tensor:
    """Standard deviations along x and y, [..., M, 2], of their geometric mean [..., M] and the log of their ratio."""
    if log_ratio is None:
        return sigma[..., None].expand(*sigma.shape, 2)
    half = (log_ratio / 2)[..., None].exp()
    return torch.stack([sigma * half, sigma / half], -1)
