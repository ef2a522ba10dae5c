"""Turn confidence into a weight on each keypoint's squared pixel error.

A calibrated confidence s is an expected OKS, so it states a pixel variance, sigma^2 = l^2 (1 - s) /
s with l^2 = (2 sigma_k)^2 area (`pose2d.types`), and `precision`, v / sigma^2, is maximum
likelihood. The other weightings state no pixels: they divide by one variance for all keypoints of a
person, (REFERENCE_SIGMA sqrt(area))^2, so that priors count the same beside any of them.

`likelihood` takes the stated error distribution, where a head states one. It is a mixture of
Gaussians in units of l, each axis with its own sigma and the annotators' scatter taken out
(`joint_variance`). Two components are added: with the probability 1 - v that the keypoint is not in
the image, an error of any size (ABSENT_SIGMA); and, since a head may be wrong about a keypoint that
it cannot see, the one Gaussian that the expected OKS implies, wider by WIDER, with the share HEDGE.
Where no distribution is stated, `likelihood` is `precision`.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.types import (
    AREA_OF_BOX,
    ConfidenceSource,
    Keypoints,
    l_squared,
    sigma_along_axes,
    variance_from_expected_oks,
)

Weighting = Literal["ones", "confidence", "squared", "precision", "likelihood", "gate"]
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)
CALIBRATED: tuple[ConfidenceSource, ...] = (
    "closed-form",
    "ccnet",
    "oracle",
)  # sources of an expected OKS

# of sqrt(area): the error of a good keypoint where no pixel variance is stated. Not tuned here;
REFERENCE_SIGMA = 0.04
# bench/weighting.py chooses a factor on it for each weighting (bench/weighting_scales.json)
# presence below this: the keypoint is not in the image, and its position means nothing. Not tuned
PRESENT = 0.05
GATE = 0.5  # `gate`: s v below this is not used. Customary, not tuned
# `likelihood`: error in units of l of a keypoint that is not in the image; share of the one
# Gaussian, and how much wider it is than the expected OKS says. Chosen on rendered people of
# another seed than bench/weighting.py reports: without the Gaussian, fits are better where nothing
# is hidden (59.7 against 60.1 mm) and worse elsewhere (112, 108.5). On those people a sigma for
# each axis changes PA-MPJPE by -0.06 mm [-0.30, +0.29] in single frames and by +0.06 mm [-0.24,
# +0.41] in tracks (bench/tuning/error_axes.py). Using the
# stated ratio for the one Gaussian as well is as uncertain.
ABSENT_SIGMA = 5.0
HEDGE = 0.8
WIDER = 1.5
# A head states the distance to an *annotation*, and annotators scatter by about 0.35 l along each
# axis (COCO's sigma_k is measured by repeated annotation). A fit needs the distance to the *joint*:
# the variances' difference, but at least this share of the stated deviation. Chosen by
# `bench/left_out.py --choose`: keypoints of real video that were left out and predicted; a share of
# every deviation, 0.5, is as good there and loses on rendered people who are half hidden.
ANNOTATOR_STD = 0.35
LEAST_SHARE = 0.35
CONFIDENCE_RANGE = (1e-3, 0.999)  # `precision`: sigma stays between 3 % of l and 30 l. Not tuned


@dataclass(frozen=True)
class Weights:
    """Confidence as the solver uses it."""

    weight: Tensor  # [T, K] on the squared pixel error, 1 / px^2; 0 is not used
    # [T, K] the pixel error at which a keypoint is "one sigma" off, the unit of the robust scale
    sigma_px: Tensor
    mixture_weight: Tensor | None = (
        None  # [T, K, M] the stated error distribution, for `likelihood`
    )
    mixture_precision: Tensor | None = None  # [T, K, M, 2] along x and y, in units of `weight`


def joint_variance(annotation_variance: Tensor) -> Tensor:
    """Convert the variance of network less annotation to that of network less joint, both in units
    of l^2.
    """
    return torch.maximum(
        annotation_variance - ANNOTATOR_STD**2, LEAST_SHARE**2 * annotation_variance
    )


def warn_of_uncalibrated_scores(keypoints: Keypoints, weighting: Weighting) -> None:
    """Warn if a weighting reads a network's own score as an expected OKS."""
    if weighting in ("precision", "likelihood") and keypoints.source not in CALIBRATED:
        warnings.warn(
            f"confidence from {keypoints.source!r} states no pixels, and weighting {weighting!r} "
            "reads it as an expected OKS: weighting='confidence' is the usual choice for it.",
            stacklevel=3,
        )


