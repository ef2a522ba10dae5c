"""From confidence to a weight on each keypoint's squared pixel error.

A calibrated confidence s is an expected OKS, so it states a pixel variance, sigma^2 = l^2 (1 - s) /
s with l^2 = (2 sigma_k)^2 area (`pose2d.types`), and `precision`, v / sigma^2, is maximum
likelihood. The other weightings state no pixels: they divide by one variance for all keypoints of a
person, (REFERENCE_SIGMA sqrt(area))^2, so that priors mean the same beside any of them.

`likelihood` takes the stated error distribution, where a head states one: a mixture of Gaussians in
units of l, each axis with its own sigma and the annotators' scatter taken out (`joint_variance`),
with the probability 1 - v that the keypoint is not in the image an error of any size
(ABSENT_SIGMA), and, since a head may be wrong about a keypoint that it cannot see, the one Gaussian
that the expected OKS implies, wider by WIDER, with the share HEDGE. Where no distribution is stated
it is `precision`.

**Once the body is known** (`confidence_after_fit`). A head reads one image. A fit has seen the
whole track and knows how bodies move, so a keypoint far from the body's own is likely to be wrong:
the weights of its stated mixture follow by Bayes' rule,

    w_m'  ~  w_m N(r; 0, KEPT s_m^2 + BODY^2)^POWER,        r = (keypoint - body) / l,

with s_m of each axis.

The fit follows a keypoint in part, so only KEPT of an error's variance is left in r; BODY is the
body's own error; POWER is below 1 because frames and keypoints are not independent. The three were
chosen on a rendered validation set, by the correlation with the true OKS. Neighbouring frames alone
say nothing: at a hidden keypoint the network's error moves along with the body (bench/README.md,
"Hidden keypoints").

**Behind somebody else** (`behind_others`, `with_variance_inflation`). A network that looks at
somebody who is partly hidden by another person finds the other's keypoints as readily as the right
ones, and is sure of them. An image does not tell; two fitted bodies do. For a person whose body is
behind another one, two things count: that a surface of the other body lies in front of the
keypoint, and that the keypoint found lies where the other has one of the same kind. The weights of
the stated mixture of errors then become

    w_m'  ~  w_m s_m^a,        a = COVERED (behind a surface) + TAKEN (at the other's keypoint),

both between 0 and 1, and fading with the distance between the two: people far apart have other
sizes in the image, and are not mistaken for one another. The body that hides is taken as capsules
around its bones, which need no mesh.

What lies behind the person's own body is found as well (`surface_in_front_m` of the own body), but
is no reason to change anything: the head sees that in the image (bench/README.md, "Hidden
keypoints").
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyOutput
from fitting.camera import Camera
from pose2d.base.columns import column, nested
from pose2d.base.errors import UserError
from pose2d.base.scratch import release_scratch
from pose2d.base.table import Table, blocks
from pose2d.skeletons import HALPE26
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
# +0.41] in tracks (bench/tuning/error_axes.py). The stated ratio for the one Gaussian too: as uncertain.
ABSENT_SIGMA = 5.0
HEDGE = 0.8
WIDER = 1.5
# A head states the distance to an *annotation*, and annotators scatter by about 0.35 l along each
# axis (COCO's sigma_k is measured by repeated annotation). A fit needs the distance to the *joint*:
# the variances' difference, but at least this share of the stated deviation. Chosen by
# `bench/left_out.py --choose`: keypoints of real video that were left out and predicted; a share of
# every deviation, 0.5, is as good there and loses on rendered people who are half hidden.
ANNOTATOR_STD, LEAST_SHARE = 0.35, 0.35
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
    """From the variance of network less annotation to that of network less joint, both in units of
    l^2.
    """
    return torch.maximum(
        annotation_variance - ANNOTATOR_STD**2, LEAST_SHARE**2 * annotation_variance
    )


def warn_of_scores(keypoints: Keypoints, weighting: Weighting) -> None:
    """Where a weighting reads a network's own score as an expected OKS."""
    if weighting in ("precision", "likelihood") and keypoints.source not in CALIBRATED:
        warnings.warn(
            f"confidence from {keypoints.source!r} states no pixels, and weighting {weighting!r} reads it as an "
            "expected OKS: weighting='confidence' is the usual choice for it.",
            stacklevel=3,
        )


def keypoint_area(keypoints: Keypoints, used: Tensor) -> Tensor:
    """The person's area [T] in px^2: as given, or from the extent of the keypoints that are used
    [T, K].
    """
    if keypoints.area_px2 is not None:
        return keypoints.area_px2
    low = torch.where(used[..., None], keypoints.xy_px, torch.inf).amin(1)
    high = torch.where(used[..., None], keypoints.xy_px, -torch.inf).amax(1)
    sides = (high - low).clamp(min=1)
    area = AREA_OF_BOX * sides.amax(-1) * torch.maximum(sides.amin(-1), sides.amax(-1) / 3)
    return torch.where(used.any(1), area, torch.ones_like(area))


