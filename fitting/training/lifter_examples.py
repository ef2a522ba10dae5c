"""What the lifter learns from: captured motion on random bodies, seen by random cameras, read with errors.

Cameras are of any height, pitch, distance and focal length. COCO's annotators, and so the networks trained on them,
mark a hip above its joint, a shoulder on top of it, an ear before its canal: each difference is attached to one bone.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import MIRROR, rotate, rotation_matrices
from fitting.init.lifter.network import SHAPE, SLOW_STEP_S, WINDOW, Inputs, inputs
from fitting.thresholds import NEAREST_KEYPOINT_M
from fitting.training.lifter_noise import observe
from fitting.training.motion_bank import Bank, matrices, varied, windows
from fitting.training.motions import SHARES
from fitting.training.pose_kinds import SEATED
from pose2d.skeletons import HALPE26

STANDING_M, PELVIS_M = 1.75, 0.95  # how tall, and how high above the floor, people roughly are
FOCAL = (0.55, 2.5)  # of the image's diagonal, as far as FILL allows
FILL = (0.15, 1.2)  # of the image's height
CLOSE, CLOSE_FILL = 0.15, (1.2, 3.0)  # share of close-ups of the upper body, and how much they would fill
DISTANCE_M = (1.4, 12.0)
ASPECTS = (16 / 9, 16 / 9, 4 / 3, 1.0, 3 / 4, 9 / 16)


class Views(NamedTuple):
    """One camera for each of B windows."""

    turn: Tensor  # [B, 3, 3] from the world, y up, to the camera
    target_m: Tensor  # [B, 3] where the person's pelvis is on average, in the camera frame
    half: Tensor  # [B, 2] half width and height of the image on the plane z = 1


def views(count: int, generator: torch.Generator) -> Views:
    def even(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    def scale(low: float, high: float) -> Tensor:
        return even(math.log(low), math.log(high)).exp()

    def chance(share: float) -> Tensor:
        return torch.rand(count, generator=generator) < share

    aspect = torch.tensor(ASPECTS)[torch.randint(len(ASPECTS), (count,), generator=generator)]
    image = torch.stack((aspect, torch.ones(count)), -1) / (1 + aspect.square()).sqrt()[:, None]  # of its diagonal
    distance = scale(*DISTANCE_M)
    whole = image[:, 1] * distance / STANDING_M  # the focal length at which a person fills the image's height
    close = chance(CLOSE)
    focal = torch.minimum(torch.maximum(scale(*FOCAL), FILL[0] * whole), FILL[1] * whole)
    focal = torch.where(close, scale(*CLOSE_FILL) * whole, focal)
    half = image / (2 * focal)[:, None]
    free = half - torch.stack((0.2 / distance, 0.45 * STANDING_M / distance), -1)
    place = torch.stack((even(-1, 1), even(-1, 1)), -1) * torch.maximum(free, 0.1 * half)
    low = half[:, 1] * even(0.2, 0.8) + 0.15 * STANDING_M / distance  # the pelvis is near the image's lower edge
    place[:, 1] = torch.where(close, low, place[:, 1])

    # Either the camera's height says how far it looks down at a person there, or the pitch is anything.
    height = torch.where(chance(0.15), even(2.5, 5.0), even(0.3, 2.5))
    elevation = torch.atan2(PELVIS_M - height, distance)
    pitch = torch.where(chance(0.5), even(-0.25, 0.55), even(-0.52, 1.05))
    down = torch.where(chance(0.6), -(elevation + place[:, 1].atan()), pitch).clamp(-0.7, 1.1)
    roll = torch.where(chance(0.12), even(-0.52, 0.52), 0.04 * torch.randn(count, generator=generator))
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
    turn = _about(2, roll) @ _about(0, down) @ flip @ _about(1, even(-math.pi, math.pi))
    target = torch.cat((place, torch.ones(count, 1)), -1) * distance[:, None]
    return Views(turn, target, half)


def _about(axis: int, angle: Tensor) -> Tensor:
    vector = torch.zeros(len(angle), 3)
    vector[:, axis] = angle
    return rotation_matrices(vector)


# Keypoint -> the bone that carries the difference, and millimetres along its axes at rest: x to the body's left, y up,
# z to the front. The right side is the mirror image. Between those of RTMPose-s (bench/keypoint_offsets.py) and of
# MoveNet; MARKS_SPREAD_M covers their difference.
_SHIFT_MM = {
    "nose": (15, (0, 17, -7)),
    "left_eye": (15, (-1, 4, 3)),
    "left_ear": (15, (2, 2, 13)),
    "left_shoulder": (9, (-5, 9, -8)),
    "left_elbow": (16, (-2, 4, 8)),
    "left_wrist": (18, (5, 0, 1)),
    "left_hip": (0, (-4, 20, 19)),
    "left_knee": (1, (0, 12, -3)),
    "left_ankle": (4, (4, 15, 3)),
    "head_top": (15, (0, -1, -1)),
    "neck": (12, (0, -1, 12)),
    "pelvis": (0, (0, 11, 19)),
    "left_big_toe": (10, (2, 10, -1)),
    "left_small_toe": (10, (0, 9, -1)),
    "left_heel": (7, (1, -1, -1)),
}
MARKS_SPREAD_M = 0.008  # standard deviation per axis


def _table() -> tuple[list[int], Tensor]:
    bones, shifts = [], []
    for name in HALPE26.keypoints:
        bone, (x, y, z) = _SHIFT_MM[name.replace("right", "left")]
        right = name.startswith("right")
        bones.append(MIRROR[bone] if right else bone)
        shifts.append((-x if right else x, y, z))
    return bones, torch.tensor(shifts, dtype=torch.float32) / 1000


_BONES, _SHIFTS_M = _table()


def marks(turned: Tensor, spread_m: Tensor) -> Tensor:
    """From the body's keypoints to where they are marked, [B, T, 26, 3] metres, of turned bones [B, T, 24, 3, 3].

    spread_m: [B, 26, 3] what each person's marks differ by.
    """
    return rotate(turned[..., _BONES, :, :], _SHIFTS_M + spread_m[:, None])


STEP_S = (0.06, 0.16)  # between frames of a window; now and then up to SLOW_STEP_S
SPEED = (0.75, 1.35)  # at which the motion is played
MARKED = 0.6  # share of windows whose keypoints are where people mark them
NEAREST_M = 0.9  # no pelvis comes closer to the camera
GROUPS, GROUP_SHARES = (
    (1, 3, WINDOW),
    (0.25, 0.1, 0.65),
)  # so many frames attend to each other: single frames are learned too


@dataclass(frozen=True)
class Examples:
    """B windows of T frames; truth in the camera turned towards the person (`inputs.Box`)."""

    inputs: Inputs
    time_s: Tensor  # [B, T]
    attends: Tensor  # [B, T, T]
    counts: Tensor  # [B, T] weight of a frame in the loss
    rotation: Tensor  # [B, T, 24, 3, 3]
    shape: Tensor  # [B, 10]
    pelvis_m: Tensor  # [B, T, 3]
    joints_m: Tensor  # [B, T, 24, 3] from the pelvis
    keypoints_m: Tensor  # [B, T, 26, 3] from the pelvis


def examples(banks: list[Bank], body: Body, count: int, generator: torch.Generator) -> Examples:
    def even(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    step = torch.where(torch.rand(count, 1, generator=generator) < 0.1, even(STEP_S[1], SLOW_STEP_S), even(*STEP_S))
    time_s = torch.arange(WINDOW) * step
    motion = varied(windows(banks, list(SHARES[: len(banks)]), time_s * even(*SPEED), generator), generator)
    # Everybody has bones that the lifter's ten shape numbers cannot tell.
    whole_shape = torch.randn(count, body.shape_size, generator=generator).clamp(-2.5, 2.5)
    view = views(count, generator)

    rotation = matrices(motion.turn)
    rotation[:, :, 0] = torch.einsum("bij,btjk->btik", view.turn, rotation[:, :, 0])
    travel = torch.einsum("bij,btj->bti", view.turn, motion.root_m - motion.root_m.mean(1, keepdim=True))
    pelvis = travel + view.target_m[:, None]
    pelvis[..., 2] += (NEAREST_M - pelvis[..., 2].amin(1, keepdim=True)).clamp(min=0)
    joints, keypoints, turned = placed(body, rotation, whole_shape[:, None].expand(-1, WINDOW, -1))
    marked = (torch.rand(count, 1, generator=generator) < MARKED).expand(count, WINDOW)
    spread_m = MARKS_SPREAD_M * torch.randn(count, HALPE26.size, 3, generator=generator)
    seen_m = keypoints + pelvis[:, :, None] + marked[..., None, None] * marks(turned, spread_m)
    exact = seen_m[..., :2] / seen_m[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    seen = observe(exact, marked.float(), view.half, motion.kind == SEATED, generator)
    given = inputs(seen)

    to_turned = given.box.to_camera.mT
    rotation[:, :, 0] = to_turned @ rotation[:, :, 0]
    pelvis = torch.einsum("btij,btj->bti", to_turned, pelvis)
    ahead = pelvis[..., 2] > NEAREST_M / 2  # who has left the image may be anywhere: nothing to learn there
    pelvis[..., 2] = pelvis[..., 2].clamp(min=NEAREST_M / 2)
    group = torch.tensor(GROUPS)[
        torch.multinomial(torch.tensor(GROUP_SHARES), count, replacement=True, generator=generator)
    ]
    member = torch.arange(WINDOW) // group[:, None]
    attends = (member[:, :, None] == member[:, None]) & motion.inside[:, None] | torch.eye(WINDOW, dtype=torch.bool)
    return Examples(
        given,
        time_s,
        attends,
        motion.inside * ahead * torch.where(given.box.visible, 1.0, 0.3),
        rotation,
        whole_shape[:, :SHAPE],
        pelvis,
        torch.einsum("btij,btkj->btki", to_turned, joints),
        torch.einsum("btij,btkj->btki", to_turned, keypoints),
    )


class Placed(NamedTuple):
    """A body by its pelvis, in metres."""

    joints: Tensor  # [..., 24, 3]
    keypoints: Tensor  # [..., 26, 3]
    turned: Tensor  # [..., 24, 3, 3] bones from their rest


def placed(body: Body, rotation: Tensor, shape: Tensor) -> Placed:
    """Of local rotations [..., 24, 3, 3] and shapes [..., S]."""
    leading = rotation.shape[:-3]
    whole = torch.nn.functional.pad(shape, (0, body.shape_size - shape.shape[-1])).flatten(0, -2)
    placement = body.placement(rotation.flatten(0, -4), whole)
    points = body.keypoint_terms.place(placement, body.keypoint_terms.moments(whole, None))
    root = placement.joints[:, :1]
    return Placed(
        (placement.joints - root).unflatten(0, leading),
        (points - root).unflatten(0, leading),
        placement.rotation.unflatten(0, leading),
    )
