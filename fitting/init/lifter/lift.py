"""Keypoints of a track, or of frames by themselves -> bodies in front of the camera.

The network hears frames about 1/10 s apart, eight at a time. A video at another rate is read as several videos of about
that rate, frame by frame in turn; windows overlap by half, and of each the middle counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.rotations import matrix_to_axis_angle
from fitting.camera import Camera
from fitting.init.guess import InitialGuess
from fitting.init.lifter.network import (
    LOG_RANGE,
    SHAPE,
    SLOW_STEP_S,
    WINDOW,
    Answer,
    Box,
    Inputs,
    Lifter,
    Seen,
    inputs,
    load_lifter,
)
from fitting.keypoints.observed import body_keypoints, undistorted
from fitting.keypoints.weights import keypoint_weights
from pose2d.base.errors import UserError
from pose2d.types import ConfidenceSource, Keypoints

RATE = 10.0  # frames a second that the network likes best
SLOWEST = 1 / SLOW_STEP_S  # at fewer frames a second neighbours were never heard in training, and say little
HOP = WINDOW // 2
EXACT: tuple[ConfidenceSource, ...] = ("oracle",)  # keypoints that are the body's own, and not a network's reading
BATCH = 256  # windows at a time


@dataclass(frozen=True)
class Lifted:
    """What the lifter makes of one person over T frames; spreads are one standard deviation."""

    params: BodyParams  # a shape per frame, [T, S]
    turn_rad: Tensor  # [T, 24] of each joint's rotation about any axis
    distance: Tensor  # [T] of the distance to the camera, as a share of it
    known: Tensor  # [T] false: the frame says nothing and its neighbours spoke for it


def lift(keypoints: Keypoints, camera: Camera, body: Body, *, fps: float, network: Lifter | None = None) -> Lifted:
    """One person's track at a frame rate; frames without keypoints take what their neighbours suggest."""
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    if fps < SLOWEST:
        return lift_frames(keypoints, [camera], body, network)
    given = inputs(_seen(keypoints, [camera]))
    index, middle = _windows(len(given.features), max(1, round(fps / RATE)))
    return _lifted(given, index, middle, 1 / fps, body, network)


def lift_frames(keypoints: Keypoints, cameras: Sequence[Camera], body: Body, network: Lifter | None = None) -> Lifted:
    """T frames that have nothing to do with each other, and one camera for all or one for each."""
    alone = inputs(Seen(*(value[:, None] for value in _seen(keypoints, cameras))))
    given = Inputs(
        alone.features[:, 0], Box(*(value[:, 0] for value in alone.box)), alone.points[:, 0], alone.trust[:, 0]
    )
    index = torch.arange(len(given.features))[:, None]
    return _lifted(given, index, torch.ones_like(index, dtype=torch.bool), 1.0, body, network)


def guess_from_keypoints(
    keypoints: Keypoints, cameras: Sequence[Camera], body: Body, fps: float | None
) -> InitialGuess:
    """The initialiser of that name: a track at a frame rate, or (None) frames by themselves."""
    found = lift_frames(keypoints, cameras, body) if fps is None else lift(keypoints, cameras[0], body, fps=fps)
    return InitialGuess(found.params, found.turn_rad, found.distance)


def _seen(keypoints: Keypoints, cameras: Sequence[Camera]) -> Seen:
    known = undistorted(body_keypoints(keypoints), cameras)
    # Ones say nothing of pixels; then every keypoint is taken for an ordinarily good one.
    sigma_px = keypoint_weights(known, "ones" if known.source == "ones" else "precision").sigma_px
    focal = torch.tensor([camera.focal_px for camera in cameras])
    center = torch.tensor([camera.center_px for camera in cameras])
    rays = (known.xy_px - center[:, None]) / focal[:, None]
    sigma = sigma_px / focal.prod(-1, keepdim=True).sqrt()
    marked = torch.full((len(rays),), float(known.source not in EXACT))
    return Seen(rays, sigma, known.confidence, known.presence, marked)


def _windows(frames: int, stride: int) -> tuple[Tensor, Tensor]:
    """Frame numbers [n, WINDOW], -1 beyond the ends, and which of them [n, WINDOW] the window answers for."""
    index, middle = [], []
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
def _lifted(given: Inputs, index: Tensor, middle: Tensor, step_s: float, body: Body, network: Lifter | None) -> Lifted:
    network = network or load_lifter()
    parts = []
    for some, of_them in zip(index.split(BATCH), middle.split(BATCH), strict=True):
        here = some >= 0
        time_s = (some - some[:, :1]) * step_s
        listens = here[:, None] | torch.eye(some.shape[1], dtype=torch.bool)
        said = network(given.features[some.clamp(min=0)], time_s, listens)
        parts.append((some[of_them], Answer(*(value[of_them] for value in said))))
    order = torch.cat([numbers for numbers, _ in parts]).argsort()
    said = Answer(*(torch.cat(values)[order] for values in zip(*(answer for _, answer in parts), strict=True)))
    turn_rad, distance = (value.clamp(*LOG_RANGE).exp() for value in (said.log_turn_rad, said.log_depth))
    return Lifted(to_camera(said, given.box, body), turn_rad, distance, given.box.known)


def to_camera(said: Answer, box: Box, body: Body) -> BodyParams:
    """Answers for T frames -> parameters in the real camera's frame. Shape numbers speak of the embedded body only."""
    rotation = said.rotation.clone()
    rotation[:, 0] = box.to_camera @ rotation[:, 0]
    pelvis = torch.einsum("tij,tj->ti", box.to_camera, said.pelvis(box))
    size = min(SHAPE, body.shape_size)
    shape = said.shape[:, :size] if body.name == "open" else torch.zeros(len(pelvis), size)
    rest = body.rest_joints[0].float() + shape @ body.rest_joints_by_shape[0, :, :size].float().T
    return BodyParams(matrix_to_axis_angle(rotation), shape, pelvis - rest)
