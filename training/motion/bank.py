"""Keep captured motion ready to be cut into windows of any frame rate.

Rotations are kept as quaternions that do not jump, so that a frame between two others is their
weighted mean. Poses at 5 frames a second become motion by a curve through them (Catmull-Rom), and
get a place in the world by letting the lower foot stand still.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from eval3dpw.captured.motion import Motion
from fitting.body import Body
from fitting.body.kinematics import MIRROR
from fitting.body.rotations import (
    axis_angle_to_quaternion,
    quaternion_product,
    quaternion_to_matrix,
)
from training.motion.kinds import drawing_weights, pose_kinds

LEGS = (
    0,
    1,
    2,
    4,
    5,
    7,
    8,
    10,
    11,
)  # pelvis and below: what another clip's upper body can be set upon
FEET = (7, 8, 10, 11)
MIXED = 0.2  # share of windows with an upper body from elsewhere
OFF_RAD = (
    0.06  # standard deviation of a constant rotation added to every joint, in half of the windows
)
BETWEEN = 3  # frames made of each one at 5 frames a second


@dataclass(frozen=True)
class Bank:
    """Hold frames of captured clips as quaternions, ready to be cut into windows."""

    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), without jumps of sign within a clip
    root_m: Tensor  # [N, 3] pelvis, y up
    clip_start: Tensor  # [C + 1]
    kind: Tensor  # [N] of each frame's pose (`training.motion.bank`)
    fps: float

    @cached_property
    def cumulative(self) -> Tensor:
        """Return the cumulative probability [N] with which frames are drawn."""
        total = drawing_weights(self.kind).double().cumsum(0)
        return total / total[-1]


class Windows(NamedTuple):
    """B windows of T frames, y up."""

    turn: Tensor  # [B, T, 24, 4]
    root_m: Tensor  # [B, T, 3]
    kind: Tensor  # [B] of the pose that was drawn
    inside: Tensor  # [B, T] false beyond the end of the clip, where the last frame stands still


def bank(motion: Motion, body: Body, clips: np.ndarray) -> Bank:
    """Build a bank of the clips [C] that are true."""
    spans = [motion.clip(int(clip)) for clip in np.flatnonzero(clips)]
    frames = torch.from_numpy(np.concatenate([np.arange(span.start, span.stop) for span in spans]))
    start = torch.from_numpy(np.cumsum([0, *(span.stop - span.start for span in spans)]))
    # q and -q are the same turn; take the one nearer to the frame before.
    quaternion = axis_angle_to_quaternion(motion.pose[frames])
    against = (quaternion[1:] * quaternion[:-1]).sum(-1) < 0
    sign = torch.cat((torch.ones(1, 24), 1 - 2 * against.float()))
    turn = quaternion * sign.cumprod(0)[..., None]
    fps = motion.fps
    if motion.root_m is None:
        turn, start = _interpolate_frames(turn, start)
        fps = motion.fps * BETWEEN
    placed = [
        body.placement(quaternion_to_matrix(t), torch.zeros(body.shape_size)).joints
        for t in turn.split(8192)
    ]
    joints = torch.cat([part - part[:, :1] for part in placed])
    root_m = (
        _stand_on_lower_foot(joints[:, FEET], start)
        if motion.root_m is None
        else motion.root_m[frames]
    )
    return Bank(turn, root_m, start, pose_kinds(joints), fps)


def _interpolate_frames(turn: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Interpolate BETWEEN frames between any two by a Catmull-Rom curve."""
    clips = []
    share = torch.arange(BETWEEN) / BETWEEN
    for first, end in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        points = turn[first:end]
        a, b, c, d = (
            points[(torch.arange(len(points) - 1) + shift).clamp(0, len(points) - 1)][:, None]
            for shift in (-1, 0, 1, 2)
        )
        s = share[None, :, None, None]
        curve = b + s / 2 * (
            (c - a) + s * ((2 * a - 5 * b + 4 * c - d) + s * (3 * (b - c) + d - a))
        )
        clips.append(torch.cat((curve.flatten(0, 1), points[-1:])))
    ends = np.cumsum([0, *map(len, clips)])
    return torch.nn.functional.normalize(torch.cat(clips), dim=-1), torch.from_numpy(ends)


