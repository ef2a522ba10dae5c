"""What the packages exchange: predictions in a crop, keypoints in the full frame, tracks over time, and events."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from pose2d.oks import ErrorDistribution
from pose2d.skeletons import COCO17, Skeleton

ConfidenceSource = Literal[
    "ones", "raw", "raw-heatmap", "closed-form", "closed-form-predicted", "closed-form-annotated", "ccnet", "oracle"
]  # fmt: skip


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
class Keypoints:
    """One person's keypoints over T frames, and the confidence of each."""

    xy_px: Tensor  # [T, K, 2] full-frame pixels
    confidence: Tensor  # [T, K] expected OKS in [0, 1] (for source "raw": the network's own score)
    presence: Tensor  # [T, K] probability that the keypoint is in the image
    source: ConfidenceSource  # where `confidence` comes from
    area_px2: Tensor | None = None  # [T] the person's area in the frame, which sets the scale of OKS
    skeleton: Skeleton = COCO17
    # The stated distribution of the error, where a head states one: a mixture of M Gaussians, [T, K, M] each, sigma in
    # units of l = 2 sigma_k sqrt(area), the geometric mean of those along x and y.
    error_weight: Tensor | None = None
    error_sigma: Tensor | None = None
    error_log_ratio: Tensor | None = None  # [T, K] log(sigma x / sigma y) of all M; None: 0, isotropic

    @property
    def stated_error(self) -> ErrorDistribution | None:
        """The stated distribution of the error, [T, K, M] in units of l; None where none is stated."""
        if self.error_weight is None or self.error_sigma is None:
            return None
        return ErrorDistribution(self.error_weight, self.error_sigma, self.error_log_ratio)

    def rows(self, index: slice | Tensor | np.ndarray) -> "Keypoints":
        """Some of the frames."""
        return replace(
            self,
            xy_px=self.xy_px[index],
            confidence=self.confidence[index],
            presence=self.presence[index],
            area_px2=None if self.area_px2 is None else self.area_px2[index],
            error_weight=None if self.error_weight is None else self.error_weight[index],
            error_sigma=None if self.error_sigma is None else self.error_sigma[index],
            error_log_ratio=None if self.error_log_ratio is None else self.error_log_ratio[index],
        )


@dataclass(frozen=True)
class Track:
    """One identity: where a person was seen."""

    identity: int
    frames: np.ndarray  # [T] frame numbers, strictly increasing; gaps are frames without a detection
    boxes_px: np.ndarray  # [T, 4] x1, y1, x2, y2 in full-frame pixels
    scores: np.ndarray  # [T] detector score
