"""Where the confidence of a keypoint comes from, by name: ccnet, closed-form, raw, raw-heatmap or ones.

`closed-form` is expected OKS without training, from the network's own spread: s = l^2 / (sigma^2 + l^2). A heatmap
trained to show a Gaussian of width w wherever the keypoint is will, if the keypoint is uncertain by sigma, show the
blur of both: variance sigma^2 + w^2 and height w^2 / (sigma^2 + w^2). Either gives sigma back. So a network that fits a
Gaussian to its heatmaps states its error by the width of the peak, one that only makes heatmaps by the height of the
peak, and one that regresses, such as RLE, states sigma itself. All of them need l^2, hence the person's area: the
annotated one, one predicted from the features (`ccnet.areas`), or the mean share of the crop that training people fill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

import ccnet
from ccnet.heads.files import About, about_of, embedded
from ccnet.heads.head import SimCCDistributionHead, distribution_of
from pose2d.base.caching import weights_digest
from pose2d.base.errors import UserError
from pose2d.crops import PoseEstimate
from pose2d.models.base import PoseModel
from pose2d.registry import card
from pose2d.types import ConfidenceSource, ErrorDistribution, expected_oks, expected_oks_per_axis, l_squared

SOURCES: tuple[ConfidenceSource, ...] = ("ccnet", "closed-form", "raw", "raw-heatmap", "ones")


@dataclass(frozen=True)
class Calibrated:
    """What a source says of N people's keypoints."""

    confidence: Tensor  # [N, K]
    presence: Tensor  # [N, K]
    error: ErrorDistribution | None = None  # [N, K, M], where the source states one


ConfidenceFunction = Callable[[PoseEstimate], Calibrated]


def confidence_function(
    source: ConfidenceSource, pose_model: str, model: PoseModel, head_path: Path | None
) -> ConfidenceFunction:
    """Only CCNet knows whether a keypoint is in the image at all; the other sources give a presence of 1."""
    if source == "ccnet":
        head = ccnet.load(head_path or pose_model)
        ccnet.check_fits(head, model, pose_model)
        head.to(next(model.parameters()).device)
        return lambda estimate: _from_head(head, estimate)
    if source == "closed-form":
        about = about_of(ccnet.load(pose_model)) if pose_model in embedded() else None

        width = target_cells(model, about)

        def expected(e: PoseEstimate) -> Tensor:
            area_px2 = mean_area_px2(e.crop_area_px2, about)
            return closed_form(e.score, e.sigma_px, e.crop_area_px2, area_px2, model, width)

        return lambda estimate: _present(expected(estimate))
    if source == "raw-heatmap":
        return lambda estimate: _present(_heatmap_score(estimate))
    if source == "raw":
        return lambda estimate: _present(estimate.score)
    return lambda estimate: _present(torch.ones_like(estimate.score))


def default_source(pose_model: str, checkpoint: Path | None, head_path: Path | None) -> ConfidenceSource:
    """CCNet where a head is at hand (the embedded heads fit the embedded weights only), else the network's own."""
    at_hand = head_path is not None or (checkpoint is None and pose_model in embedded())
    return "ccnet" if at_hand else "raw"


def check_source(source: str, pose_model: str, head_path: Path | None) -> None:
    """Refuse early what would otherwise be refused after the people have been found."""
    if source not in SOURCES:
        raise UserError(f"unknown source of confidence {source!r}: expected one of {', '.join(SOURCES)}.")
    if source == "raw-heatmap":
        with torch.device("meta"):
            check_heatmap_score(pose_model, card(pose_model).build())
    if head_path is not None and source != "ccnet":
        raise UserError(f"--ccnet {head_path} has no effect with --confidence {source}: leave one of them out.")
    if source == "ccnet":
        about = about_of(ccnet.load(head_path or pose_model))
        if about.model != pose_model:
            raise UserError(f"the calibration head was trained for {about.model}, not for {pose_model}.")


def check_heatmap_score(pose_model: str, model: PoseModel) -> None:
    """Refuse `raw-heatmap` for a network that has no score beside its own."""
    if not model.has_heatmap_score:
        raise UserError(
            f"{pose_model} has one score of its own: use --confidence raw (raw-heatmap is the second score of IPR)."
        )


def head_digest(source: ConfidenceSource, pose_model: str, head_path: Path | None) -> str:
    """Of the head's weights that `confidence_function` reads; empty where it reads none."""
    if source == "ccnet":
        return weights_digest(ccnet.load(head_path or pose_model).state_dict())
    if source == "closed-form" and pose_model in embedded():
        return weights_digest(ccnet.load(pose_model).state_dict())
    return ""


def _heatmap_score(estimate: PoseEstimate) -> Tensor:
    assert estimate.heatmap_score is not None, "`check_heatmap_score` comes first"
    return estimate.heatmap_score


def _from_head(head: ccnet.CalibrationHead, estimate: PoseEstimate) -> Calibrated:
    if not isinstance(head, SimCCDistributionHead) or head.channels <= 2:
        return Calibrated(*head(estimate.features))
    head.check(estimate.features)
    logits = head.logits(head.inputs(estimate.features.float()))
    return Calibrated(logits[..., 0].sigmoid(), logits[..., 1].sigmoid(), distribution_of(logits))


def _present(confidence: Tensor) -> Calibrated:
    return Calibrated(confidence, torch.ones_like(confidence))


