"""Guess a body from keypoints alone: a small network lifts a window of 2D poses to 3D.

`lift` reads a track, `lift_frames` independent frames. The network reads frames about 1/10 s apart,
eight at a time. A video at another rate is read as several interleaved videos of about that rate;
windows overlap by half, and the middle of each is used. The network is in `lifter_network`, what it
reads in `lifter_inputs`; `python -m training.lifter` trains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.rotations import matrix_to_axis_angle
from fitting.camera import Camera
from fitting.fits import InitialGuess
from fitting.init.lifter_inputs import Box, Inputs, Observation, make_inputs
from fitting.init.lifter_network import (
    LOG_STD_RANGE,
    SHAPE,
    SLOW_STEP_S,
    WINDOW,
    Lifter,
    LifterOutput,
    load_lifter,
)
from fitting.keypoints.usable import check_body_keypoints, undistort_keypoints
from fitting.keypoints.weights import stated_error_px
from pose2d.base.columns import column, nested
from pose2d.base.errors import UserError
from pose2d.base.table import BLOCK, Table
from pose2d.types import ConfidenceSource, Keypoints

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
        given = make_inputs(make_observation(keypoints.rows(slice(begin, end)), [camera]))
        found = _lifted(given, *_windows(end - begin, stride), 1 / fps, body, network)
        parts.append(found.rows(slice(first - begin, first - begin + part)))
    return Lifted.concat(parts)


def lift_frames(
    keypoints: Keypoints, cameras: Sequence[Camera], body: Body, network: Lifter | None = None
) -> Lifted:
    """T independent frames, and one camera for all or one for each."""
    alone = make_inputs(
        Observation(*(value[:, None] for value in make_observation(keypoints, cameras)))
    )
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


def make_observation(keypoints: Keypoints, cameras: Sequence[Camera]) -> Observation:
    keypoints = undistort_keypoints(check_body_keypoints(keypoints), cameras)
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
