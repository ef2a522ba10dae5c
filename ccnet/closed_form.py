"""Expected OKS without training, from the network's own spread: s = l^2 / (sigma^2 + l^2).

A heatmap trained to show a Gaussian of width w wherever the keypoint is will, if the keypoint is
uncertain by sigma, show the blur of both: variance sigma^2 + w^2 and height w^2 / (sigma^2 + w^2).
Either gives sigma back. So a network that fits a Gaussian to its heatmaps states its error by the
width of the peak, one that only makes heatmaps by the height of the peak, and one that regresses,
such as RLE, states sigma itself. All of them need l^2, hence the person's area: the annotated one,
one predicted from the features (`AreaFit`), or the mean share of the crop that training people
fill."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ccnet.heads.files import About
from pose2d.crops import PoseEstimate
from pose2d.models.base import PoseModel
from pose2d.types import expected_oks, expected_oks_per_axis, l_squared

SMALLEST_PEAK = 1e-6  # a peak at or below zero carries no information


def closed_form(
    estimate: PoseEstimate, area_px2: Tensor, model: PoseModel, width_cells: float
) -> Tensor:
    """Return the expected OKS [N, K] without a trained head, in double precision.

    area_px2 [N]: area of the people, annotated, predicted, or a share of their crops.
    width_cells: width of the heatmaps' target. `area_and_width` gives defaults of both.
    """
    l2 = l_squared(area_px2.double(), model.skeleton)
    has_sigma = not bool(torch.isnan(estimate.sigma_px).all())
    sigma_px = estimate.sigma_px.double() if has_sigma else None
    if len(model.feature_shape) != 3 and sigma_px is not None:
        return expected_oks_per_axis(sigma_px, l2)
    aspect = model.input_wh[0] / model.input_wh[1]
    crop_width_px = (estimate.crop_area_px2.double() * aspect).sqrt()
    px_per_cell = crop_width_px / cells_across(model)
    return heatmap_confidence(estimate.score.double(), sigma_px, width_cells, px_per_cell, l2)


def heatmap_confidence(
    peak: Tensor,  # [N, K] its height
    sigma_px: Tensor | None,  # [N, K, 2] of the Gaussian fitted to each heatmap, image pixels
    width_cells: float,  # of the heatmaps' target
    px_per_cell: Tensor,  # [N] image pixels
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Return the expected OKS [N, K] from the width of each heatmap's peak, with an error variance
    of sigma^2 - w^2 (at least 0); without a width from its height, with w^2 (1 / peak - 1).
    """
    if sigma_px is not None:
        target_px = (width_cells * px_per_cell)[:, None]
        variance = sigma_px.square().mean(-1) - target_px**2
        return expected_oks(variance.clamp_min(0), l2_px2)
    cells2 = peak.new_tensor(width_cells) ** 2 * (1 / peak.clamp(SMALLEST_PEAK, 1) - 1)
    return expected_oks(cells2 * px_per_cell[:, None] ** 2, l2_px2)


def area_and_width(model: PoseModel, about: About | None) -> tuple[float, float]:
    """Return the share of the crop that a person fills and the width of the heatmaps' target in
    cells: as fitted to the training people of a head, else typical and published values.
    """
    if about is not None:
        return about.area_share, about.target_cells
    if model.has_heatmap_score:  # the maps are probabilities that no target has shaped
        return About.area_share, 0.0
    # SimpleBaseline, HRNet, ViTPose: 2 for inputs of 192 or 256 pixels (48 or 64 cells), 3 for 288
    # or 384.
    return About.area_share, 3.0 if cells_across(model) > 64 else 2.0


def cells_across(model: PoseModel) -> float:
    """Return the cells of the heatmap across the crop's width; for a network without maps a quarter
    of its input pixels.
    """
    return float(model.feature_shape[2] if len(model.feature_shape) == 3 else model.input_wh[0] / 4)


def best_width(confidence_at: Callable[[float], np.ndarray], oks: np.ndarray) -> float:
    """Return the width between 0.01 and 100 cells whose confidence is closest to the true OKS
    [N, K], NaN if not labelled. For networks whose training target was never published.
    """
    labelled = ~np.isnan(oks)

    def loss(log_width: float) -> float:
        if not labelled.any():
            return 0.0
        error = confidence_at(float(np.exp(log_width))) - oks
        return float(np.mean(error[labelled] ** 2))

    # Coarse first: far from the minimum the loss is flat.
    grid = np.linspace(np.log(1e-2), np.log(1e2), 60)
    near = grid[np.argmin([loss(g) for g in grid])]
    step = grid[1] - grid[0]
    best = minimize_scalar(loss, bounds=(near - step, near + step), method="bounded")
    return float(np.exp(best.x))
