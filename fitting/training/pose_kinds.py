"""What kind of pose a captured frame shows, and how often each kind is learned from.

Motion capture holds what actors were asked to do: much walking, little sitting, and hardly anybody who just stands with
straight legs. The pose prior (`pose_prior.py`) and the lifter's training draw frames by kind instead, and
straighten the legs of some who stand.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

KINDS = ("standing", "upright", "seated", "bent", "lying", "upside down")
STANDING, UPRIGHT, SEATED, BENT, LYING, UPSIDE_DOWN = range(len(KINDS))
# How often each kind is drawn, set by hand: of the captured frames they are 37, 45, 14, 1, 3 and 1 %.
SHARES = (0.26, 0.36, 0.2, 0.06, 0.08, 0.04)
# Of those who stand, this share gets straighter legs: rotations of hips, knees and ankles are multiplied by 0 .. 0.8.
# Captured people stand with knees at 19 degrees in the median, where the open body's rest pose has 8.
STRAIGHTENED, MOST_KEPT = 0.6, 0.8
LEG_JOINTS = (1, 2, 4, 5, 7, 8)


def pose_kinds(joints_m: Tensor) -> Tensor:
    """Joints [N, 24, 3], y up -> numbers of their kinds [N]."""
    trunk = normalize(joints_m[:, 12] - joints_m[:, 0], dim=-1)
    up = trunk[:, 1]

    def between(a: Tensor, b: Tensor) -> Tensor:
        return torch.rad2deg(torch.acos((normalize(a, dim=-1) * normalize(b, dim=-1)).sum(-1).clamp(-1, 1)))

    thighs = [joints_m[:, knee] - joints_m[:, hip] for hip, knee in ((1, 4), (2, 5))]
    shanks = [joints_m[:, ankle] - joints_m[:, knee] for knee, ankle in ((4, 7), (5, 8))]
    hips = torch.stack([between(thigh, -trunk) for thigh in thighs], 1)
    knees = torch.stack([between(thigh, shank) for thigh, shank in zip(thighs, shanks, strict=True)], 1)
    kind = torch.full((len(up),), UPRIGHT)
    kind[(up > 0.85) & (knees.amax(1) < 35) & (hips.amax(1) < 40)] = STANDING
    kind[up < 0.7] = BENT
    kind[(up > 0.3) & (kind != STANDING) & ((hips.amin(1) > 55) | (knees.amax(1) > 90))] = SEATED
    kind[(up.abs() <= 0.4) & (kind != SEATED)] = LYING
    kind[up < -0.4] = UPSIDE_DOWN
    return kind


def drawing_weights(kind: Tensor) -> Tensor:
    """How often each of N frames is drawn, so that the kinds have SHARES; sums to 1 when every kind occurs."""
    count = torch.bincount(kind, minlength=len(KINDS)).clamp(min=1)
    return (torch.tensor(SHARES) / count)[kind]


def legs_kept(kind: Tensor, generator: torch.Generator) -> Tensor:
    """The share of its legs' rotations that each of N poses keeps, 0..1."""
    chosen = (torch.rand(len(kind), generator=generator) < STRAIGHTENED) & (kind == STANDING)
    return torch.where(chosen, MOST_KEPT * torch.rand(len(kind), generator=generator), torch.ones(()))