# Width of the training target in map cells, by the width of the map (SimpleBaseline, HRNet, ViTPose): 2 for inputs of
# 192 or 256 pixels, 3 for 288 or 384.
TARGET_SIGMA_CELLS = {48: 2.0, 64: 2.0, 72: 3.0, 96: 3.0}
SMALLEST_PEAK = 1e-6  # a peak at or below zero carries no information
DEFAULT_AREA_SHARE = 0.25  # of its crop that a person fills, where no head has recorded the mean of its training people


def closed_form(
    score: Tensor,  # [N, K]
    sigma_px: Tensor,  # [N, K, 2] image pixels, NaN if the network states none
    crop_area_px2: Tensor,  # [N]
    area_px2: Tensor,  # [N] of the person: annotated, predicted, or `mean_area_px2`
    model: PoseModel,
    width_cells: float,  # of the heatmaps' target: `target_cells`
) -> Tensor:
    """Expected OKS [N, K] without a trained head."""
    l2 = l_squared(area_px2, model.skeleton).to(score)
    stated = not bool(torch.isnan(sigma_px).all())
    if len(model.feature_shape) != 3 and stated:
        return expected_oks_per_axis(sigma_px, l2)
    px_per_cell = image_px_per_cell(crop_area_px2, model)
    if stated:
        return confidence_from_spread(sigma_px, width_cells * px_per_cell, l2)
    return confidence_from_peak(score.clamp(0, 1), width_cells, px_per_cell, l2)


def mean_area_px2(crop_area_px2: Tensor, about: About | None) -> Tensor:
    """Areas of people [N] who fill the share of their crops that a head's training people fill on average."""
    return crop_area_px2 * (about.area_share if about else DEFAULT_AREA_SHARE)


def target_cells(model: PoseModel, about: About | None) -> float:
    """Width of the heatmaps' target: the one that fits a head's training people best, or the published one."""
    if about is not None:
        return about.target_cells
    if model.has_heatmap_score:  # the maps are probabilities of their own, taught by no target
        return 0.0
    return TARGET_SIGMA_CELLS.get(round(cells_across(model)), 2.0)


def fit_closed_form(
    score: Tensor,  # [N, K]
    sigma_px: Tensor,  # [N, K, 2]
    crop_area_px2: Tensor,  # [N]
    area_px2: Tensor,  # [N] of the people, by the means that will be used
    oks: np.ndarray,  # [N, K] true, NaN where not labelled
    model: PoseModel,
) -> float:
    """The width of the heatmaps' target in cells that fits training people best."""
    score, sigma_px, crop_area_px2, area_px2 = (v.double() for v in (score, sigma_px, crop_area_px2, area_px2))
    return best_width(lambda w: closed_form(score, sigma_px, crop_area_px2, area_px2, model, w).numpy(), oks)


def image_px_per_cell(crop_area_px2: Tensor, model: PoseModel) -> Tensor:
    """Areas of crops in image pixels^2 [N] -> image pixels per cell of the heatmap [N]."""
    width, height = model.input_wh
    return (crop_area_px2 * width / height).sqrt() / cells_across(model)


def cells_across(model: PoseModel) -> float:
    """Cells of the heatmap across the crop's width; a quarter of the input's for a network without maps."""
    return float(model.feature_shape[2] if len(model.feature_shape) == 3 else model.input_wh[0] / 4)


def variance_from_peak(peak: Tensor, target_sigma_cells: float | Tensor) -> Tensor:
    """Peaks [N, K] in (0, 1] -> error variance on either axis, cells^2 [N, K]: w^2 (1 / peak - 1), at least 0."""
    width2 = torch.as_tensor(target_sigma_cells, dtype=peak.dtype) ** 2
    return width2 * (1 / peak.clamp(SMALLEST_PEAK, 1) - 1)


def confidence_from_peak(
    peak: Tensor,  # [N, K]
    target_sigma_cells: float | Tensor,  # one, or [K]
    image_px_per_cell: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from the height of each heatmap's peak."""
    return expected_oks(variance_from_peak(peak, target_sigma_cells) * image_px_per_cell[:, None] ** 2, l2_px2)


def confidence_from_spread(
    sigma_px: Tensor,  # [N, K, 2] of the Gaussian fitted to each heatmap, image pixels
    target_sigma_px: Tensor,  # [N]
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from the width of each heatmap's peak: error variance sigma^2 - w^2, at least 0."""
    variance = sigma_px.square().mean(-1)
    return expected_oks((variance - target_sigma_px[:, None] ** 2).clamp_min(0), l2_px2)


def best_width(confidence_at: Callable[[float], np.ndarray], oks: np.ndarray) -> float:
    """The width between 0.01 and 100 cells whose confidence is closest to the true OKS [N, K], NaN if not labelled. For
    networks whose training target was never published."""
    labelled = ~np.isnan(oks)

    def loss(log_width: float) -> float:
        return float(np.mean((confidence_at(float(np.exp(log_width))) - oks)[labelled] ** 2)) if labelled.any() else 0.0

    # coarse first: far from the minimum the loss is flat
    grid = np.linspace(np.log(1e-2), np.log(1e2), 60)
    near = grid[np.argmin([loss(g) for g in grid])]
    step = grid[1] - grid[0]
    return float(np.exp(minimize_scalar(loss, bounds=(near - step, near + step), method="bounded").x))
