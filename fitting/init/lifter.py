"""A first guess from keypoints alone: a small network lifts a window of 2D poses to a body in front
of the camera.

It is trained by `python -m training.lifter`. Keypoints are points on the plane z = 1 of a
camera ("rays"), so focal length and pixels are gone. Every frame has a camera of its own, rotated
from the real one towards the person: three numbers, the direction and the size of the box, say
where the person is in the image (CLIFF's full-frame inputs), and the output is rotated back. The
"box" is the mean and the standard deviation of the keypoints, weighted by confidence; extremes
would belong to outliers.

Time enters by rotary embedding: queries and keys are rotated by angles in proportion to the frame's
time in seconds, so only differences of time matter, any frame rate will do, and a single frame is a
window like any other.

`lift` reads a track, `lift_frames` frames by themselves. The network reads frames about 1/10 s
apart, eight at a time. A video at another rate is read as several videos of about that rate, frame
by frame in turn; windows overlap by half, and of each the middle counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fitting.body import Body, BodyParams
from fitting.body.kinematics import (
    JOINT_COUNT,
    matrix_to_axis_angle,
    matrix_to_rot6d,
    rot6d_to_matrix,
)
from fitting.camera import Camera
from fitting.fits import InitialGuess
from fitting.keypoints.observed import body_keypoints, undistorted
from fitting.keypoints.weights import stated_error_px
from pose2d.base.arrays import read_npz
from pose2d.base.columns import column, nested
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.table import BLOCK, Table
from pose2d.skeletons import HALPE26
from pose2d.types import ConfidenceSource, Keypoints

KEYPOINTS = HALPE26.size
LEAST_CONFIDENCE, LEAST_KEYPOINTS = (
    0.05,
    2,
)  # a frame with fewer keypoints of this confidence is not used
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
    """Where a person is in the image, as a camera turned towards them."""

    # [..., T, 3, 3] from the turned camera to the real one; its third column looks at the person
    to_camera: Tensor
    size: Tensor  # [..., T] extent of the keypoints on the turned camera's plane z = 1
    visible: (
        Tensor  # [..., T] false: too few keypoints, the box is interpolated between its neighbours
    )


class Inputs(NamedTuple):
    features: Tensor  # [..., T, FEATURES]
    box: Box
    points: Tensor  # [..., T, 26, 2] keypoints in boxes from the box's centre
    weight: Tensor  # [..., T, 26] presence, less where sigma is large, 0..1


def inputs(seen: Observation) -> Inputs:
    """Everything that the network reads."""
    confidence = seen.confidence * seen.presence
    visible = (confidence >= LEAST_CONFIDENCE).sum(-1) >= LEAST_KEYPOINTS
    share = (confidence / confidence.sum(-1, keepdim=True).clamp(min=1e-6)).unsqueeze(-1)
    center = interpolate((share * seen.rays).sum(-2), visible)
    to_camera = rotation_towards(center)
    ahead = torch.cat((seen.rays, torch.ones_like(seen.rays[..., :1])), -1)
    rays = torch.einsum("...ki,...ij->...kj", ahead, to_camera)  # R^T x, row by row
    rays = rays[..., :2] / rays[..., 2:].clamp(min=0.05)
    # A pixel off the axis covers a smaller angle: cos^2 along the way out, cos across; one number
    # for both.
    shrink = center.square().sum(-1).add(1).pow(-0.75)
    spread = (share.squeeze(-1) * rays.square().sum(-1)).sum(-1).sqrt().clamp(min=1e-4)
    size = interpolate(spread.log()[..., None], visible).squeeze(-1).exp()
    box = Box(to_camera, size, visible)

    points = (rays / size[..., None, None]).clamp(-FARTHEST, FARTHEST)
    variance = (seen.error_sigma * (shrink / size)[..., None, None]).square()
    presence = seen.presence * visible[..., None]
    weight = presence * (seen.error_weight / (1 + variance / SIGMA_SCALE**2)).sum(-1)
    # A mixture in two numbers: how sharp its core is (mean precision), and how much wider its tail
    # (mean variance).
    core = (seen.error_weight / variance.clamp(min=1e-8)).sum(-1).rsqrt().clamp(*SIGMA_RANGE).log()
    tail = (seen.error_weight * variance).sum(-1).sqrt().clamp(*SIGMA_RANGE).log() - core
    stated = torch.stack((weight, presence, presence * (core + 3), presence * tail), -1)
    keypoint = torch.cat((points * weight[..., None], stated), -1)
    # Legs that nobody sees are below the image, or behind something in it: people who sit at desks.
    outwards = seen.edges.new_tensor([-1.0, -1.0, 1.0, 1.0])
    edges = outwards * (seen.edges - torch.cat((center, center), -1)) / size[..., None]
    edges = edges.clamp(-FARTHEST_EDGE, FARTHEST_EDGE)
    about_box = torch.stack((size.log() + 3, visible.to(size.dtype), seen.marked), -1)
    place = torch.cat((2.8 * center, about_box, edges / 2), -1)
    return Inputs(torch.cat((keypoint.flatten(-2), place), -1), box, points, weight)


def rotation_towards(center: Tensor) -> Tensor:
    """The shortest turn [..., 3, 3] that takes the optical axis to a point [..., 2] of the plane z
    = 1.
    """
    x, y = center.unbind(-1)
    length = (x * x + y * y + 1).sqrt()
    x = x / length
    y = y / length
    z = 1 / length
    k = 1 / (1 + z)
    nine = (1 - k * x * x, -k * x * y, x, -k * x * y, 1 - k * y * y, y, -x, -y, z)
    return torch.stack(nine, -1).unflatten(-1, (3, 3))


def interpolate(values: Tensor, valid: Tensor) -> Tensor:
    """Values [..., T, n] where valid [..., T]; elsewhere between the nearest valid ones, zero if
    there is none.
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
        values.gather(-2, at[..., None].expand(*at.shape, values.shape[-1]))
        for at in (first, second)
    )
    return torch.where(
        valid.any(-1)[..., None, None], torch.lerp(low, high, share), torch.zeros_like(values)
    )