def _stand_on_lower_foot(feet: Tensor, start: Tensor) -> Tensor:
    """Return a pelvis [N, 3] with which the lower foot neither slides nor sinks.

    feet [N, 4, 3] are relative to the pelvis.
    """
    low = feet[..., 1].argmin(1)
    step = torch.zeros(len(feet), 3)
    frame = torch.arange(len(feet) - 1)
    step[1:] = feet[frame, low[:-1]] - feet[frame + 1, low[:-1]]
    step[start[:-1]] = 0
    place = step.cumsum(0)
    place[:, 1] = -feet[..., 1].amin(1)
    return place


def cut_windows(
    banks: list[Bank], shares: list[float], time_s: Tensor, generator: torch.Generator
) -> Windows:
    """Cut one window per row of times [B, T] (seconds from its begin), around frames drawn by
    kind.
    """
    which = torch.multinomial(
        torch.tensor(shares), len(time_s), replacement=True, generator=generator
    )
    parts = [
        _cut_from_bank(source, time_s[which == number], generator)
        for number, source in enumerate(banks)
    ]
    order = torch.argsort(which, stable=True).argsort()
    return Windows(*(torch.cat(column)[order] for column in zip(*parts, strict=True)))


def _cut_from_bank(source: Bank, time_s: Tensor, generator: torch.Generator) -> Windows:
    count = len(time_s)
    drawn = torch.searchsorted(
        source.cumulative, torch.rand(count, dtype=torch.float64, generator=generator)
    )
    drawn = drawn.clamp(max=len(source.kind) - 1)
    clip = torch.searchsorted(source.clip_start, drawn, right=True) - 1
    first = source.clip_start[clip][:, None]
    last = source.clip_start[clip + 1][:, None] - 1
    length = time_s[:, -1] * source.fps
    earliest = first.squeeze(1)
    latest = (last.squeeze(1) - length).clamp(min=first.squeeze(1))
    begin = (drawn - torch.rand(count, generator=generator) * length).clamp(earliest, latest)
    frame = begin[:, None] + time_s * source.fps
    inside = frame <= last
    low = frame.floor().long().clamp(max=last).clamp(min=first)
    high = (low + 1).clamp(max=last)
    share = (frame - low).clamp(0, 1).float()
    turn = torch.lerp(source.turn[low], source.turn[high], share[..., None, None])
    root = torch.lerp(source.root_m[low], source.root_m[high], share[..., None])
    return Windows(torch.nn.functional.normalize(turn, dim=-1), root, source.kind[drawn], inside)


def vary(motion: Windows, generator: torch.Generator) -> Windows:
    """Vary captured motion: mirror images, upper bodies of others, joints a little off."""
    count = len(motion.turn)
    chance = torch.rand(3, count, generator=generator)
    turn = motion.turn
    root = motion.root_m

    partner = torch.randperm(count, generator=generator)
    legs = torch.isin(torch.arange(24), torch.tensor(LEGS))
    keeps = (chance[0] > MIXED)[:, None, None, None] | legs[None, None, :, None]
    turn = torch.where(keeps, turn, turn[partner])

    offset = (
        OFF_RAD
        * torch.randn(count, 1, 24, 3, generator=generator)
        * (chance[1] < 0.5)[:, None, None, None]
    )
    offset[:, :, 0] = 0
    turn = quaternion_product(turn, axis_angle_to_quaternion(offset).expand_as(turn))

    flip = (chance[2] < 0.5)[:, None, None]
    turn = torch.where(flip[..., None], mirror_rotations(turn), turn)
    root = torch.where(flip, root * root.new_tensor([-1.0, 1.0, 1.0]), root)
    return Windows(turn, root, motion.kind, motion.inside)


def mirror_rotations(turn: Tensor) -> Tensor:
    """Return rotations [..., 24, 4] of the mirror image."""
    return turn[..., MIRROR, :] * turn.new_tensor([1.0, -1.0, -1.0, 1.0])
