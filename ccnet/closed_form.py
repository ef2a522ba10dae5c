"""Expected OKS without training: what a network's own spread says of the error, s = l^2 / (sigma^2 + l^2).

A heatmap trained to show a Gaussian of width w wherever the keypoint is will, if the keypoint is uncertain by sigma,
show the blur of both: variance sigma^2 + w^2 and height w^2 / (sigma^2 + w^2). Either gives sigma back. A regression
network such as RLE states sigma itself. All of them need l^2, hence the person's area: the mean one, a predicted one
(ccnet/area.py) or the true one.

Map cells become frame pixels with `frame_px_per_cell` [N]: (input width / map width) * (crop width in frame pixels /
input width), for the usual conventions simply crop width / map width.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from pose2d.gaussian_fit import fit_gaussian
from pose2d.oks import expected_oks, expected_oks_per_axis

# Width of the training target in map cells, by the width of the map (SimpleBaseline, HRNet, ViTPose): 2 for inputs of
# 192 or 256 pixels, 3 for 288 or 384.
TARGET_SIGMA_CELLS = {48: 2.0, 64: 2.0, 72: 3.0, 96: 3.0}
SMALLEST_PEAK = 1e-6  # a peak at or below zero says: no idea


def variance_from_width(maps: Tensor, target_sigma_cells: float | Tensor) -> Tensor:
    """Heatmaps [N, K, h, w] -> error variance on either axis, cells^2 [N, K]: sigma_hat^2 - w^2, at least 0."""
    width = maps.shape[-1]
    peak = maps.flatten(2).argmax(2)
    cells = torch.stack([peak % width, peak // width], -1)
    fitted = fit_gaussian(maps, cells).sigma_cells.square().mean(-1)  # [N, K] both axes
    return (fitted - torch.as_tensor(target_sigma_cells, dtype=fitted.dtype) ** 2).clamp_min(0)


def variance_from_peak(peak: Tensor, target_sigma_cells: float | Tensor) -> Tensor:
    """Peaks [N, K] in (0, 1] -> error variance on either axis, cells^2 [N, K]: w^2 (1 / peak - 1), at least 0."""
    width2 = torch.as_tensor(target_sigma_cells, dtype=peak.dtype) ** 2
    return width2 * (1 / peak.clamp(SMALLEST_PEAK, 1) - 1)


def confidence_from_width(
    maps: Tensor,  # [N, K, h, w]
    target_sigma_cells: float | Tensor,  # one, or [K]
    frame_px_per_cell: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from how wide each heatmap's hill is."""
    return expected_oks(variance_from_width(maps, target_sigma_cells) * frame_px_per_cell[:, None] ** 2, l2_px2)


def confidence_from_peak(
    peak: Tensor,  # [N, K]
    target_sigma_cells: float | Tensor,  # one, or [K]
    frame_px_per_cell: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from how high each heatmap's hill is."""
    return expected_oks(variance_from_peak(peak, target_sigma_cells) * frame_px_per_cell[:, None] ** 2, l2_px2)


def confidence_from_spread(
    sigma_px: Tensor,  # [N, K, 2] of the Gaussian fitted to each heatmap, frame pixels
    target_sigma_px: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from how wide each heatmap's hill was found to be."""
    seen = sigma_px.square().mean(-1)
    return expected_oks((seen - target_sigma_px[:, None] ** 2).clamp_min(0), l2_px2)


def confidence_from_sigma(
    sigma_crop_px: Tensor,  # [N, K, 2] the network's own standard deviations
    frame_px_per_crop_px: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from a regression network's sigma, which may differ between the axes."""
    return expected_oks_per_axis(sigma_crop_px * frame_px_per_crop_px[:, None, None], l2_px2)


def best_width(confidence_at: Callable[[float], np.ndarray], oks: np.ndarray) -> float:
    """The width between 0.01 and 100 cells whose confidence is closest to the true OKS [N, K], NaN if not labelled.

    For networks whose training target was never published.
    """
    known = ~np.isnan(oks)

    def loss(log_width: float) -> float:
        return float(np.mean((confidence_at(float(np.exp(log_width))) - oks)[known] ** 2)) if known.any() else 0.0

    # coarse first: far from the answer the loss is flat
    grid = np.linspace(np.log(1e-2), np.log(1e2), 60)
    near = grid[np.argmin([loss(g) for g in grid])]
    step = grid[1] - grid[0]
    return float(np.exp(minimize_scalar(loss, bounds=(near - step, near + step), method="bounded").x))
