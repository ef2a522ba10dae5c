"""The closed form as a source of confidence: for any model, with the two numbers it needs measured on training people.

A network that makes heatmaps and fits a Gaussian to them tells its error by the hill's width; one that makes heatmaps
only, by the hill's height; one that regresses states its sigma itself.
"""

import numpy as np
import torch
from torch import Tensor

from ccnet.closed_form import (
    TARGET_SIGMA_CELLS,
    best_width,
    confidence_from_peak,
    confidence_from_sigma,
    confidence_from_spread,
)
from ccnet.data.observe import Observed
from ccnet.heads.files import About
from pose2d.models.base import PoseModel
from pose2d.oks import l_squared

USUAL_SHARE = 0.25  # of its crop that a person fills


def closed_form(
    score: Tensor,  # [N, K]
    sigma_px: Tensor,  # [N, K, 2] image pixels, NaN if the network states none
    crop_area_px2: Tensor,  # [N]
    model: PoseModel,
    about: About | None,
) -> Tensor:
    """Expected OKS [N, K] without a head, a person being assumed to fill the usual share of its crop."""
    share = about.area_share if about else USUAL_SHARE
    width = about.target_cells if about else TARGET_SIGMA_CELLS.get(round(cells_across(model)), 2.0)
    return _at_width(score, sigma_px, crop_area_px2, model, share, width)


def fit_closed_form(observed: Observed, model: PoseModel) -> tuple[float, float]:
    """Width of the heatmaps' target in cells, and the mean share of its crop a person fills."""
    share = float(observed.area_share.mean())
    truth = np.where(observed.labelled.numpy() > 0, observed.oks.numpy(), np.nan)
    score, sigma_px = observed.score.double(), observed.sigma_px.double()
    area_px2 = observed.crop_area_px2.double()
    width = best_width(lambda width: _at_width(score, sigma_px, area_px2, model, share, width).numpy(), truth)
    return width, share


def _at_width(
    score: Tensor, sigma_px: Tensor, crop_area_px2: Tensor, model: PoseModel, share: float, width_cells: float
) -> Tensor:
    l2 = l_squared(crop_area_px2 * share, model.skeleton).to(score)
    stated = not bool(torch.isnan(sigma_px).all())
    if len(model.feature_shape) != 3 and stated:
        return confidence_from_sigma(sigma_px, torch.ones(len(score)), l2)
    px_per_cell = frame_px_per_cell(crop_area_px2, model)
    if stated:
        return confidence_from_spread(sigma_px, width_cells * px_per_cell, l2)
    return confidence_from_peak(score.clamp(0, 1), width_cells, px_per_cell, l2)


def frame_px_per_cell(crop_area_px2: Tensor, model: PoseModel) -> Tensor:
    """[N] -> [N]"""
    width, height = model.input_wh
    return (crop_area_px2 * width / height).sqrt() / cells_across(model)


def cells_across(model: PoseModel) -> float:
    """Cells of the heatmap across the crop's width; a quarter of the input's for a network without maps."""
    return float(model.feature_shape[2] if len(model.feature_shape) == 3 else model.input_wh[0] / 4)
