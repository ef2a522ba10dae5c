"""Sort poses into kinds, and say how often each kind is learned from.

Motion capture holds what actors were asked to do: much walking, little sitting, hardly anyone on
the floor. Pose prior and lifter draw frames by kind instead.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

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
    """Return the number of the kind [N] of joints [N, 24, 3], y up."""
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
    """Return how often each of N frames is drawn, so that the kinds have SHARES.

    Sums to 1 when every kind occurs.
    """
    count = torch.bincount(kind, minlength=len(KINDS)).clamp(
        min=max(1, len(kind) // 200)
    )  # a few frames stay few
    return (torch.tensor(SHARES) / count)[kind]
