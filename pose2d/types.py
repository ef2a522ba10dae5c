"""Types that the packages exchange: predictions in a crop, keypoints in the frame, detections.

The functions define what a confidence means: the expected object keypoint similarity (OKS). The OKS
of one keypoint is exp(-d^2 / 2 l^2) for a distance d and the falloff l^2 = (2 sigma_k)^2 * area. If
the error is Gaussian with variance sigma^2 on either axis, the expectation is l^2 / (sigma^2 +
l^2), so a calibrated confidence stands for a pixel variance. Every function takes NumPy arrays or
tensors and returns the same kind. `ErrorDistribution` is the full distribution of an error, where a
head predicts one."""

import math
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from pose2d.base.columns import column, nested, shared
from pose2d.base.scratch import release_scratch, scratch_array
from pose2d.base.table import Table, blocks
from pose2d.skeletons import COCO17, Skeleton

Array = TypeVar("Array", np.ndarray, Tensor)
# Average share of a person's box that COCO's segments cover, for people without a segment
AREA_OF_BOX = 0.53


def l_squared(area_px2: Array, skeleton: Skeleton) -> Array:
    """Return the falloff l_k^2 [..., K] in pixels^2 of people's areas [...]."""
    if isinstance(area_px2, Tensor):
        variance = torch.as_tensor(
            skeleton.oks_variance, dtype=area_px2.dtype, device=area_px2.device
        )
        return area_px2[..., None] * variance
    return np.asarray(area_px2)[..., None] * skeleton.oks_variance


def keypoint_oks(d2_px2: Array, l2_px2: Array) -> Array:
    """Return the OKS of each keypoint in (0, 1] from squared distances and falloffs [..., K]."""
    if isinstance(d2_px2, Tensor):
        return torch.exp(-d2_px2 / (2 * l2_px2))
    return np.exp(-d2_px2 / (2 * l2_px2))


def expected_oks(variance_px2: Array, l2_px2: Array) -> Array:
    """Return E[OKS] of a Gaussian error of this variance on either axis: l^2 / (sigma^2 + l^2)."""
    return l2_px2 / (variance_px2 + l2_px2)


def expected_oks_per_axis(sigma_px: Array, l2_px2: Array) -> Array:
    """Return E[OKS] [..., K] of a Gaussian error with standard deviations [..., K, 2] along x and y.

    It is prod_i l / sqrt(l^2 + sigma_i^2)."""
    return l2_px2 / ((l2_px2 + sigma_px[..., 0] ** 2) * (l2_px2 + sigma_px[..., 1] ** 2)) ** 0.5


def variance_from_expected_oks(expected: Array, l2_px2: Array) -> Array:
    """Return the pixel variance on either axis of an expected OKS s: l^2 (1 - s) / s.

    It is infinite at s = 0."""
    return l2_px2 * (1 - expected) / expected


def sigma_px(expected: Array, l2_px2: Array) -> Array:
    """Return the standard deviation in pixels on either axis of an expected OKS."""
    return variance_from_expected_oks(expected, l2_px2) ** 0.5


# Angles of a quarter turn that `ErrorDistribution.cdf` averages over: exact to 1e-6 for a ratio of
# 12.
ANGLES = 32
MOST_LOG_RATIO = 10.0  # limit on the log ratio of errors along x and y; heads reach at most 2.5


@dataclass(frozen=True)
class ErrorDistribution(Table):
    """The error of each keypoint in units of l: a mixture of M Gaussians around 0.

    Their axes are those of the image."""

    TENSORS = True
    # [..., K, M] sums to 1
    weight: Tensor = column(
        ("keypoints", "components"), "f", "share of each Gaussian", low=0, fill=1
    )
    # [..., K, M] of a component: the geometric mean of its standard deviations along x and y
    sigma: Tensor = column(
        ("keypoints", "components"), "f", "its std", unit="l = 2 sigma_k sqrt(area)", low=0, fill=1
    )
    # [..., K] shared by the components; None: 0, isotropic
    log_ratio: Tensor | None = column(
        ("keypoints",),
        "f",
        "log of the std along x over that along y",
        low=-MOST_LOG_RATIO,
        high=MOST_LOG_RATIO,
        optional=True,
    )

    @property
    def axis_sigma(self) -> Tensor:
        """Return the standard deviations along x and y, [..., M, 2]."""
        return sigma_along_axes(self.sigma, self.log_ratio)

    def expected_oks(self) -> Tensor:
        """Return the expected OKS, [...]."""
        return (self.weight / (1 + self.axis_sigma.square()).prod(-1).sqrt()).sum(-1)

    def log_likelihood(self, error: Tensor) -> Tensor:
        """Return the log density over the plane of errors [..., 2] in units of l."""
        squared = (error[..., None, :] / self.axis_sigma).square().sum(-1)
        log_norm = self.weight.log() - math.log(2 * math.pi) - 2 * self.sigma.log()
        return torch.logsumexp(log_norm - squared / 2, -1)

    def cdf(self, distance2: Tensor) -> Tensor:
        """Return the probability of an error of at most this length, in any direction.

        `distance2` [...] is the squared length in units of l^2. An error is (sigma_x r cos a,
        sigma_y r sin a) with a uniform angle a and P(r > t) = exp(-t^2 / 2), so the probability of
        a larger one is the mean over a of exp(-distance^2 / 2 (sigma_x^2 cos^2 a + sigma_y^2 sin^2
        a))."""
        step = torch.arange(ANGLES, dtype=self.sigma.dtype, device=self.sigma.device) + 0.5
        angle = step * (math.pi / 2 / ANGLES)
        squares = torch.stack([angle.cos().square(), angle.sin().square()])
        variance = self.axis_sigma.square() @ squares  # [..., M, ANGLES]
        probability = -torch.expm1(-distance2[..., None, None] / 2 / variance).mean(-1)
        return (self.weight * probability).sum(-1)


