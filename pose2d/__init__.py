"""An image goes in; people come out: boxes, tracks, keypoints, raw confidence, features."""

from pose2d.base.errors import UserError
from pose2d.registry import card, cards, load, names
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133, Skeleton
from pose2d.types import ConfidenceSource, Keypoints, Prediction, Track

__all__ = [
    "COCO17",
    "HALPE26",
    "MPII16",
    "WHOLEBODY133",
    "ConfidenceSource",
    "Keypoints",
    "Prediction",
    "Skeleton",
    "Track",
    "UserError",
    "card",
    "cards",
    "load",
    "names",
]
