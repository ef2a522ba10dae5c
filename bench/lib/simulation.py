"""People with exact truth: captured motion on a body, seen by a random camera, with noise of the
stated size.

Keypoint errors are drawn from the very sigmas that the confidences state, plus a share of gross
outliers. Over time they behave as those of a real network do: part of an error never changes, and
the rest does so slowly."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eval3dpw.captured.motion import Motion
from fitting.body import Body, BodyParams
from fitting.body.rotations import about_axis, matrix_to_axis_angle, rotate, rotation_matrices
from fitting.camera import Camera
from fitting.keypoints.observed import JOINT_OF
from pose2d.skeletons import COCO17, HALPE26, Skeleton
from pose2d.types import AREA_OF_BOX, ErrorDistribution, Keypoints, l_squared, sigma_px
from training.examples.random_numbers import Random
from training.examples.simulated_keypoints import draw_mixtures, draw_sigma


@dataclass(frozen=True)
class Scene:
    truth: BodyParams  # in the camera frame
    camera: Camera
    keypoints: Keypoints
    fps: float


@dataclass(frozen=True)
class Noise:
    confidence: tuple[float, float] = (
        0.6,
        0.98,
    )  # range of expected OKS, drawn evenly for each keypoint
    outliers: float = (
        0.02  # share of keypoints that are anywhere near the person, at an ordinary confidence
    )
    missing: float = 0.05  # share of keypoints that are not seen (presence 0)
    factor: float = 1.0  # actual over stated sigma
    constant_share: float = (
        0.45  # of the squared error: constant over a clip (bench/tuning/keypoint_noise.py)
    )
    memory_s: float = (
        0.18  # time constant of the rest, a first-order process; 0: frames are independent
    )
    # errors are stated as mixtures with a narrow core and heavy tails, and drawn from them
    mixtures: bool = False


def scene(
    motion: Motion,
    clip: int,
    body: Body,
    generator: torch.Generator,
    noise: Noise | None = None,
    frames: int | None = None,
    marks_m: Tensor | None = None,
    skeleton: Skeleton = HALPE26,
) -> Scene:
    """A clip of captured motion seen by a random camera: height, pitch, distance, direction and
    focal length. marks_m: [K, 3] from the body's keypoints to where they are marked, along the axes
    of the joint that they are at. skeleton: COCO's 17 or Halpe's 26 keypoints."""
    assert motion.root_m is not None
    span = motion.clip(clip)
    if frames is not None:
        span = slice(span.start, min(span.start + frames, span.stop))
    truth = _in_camera(motion.pose[span], motion.root_m[span], body, generator)
    size = (1280, 960)
    # A focal length and a distance at which the person stays in the image.
    draw = Random(generator)
    focal = float(draw.even(0.7, 1.6)) * max(size)
    joints = body.at(truth).joints
    extent = (joints.amax((0, 1)) - joints.amin((0, 1))) / 2
    fill = float(draw.even(0.6, 0.95))
    required = (
        max(float(extent[0]) * 2 * focal / size[0], float(extent[1]) * 2 * focal / size[1]) / fill
    )
    distance = max(required, 1.5) - float(joints[..., 2].amin())
    middle = (joints.amax((0, 1)) + joints.amin((0, 1))) / 2
    shift = torch.tensor([-float(middle[0]), -float(middle[1]), distance])
    camera = Camera.from_focal(focal, size)
    truth = BodyParams(truth.pose, truth.shape, truth.translation + shift)
    points = body.at(truth).keypoints[:, : skeleton.size]
    if marks_m is not None:
        full_shape = torch.nn.functional.pad(truth.shape, (0, body.shape_size - len(truth.shape)))
        turned = body.placement(rotation_matrices(truth.pose), full_shape).rotation
        points = points + rotate(
            turned[:, [JOINT_OF[name] for name in skeleton.keypoints]], marks_m
        )
    exact = camera.project(points)
    return Scene(truth, camera, noisy(exact, generator, noise or Noise(), motion.fps), motion.fps)


def _in_camera(pose: Tensor, root_m: Tensor, body: Body, generator: torch.Generator) -> BodyParams:
    """Turn the world so that a camera at a random side looks at it, a little from above or below."""
    shape = torch.randn(10, generator=generator).clamp(-2.5, 2.5)
    draw = Random(generator)
    yaw = draw.even(-torch.pi, torch.pi)
    pitch = draw.even(-0.2, 0.45)
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
    turn = about_axis(0, pitch) @ flip @ about_axis(1, yaw)
    turned = pose.clone()
    turned[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0]))
    travel = (root_m - root_m.mean(0)) @ turn.T
    rest_pelvis = body.rest_joints[0] + body.rest_joint_shapedirs[0, :, :10] @ shape
    return BodyParams(turned, shape, travel - rest_pelvis)


def correlated_noise(
    frames: int, generator: torch.Generator, noise: Noise, fps: float, keypoints: int = COCO17.size
) -> Tensor:
    """Errors in sigmas [T, K, 2]: each by itself is standard normal, neighbours in time are alike."""
    fresh = torch.randn(frames, keypoints, 2, generator=generator)
    keep = math.exp(-1 / (fps * noise.memory_s)) if noise.memory_s > 0 else 0.0
    passing = [fresh[0]]
    for new in fresh[1:]:
        passing.append(keep * passing[-1] + (1 - keep**2) ** 0.5 * new)
    constant = torch.randn(keypoints, 2, generator=generator)
    return noise.constant_share**0.5 * constant + (1 - noise.constant_share) ** 0.5 * torch.stack(
        passing
    )


def noisy(
    exact_px: Tensor, generator: torch.Generator, noise: Noise, fps: float = 30.0
) -> Keypoints:
    """COCO's 17 or Halpe's 26 keypoints [T, K, 2] read with errors that the confidence states
    truly.
    """
    skeleton = {layout.size: layout for layout in (COCO17, HALPE26)}[exact_px.shape[1]]
    low = exact_px.amin(1)
    high = exact_px.amax(1)
    sides = (high - low).clamp(min=1)
    area = AREA_OF_BOX * sides[:, 0].clamp(min=0) * sides[:, 1]
    area = torch.maximum(area, AREA_OF_BOX * sides.amax(1) ** 2 / 4)
    size = tuple(exact_px.shape[:2])
    draw = Random(generator, size)
    confidence = draw.even(*noise.confidence)
    l2 = l_squared(area, skeleton)
    error_distribution = None
    if noise.mixtures:
        weight, sigmas = draw_mixtures(
            confidence, torch.ones_like(confidence, dtype=torch.bool), generator
        )
        error_distribution = ErrorDistribution(weight, sigmas)
        place = correlated_noise(len(exact_px), generator, noise, fps, skeleton.size)[..., 0]
        sigma = draw_sigma(weight, sigmas, place) * l2.sqrt()
    else:
        sigma = sigma_px(confidence, l2)
    error = (
        correlated_noise(len(exact_px), generator, noise, fps, skeleton.size)
        * sigma[..., None]
        * noise.factor
    )
    astray = draw.chance(noise.outliers)
    anywhere = low[:, None] + draw.even(0, 1, (*size, 2)) * sides[:, None]
    xy = torch.where(astray[..., None], anywhere, exact_px + error)
    presence = (~draw.chance(noise.missing)).to(xy.dtype)
    return Keypoints(xy, confidence, presence, "oracle", area, skeleton, error_distribution)
