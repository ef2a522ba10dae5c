"""Captured motion, ready to be cut into windows of any frame rate.

Rotations are kept as quaternions that do not jump, so that a frame between two others is their
weighted mean. Poses at 5 frames a second become motion by a curve through them (Catmull-Rom), and
get a place in the world by letting the lower foot stand still.

What kind of pose a frame shows, and how often each kind is learned from.

Motion capture holds what actors were asked to do: much walking, little sitting, hardly anybody on
the floor. The pose prior (`pose_prior.py`) and the lifter's training draw frames by kind
instead."""

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from eval3dpw.captured.motion import Motion, load_motion
from fitting.body import Body
from fitting.body.kinematics import (
    MIRROR,
    axis_angle_to_quaternion,
    quaternion_product,
    quaternion_to_matrix,
)
from training.accad import load_accad
from training.rare_poses import rare_motion
from training.ui_prmd import load_ui_prmd

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
    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), without jumps of sign within a clip
    root_m: Tensor  # [N, 3] pelvis, y up
    clip_start: Tensor  # [C + 1]
    kind: Tensor  # [N] of each frame's pose (`training.motion_bank`)
    fps: float

    @cached_property
    def cumulative(self) -> Tensor:
        """[N] of how often frames are drawn, up to 1."""
        total = drawing_weights(self.kind).double().cumsum(0)
        return total / total[-1]


class Windows(NamedTuple):
    """B windows of T frames, y up."""

    turn: Tensor  # [B, T, 24, 4]
    root_m: Tensor  # [B, T, 3]
    kind: Tensor  # [B] of the pose that was drawn
    inside: Tensor  # [B, T] false beyond the end of the clip, where the last frame stands still


def bank(motion: Motion, body: Body, clips: np.ndarray) -> Bank:
    """The clips [C] that are true: those that may be learned from, or some that are kept for
    measuring.
    """
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
        turn, start = _filled_in(turn, start)
        fps = motion.fps * BETWEEN
    placed = [
        body.placement(quaternion_to_matrix(t), torch.zeros(body.shape_size)).joints
        for t in turn.split(8192)
    ]
    joints = torch.cat([part - part[:, :1] for part in placed])
    root_m = _standing(joints[:, FEET], start) if motion.root_m is None else motion.root_m[frames]
    return Bank(turn, root_m, start, pose_kinds(joints), fps)


