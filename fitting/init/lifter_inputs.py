"""Turn keypoints into the numbers that the lifter's network reads.

Keypoints are points on the plane z = 1 of a camera ("rays"), so focal length and pixels are gone.
Every frame has a camera of its own, rotated from the real one towards the person: three numbers,
the direction and the size of the box, say where the person is in the image (CLIFF's full-frame
inputs), and the output is rotated back. The "box" is the mean and the standard deviation of the
keypoints, weighted by confidence, because extremes would belong to outliers.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pose2d.skeletons import HALPE26

KEYPOINTS = HALPE26.size
# a frame with fewer keypoints of this confidence is not used
LEAST_CONFIDENCE = 0.05
LEAST_KEYPOINTS = 2
SIGMA_SCALE = 0.15  # of the box: a keypoint of this sigma has half weight
FARTHEST = 4.0  # boxes; coordinates beyond are clamped
SIGMA_RANGE = (0.0075, 3.0)  # of the box: stated deviations beyond are clamped
FARTHEST_EDGE = 4.0  # boxes from the box's centre to the image's edges
PER_KEYPOINT = 6
FEATURES = PER_KEYPOINT * KEYPOINTS + 9


class Observation(NamedTuple):
    """Keypoints of frames [...], in any number of leading dimensions; the last of them is time."""

    rays: Tensor  # [..., T, 26, 2] on the plane z = 1; finite everywhere
    # [..., T, 26, M] stated distribution of the error: a mixture of M isotropic Gaussians
    error_weight: Tensor
    error_sigma: Tensor  # [..., T, 26, M] on the plane z = 1
    confidence: Tensor  # [..., T, 26] expected OKS
    presence: Tensor  # [..., T, 26]
    edges: Tensor  # [..., T, 4] the image's left, top, right and bottom edge on the plane z = 1
    # [..., T] 1: where annotators mark joints (`marks` of the training), 0: the body's own points
    marked: Tensor


class Box(NamedTuple):
    """The box of a person in the image, as a camera turned towards the person."""

    # [..., T, 3, 3] from the turned camera to the real one; its third column looks at the person
    to_camera: Tensor
    size: Tensor  # [..., T] extent of the keypoints on the turned camera's plane z = 1
    # [..., T] false: too few keypoints, the box is interpolated between its neighbours
    visible: Tensor


class Inputs(NamedTuple):
    features: Tensor  # [..., T, FEATURES]
    box: Box
    points: Tensor  # [..., T, 26, 2] keypoints in boxes from the box's centre
    weight: Tensor  # [..., T, 26] presence, less where sigma is large, 0..1


def make_inputs(keypoints: Observation) -> Inputs:
    """Compute everything that the network reads."""
    confidence = keypoints.confidence * keypoints.presence
    visible = (confidence >= LEAST_CONFIDENCE).sum(-1) >= LEAST_KEYPOINTS
    share = (confidence / confidence.sum(-1, keepdim=True).clamp(min=1e-6)).unsqueeze(-1)
    center = fill_between((share * keypoints.rays).sum(-2), visible)
    to_camera = rotation_towards(center)
    ahead = torch.cat((keypoints.rays, torch.ones_like(keypoints.rays[..., :1])), -1)
    rays = torch.einsum("...ki,...ij->...kj", ahead, to_camera)  # R^T x, row by row
    rays = rays[..., :2] / rays[..., 2:].clamp(min=0.05)
    # A pixel off the axis covers a smaller angle: cos^2 along the way out, cos across; one number
    # for both.
    shrink = center.square().sum(-1).add(1).pow(-0.75)
    spread = (share.squeeze(-1) * rays.square().sum(-1)).sum(-1).sqrt().clamp(min=1e-4)
    size = fill_between(spread.log()[..., None], visible).squeeze(-1).exp()
    box = Box(to_camera, size, visible)

    points = (rays / size[..., None, None]).clamp(-FARTHEST, FARTHEST)
    variance = (keypoints.error_sigma * (shrink / size)[..., None, None]).square()
    presence = keypoints.presence * visible[..., None]
    weight = presence * (keypoints.error_weight / (1 + variance / SIGMA_SCALE**2)).sum(-1)
    # A mixture in two numbers: how sharp its core is (mean precision), and how much wider its tail
    # (mean variance).
    core = (
        (keypoints.error_weight / variance.clamp(min=1e-8))
        .sum(-1)
        .rsqrt()
        .clamp(*SIGMA_RANGE)
        .log()
    )
    tail = (keypoints.error_weight * variance).sum(-1).sqrt().clamp(*SIGMA_RANGE).log() - core
    error_features = torch.stack((weight, presence, presence * (core + 3), presence * tail), -1)
    keypoint_features = torch.cat((points * weight[..., None], error_features), -1)
    # Hidden legs are below the image, or behind something in it, such as a desk.
    outwards = keypoints.edges.new_tensor([-1.0, -1.0, 1.0, 1.0])
    edges = outwards * (keypoints.edges - torch.cat((center, center), -1)) / size[..., None]
    edges = edges.clamp(-FARTHEST_EDGE, FARTHEST_EDGE)
    about_box = torch.stack((size.log() + 3, visible.to(size.dtype), keypoints.marked), -1)
    place = torch.cat((2.8 * center, about_box, edges / 2), -1)
    return Inputs(torch.cat((keypoint_features.flatten(-2), place), -1), box, points, weight)


def rotation_towards(center: Tensor) -> Tensor:
    """Return the shortest turn [..., 3, 3] that takes the optical axis to a point [..., 2] of the
    plane z = 1.
    """
    x, y = center.unbind(-1)
    length = (x * x + y * y + 1).sqrt()
    x = x / length
    y = y / length
    z = 1 / length
    k = 1 / (1 + z)
    nine = (1 - k * x * x, -k * x * y, x, -k * x * y, 1 - k * y * y, y, -x, -y, z)
    return torch.stack(nine, -1).unflatten(-1, (3, 3))


def fill_between(values: Tensor, valid: Tensor) -> Tensor:
    """Return values [..., T, n] where valid [..., T], interpolated between the nearest valid ones
    elsewhere; zero if there is none.
    """
    if bool(valid.all()):
        return values
    last = valid.shape[-1]
    frame = torch.arange(last, device=valid.device).expand(valid.shape)
    before = torch.where(valid, frame, -1).cummax(-1).values
    after = torch.where(valid, frame, last).flip(-1).cummin(-1).values.flip(-1)
    first = torch.where(before >= 0, before, after.clamp(max=last - 1))
    second = torch.where(after < last, after, first)
    share = ((frame - first) / (second - first).clamp(min=1)).to(values.dtype)[..., None]
    low, high = (
        values.gather(-2, frame_number[..., None].expand(*frame_number.shape, values.shape[-1]))
        for frame_number in (first, second)
    )
    return torch.where(
        valid.any(-1)[..., None, None], torch.lerp(low, high, share), torch.zeros_like(values)
    )
