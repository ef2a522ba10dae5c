"""Simulate what a 2D network does to keypoints: errors of the size it states, and sometimes worse.

Errors are drawn from the very distribution that is stated: a mixture of three Gaussians (a narrow
core and heavy tails) whose expected OKS is the confidence, or the one Gaussian that a confidence
implies, sigma^2 = l^2 (1 - s) / s. Part of an error stays for a while, part changes with each
frame; a few are larger than stated. Keypoints go missing one by one, limb by limb, below a line
(cropped bodies, desks) or all at once (frames without a detection), feet and neck may be unknown to
the network at all, and left and right trade places.

The rates below were set by hand, neither measured nor tuned; bench/lifter.py measures the lifter
trained with them.
"""

import torch
from torch import Tensor

from fitting.init.lifter_inputs import Observation
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import AREA_OF_BOX, l_squared
from training.examples.random_numbers import Random

COUNT = HALPE26.size
_LEFT_FOOT = (20, 22, 24)
_RIGHT_FOOT = (21, 23, 25)
_HEAD = (0, 1, 2, 3, 4, 17)
_FEET = (*_LEFT_FOOT, *_RIGHT_FOOT)
LIMBS = (
    (7, 9),
    (8, 10),
    (13, 15, *_LEFT_FOOT),
    (14, 16, *_RIGHT_FOOT),
    (5, 7, 9),
    (6, 8, 10),
    _HEAD,
    (13, 14, 15, 16, *_FEET),
    (11, 12, 13, 14, 15, 16, 19, *_FEET),
    _LEFT_FOOT,
    _RIGHT_FOOT,
)
SWAPS = (
    tuple(range(COUNT)),
    (5, 6, 7, 8, 9, 10),
    (11, 12, 13, 14, 15, 16, *_FEET),
    (13, 14, 15, 16, *_FEET),
    (15, 16, *_FEET),
    (9, 10),
)
LEAST_INSIDE = 4  # keypoints in the image; a person who shows fewer is not detected
HARD_TO_PLACE = (*_HEAD, 18)  # OKS asks for much more exactness of a face and a neck
MIXTURES = 0.65  # share of windows whose errors are stated as mixtures
ONLY_COCO = 0.3  # share of windows with COCO's 17 keypoints alone


def observe(
    rays: Tensor, marked: Tensor, half: Tensor, seated: Tensor, generator: torch.Generator
) -> Observation:
    """Return what a 2D network might give for exact directions [B, T, 26, 2].

    half: half size [B, 2] of the images. marked: [B, T], passed on. seated: [B] bool, people who
    are likely to be behind a table.
    """
    count, frames = rays.shape[:2]
    size = (count, frames, COUNT)
    draw = Random(generator)
    even = draw.even
    normal = draw.normal
    chance = draw.chance
    inside = (rays.abs() <= half[:, None, None]).all(-1)
    clamped = torch.maximum(torch.minimum(rays, half[:, None, None]), -half[:, None, None])
    low = clamped.amin(2)
    high = clamped.amax(2)
    sides = (high - low).clamp(min=1e-3)
    area = torch.maximum(AREA_OF_BOX * sides.prod(-1), AREA_OF_BOX * sides.amax(-1) ** 2 / 4)
    l2 = l_squared(area, HALPE26)

    # Confidence: a clear or a hard image, good and bad keypoints, and a little of each frame.
    logit = even(0.3, 3.8, (count, 1, 1)) + 0.6 * normal((count, 1, COUNT)) + 0.5 * normal(size)
    logit = logit + 3 * chance(0.1, (count, 1, 1))
    logit[..., HARD_TO_PLACE] -= even(0.0, 1.0, (count, 1, 1))
    confidence = logit.sigmoid()
    presence = even(0.85, 1.0, size)

    # Left and right trade places, for a part of the window; the network does not always know.
    swapped = _members(SWAPS)[torch.randint(len(SWAPS), (count,), generator=generator)][:, None]
    swapped = swapped & _a_while(count, frames, 0.12, generator)[..., None]
    exact = torch.where(swapped[..., None], clamped[:, :, HALPE26.flip_order], clamped)
    lowered = swapped & chance(0.6, (count, 1, 1))
    confidence = torch.where(lowered, confidence * even(0.2, 0.8, size), confidence)

    # Missing: one by one, limb by limb, beyond the image or a line across the body.
    rate = torch.where(chance(0.45, (count, 1, 1)), torch.zeros(()), even(0.0, 0.5, (count, 1, 1)))
    gone = chance(0.6 * rate, (count, 1, COUNT)) | chance(0.4 * rate, size)
    hidden = _members(LIMBS)[torch.randint(len(LIMBS), (count,), generator=generator)][:, None]
    gone |= hidden & _a_while(count, frames, 0.15, generator)[..., None]
    # In some windows nothing below (seldom: beside) a line is in view; who sits is behind a table
    # more often.
    cut_line = low + (0.2 + 0.7 * torch.rand(count, 1, 2, generator=generator)) * (high - low)
    line = torch.where(seated[:, None], torch.tensor([0.03, 0.4]), torch.tensor([0.03, 0.08]))
    cut = chance(line[:, None], (count, 1, 2))
    gone |= ~inside | (
        (clamped > cut_line.mean(1, keepdim=True)[:, :, None]) & cut[:, :, None]
    ).any(-1)
    gone |= _a_while(count, frames, 0.1, generator, longest=0.4)[..., None]
    left = inside.sum(-1, keepdim=True) < LEAST_INSIDE
    nothing = gone & chance(0.5, (count, 1, 1)) | left
    unknown = torch.arange(COUNT) >= COCO17.size
    nothing |= unknown & chance(ONLY_COCO, (count, 1, 1))
    gone |= nothing
    presence = torch.where(gone, even(0.0, 0.2, size), presence) * ~nothing
    confidence = torch.where(gone & ~nothing, confidence * even(0.05, 0.6, size), confidence).clamp(
        0.01, 0.999
    )

    # Whether a keypoint is in the core or in a tail of its distribution lasts as its error does.
    share = even(0.0, 0.9, (count,))
    memory = even(0.6, 0.99, (count,))
    weight, sigma = draw_mixtures(confidence, chance(MIXTURES, (count, 1, 1)), generator)
    drawn = _lasting(normal(size), normal(size), share, memory)
    own = draw_sigma(weight, sigma, drawn) * l2.sqrt()
    error = _lasting(normal((*size, 2)), normal((*size, 2)), share, memory)
    error = error * torch.where(chance(0.04, size), even(1.5, 4.0, size), torch.ones(()))[..., None]
    astray = chance(0.02, size)[..., None]
    anywhere = low[:, :, None] + torch.rand(*size, 2, generator=generator) * sides[:, :, None]
    rays = torch.where(astray, anywhere, exact + error * own[..., None])
    edges = torch.cat((-half, half), -1)[:, None].expand(count, frames, 4)
    return Observation(
        rays, weight, sigma * l2.sqrt()[..., None], confidence, presence, edges, marked
    )


