"""The kinds of calibration head by name: which of them fit a network, and how one is built."""

from typing import Any

from ccnet.heads.head import CalibrationHead, FeatureShape
from ccnet.heads.linear import BY_DIMENSIONS, GapFcHead
from ccnet.heads.simcc import SimCCDistributionHead
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.models.rtmpose import BINS, RTMPose

KINDS = ("conv", "gap-fc", "fc", "query", "peaks", "movenet", "simcc")
COPY = "copy"  # a head with a trunk of its own, for the paper's ablation only
WITH_WIDTH = ("conv", "fc", "gap-fc")  # kinds that may have a hidden layer


def fresh_head(
    kind: str,
    shape: FeatureShape,
    keypoints: int,
    channels: int,
    members: int,
    options: dict[str, Any],
) -> CalibrationHead:
    """Return a head with random weights, or an ensemble of several."""
    head_class = _head_class(kind)
    heads = [head_class(shape, keypoints, channels, **options) for _ in range(members)]
    for head in heads:
        head.options = dict(options)
    if members == 1:
        return heads[0]
    from ccnet.paper.ensemble import Ensemble

    return Ensemble(heads)


def _head_class(kind: str) -> type[CalibrationHead]:
    if kind in ("peaks", "movenet"):  # these bring the networks of MoveNet with them
        from ccnet.heads.peaks import MoveNetHead, PeaksHead

        return PeaksHead if kind == "peaks" else MoveNetHead
    if kind == COPY:
        from ccnet.paper.other_features import CopiedTrunkHead

        return CopiedTrunkHead
    classes: tuple[type[CalibrationHead], ...] = (
        *BY_DIMENSIONS.values(),
        GapFcHead,
        SimCCDistributionHead,
    )
    return {head_class.kind: head_class for head_class in classes}[kind]


def fitting_kinds(model: PoseModel) -> tuple[str, ...]:
    """Return the kinds of head that can read the network's features, the most suitable first."""
    from ccnet.heads.peaks import readout_of
    from pose2d.models.movenet import SinglePose

    if model.features_name == COPY:
        return (COPY,)
    kinds = []
    if isinstance(model, RTMPose):
        kinds.append("simcc")
    if isinstance(model, SinglePose):
        kinds.append("movenet")
    if readout_of(model) is not None:
        kinds.append("peaks")
    kinds.append(paper_kind(model))
    if len(model.feature_shape) == 3:
        kinds.append("gap-fc")
    return tuple(kinds)


def paper_kind(model: PoseModel) -> str:
    """Return the kind of the paper's head: one layer on the features as they are."""
    return COPY if model.features_name == COPY else BY_DIMENSIONS[len(model.feature_shape)].kind


def build(
    model: PoseModel, kind: str, channels: int = 2, members: int = 1, width: int = 0, card: str = ""
) -> CalibrationHead:
    """Return a fresh head for the network's features.

    width: of a hidden layer, 0 for none. card: the model's name, for a head with a copied trunk.
    """
    if kind not in (*KINDS, COPY):
        raise UserError(f"unknown head {kind!r}: choose one of {', '.join(KINDS)}.")
    fitting = fitting_kinds(model)
    if kind not in fitting:
        alternatives = " or ".join(map(repr, fitting))
        network = type(model).__name__
        raise UserError(
            f"head {kind!r} does not fit the features of {network}: use {alternatives}."
        )
    if width and kind not in WITH_WIDTH:
        raise UserError(
            f"head {kind!r} has no hidden layer, so its width cannot be chosen; "
            f"{', '.join(WITH_WIDTH)} have one."
        )
    options: dict[str, Any] = {"width": width} if width else {}
    if isinstance(model, RTMPose) and kind == "simcc":
        bins = [BINS * side for side in model.input_wh]
        options = {"bins": bins, "map_channels": model.backbone.channels}
    elif kind == COPY:
        options = {"card": card}
    head = fresh_head(kind, model.feature_shape, model.skeleton.size, channels, members, options)
    for member in head.heads:
        member.copy_weights(model)
    return head