def _filled_in(turn: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
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


def _standing(feet: Tensor, start: Tensor) -> Tensor:
    """Pelvis [N, 3] such that the lower foot neither slides nor sinks; feet [N, 4, 3] relative to
    the pelvis.
    """
    low = feet[..., 1].argmin(1)
    step = torch.zeros(len(feet), 3)
    frame = torch.arange(len(feet) - 1)
    step[1:] = feet[frame, low[:-1]] - feet[frame + 1, low[:-1]]
    step[start[:-1]] = 0
    place = step.cumsum(0)
    place[:, 1] = -feet[..., 1].amin(1)
    return place


def windows(
    banks: list[Bank], shares: list[float], time_s: Tensor, generator: torch.Generator
) -> Windows:
    """One window per row of times [B, T] in seconds from its begin, around frames drawn by their
    kind.
    """
    which = torch.multinomial(
        torch.tensor(shares), len(time_s), replacement=True, generator=generator
    )
    parts = [_of_bank(one, time_s[which == number], generator) for number, one in enumerate(banks)]
    order = torch.argsort(which, stable=True).argsort()
    return Windows(*(torch.cat(column)[order] for column in zip(*parts, strict=True)))


def _of_bank(one: Bank, time_s: Tensor, generator: torch.Generator) -> Windows:
    count = len(time_s)
    drawn = torch.searchsorted(
        one.cumulative, torch.rand(count, dtype=torch.float64, generator=generator)
    )
    drawn = drawn.clamp(max=len(one.kind) - 1)
    clip = torch.searchsorted(one.clip_start, drawn, right=True) - 1
    first = one.clip_start[clip][:, None]
    last = one.clip_start[clip + 1][:, None] - 1
    length = time_s[:, -1] * one.fps
    earliest = first.squeeze(1)
    latest = (last.squeeze(1) - length).clamp(min=first.squeeze(1))
    begin = (drawn - torch.rand(count, generator=generator) * length).clamp(earliest, latest)
    at = begin[:, None] + time_s * one.fps
    inside = at <= last
    low = at.floor().long().clamp(max=last).clamp(min=first)
    high = (low + 1).clamp(max=last)
    share = (at - low).clamp(0, 1).float()
    turn = torch.lerp(one.turn[low], one.turn[high], share[..., None, None])
    root = torch.lerp(one.root_m[low], one.root_m[high], share[..., None])
    return Windows(torch.nn.functional.normalize(turn, dim=-1), root, one.kind[drawn], inside)


def varied(given: Windows, generator: torch.Generator) -> Windows:
    """More motion than was captured: mirror images, upper bodies of others, joints a little off."""
    count = len(given.turn)
    chance = torch.rand(3, count, generator=generator)
    turn = given.turn
    root = given.root_m

    other = torch.randperm(count, generator=generator)
    legs = torch.isin(torch.arange(24), torch.tensor(LEGS))
    keeps = (chance[0] > MIXED)[:, None, None, None] | legs[None, None, :, None]
    turn = torch.where(keeps, turn, turn[other])

    offset = (
        OFF_RAD
        * torch.randn(count, 1, 24, 3, generator=generator)
        * (chance[1] < 0.5)[:, None, None, None]
    )
    offset[:, :, 0] = 0
    turn = quaternion_product(turn, axis_angle_to_quaternion(offset).expand_as(turn))

    flip = (chance[2] < 0.5)[:, None, None]
    turn = torch.where(flip[..., None], mirrored(turn), turn)
    root = torch.where(flip, root * root.new_tensor([-1.0, 1.0, 1.0]), root)
    return Windows(turn, root, given.kind, given.inside)


def mirrored(turn: Tensor) -> Tensor:
    """Rotations [..., 24, 4] of the mirror image."""
    return turn[..., MIRROR, :] * turn.new_tensor([1.0, -1.0, -1.0, 1.0])


KINDS = (
    "standing",
    "upright",
    "seated",
    "bent",
    "lying",
    "upside down",
    "kneeling",
    "on hands",
    "reaching",
)
STANDING, UPRIGHT, SEATED, BENT, LYING, UPSIDE_DOWN, KNEELING, ON_HANDS, REACHING = range(
    len(KINDS)
)
# of both knees, in space, where the open body's rest pose has 8: nine of ten who stand quietly
STRAIGHT_DEG = 16.0
# How often each kind is drawn, set by hand: people stand and sit far more than actors do.
SHARES = (0.3, 0.22, 0.19, 0.05, 0.08, 0.03, 0.04, 0.04, 0.05)


def pose_kinds(joints_m: Tensor) -> Tensor:
    """Joints [N, 24, 3], y up -> numbers of their kinds [N]."""
    trunk = normalize(joints_m[:, 12] - joints_m[:, 0], dim=-1)
    up = trunk[:, 1]

    def between(a: Tensor, b: Tensor) -> Tensor:
        return torch.rad2deg(
            torch.acos((normalize(a, dim=-1) * normalize(b, dim=-1)).sum(-1).clamp(-1, 1))
        )

    thighs = [joints_m[:, knee] - joints_m[:, hip] for hip, knee in ((1, 4), (2, 5))]
    shanks = [joints_m[:, ankle] - joints_m[:, knee] for knee, ankle in ((4, 7), (5, 8))]
    hips = torch.stack([between(thigh, -trunk) for thigh in thighs], 1)
    knees = torch.stack(
        [between(thigh, shank) for thigh, shank in zip(thighs, shanks, strict=True)], 1
    )
    kind = torch.full((len(up),), UPRIGHT)
    kind[(up > 0.9) & (knees.amax(1) < STRAIGHT_DEG) & (hips.amax(1) < 30)] = STANDING
    kind[up < 0.7] = BENT
    kind[(up > 0.3) & (kind != STANDING) & ((hips.amin(1) > 55) | (knees.amax(1) > 90))] = SEATED
    kind[(up.abs() <= 0.4) & (kind != SEATED)] = LYING
    height = joints_m[..., 1] - joints_m[..., 1].amin(1, keepdim=True)
    kneels = (height[:, (4, 5)] < 0.15) & (height[:, (1, 2)] - height[:, (4, 5)] > 0.2)
    kind[(up > 0.5) & kneels.any(1)] = KNEELING
    kind[(up < 0.75) & (height[:, (20, 21)] < 0.2).all(1) & (height[:, 9] > 0.25)] = ON_HANDS
    kind[up < -0.4] = UPSIDE_DOWN
    overhead = (height[:, (20, 21)] > height[:, 15:16] + 0.05).any(1)
    kind[overhead & ((kind == STANDING) | (kind == UPRIGHT))] = REACHING
    return kind


def drawing_weights(kind: Tensor) -> Tensor:
    """How often each of N frames is drawn, so that the kinds have SHARES; sums to 1 when every kind
    occurs.
    """
    count = torch.bincount(kind, minlength=len(KINDS)).clamp(
        min=max(1, len(kind) // 200)
    )  # a few frames stay few
    return (torch.tensor(SHARES) / count)[kind]


RARE_CLIPS, RARE_SEED = 6000, 0
# How often each is drawn from: there is more variety in CMU's many subjects than in the others.
MOTION_SHARES = (0.2, 0.42, 0.13, 0.07, 0.18)


HELD_OUT = ("clips", "poses", "exercises")  # motions with subjects that nothing is learned from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, what in (
        ("--clips", "CMU motion at 30 frames a second"),
        ("--poses", "CMU poses at 5 frames a second"),
        ("--exercises", "UI-PRMD's markers"),
        ("--woman", "ACCAD's Female1"),
    ):
        parser.add_argument(name, type=Path, required=True, help=f"{what} (.npz)")


def load_motions(given: argparse.Namespace, body: Body) -> dict[str, Motion]:
    """In the order of MOTION_SHARES: CMU at 30 and at 5 frames a second, UI-PRMD, ACCAD, and what
    is made on learned upper bodies."""
    clips = load_motion(given.clips, body, 30.0)
    poses = load_motion(given.poses, body, 5.0, given.clips)
    exercises = load_ui_prmd(given.exercises, body)
    woman = load_accad(given.woman, body)
    captured = torch.cat([motion.poses_of(motion.learned) for motion in (poses, woman)])
    kind = torch.cat([pose_kinds(body(part).joints) for part in captured.split(8192)])
    rare = rare_motion(
        captured[(kind == STANDING) | (kind == UPRIGHT)], body, RARE_CLIPS, RARE_SEED
    )
    return {"clips": clips, "poses": poses, "exercises": exercises, "woman": woman, "rare": rare}