def keypoint_area(keypoints: Keypoints, used: Tensor) -> Tensor:
    """Return the person's area [T] in px^2: as given, or from the extent of the keypoints that are
    used [T, K].
    """
    if keypoints.area_px2 is not None:
        return keypoints.area_px2
    low = torch.where(used[..., None], keypoints.xy_px, torch.inf).amin(1)
    high = torch.where(used[..., None], keypoints.xy_px, -torch.inf).amax(1)
    sides = (high - low).clamp(min=1)
    area = AREA_OF_BOX * sides.amax(-1) * torch.maximum(sides.amin(-1), sides.amax(-1) / 3)
    return torch.where(used.any(1), area, torch.ones_like(area))


def keypoint_weights(keypoints: Keypoints, weighting: Weighting, gate: float = GATE) -> Weights:
    """Return the weights of finite keypoints; a keypoint whose position is not finite must have
    presence 0.
    """
    if weighting not in WEIGHTINGS:
        raise UserError(f"unknown weighting {weighting!r}: choose {', '.join(WEIGHTINGS)}.")
    s = keypoints.confidence
    v = keypoints.presence * (keypoints.presence >= PRESENT)
    product = s * v
    area = keypoint_area(keypoints, product > 0)[:, None]
    if weighting == "likelihood":
        return _likelihood(keypoints, area.squeeze(1), v)
    if weighting == "precision":
        l2 = l_squared(area.squeeze(1), keypoints.skeleton)
        variance = variance_from_expected_oks(s.clamp(*CONFIDENCE_RANGE), l2)
        return Weights(torch.where(s > 0, v, torch.zeros_like(v)) / variance, variance.sqrt())
    reference = (REFERENCE_SIGMA**2 * area).expand_as(s)
    factor = {
        "ones": (v > 0).to(s.dtype),
        "confidence": product,
        "squared": product.square(),
        "gate": (product >= gate).to(s.dtype),
    }[weighting]
    return Weights(factor / reference, reference.sqrt())


def stated_error_px(keypoints: Keypoints) -> tuple[Tensor, Tensor]:
    """Return the stated distribution of each keypoint's error: weights and pixel sigmas of
    Gaussians, [T, K, M] each.

    Sigmas are the geometric means of those along both axes. Where no distribution is stated, it is
    the one Gaussian that the expected OKS implies; "ones" state no error at all, and count as
    ordinarily good.
    """
    if keypoints.error is None:
        sigma_px = keypoint_weights(
            keypoints, "ones" if keypoints.source == "ones" else "precision"
        ).sigma_px
        return torch.ones_like(sigma_px)[..., None], sigma_px[..., None]
    area = keypoint_area(keypoints, keypoints.confidence * keypoints.presence > 0)
    return keypoints.error.weight, keypoints.error.sigma * l_squared(
        area, keypoints.skeleton
    ).sqrt()[..., None]


def _likelihood(keypoints: Keypoints, area_px2: Tensor, presence: Tensor) -> Weights:
    """Return precisions [T, K] of the expected OKS, and the mixture in units of them."""
    plain = keypoint_weights(keypoints, "precision")
    error = keypoints.error
    if error is None:
        return plain
    l2 = l_squared(area_px2, keypoints.skeleton)
    precision = 1 / plain.sigma_px.square()
    single_sigma = WIDER * joint_variance(plain.sigma_px.square() / l2).sqrt()
    added_sigma = torch.stack([single_sigma, torch.full_like(single_sigma, ABSENT_SIGMA)], -1)
    sigma = torch.cat(
        [joint_variance(error.axis_sigma.square()).sqrt(), sigma_along_axes(added_sigma, None)], -2
    )
    mixture_share = (1 - HEDGE) * error.weight * presence[..., None]
    share = torch.cat(
        [mixture_share, torch.stack([HEDGE * presence, 1 - presence], -1)], -1
    ).clamp_min(1e-6)
    relative = 1 / (sigma.square() * (l2 * precision)[..., None, None])
    return Weights(
        (presence > 0) * precision, plain.sigma_px, share / share.sum(-1, keepdim=True), relative
    )
