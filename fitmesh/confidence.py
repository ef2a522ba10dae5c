"""Where the confidence of a keypoint comes from, by name."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import ccnet
from ccnet.closed_form import closed_form
from ccnet.heads.files import about_of, embedded
from pose2d.base.caching import weights_digest
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.types import ConfidenceSource

SOURCES: tuple[ConfidenceSource, ...] = ("ccnet", "closed-form", "raw", "ones")
# (features, score [N, K], sigma [N, K, 2] in frame pixels or NaN, area of each crop in frame pixels^2 [N])
# -> confidence [N, K], presence [N, K]
Judge = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def judge(
    source: ConfidenceSource, pose_model: str, model: PoseModel, head_path: Path | None, device: str = "cpu"
) -> Judge:
    """The judge of that name. Only CCNet knows whether a keypoint is in the image at all; others say 1."""
    if source == "ccnet":
        head = ccnet.load(head_path or pose_model)
        ccnet.check_fits(head, model, pose_model)
        head.to(device)
        return lambda features, score, sigma_px, crop_area_px2: head(features)
    if source == "closed-form":
        about = about_of(ccnet.load(pose_model)) if pose_model in embedded() else None
        return lambda features, score, sigma_px, crop_area_px2: _present(
            closed_form(score, sigma_px, crop_area_px2, model, about)
        )
    if source == "raw":
        return lambda features, score, sigma_px, crop_area_px2: _present(score)
    return lambda features, score, sigma_px, crop_area_px2: _present(torch.ones_like(score))


def best_source(pose_model: str, checkpoint: Path | None, head_path: Path | None) -> ConfidenceSource:
    """Calibrated where a head is at hand (the embedded ones know the embedded weights only), else the network's own."""
    at_hand = head_path is not None or (checkpoint is None and pose_model in embedded())
    return "ccnet" if at_hand else "raw"


def check(source: str, pose_model: str, head_path: Path | None) -> None:
    """Refuse early what would otherwise be refused after the people have been found."""
    if source not in SOURCES:
        raise UserError(f"unknown source of confidence {source!r}: expected one of {', '.join(SOURCES)}.")
    if head_path is not None and source != "ccnet":
        raise UserError(f"--ccnet {head_path} has no effect with --confidence {source}: leave one of them out.")
    if source == "ccnet":
        about = about_of(ccnet.load(head_path or pose_model))
        if about.model != pose_model:
            raise UserError(f"the calibration head was trained for {about.model}, not for {pose_model}.")


def digest(source: ConfidenceSource, pose_model: str, head_path: Path | None) -> str:
    """Of what `judge` reads besides the network: the head's weights."""
    if source == "ccnet":
        return weights_digest(ccnet.load(head_path or pose_model).state_dict())
    if source == "closed-form" and pose_model in embedded():
        return weights_digest(ccnet.load(pose_model).state_dict())
    return ""


def _present(confidence: Tensor) -> tuple[Tensor, Tensor]:
    return confidence, torch.ones_like(confidence)
