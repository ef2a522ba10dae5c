"""Where the confidence of a keypoint comes from, by name: ccnet (a calibration head), closed-form
(expected OKS from the network's own spread), raw, raw-heatmap or ones."""

from collections.abc import Callable
from pathlib import Path

import torch

from ccnet.closed_form import area_and_width, closed_form
from ccnet.heads.files import about_of, check_fits, embedded, load
from pose2d.base.caching import weights_digest
from pose2d.base.errors import OptionError, UserError
from pose2d.crops import PoseEstimate
from pose2d.models.base import PoseModel
from pose2d.models.registry import card
from pose2d.types import ConfidenceSource, Keypoints

SOURCES: tuple[ConfidenceSource, ...] = ("ccnet", "closed-form", "raw", "raw-heatmap", "ones")
ConfidenceFunction = Callable[[PoseEstimate], Keypoints]


def confidence_function(
    source: ConfidenceSource, pose_model: str, model: PoseModel, head_path: Path | None
) -> ConfidenceFunction:
    """Return a function that turns a network's estimate into keypoints with a source's confidence.

    Only CCNet predicts whether a keypoint is in the image; the other sources give a presence of 1.
    """
    head = None
    about = None
    if source == "ccnet":
        head = load(head_path or pose_model)
        check_fits(head, model, pose_model)
        head.to(next(model.parameters()).device)
    elif source == "closed-form" and pose_model in embedded():
        about = about_of(load(pose_model))
    share, width = area_and_width(model, about)

    def with_confidence(estimate: PoseEstimate) -> Keypoints:
        confidence = estimate.score
        presence = torch.ones_like(estimate.score)
        error = None
        if head is not None:
            confidence, presence, error = head.state(estimate.features)
        elif source == "closed-form":
            confidence = closed_form(estimate, estimate.crop_area_px2 * share, model, width)
        elif source == "raw-heatmap":
            assert estimate.heatmap_score is not None, "`check_heatmap_score` comes first"
            confidence = estimate.heatmap_score
        elif source == "ones":
            confidence = presence
        error = error and error.along("keypoints", lambda value, _: value.float().cpu())
        return Keypoints(
            estimate.xy_px,
            confidence.float().clamp(0, 1).cpu(),
            presence.float().clamp(0, 1).cpu(),
            source,
            skeleton=model.skeleton,
            error=error,
            raw=estimate.score,
        )

    return with_confidence


def default_source(
    pose_model: str, checkpoint: Path | None, head_path: Path | None
) -> ConfidenceSource:
    """Return "ccnet" if there is a head for these weights (embedded heads fit the embedded weights
    only), else "raw".
    """
    has_head = head_path is not None or (checkpoint is None and pose_model in embedded())
    return "ccnet" if has_head else "raw"


def check_source(source: str, pose_model: str, head_path: Path | None) -> None:
    """Raise UserError for a source that cannot be used, before any work is done."""
    if source not in SOURCES:
        raise OptionError(f"--confidence must be one of {', '.join(SOURCES)}; got {source!r}.")
    if source == "raw-heatmap":
        with torch.device("meta"):
            check_heatmap_score(pose_model, card(pose_model).build())
    if head_path is not None and source != "ccnet":
        raise OptionError(
            f"--ccnet {head_path} has no effect with --confidence {source}: leave one of them out."
        )
    if source == "ccnet":
        about_of(load(head_path or pose_model), pose_model)


def check_heatmap_score(pose_model: str, model: PoseModel) -> None:
    """Raise UserError for `raw-heatmap` if the network has no second score."""
    if not model.has_heatmap_score:
        raise UserError(
            f"{pose_model} has one score only: use --confidence raw "
            "(raw-heatmap is the second score of IPR)."
        )


def head_digest(source: ConfidenceSource, pose_model: str, head_path: Path | None) -> str:
    """Return the digest of the head that `confidence_function` loads; empty if it loads none."""
    if source != "ccnet" and (source != "closed-form" or pose_model not in embedded()):
        return ""
    return weights_digest(load((source == "ccnet" and head_path) or pose_model).state_dict())
