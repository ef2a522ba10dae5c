"""What the lifter learns from: captured motion on random bodies, seen by random cameras, read with errors."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.init.lifter.inputs import Inputs, inputs
from fitting.init.lifter.network import SHAPE
from fitting.lifter_training.cameras import views
from fitting.lifter_training.marks import marks
from fitting.lifter_training.motion_bank import Bank, matrices, varied, windows
from fitting.lifter_training.noise import read

WINDOW = 8  # frames
STEP_S = (0.06, 0.16)  # between frames of a window
SLOW_STEP_S = 0.25  # now and then up to this
SPEED = (0.75, 1.35)  # at which the motion is played
SHARES = [0.3, 0.7]  # of windows from motion captured at 30 frames a second, and from poses at 5
MARKED = 0.6  # share of windows whose keypoints are where people mark them
NEAREST_M = 0.9  # no pelvis comes closer to the camera
GROUPS, GROUP_SHARES = (
    (1, 3, WINDOW),
    (0.25, 0.1, 0.65),
)  # so many frames hear each other: single frames are learned too


@dataclass(frozen=True)
class Examples:
    """B windows of T frames; truth in the camera turned towards the person (`inputs.Box`)."""

    inputs: Inputs
    time_s: Tensor  # [B, T]
    listens: Tensor  # [B, T, T]
    counts: Tensor  # [B, T] how much a frame counts in the loss
    rotation: Tensor  # [B, T, 24, 3, 3]
    shape: Tensor  # [B, 10]
    pelvis_m: Tensor  # [B, T, 3]
    joints_m: Tensor  # [B, T, 24, 3] from the pelvis
    keypoints_m: Tensor  # [B, T, 17, 3] from the pelvis


def examples(banks: list[Bank], body: Body, count: int, generator: torch.Generator) -> Examples:
    def even(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    step = torch.where(torch.rand(count, 1, generator=generator) < 0.1, even(STEP_S[1], SLOW_STEP_S), even(*STEP_S))
    time_s = torch.arange(WINDOW) * step
    motion = varied(windows(banks, SHARES[: len(banks)], time_s * even(*SPEED), generator), generator)
    shape = torch.randn(count, SHAPE, generator=generator).clamp(-2.5, 2.5)
    view = views(count, generator)

    rotation = matrices(motion.turn)
    rotation[:, :, 0] = torch.einsum("bij,btjk->btik", view.turn, rotation[:, :, 0])
    travel = torch.einsum("bij,btj->bti", view.turn, motion.root_m - motion.root_m.mean(1, keepdim=True))
    pelvis = travel + view.target_m[:, None]
    pelvis[..., 2] += (NEAREST_M - pelvis[..., 2].amin(1, keepdim=True)).clamp(min=0)
    joints, keypoints, turned = placed(body, rotation, shape[:, None].expand(-1, WINDOW, -1))
    marked = (torch.rand(count, 1, generator=generator) < MARKED).expand(count, WINDOW)
    seen_m = keypoints + pelvis[:, :, None] + marked[..., None, None] * marks(turned)
    seen = read(seen_m[..., :2] / seen_m[..., 2:].clamp(min=0.1), marked.float(), view.half, generator)
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
    listens = (member[:, :, None] == member[:, None]) & motion.inside[:, None] | torch.eye(WINDOW, dtype=torch.bool)
    return Examples(
        given,
        time_s,
        listens,
        motion.inside * ahead * torch.where(given.box.known, 1.0, 0.3),
        rotation,
        shape,
        pelvis,
        torch.einsum("btij,btkj->btki", to_turned, joints),
        torch.einsum("btij,btkj->btki", to_turned, keypoints),
    )


class Placed(NamedTuple):
    """A body by its pelvis, in metres."""

    joints: Tensor  # [..., 24, 3]
    keypoints: Tensor  # [..., 17, 3]
    turned: Tensor  # [..., 24, 3, 3] bones from their rest


def placed(body: Body, rotation: Tensor, shape: Tensor) -> Placed:
    """Of local rotations [..., 24, 3, 3] and shapes [..., 10]."""
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
