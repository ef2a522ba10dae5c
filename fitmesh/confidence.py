"""Where the confidence of a keypoint comes from, by name: ccnet, closed-form, raw, raw-heatmap or ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import ccnet
from ccnet.heads.files import about_of, embedded
from ccnet.heads.simcc import SimCCDistributionHead, distribution_of
from pose2d.base.caching import weights_digest
from pose2d.base.errors import UserError
from pose2d.estimate import PoseEstimate
from pose2d.models.base import PoseModel
from pose2d.registry import card
from pose2d.types import ConfidenceSource, ErrorDistribution

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
        from ccnet.closed_form import closed_form, mean_area_px2, target_cells

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