WINDOW = 8  # frames that are read together
SLOW_STEP_S = 0.25  # longest time between frames of a window in training
WIDTH = 192
LAYERS = 3
HEADS = 6
SHAPE = 10
OUTPUT_SIZE = 6 * JOINT_COUNT + SHAPE + 3
INITIAL_LOG_STD = -1.5  # before training: 0.22 rad, and 22 % of the distance
LOG_STD_RANGE = (-5.0, 1.0)  # of a stated standard deviation
PERIODS_S = (0.15, 6.0)  # shortest and longest rotary period


class LifterOutput(NamedTuple):
    """The network's output for frames [...], in the camera that is turned towards the person."""

    rotation: (
        Tensor  # [..., 24, 3, 3] each joint relative to its parent, the root to the turned camera
    )
    shape: Tensor  # [..., 10] standard deviations
    offset: Tensor  # [..., 2] the pelvis, in boxes from the box's centre
    log_size: Tensor  # [...] log of the box's size in metres, at the distance of the pelvis
    log_rotation_std: (
        Tensor  # [..., 24] log of the standard deviation of each joint's rotation about any axis
    )
    log_depth_std: Tensor  # [...] log of the relative standard deviation of the distance

    def pelvis(self, box: Box) -> Tensor:
        """[..., 3] metres, in the turned camera."""
        depth = self.log_size.exp() / box.size
        return (
            torch.cat((self.offset * box.size[..., None], torch.ones_like(depth)[..., None]), -1)
            * depth[..., None]
        )