def keypoint_weights(keypoints: Keypoints, weighting: Weighting, gate: float = GATE) -> Weights:
    """Weights of finite keypoints; a keypoint whose position is not finite must have presence 0."""
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
    """The stated distribution of each keypoint's error: weights and pixel sigmas of Gaussians, [T,
    K, M] each.

    Sigmas are the geometric means of those along both axes. Where no distribution is stated it is
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
    """[T, K] precisions of the expected OKS, and the mixture in units of them."""
    plain = keypoint_weights(keypoints, "precision")
    stated = keypoints.error
    if stated is None:
        return plain
    l2 = l_squared(area_px2, keypoints.skeleton)
    precision = 1 / plain.sigma_px.square()
    one = WIDER * joint_variance(plain.sigma_px.square() / l2).sqrt()
    others = torch.stack([one, torch.full_like(one, ABSENT_SIGMA)], -1)
    sigma = torch.cat(
        [joint_variance(stated.axis_sigma.square()).sqrt(), sigma_along_axes(others, None)], -2
    )
    known = (1 - HEDGE) * stated.weight * presence[..., None]
    share = torch.cat([known, torch.stack([HEDGE * presence, 1 - presence], -1)], -1).clamp_min(
        1e-6
    )
    relative = 1 / (sigma.square() * (l2 * precision)[..., None, None])
    return Weights(
        (presence > 0) * precision, plain.sigma_px, share / share.sum(-1, keepdim=True), relative
    )


KEPT = 0.5
BODY = 0.2
POWER = 0.5


def confidence_after_fit(keypoints: Keypoints, body_px: Tensor) -> Keypoints:
    """Keypoints [T, K] with weights and confidence after a fit whose own keypoints are at `body_px`
    [T, K, 2].

    Keypoints without a stated distribution, or where the body's are not finite, stay as they are.
    """
    stated = keypoints.error
    if stated is None:
        return keypoints
    area = keypoint_area(keypoints, keypoints.confidence * keypoints.presence > 0)
    squared = (keypoints.xy_px - body_px).square() / l_squared(area, keypoints.skeleton)[
        ..., None
    ]  # [T, K, 2]
    variance = KEPT * stated.axis_sigma.square() + BODY**2  # [T, K, M, 2]
    log_density = -(squared[..., None, :] / variance + variance.log()).sum(-1) / 2
    logs = stated.weight.clamp_min(1e-9).log() + POWER * log_density
    return _reweighted(keypoints, logs, torch.isfinite(squared).all(-1))


def with_variance_inflation(keypoints: Keypoints, inflation: Tensor) -> Keypoints:
    """Keypoints [T, K] whose mixtures' weights are multiplied by sigma^inflation, [T, K]; 0 changes
    nothing.

    Keypoints without a stated distribution stay as they are.
    """
    stated = keypoints.error
    if stated is None:
        return keypoints
    logs = stated.weight.clamp_min(1e-9).log() + inflation[..., None] * stated.sigma.log()
    return _reweighted(keypoints, logs, inflation != 0)


def _reweighted(keypoints: Keypoints, logs: Tensor, changed: Tensor) -> Keypoints:
    """Weights softmax(logs) [T, K, M] and the confidence that follows, where changed [T, K] and
    present.
    """
    changed = changed & (keypoints.presence > 0)
    assert keypoints.error is not None
    error = replace(
        keypoints.error,
        weight=torch.where(changed[..., None], logs.softmax(-1), keypoints.error.weight),
    )
    return replace(
        keypoints,
        error=error,
        confidence=torch.where(changed, error.expected_oks(), keypoints.confidence),
    )


# Capsules: from joint, to joint, radius in metres on an adult. The torso is wider than deep, so it
# has several.
CAPSULES = (
    (1, 4, 0.08),
    (2, 5, 0.08),
    (4, 7, 0.055),
    (5, 8, 0.055),
    (7, 10, 0.045),
    (8, 11, 0.045),  # legs
    (16, 18, 0.05),
    (17, 19, 0.05),
    (18, 20, 0.04),
    (19, 21, 0.04),
    (20, 22, 0.04),
    (21, 23, 0.04),  # arms
    (1, 16, 0.11),
    (2, 17, 0.11),
    (0, 9, 0.12),
    (1, 2, 0.11),
    (16, 17, 0.08),
    (12, 15, 0.07),  # torso and neck
)
# a ball around the middle of the joint and the keypoint at the top
HEAD_JOINT = 15
HEAD_TOP = 17
HEAD_M = 0.10
UNCOVERED_M = -1.0  # where no surface meets the ray

# Chosen on the rendered validation set by the likelihood of true errors and the squared error of
# the expected OKS (python bench/tuning/hidden_keypoints.py synth_dev --split validation --choose).
COVERED, TAKEN = 4.70, 1.72
# the mean depth by which a body is surely behind another; both may follow the same keypoints
BEHIND_M = 0.02
FADE_M = 1.0  # the depth between two people over which it counts less, by a factor of e
SURFACE_M = 0.05  # how far in front of a keypoint a surface must be, and how exactly that is known
TAKEN_L = 2.0  # distance from the other's keypoint, in units of l


@dataclass(frozen=True)
class FittedBody(Table):
    """One person's keypoints and fitted body over T frames of a shot."""

    frame: np.ndarray = column((), "i", "increasing frame numbers")
    present: np.ndarray = column((), "b", "the person is there")
    keypoints: Keypoints = nested(Keypoints, "Halpe's 26")
    body: BodyOutput = nested(BodyOutput, "in the camera frame")


