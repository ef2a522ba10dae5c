"""An image goes in; people come out: boxes, tracks, keypoints, raw confidence, features."""

from typing import TYPE_CHECKING

from pose2d.base.errors import lazy_names

if TYPE_CHECKING:
    from pose2d.base.errors import UserError
    from pose2d.crops import PoseEstimate
    from pose2d.models.base import HeatmapModel, PoseModel
    from pose2d.models.cards import ModelCard
    from pose2d.models.loading import load
    from pose2d.models.registry import card, cards, names, register
    from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133, Skeleton
    from pose2d.types import ConfidenceSource, Keypoints, Prediction

__all__ = [
    "COCO17",
    "HALPE26",
    "MPII16",
    "WHOLEBODY133",
    "ConfidenceSource",
    "HeatmapModel",
    "Keypoints",
    "ModelCard",
    "PoseEstimate",
    "PoseModel",
    "Prediction",
    "Skeleton",
    "UserError",
    "card",
    "cards",
    "load",
    "names",
    "register",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "UserError": "pose2d.base.errors",
        "PoseEstimate": "pose2d.crops",
        **dict.fromkeys(("HeatmapModel", "PoseModel"), "pose2d.models.base"),
        "ModelCard": "pose2d.models.cards",
        "load": "pose2d.models.loading",
        **dict.fromkeys(("card", "cards", "names", "register"), "pose2d.models.registry"),
        **dict.fromkeys(
            ("COCO17", "HALPE26", "MPII16", "WHOLEBODY133", "Skeleton"), "pose2d.skeletons"
        ),
        **dict.fromkeys(("ConfidenceSource", "Keypoints", "Prediction"), "pose2d.types"),
    },
)