class Block(nn.Module):
    """Attention between frames, then a feed-forward step of each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], attends: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query = qkv[0]
        key = qkv[1]
        value = qkv[2]
        attended = F.scaled_dot_product_attention(
            rotary(query, angles), rotary(key, angles), value, attn_mask=attends
        )
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        return self.feed_forward(x)


class FeedForward(nn.Module):
    """A residual step of one frame by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Lifter(nn.Module):
    """Features of windows of frames -> bodies."""

    mean_pose: Tensor  # [24, 6] added to the output

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.feed_forward = FeedForward()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, OUTPUT_SIZE)
        self.log_std = nn.Linear(WIDTH, JOINT_COUNT + 1)
        for head in (self.output, self.log_std):
            nn.init.zeros_(head.bias)
            nn.init.normal_(head.weight, std=0.002)
        upright = torch.eye(3).repeat(JOINT_COUNT, 1, 1)
        upright[0] = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
        self.register_buffer("mean_pose", matrix_to_rot6d(upright))

    def forward(self, features: Tensor, time_s: Tensor, attends: Tensor) -> LifterOutput:
        """features [B, T, FEATURES]; time_s [B, T]; attends [B, T, T], true where frame i attends
        to frame j.
        """
        x = self.feed_forward(self.embed(features))
        angles = rotary_angles(time_s, WIDTH // HEADS)
        for block in self.blocks:
            x = block(x, angles, attends[:, None])
        x = self.output_norm(x)
        six, shape, offset, size = self.output(x).split((6 * JOINT_COUNT, SHAPE, 2, 1), -1)
        rotation = rot6d_to_matrix(self.mean_pose + six.unflatten(-1, (JOINT_COUNT, 6)))
        log_std = (
            self.log_std(x.detach()) + INITIAL_LOG_STD
        )  # learns from the output's errors without changing it
        return LifterOutput(
            rotation, shape, offset, size.squeeze(-1), log_std[..., :-1], log_std[..., -1]
        )


def rotary_angles(time_s: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """cos and sin [B, 1, T, size / 2] of the angle by which each pair of numbers is turned."""
    shortest, longest = PERIODS_S
    share = torch.arange(size // 2, dtype=time_s.dtype, device=time_s.device) / (size // 2 - 1)
    rate = 2 * torch.pi / (shortest * (longest / shortest) ** share)
    angle = time_s[:, None, :, None] * rate
    return angle.cos(), angle.sin()


def rotary(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of numbers of x [B, heads, T, size]."""
    cosine, sine = angles
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)


def save_lifter(state: dict[str, Tensor], path: str | Path) -> None:
    """Write a state dictionary atomically."""
    arrays: dict[str, Any] = {
        name: value.detach().cpu().half().numpy() for name, value in state.items()
    }
    with atomic_file(path) as temporary:
        np.savez(temporary, **arrays)


@lru_cache(maxsize=2)
def load_lifter(path: str | Path | None = None) -> Lifter:
    """The embedded network, or one that `training.lifter` wrote, in eval mode."""
    source = Path(str(files("fitting") / "data" / "lifter.npz")) if path is None else Path(path)
    network = Lifter()
    found = read_npz(
        source, "Expected a lifter's weights, as `python -m training.lifter` makes them."
    )
    try:
        network.load_state_dict(
            {name: torch.from_numpy(value).float() for name, value in found.items()}
        )
    except Exception as error:  # text instead of numbers, tensors of another network
        raise UserError(f"{source} does not hold the weights of a lifter.") from error
    return network.eval().requires_grad_(False)


RATE = 10.0  # frames per second: the middle of the rates seen in training
SLOWEST = 1 / SLOW_STEP_S  # at fewer frames per second windows were never seen in training
HOP = WINDOW // 2
EXACT: tuple[ConfidenceSource, ...] = (
    "oracle",
)  # keypoints that are the body's own, not a network's
BATCH = 256  # windows at a time
# The fit reads the same keypoints again, so the lifter's own deviations would count them twice.
# Keypoints left out of real clips are predicted alike from 0.9 to 1.7, rendered people are the
# better the smaller it is; 68 / 95 % regions hold 69 / 95 % here (`bench/left_out.py --choose --set
# guess=..`).
SEEN_TWICE = 1.4


@dataclass(frozen=True)
class Lifted(Table):
    """The lifter's output for one person over T frames, and one standard deviation of its errors."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the body, a shape per frame")
    rotation_std_rad: Tensor = column(
        (24,), "f", "std of each joint's rotation about any axis", unit="rad"
    )
    depth_std: Tensor = column((), "f", "std of the distance to the camera, as a share of it")
    visible: Tensor = column(
        (), "b", "false: too few keypoints, interpolated between its neighbours"
    )


def lift(
    keypoints: Keypoints, camera: Camera, body: Body, *, fps: float, network: Lifter | None = None
) -> Lifted:
    """One person's track at a frame rate; frames without keypoints are guessed from their
    neighbours.
    """
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    if fps < SLOWEST:
        return lift_frames(keypoints, [camera], body, network)
    stride = max(1, round(fps / RATE))
    unit = (
        HOP * stride
    )  # windows begin at multiples of it, so that parts of a track have those of the whole
    part = max(1, BLOCK // unit) * unit
    margin = -(-WINDOW // HOP) * unit
    parts = []
    for first in range(0, len(keypoints), part):
        begin = max(0, first - margin)
        end = min(len(keypoints), first + part + margin)
        given = inputs(observation(keypoints.rows(slice(begin, end)), [camera]))
        found = _lifted(given, *_windows(end - begin, stride), 1 / fps, body, network)
        parts.append(found.rows(slice(first - begin, first - begin + part)))
    return Lifted.concat(parts)


def lift_frames(
    keypoints: Keypoints, cameras: Sequence[Camera], body: Body, network: Lifter | None = None
) -> Lifted:
    """T independent frames, and one camera for all or one for each."""
    alone = inputs(Observation(*(value[:, None] for value in observation(keypoints, cameras))))
    given = Inputs(
        alone.features[:, 0],
        Box(*(value[:, 0] for value in alone.box)),
        alone.points[:, 0],
        alone.weight[:, 0],
    )
    index = torch.arange(len(given.features))[:, None]
    return _lifted(given, index, torch.ones_like(index, dtype=torch.bool), 1.0, body, network)


def guess_from_keypoints(
    keypoints: Keypoints, cameras: Sequence[Camera], body: Body, fps: float | None
) -> InitialGuess:
    """The initialiser of that name: a track at a frame rate, or (None) frames by themselves."""
    found = (
        lift_frames(keypoints, cameras, body)
        if fps is None
        else lift(keypoints, cameras[0], body, fps=fps)
    )
    return InitialGuess(found.params, SEEN_TWICE * found.rotation_std_rad, found.depth_std)


def observation(keypoints: Keypoints, cameras: Sequence[Camera]) -> Observation:
    keypoints = undistorted(body_keypoints(keypoints), cameras)
    weight, sigma_px = stated_error_px(keypoints)
    focal = torch.tensor([camera.focal_px for camera in cameras])
    center = torch.tensor([camera.center_px for camera in cameras])
    size = torch.tensor([camera.size for camera in cameras], dtype=torch.float32)
    rays = (keypoints.xy_px - center[:, None]) / focal[:, None]
    sigma = sigma_px / focal.prod(-1).sqrt()[:, None, None]
    edges = torch.cat((-center, size - center), -1) / torch.cat((focal, focal), -1)
    marked = torch.full((len(rays),), float(keypoints.source not in EXACT))
    edges = edges.expand(len(rays), 4)
    return Observation(rays, weight, sigma, keypoints.confidence, keypoints.presence, edges, marked)


def _windows(frames: int, stride: int) -> tuple[Tensor, Tensor]:
    """Frame numbers [n, WINDOW], -1 beyond the ends, and which of them [n, WINDOW] are taken from
    this window.
    """
    index = []
    middle = []
    for phase in range(min(stride, frames)):
        own = torch.arange(phase, frames, stride)
        for first in range(-HOP // 2, len(own) - HOP // 2, HOP):
            at = torch.arange(first, first + WINDOW)
            inside = (at >= 0) & (at < len(own))
            index.append(torch.where(inside, own[at.clamp(0, len(own) - 1)], -1))
            place = torch.arange(WINDOW)
            middle.append(inside & (place >= HOP // 2) & (place < HOP // 2 + HOP))
    return torch.stack(index), torch.stack(middle)


@torch.inference_mode()
def _lifted(
    given: Inputs, index: Tensor, middle: Tensor, step_s: float, body: Body, network: Lifter | None
) -> Lifted:
    network = network or load_lifter()
    parts = []
    for some, of_them in zip(index.split(BATCH), middle.split(BATCH), strict=True):
        here = some >= 0
        time_s = (some - some[:, :1]) * step_s
        attends = here[:, None] | torch.eye(some.shape[1], dtype=torch.bool)
        output = network(given.features[some.clamp(min=0)], time_s, attends)
        parts.append((some[of_them], LifterOutput(*(value[of_them] for value in output))))
    order = torch.cat([numbers for numbers, _ in parts]).argsort()
    output = LifterOutput(
        *(torch.cat(values)[order] for values in zip(*(one for _, one in parts), strict=True))
    )
    rotation_std_rad, depth_std = (
        value.clamp(*LOG_STD_RANGE).exp()
        for value in (output.log_rotation_std, output.log_depth_std)
    )
    return Lifted(
        to_camera(output, given.box, body), rotation_std_rad, depth_std, given.box.visible
    )


def to_camera(output: LifterOutput, box: Box, body: Body) -> BodyParams:
    """Outputs for T frames -> parameters in the real camera's frame. Shape numbers are the embedded
    body's only.
    """
    rotation = output.rotation.clone()
    rotation[:, 0] = box.to_camera @ rotation[:, 0]
    pelvis = torch.einsum("tij,tj->ti", box.to_camera, output.pelvis(box))
    size = min(SHAPE, body.shape_size)
    shape = output.shape[:, :size] if body.name == "open" else torch.zeros(len(pelvis), size)
    rest = body.rest_joints[0].float() + shape @ body.rest_joint_shapedirs[0, :, :size].float().T
    return BodyParams(matrix_to_axis_angle(rotation), shape, pelvis - rest)
