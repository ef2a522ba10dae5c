"""What a 2D network does to keypoints: errors of the size it states, and now and then something worse.

Errors are drawn from the very sigma that the confidence stands for, sigma^2 = l^2 (1 - s) / s. Part of an error stays
for a while, part changes with each frame; a few are larger than stated. Keypoints go missing one by one, limb by limb,
below a line (cropped bodies) or all at once (frames without a detection), and left and right trade places.

The rates below were set by hand, neither measured nor tuned; bench/lifter.py measures the lifter trained with them.
"""

import torch
from torch import Tensor

from fitting.init.lifter.network import Observation
from pose2d.oks import AREA_OF_BOX, l_squared, sigma_px
from pose2d.skeletons import COCO17

LIMBS = ((7, 9), (8, 10), (13, 15), (14, 16), (5, 7, 9), (6, 8, 10), (0, 1, 2, 3, 4), (13, 14, 15, 16))
SWAPS = (tuple(range(17)), (5, 6, 7, 8, 9, 10), (11, 12, 13, 14, 15, 16), (13, 14, 15, 16), (15, 16), (9, 10))
LEAST_INSIDE = 4  # keypoints in the image; nobody is found in it who shows fewer
HARD_TO_PLACE = (0, 1, 2, 3, 4)  # OKS asks for much more exactness of a face


def observe(rays: Tensor, marked: Tensor, half: Tensor, generator: torch.Generator) -> Observation:
    """Exact directions [B, T, 17, 2] in images of half size [B, 2] -> what a 2D network might give for them.

    marked: [B, T], passed on.
    """
    count, frames = rays.shape[:2]
    size = (count, frames, 17)

    def even(low: float, high: float, shape: tuple[int, ...]) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator)

    def chance(share: float | Tensor, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=generator) < share

    inside = (rays.abs() <= half[:, None, None]).all(-1)
    held = torch.maximum(torch.minimum(rays, half[:, None, None]), -half[:, None, None])
    low, high = held.amin(2), held.amax(2)
    sides = (high - low).clamp(min=1e-3)
    area = torch.maximum(AREA_OF_BOX * sides.prod(-1), AREA_OF_BOX * sides.amax(-1) ** 2 / 4)
    l2 = l_squared(area, COCO17)

    # Confidence: a clear or a hard image, good and bad keypoints, and a little of each frame.
    logit = even(0.3, 3.8, (count, 1, 1)) + 0.6 * normal((count, 1, 17)) + 0.5 * normal(size)
    logit = logit + 3 * chance(0.1, (count, 1, 1))
    logit[..., HARD_TO_PLACE] -= even(0.0, 1.0, (count, 1, 1))
    confidence = logit.sigmoid()
    presence = even(0.85, 1.0, size)

    # Left and right trade places, for a part of the window; the network does not always know.
    kind = torch.zeros(len(SWAPS), 17, dtype=torch.bool)
    for number, points in enumerate(SWAPS):
        kind[number, list(points)] = True
    swapped = kind[torch.randint(len(SWAPS), (count,), generator=generator)][:, None]
    swapped = swapped & _a_while(count, frames, 0.12, generator)[..., None]
    exact = torch.where(swapped[..., None], held[:, :, COCO17.flip_order], held)
    lowered = swapped & chance(0.6, (count, 1, 1))
    confidence = torch.where(lowered, confidence * even(0.2, 0.8, size), confidence)

    # Missing: one by one, limb by limb, beyond the image or a line across the body.
    rate = torch.where(chance(0.45, (count, 1, 1)), torch.zeros(()), even(0.0, 0.5, (count, 1, 1)))
    gone = chance(0.6 * rate, (count, 1, 17)) | chance(0.4 * rate, size)
    limb = torch.zeros(len(LIMBS), 17, dtype=torch.bool)
    for number, points in enumerate(LIMBS):
        limb[number, list(points)] = True
    hidden = limb[torch.randint(len(LIMBS), (count,), generator=generator)][:, None]
    gone |= hidden & _a_while(count, frames, 0.15, generator)[..., None]
    gone |= ~inside | _beyond_line(held, low, high, generator)
    gone |= _a_while(count, frames, 0.1, generator, longest=0.4)[..., None]
    left = inside.sum(-1, keepdim=True) < LEAST_INSIDE
    nothing = gone & chance(0.5, (count, 1, 1)) | left
    gone |= left
    presence = torch.where(gone, even(0.0, 0.2, size), presence) * ~nothing
    confidence = torch.where(gone & ~nothing, confidence * even(0.05, 0.6, size), confidence)

    confidence = confidence.clamp(0.01, 0.999)
    sigma = sigma_px(confidence, l2)
    error = _lasting(normal((*size, 2)), normal((*size, 2)), even(0.0, 0.9, (count,)), even(0.6, 0.99, (count,)))
    error = error * torch.where(chance(0.04, size), even(1.5, 4.0, size), torch.ones(()))[..., None]
    astray = chance(0.02, size)[..., None]
    anywhere = low[:, :, None] + torch.rand(*size, 2, generator=generator) * sides[:, :, None]
    rays = torch.where(astray, anywhere, exact + error * sigma[..., None])
    return Observation(rays, sigma, confidence, presence, marked)


def _a_while(count: int, frames: int, share: float, generator: torch.Generator, longest: float = 1.0) -> Tensor:
    """In that share of the windows a stretch of frames, up to `longest` of the window: [B, T]."""
    length = torch.rand(count, 1, generator=generator) * frames * longest + 1
    first = torch.rand(count, 1, generator=generator) * (frames + length) - length
    frame = torch.arange(frames)
    return (frame >= first) & (frame < first + length) & (torch.rand(count, 1, generator=generator) < share)


def _beyond_line(rays: Tensor, low: Tensor, high: Tensor, generator: torch.Generator) -> Tensor:
    """In some windows nothing below (seldom: beside) a line across the body is in the image: [B, T, 17]."""
    count = len(rays)
    at = low + (0.2 + 0.7 * torch.rand(count, 1, 2, generator=generator)) * (high - low)
    cut = torch.rand(count, 1, 2, generator=generator) < torch.tensor([0.03, 0.15])
    return ((rays > at.mean(1, keepdim=True)[:, :, None]) & cut[:, :, None]).any(-1)


def _lasting(slow: Tensor, quick: Tensor, share: Tensor, memory: Tensor) -> Tensor:
    """Unit noise [B, T, ...] of which a share [B] of the variance fades by `memory` [B] a frame."""
    frames = slow.shape[1]
    age = torch.arange(frames)[:, None] - torch.arange(frames)
    mix = torch.where(age >= 0, memory[:, None, None] ** age.clamp(min=0), torch.zeros(()))
    fresh = (1 - memory.square()).sqrt()[:, None].repeat(1, frames)
    fresh[:, 0] = 1
    slow = torch.einsum("bij,bj,bj...->bi...", mix, fresh, slow)
    part = share.view(-1, *[1] * (slow.ndim - 1))
    return part.sqrt() * slow + (1 - part).sqrt() * quick