def sigma_along_axes(sigma: Tensor, log_ratio: Tensor | None) -> Tensor:
    """Return standard deviations along x and y, [..., M, 2].

    sigma [..., M] is their geometric mean, log_ratio [...] the log of their ratio (None: 0)."""
    if log_ratio is None:
        return sigma[..., None].expand(*sigma.shape, 2)
    half = (log_ratio / 2)[..., None].exp()
    return torch.stack([sigma * half, sigma / half], -1)


ConfidenceSource = Literal[
    "ones",
    "raw",
    "raw-mean",
    "raw-heatmap",
    "closed-form",
    "closed-form-predicted",
    "closed-form-annotated",
    "ccnet",
    "oracle",
]
NOBODY = -1  # identity of detections that belong to no track


@dataclass(frozen=True)
class Prediction:
    """The prediction of a 2D pose network for a batch of N crops."""

    xy_px: Tensor  # [N, K, 2] crop pixels, x right, y down
    score: Tensor  # [N, K] the network's own (raw) confidence
    # [N, K, 2] crop pixels per axis, if the network predicts it: the scale of the error's density.
    # Heatmaps give a standard deviation; RLE and Poseur learn the scale of a density that is not
    # normal (docs/models.md).
    sigma_px: Tensor | None = None
    maps: Tensor | None = None  # [N, K, h, w] heatmaps, if the network makes them
    # [N, K] height of each heatmap's peak, if `score` is something else
    heatmap_score: Tensor | None = None


@dataclass(frozen=True)
class Keypoints(Table):
    """Keypoints of a person in T frames (or of T people), and the confidence of each."""

    TENSORS = True
    # [T, K, 2] full-frame pixels
    xy_px: Tensor = column(("keypoints", 2), "f", "keypoints", unit="px", fill=np.nan)
    # [T, K] expected OKS (for source "raw": the network's own score)
    confidence: Tensor = column(("keypoints",), "f", "confidence from `source`", low=0, high=1)
    presence: Tensor = column(
        ("keypoints",), "f", "probability that it is in the image", low=0, high=1
    )  # [T, K]
    source: ConfidenceSource = shared()  # where `confidence` comes from
    # [T] sets the scale of OKS
    area_px2: Tensor | None = column(
        (), "f", "the person's area", unit="px^2", low=0, fill=1, optional=True
    )
    skeleton: Skeleton = COCO17
    # [T, K, M] the distribution of the error, where a head predicts one
    error: ErrorDistribution | None = nested(ErrorDistribution, "stated error", optional=True)
    # [T, K]
    raw: Tensor | None = column(("keypoints",), "f", "the network's own confidence", optional=True)

    def __post_init__(self) -> None:
        """Convert arrays to tensors."""
        for name in ("xy_px", "confidence", "presence", "area_px2", "raw"):
            if isinstance(value := getattr(self, name), np.ndarray):
                object.__setattr__(self, name, torch.tensor(value, dtype=torch.float32))
        super().__post_init__()


OUTLINE_POINTS = 192  # of an outline


@dataclass(frozen=True)
class Outlines(Table):
    """Outlines of M people, one for each mask."""

    PREFIX = "mask_"
    row: np.ndarray = column((), "i", "row of the keypoints that the mask belongs to", low=0)  # [M]
    # [M, 192, 2] full-frame pixels; NaN: fewer points, or the end of the image
    xy_px: np.ndarray = column(
        (OUTLINE_POINTS, 2), "f", "points of the outline; NaN: none", unit="px", fill=np.nan
    )
    normal: np.ndarray = column(
        (OUTLINE_POINTS, 2), "f", "unit vectors to the outside in the image"
    )  # [M, 192, 2]


