"""Guess a body from keypoints alone: a small network lifts a window of 2D poses to 3D.

`lift` reads a track, `lift_frames` independent frames. The network reads frames about 1/10 s apart,
eight at a time. A video at another rate is read as several interleaved videos of about that rate;
windows overlap by half, and the middle of each is used. The network is in `lifter_network`, what it
reads in `lifter_inputs`; `python -m training.lifter` trains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from fitting.keypoints.reading import undo_reading
from fitting.keypoints.usable import check_body_keypoints, undistort_keypoints
from fitting.keypoints.weights import stated_error_px
from pose2d.base.columns import column, nested
from pose2d.base.errors import UserError
from pose2d.base.table import BLOCK, Table
from pose2d.types import ConfidenceSource, Keypoints

RATE = 10.0  # frames per second: the middle of the rates seen in training
SLOWEST = 1 / SLOW_STEP_S  # at fewer frames per second windows were never seen in training
HOP = WINDOW // 2
# keypoints that are the body's own, not a network's
EXACT: tuple[ConfidenceSource, ...] = ("oracle",)
BATCH = 256  # windows at a time
# The fit reads the same keypoints again, so the lifter's own deviations would count them twice.
# Keypoints left out of real clips are predicted alike from 0.9 to 1.7, rendered people are the
# better the smaller it is; 68 / 95 % regions hold 69 / 95 % here (`bench/left_out.py --choose --set
# guess=..`).
SEEN_TWICE = 1.4


@dataclass(frozen=True)
class Lifted(Table):
    """The lifter's output for one person over T frames, and one standard deviation of its
    errors.
    """

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
    """Lift one person's track at a frame rate; frames without keypoints are guessed from their
    neighbours.
    """
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    if fps < SLOWEST:
        return lift_frames(keypoints, [camera], body, network)
    stride = max(1, round(fps / RATE))
    # windows begin at multiples of it, so that parts of a track have the windows of the full track
    unit = HOP * stride
    part = max(1, BLOCK // unit) * unit
    margin = -(-WINDOW // HOP) * unit
    parts = []
    for first in range(0, len(keypoints), part):
        begin = max(0, first - margin)
        end = min(len(keypoints), first + part + margin)
        network_inputs = make_inputs(make_observation(keypoints.rows(slice(begin, end)), [camera]))
        lifted = _run_network(
            network_inputs, *_windows(end - begin, stride), 1 / fps, body, network
        )
        parts.append(lifted.rows(slice(first - begin, first - begin + part)))
    return Lifted.concat(parts)


def lift_frames(
    keypoints: Keypoints, cameras: Sequence[Camera], body: Body, network: Lifter | None = None
) -> Lifted:
    """Lift T independent frames, with one camera for all or one for each."""
    alone = make_inputs(
        Observation(*(value[:, None] for value in make_observation(keypoints, cameras)))
    )
    network_inputs = Inputs(
        alone.features[:, 0],
        Box(*(value[:, 0] for value in alone.box)),
        alone.points[:, 0],
        alone.weight[:, 0],
    )
    index = torch.arange(len(network_inputs.features))[:, None]
    return _run_network(
        network_inputs, index, torch.ones_like(index, dtype=torch.bool), 1.0, body, network
    )


def guess_from_keypoints(
    keypoints: Keypoints,
    cameras: Sequence[Camera],
    body: Body,
    fps: float | None,
    reading: Tensor | None = None,
) -> InitialGuess:
    """Return the initial guess of the lifter for a track at a frame rate, or for independent frames
    (fps None).

    reading [R]: where the person's keypoints are read (`fitting.body.reading`); None: on the body.
    """
    if reading is not None:
        keypoints = undo_reading(check_body_keypoints(keypoints), reading)
    if fps is None:
        lifted = lift_frames(keypoints, cameras, body)
    else:
        lifted = lift(keypoints, cameras[0], body, fps=fps)
    params = replace(lifted.params, reading=reading)
    return InitialGuess(params, SEEN_TWICE * lifted.rotation_std_rad, lifted.depth_std)


def make_observation(keypoints: Keypoints, cameras: Sequence[Camera]) -> Observation:
    """Return keypoints and their stated errors as the lifter reads them, on the plane z = 1."""
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
    """Return frame numbers [n, WINDOW], -1 beyond the ends, and which of them [n, WINDOW] are taken
    from this window.
    """
    index = []
    middle = []
    for phase in range(min(stride, frames)):
        own = torch.arange(phase, frames, stride)
        for first in range(-HOP // 2, len(own) - HOP // 2, HOP):
            place_in_video = torch.arange(first, first + WINDOW)
            inside = (place_in_video >= 0) & (place_in_video < len(own))
            index.append(torch.where(inside, own[place_in_video.clamp(0, len(own) - 1)], -1))
            place_in_window = torch.arange(WINDOW)
            middle.append(
                inside & (place_in_window >= HOP // 2) & (place_in_window < HOP // 2 + HOP)
            )
    return torch.stack(index), torch.stack(middle)


@torch.inference_mode()
def _run_network(
    network_inputs: Inputs,
    index: Tensor,
    middle: Tensor,
    step_s: float,
    body: Body,
    network: Lifter | None,
) -> Lifted:
    network = network or load_lifter()
    parts = []
    for frames, is_middle in zip(index.split(BATCH), middle.split(BATCH), strict=True):
        exists = frames >= 0
        time_s = (frames - frames[:, :1]) * step_s
        attends = exists[:, None] | torch.eye(frames.shape[1], dtype=torch.bool)
        output = network(network_inputs.features[frames.clamp(min=0)], time_s, attends)
        parts.append((frames[is_middle], LifterOutput(*(value[is_middle] for value in output))))
    order = torch.cat([numbers for numbers, _ in parts]).argsort()
    output = LifterOutput(
        *(torch.cat(values)[order] for values in zip(*(part for _, part in parts), strict=True))
    )
    rotation_std_rad, depth_std = (
        value.clamp(*LOG_STD_RANGE).exp()
        for value in (output.log_rotation_std, output.log_depth_std)
    )
    return Lifted(
        to_camera(output, network_inputs.box, body),
        rotation_std_rad,
        depth_std,
        network_inputs.box.visible,
    )


def to_camera(output: LifterOutput, box: Box, body: Body) -> BodyParams:
    """Convert outputs for T frames to parameters in the real camera's frame. Shape numbers apply to
    the embedded body only.
    """
    rotation = output.rotation.clone()
    rotation[:, 0] = box.to_camera @ rotation[:, 0]
    pelvis = torch.einsum("tij,tj->ti", box.to_camera, output.pelvis(box))
    shape_size = min(SHAPE, body.shape_size)
    shape = (
        output.shape[:, :shape_size]
        if body.name == "open"
        else torch.zeros(len(pelvis), shape_size)
    )
    rest_pelvis = (
        body.rest_joints[0].float() + shape @ body.rest_joint_shapedirs[0, :, :shape_size].float().T
    )
    return BodyParams(matrix_to_axis_angle(rotation), shape, pelvis - rest_pelvis)
