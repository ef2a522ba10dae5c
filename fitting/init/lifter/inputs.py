"""What the lifter reads of a frame: keypoints as directions, as far as each can be trusted, and where the person is.

Directions are points on the plane z = 1 of a camera ("rays"), so focal length and pixels are gone. Every frame is
looked at by a camera of its own, turned from the real one towards the person: what is left of the person's place in the
image is said in three numbers, the direction and the size of the box (CLIFF's full-frame inputs), and the answer is
turned back. The "box" is the mean and the spread of the keypoints, each counted by its trust; extremes would belong to
outliers.
"""

from typing import NamedTuple

import torch
from torch import Tensor

KEYPOINTS = 17
LEAST_TRUST, LEAST_KEYPOINTS = 0.05, 2  # a frame with fewer keypoints of this trust says nothing
SIGMA_SCALE = 0.15  # of the box: a keypoint of this sigma is half believed
FARTHEST = 4.0  # boxes; what is read beyond is held there
PER_KEYPOINT = 5
FEATURES = PER_KEYPOINT * KEYPOINTS + 5


class Seen(NamedTuple):
    """Keypoints of frames [...], in any number of leading dimensions; the last of them is time."""

    rays: Tensor  # [..., T, 17, 2] on the plane z = 1; finite everywhere
    sigma: Tensor  # [..., T, 17] standard deviation on either axis, same unit
    confidence: Tensor  # [..., T, 17] expected OKS
    presence: Tensor  # [..., T, 17]
    marked: Tensor  # [..., T] 1: where people mark joints in photographs (`fitting.marked`), 0: the body's own points


class Box(NamedTuple):
    """Where a person is, as the turned camera sees it."""

    to_camera: Tensor  # [..., T, 3, 3] from the turned camera to the real one; its third column looks at the person
    size: Tensor  # [..., T] spread of the keypoints on the turned camera's plane z = 1
    known: Tensor  # [..., T] false: too little was seen, the box is between its neighbours'


class Inputs(NamedTuple):
    features: Tensor  # [..., T, FEATURES]
    box: Box
    points: Tensor  # [..., T, 17, 2] keypoints in boxes from the box's centre
    trust: Tensor  # [..., T, 17] how far each is believed, 0..1


def inputs(seen: Seen) -> Inputs:
    """Everything that the network reads."""
    trust = seen.confidence * seen.presence
    known = (trust >= LEAST_TRUST).sum(-1) >= LEAST_KEYPOINTS
    share = (trust / trust.sum(-1, keepdim=True).clamp(min=1e-6)).unsqueeze(-1)
    center = between((share * seen.rays).sum(-2), known)
    to_camera = turned_towards(center)
    rays = torch.einsum("...ki,...ij->...kj", _homogeneous(seen.rays), to_camera)  # R^T x, row by row
    rays = rays[..., :2] / rays[..., 2:].clamp(min=0.05)
    # A pixel off the axis covers a smaller angle: cos^2 along the way out, cos across; one number for both.
    shrink = center.square().sum(-1).add(1).pow(-0.75)
    size = between((share.squeeze(-1) * rays.square().sum(-1)).sum(-1).sqrt().clamp(min=1e-4).log()[..., None], known)
    size = size.squeeze(-1).exp()
    box = Box(to_camera, size, known)

    points = (rays / size[..., None, None]).clamp(-FARTHEST, FARTHEST)
    sigma = seen.sigma * (shrink / size)[..., None]
    presence = seen.presence * known[..., None]
    believed = presence / (1 + (sigma / SIGMA_SCALE).square())
    told = torch.stack((believed, presence, presence * (sigma.clamp(0.0075, 3).log() + 3)), -1)
    keypoint = torch.cat((points * believed[..., None], told), -1)
    said = torch.stack((size.log() + 3, known.to(size.dtype), seen.marked), -1)
    place = torch.cat((2.8 * center, said), -1)
    return Inputs(torch.cat((keypoint.flatten(-2), place), -1), box, points, believed)


def _homogeneous(rays: Tensor) -> Tensor:
    return torch.cat((rays, torch.ones_like(rays[..., :1])), -1)


def turned_towards(center: Tensor) -> Tensor:
    """The shortest turn [..., 3, 3] that takes the optical axis to a point [..., 2] of the plane z = 1."""
    x, y = center.unbind(-1)
    length = (x * x + y * y + 1).sqrt()
    x, y, z = x / length, y / length, 1 / length
    k = 1 / (1 + z)
    return torch.stack((1 - k * x * x, -k * x * y, x, -k * x * y, 1 - k * y * y, y, -x, -y, z), -1).unflatten(
        -1, (3, 3)
    )


def between(values: Tensor, known: Tensor) -> Tensor:
    """Values [..., T, n] where known [..., T]; elsewhere between the nearest known ones, zero if there is none."""
    if bool(known.all()):
        return values
    frame = torch.arange(known.shape[-1], device=known.device).expand(known.shape)
    never = torch.full_like(frame, -1)
    before = torch.where(known, frame, never).cummax(-1).values
    after = (
        torch.where(known, -frame, torch.full_like(frame, -known.shape[-1])).flip(-1).cummax(-1).values.flip(-1).neg()
    )
    last = known.shape[-1]
    first = torch.where(before >= 0, before, after.clamp(max=last - 1))
    second = torch.where(after < last, after, first)
    share = ((frame - first) / (second - first).clamp(min=1)).to(values.dtype)[..., None]
    index = (..., slice(None))

    def at(frames: Tensor) -> Tensor:
        return values.gather(-2, frames[..., None].expand(*frames.shape, values.shape[-1])[index])

    any_known = known.any(-1)[..., None, None]
    return torch.where(any_known, torch.lerp(at(first), at(second), share), torch.zeros_like(values))