@dataclass(frozen=True)
class HandKeypoints(Table):
    """The left and the right hand of a person in T frames."""

    PREFIX = "row_hand_"
    # [T, 2, 21, 2] full-frame pixels
    xy_px: np.ndarray = column(
        (2, 21, 2), "f", "left and right hand; NaN: not seen", unit="px", fill=np.nan
    )
    # [T, 2, 21] calibrated
    std_px: np.ndarray = column(
        (2, 21),
        "f",
        "stated error, one standard deviation along each axis",
        unit="px",
        low=0,
        fill=np.nan,
    )
    # [T, 2] calibrated; 0: no hand
    presence: np.ndarray = column(
        (2,), "f", "probability that the hand is seen there", low=0, high=1
    )
    score: np.ndarray = column((2,), "f", "the hand network's own score", low=0, high=1)  # [T, 2]
    # [T, 2, 21, 3] camera axes: x right, y down, z forward
    landmarks_m: np.ndarray = column(
        (2, 21, 3), "f", "the network's 3D guess, relative to the wrist", unit="m", fill=np.nan
    )
    size_px: np.ndarray = column(
        (2,), "f", "length of the hand in the image", unit="px", low=0
    )  # [T, 2]

    @classmethod
    def unseen(cls, rows: int) -> "HandKeypoints":
        """Return rows without any hand."""
        return cls.empty().scatter(np.zeros(0, np.int64), rows)

    def swap_sides(self, rows: np.ndarray) -> "HandKeypoints":
        """Return the hands with left and right swapped where `rows` [T] is true."""
        return self.put(rows, self.rows(rows)._map(lambda _, value: value[:, ::-1]))


@dataclass(frozen=True)
class Appearance(Table):
    """Appearance of people: colours of parts of the body (pose2d/tracking/appearance.py)."""

    colours: np.ndarray = column(
        (5, 9), "f", "for each part the quantiles of L (0..100), of a and of b, lowest first"
    )
    weight: np.ndarray = column(
        (5,), "f", "confidence of the keypoints it was read at; 0: not seen", low=0, high=1
    )


@dataclass(frozen=True)
class Detections(Table):
    """People in frames: a row for each person and frame."""

    frame: np.ndarray = column((), "i", "frame number", low=0)
    identity: np.ndarray = column(
        (), "i", "whose: the tracker's number of a track, later the identity", fill=NOBODY
    )
    box_px: np.ndarray = column((4,), "d", "x1, y1, x2, y2", unit="px", fill=np.nan)
    score: np.ndarray = column((), "d", "the detector's; between two looks the lower of both")
    keypoints: Keypoints | None = nested(Keypoints, "in the box", optional=True, flat=True)
    time_s: np.ndarray = column(
        (), "d", "when the frame is shown", unit="s", optional=True
    )  # None in files
    appearance: Appearance | None = nested(
        Appearance, "weight 0 where the detector did not look", optional=True
    )
    hands: HandKeypoints | None = nested(
        HandKeypoints, "both hands, where they were looked for", optional=True
    )

    @classmethod
    def in_frame(
        cls, frame: int, time_s: float, box_px: np.ndarray, score: np.ndarray
    ) -> "Detections":
        """Make detections of boxes [N, 4] with scores [N] in one frame, without identities."""
        count = len(box_px)
        return cls(
            np.full(count, frame),
            np.full(count, NOBODY),
            box_px,
            score,
            time_s=np.full(count, time_s),
        )

    @property
    def points(self) -> Keypoints:
        """Return the keypoints; only for rows that have them."""
        assert self.keypoints is not None
        return self.keypoints

    @property
    def xy_px(self) -> np.ndarray:
        """Return the keypoints in pixels of the frame, [N, K, 2]."""
        return np.asarray(self.points.xy_px)

    @property
    def sure(self) -> np.ndarray:
        """Confidence times presence of the keypoints, [N, K]."""
        confidence = np.asarray(self.points.confidence)
        presence = np.asarray(self.points.presence)
        product = scratch_array(confidence.shape, np.result_type(confidence, presence))
        for block in blocks(len(product)):
            np.multiply(confidence[block], presence[block], out=product[block])
            release_scratch()
        return product

    def people(self) -> "dict[int, Detections]":
        """Return the rows of each person in order of identity, frames rising."""
        rows = self.by_person()
        identities, starts, counts = np.unique(rows.identity, return_index=True, return_counts=True)
        return {
            int(identity): rows.rows(slice(start, start + count))
            for identity, start, count in zip(identities, starts, counts, strict=True)
        }

    def by_person(self) -> "Detections":
        """Return rows person after person in order of identity, frames rising, without NOBODY's."""
        order = np.lexsort((self.frame, self.identity))
        order = order[self.identity[order] != NOBODY]
        return self if np.array_equal(order, np.arange(len(self))) else self.pick(order)