@dataclass(frozen=True)
class BehindOthers:
    """What speaks against a person's keypoints, each [T, 26] in [0, 1]; of several people in front,
    the most.
    """

    covered: Tensor  # a surface of somebody else is in front
    # somebody in front has a keypoint of this kind, left or right, where this one was found
    taken: Tensor

    @property
    def inflation(self) -> Tensor:
        """[T, 26] how much the stated variances grow (`with_variance_inflation`)."""
        return COVERED * self.covered + TAKEN * self.taken


def surface_in_front_m(points: Tensor, body: BodyOutput) -> Tensor:
    """How far the nearest surface of a body is in front of points [T, K, 3], along the rays from
    the camera: [T, K].

    Points and body are in the camera frame, in metres. UNCOVERED_M where no surface meets the ray.
    """
    first, second = (torch.tensor([capsule[end] for capsule in CAPSULES]) for end in (0, 1))
    radius = points.new_tensor([*(capsule[2] for capsule in CAPSULES), HEAD_M])
    head = (body.joints[:, HEAD_JOINT] + body.keypoints[:, HEAD_TOP])[:, None] / 2
    start = torch.cat((body.joints[:, first], head), 1)  # [T, C, 3]
    step = torch.cat((body.joints[:, second], head), 1) - start
    away = points.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    ray = points / away
    # Across a ray, a segment is a segment: its point nearest to the ray is where it is nearest to
    # the origin there.
    along, step_along = (torch.einsum("tkc,tsc->tks", ray, value) for value in (start, step))
    start2, step2, mixed = (
        (a * b).sum(-1)[:, None] - along_a * along_b
        for a, b, along_a, along_b in (
            (start, start, along, along),
            (step, step, step_along, step_along),
            (start, step, along, step_along),
        )
    )
    share = (-mixed / step2.clamp_min(1e-9)).clamp(0, 1)
    inside = radius.square() - (start2 + 2 * share * mixed + share.square() * step2)
    front = along + share * step_along - inside.clamp_min(0).sqrt()
    return torch.where((inside > 0) & (front > 0), away - front, UNCOVERED_M).amax(-1)


def behind_others(people: Mapping[int, FittedBody], identity: int, camera: Camera) -> BehindOthers:
    """Of one of everyone in a shot."""
    one = people[identity]
    covered, taken = (torch.zeros_like(one.keypoints.confidence) for _ in range(2))
    for other in (person for number, person in people.items() if number != identity):
        _, all_here, all_there = np.intersect1d(one.frame, other.frame, return_indices=True)
        for some in blocks(len(all_here)):
            here = all_here[some]
            there = all_there[some]
            look = _may_hide(one.rows(here), other.rows(there), camera)
            if look.any():
                here = here[look]
                there = there[look]
                behind = _behind(one.rows(here), other.rows(there), camera)
                covered[here] = torch.maximum(covered[here], behind.covered)
                taken[here] = torch.maximum(taken[here], behind.taken)
            release_scratch()
    return BehindOthers(covered, taken)


def _behind(own: FittedBody, other: FittedBody, camera: Camera) -> BehindOthers:
    """Of two people in the same T frames."""
    depth_m = (own.body.keypoints[..., 2] - other.body.keypoints[..., 2]).mean(1, keepdim=True)
    behind = torch.sigmoid(depth_m / BEHIND_M) * torch.exp(-depth_m.clamp_min(0) / FADE_M)
    covered = torch.sigmoid(surface_in_front_m(own.body.keypoints, other.body) / SURFACE_M - 1)
    at = own.keypoints.xy_px
    other_at = camera.project(other.body.keypoints)
    near = (
        torch.stack([at - other_at, at - other_at[:, list(HALPE26.flip_order)]])
        .square()
        .sum(-1)
        .amin(0)
    )
    area = keypoint_area(own.keypoints, own.keypoints.confidence * own.keypoints.presence > 0)
    taken = torch.exp(-near / (2 * TAKEN_L**2 * l_squared(area, HALPE26)))
    return BehindOthers(behind * covered, behind * taken.nan_to_num(0.0))


def _may_hide(own: FittedBody, other: FittedBody, camera: Camera) -> np.ndarray:
    """[T] both are there, the other is in front or nearly, and they overlap in the image; the rest
    needs no look.
    """
    own_px = camera.project(own.body.keypoints)
    other_px = camera.project(other.body.keypoints)
    low = other_px.amin(1)
    high = other_px.amax(1)
    margin = (high - low).amax(-1, keepdim=True) / 4
    overlap = ((own_px.amax(1) > low - margin) & (own_px.amin(1) < high + margin)).all(
        -1
    )  # NaN: behind the camera
    nearer = (
        own.body.keypoints[..., 2].mean(1) > other.body.keypoints[..., 2].mean(1) - 5 * BEHIND_M
    )
    return own.present & other.present & (overlap & nearer).numpy()
