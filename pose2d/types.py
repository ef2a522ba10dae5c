"""What the packages exchange: predictions in a crop, keypoints in the full frame, tracks over time, and events."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pose2d.base.table import Table, column, nested, shared
from pose2d.oks import ErrorDistribution
from pose2d.skeletons import COCO17, Skeleton

ConfidenceSource = Literal[
    "ones", "raw", "raw-heatmap", "closed-form", "closed-form-predicted", "closed-form-annotated", "ccnet", "oracle"
]  # fmt: skip
NOBODY = -1  # instead of an identity


@dataclass(frozen=True)
class Prediction:
    """What a 2D network says of a batch of crops."""

    xy_px: Tensor  # [N, K, 2] crop pixels, x right, y down
    score: Tensor  # [N, K] the network's own (raw) confidence
    # [N, K, 2] crop pixels per axis, if the network states one: the scale of the error's density. Of a heatmap it is a
    # standard deviation; RLE and Poseur learn the scale of a density that is not normal (docs/models.md).
    sigma_px: Tensor | None = None
    maps: Tensor | None = None  # [N, K, h, w] heatmaps, if the network makes them
    heatmap_score: Tensor | None = None  # [N, K] height of each heatmap's peak, where `score` is something else


@dataclass(frozen=True)
class Keypoints(Table):
    """Keypoints of a person in T frames (or of T people), and the confidence of each."""

    TENSORS = True
    # [T, K, 2] full-frame pixels
    xy_px: Tensor = column(("keypoints", 2), "f", "keypoints", unit="px", fill=np.nan)
    # [T, K] expected OKS (for source "raw": the network's own score)
    confidence: Tensor = column(("keypoints",), "f", "confidence from `source`", low=0, high=1)
    presence: Tensor = column(("keypoints",), "f", "probability that it is in the image", low=0, high=1)  # [T, K]
    source: ConfidenceSource = shared()  # where `confidence` comes from
    # [T] sets the scale of OKS
    area_px2: Tensor | None = column((), "f", "the person's area", unit="px^2", low=0, fill=1, optional=True)
    skeleton: Skeleton = COCO17
    # [T, K, M] the stated distribution of the error, where a head states one
    error: ErrorDistribution | None = nested(ErrorDistribution, "stated error", optional=True)
    # [T, K] whatever `source` the calibrated one has
    raw: Tensor | None = column(("keypoints",), "f", "the network's own confidence", optional=True)

    def __post_init__(self) -> None:
        """Arrays become tensors."""
        for name in ("xy_px", "confidence", "presence", "area_px2", "raw"):
            if isinstance(value := getattr(self, name), np.ndarray):
                object.__setattr__(self, name, torch.tensor(value, dtype=torch.float32))
        super().__post_init__()


@dataclass(frozen=True)
class Appearance(Table):
    """What people look like: the colours of parts of the body (pose2d/tracking/appearance.py)."""

    colours: np.ndarray = column((5, 9), "f", "for each part the quantiles of L (0..100), of a and of b, lowest first")
    weight: np.ndarray = column((5,), "f", "confidence of the keypoints it was read at; 0: not seen", low=0, high=1)


@dataclass(frozen=True)
class Detections(Table):
    """People in frames: a row for each person and frame, whoever it is."""

    frame: np.ndarray = column((), "i", "frame number", low=0)
    identity: np.ndarray = column((), "i", "whose: the tracker's number of a track, later the identity", fill=NOBODY)
    box_px: np.ndarray = column((4,), "d", "x1, y1, x2, y2", unit="px", fill=np.nan)
    score: np.ndarray = column((), "d", "the detector's; between two looks the lower of both")
    keypoints: Keypoints | None = nested(Keypoints, "in the box", optional=True, flat=True)
    time_s: np.ndarray = column((), "d", "when the frame is shown", unit="s", optional=True)  # None in files
    appearance: Appearance | None = nested(Appearance, "weight 0 where the detector did not look", optional=True)

    @classmethod
    def in_frame(cls, frame: int, time_s: float, box_px: np.ndarray, score: np.ndarray) -> "Detections":
        """Boxes [N, 4] with scores [N] in one frame, nobody's yet."""
        count = len(box_px)
        return cls(np.full(count, frame), np.full(count, NOBODY), box_px, score, time_s=np.full(count, time_s))

    @property
    def xy_px(self) -> np.ndarray:
        """[N, K, 2] keypoints."""
        assert self.keypoints is not None
        return np.asarray(self.keypoints.xy_px)

    @property
    def sure(self) -> np.ndarray:
        """[N, K] confidence times presence."""
        assert self.keypoints is not None
        return np.asarray(self.keypoints.confidence) * np.asarray(self.keypoints.presence)

    def everyone(self) -> list[int]:
        """Who has rows, in order."""
        return [int(identity) for identity in np.unique(self.identity) if identity != NOBODY]

    def of(self: "Detections", identity: int) -> "Detections":
        """One person's rows, frames rising."""
        rows = np.flatnonzero(self.identity == identity)
        return self.rows(rows[np.argsort(self.frame[rows], kind="stable")])

    def by_person(self) -> "Detections":
        """Person after person in order of identity, frames rising; nobody's rows are left out."""
        order = np.lexsort((self.frame, self.identity))
        return self.picked(order[self.identity[order] != NOBODY])


@dataclass(frozen=True)
class Track:
    """One identity: where a person was seen."""

    identity: int
    frames: np.ndarray  # [T] frame numbers, strictly increasing; gaps are frames without a detection
    boxes_px: np.ndarray  # [T, 4] x1, y1, x2, y2 in full-frame pixels
    scores: np.ndarray  # [T] detector score