def _members(groups: tuple[tuple[int, ...], ...]) -> Tensor:
    """Return which keypoints belong to each group, [G, 26] bool."""
    members = torch.zeros(len(groups), COUNT, dtype=torch.bool)
    for number, points in enumerate(groups):
        members[number, list(points)] = True
    return members


def _a_while(
    count: int, frames: int, share: float, generator: torch.Generator, longest: float = 1.0
) -> Tensor:
    """Mark a stretch of frames, up to `longest` of the window, in a share of the windows: [B,
    T].
    """
    length = torch.rand(count, 1, generator=generator) * frames * longest + 1
    first = torch.rand(count, 1, generator=generator) * (frames + length) - length
    frame = torch.arange(frames)
    return (
        (frame >= first)
        & (frame < first + length)
        & (torch.rand(count, 1, generator=generator) < share)
    )


def _lasting(slow: Tensor, quick: Tensor, share: Tensor, memory: Tensor) -> Tensor:
    """Return unit noise [B, T, ...] of which a share [B] of the variance fades by `memory` [B] a
    frame.
    """
    frames = slow.shape[1]
    age = torch.arange(frames)[:, None] - torch.arange(frames)
    mix = torch.where(age >= 0, memory[:, None, None] ** age.clamp(min=0), torch.zeros(()))
    fresh = (1 - memory.square()).sqrt()[:, None].repeat(1, frames)
    fresh[:, 0] = 1
    slow = torch.einsum("bij,bj,bj...->bi...", mix, fresh, slow)
    part = share.view(-1, *[1] * (slow.ndim - 1))
    return part.sqrt() * slow + (1 - part).sqrt() * quick


# core, ordinary, plainly wrong; as a trained head's are
LOG_SIGMAS = (-1.5, -0.3, 1.2)
LOG_SIGMA_SPREAD = 0.3


def draw_mixtures(
    confidence: Tensor, mixed: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw weights and sigmas [..., 3], in units of l, with the expected OKS `confidence` [...].

    sum_m w_m / (1 + sigma_m^2) = s fixes the core's weight once the sigmas and the share of the
    ordinary component are drawn. Where `mixed` is false the mixture is one Gaussian.
    """
    log_sigma = torch.tensor(LOG_SIGMAS) + LOG_SIGMA_SPREAD * torch.randn(
        *confidence.shape, 3, generator=generator
    )
    sigma = log_sigma.exp()
    single_sigma = (1 / confidence - 1).sqrt()  # of the one Gaussian
    sigma[..., 0] = torch.minimum(sigma[..., 0], 0.7 * single_sigma)
    oks = 1 / (1 + sigma.square())
    ordinary = torch.rand(confidence.shape, generator=generator).sqrt()
    tail_oks = ordinary * oks[..., 1] + (1 - ordinary) * oks[..., 2]
    core = (1 - (oks[..., 0] - confidence) / (oks[..., 0] - tail_oks).clamp(min=1e-3)).clamp(
        0.02, 0.98
    )
    weight = torch.stack((core, (1 - core) * ordinary, (1 - core) * (1 - ordinary)), -1)
    plain = torch.tensor([1.0, 0.0, 0.0])
    return torch.where(mixed[..., None], weight, plain), torch.where(
        mixed[..., None], sigma, single_sigma[..., None]
    )


def draw_sigma(weight: Tensor, sigma: Tensor, normal: Tensor) -> Tensor:
    """Return the sigma [...] of the component that standard normal numbers [...] pick from
    mixtures.
    """
    place = torch.special.ndtr(normal)[..., None]
    component = (place > weight.cumsum(-1)[..., :-1]).sum(-1, keepdim=True)
    return sigma.gather(-1, component).squeeze(-1)
