"""Where the confidence of a keypoint comes from, by name."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pose2d.errors import UserError
from pose2d.skeletons import Skeleton
from pose2d.types import ConfidenceSource, Prediction

SOURCES: tuple[ConfidenceSource, ...] = ("ccnet", "closed-form", "raw", "ones")
# (features, prediction, area of each person in crop pixels^2 [N]) -> confidence [N, K], presence [N, K]
Judge = Callable[[Tensor, Prediction, Tensor], tuple[Tensor, Tensor]]


def judge(source: ConfidenceSource, pose_model: str, head: Path | None, skeleton: Skeleton) -> Judge:
    """The judge of that name. Only CCNet knows whether a keypoint is there at all; others say 1."""
    if source == "ones":
        return lambda features, prediction, area: _present(torch.ones_like(prediction.score))
    if source == "raw":
        return lambda features, prediction, area: _present(prediction.score)
    raise UserError(f"confidence from {source} cannot be had for {pose_model} yet.")


def _present(confidence: Tensor) -> tuple[Tensor, Tensor]:
    return confidence, torch.ones_like(confidence)


def check(source: str, pose_model: str, head: Path | None) -> None:
    """Refuse early what `judge` would refuse late."""
    if source not in SOURCES:
        raise UserError(f"unknown source of confidence {source!r}: expected one of {', '.join(SOURCES)}.")
    if head is not None and source != "ccnet":
        raise UserError(f"--ccnet {head} has no effect with --confidence {source}: leave one of them out.")
    if source == "ccnet":
        head_file(pose_model, head)


def has_head(pose_model: str) -> bool:
    """Is a calibration head for this model part of the package?"""
    return False


def head_file(pose_model: str, head: Path | None) -> Path:
    raise UserError(f"no calibration head for {pose_model} is part of this package yet: use --confidence raw.")
