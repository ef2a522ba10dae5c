"""Check that people can take a pose: floor contact, limbs outside each other, balance."""

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import matrix_to_axis_angle, rotate, rotation_matrices, shortest_turn

DEEP_M = 0.05  # limbs may be inside each other, as soft parts are
OFF_FLOOR_M = 0.06
TILTED_DEG = 35.0
OUT_OF_BALANCE_M = 0.08
# What touches the floor: a joint, and how far inside the skin it is.
CONTACTS = {
    "hands": ((22, 23), 0.02),
    "wrists": ((20, 21), 0.03),
    "knees": ((4, 5), 0.055),
    "left knee": ((4,), 0.055),
    "toes": ((10, 11), 0.03),
    "elbows": ((18, 19), 0.04),
    "head": ((15,), 0.12),
}


def lay_on_floor(pose: Tensor, rests: tuple[str, ...], body: Body) -> tuple[Tensor, Tensor]:
    """Turn the root so that what rests on the floor is level, and say whether that fits.

    Returns poses [N, 24, 3] and [N] bool.
    """
    if not rests:
        return pose, torch.ones(len(pose), dtype=torch.bool)
    joints = body(pose).joints
    points = torch.cat([joints[:, CONTACTS[name][0]] for name in rests], 1)
    inside = torch.cat([torch.full((len(CONTACTS[name][0]),), CONTACTS[name][1]) for name in rests])
    middle = points.mean(1, keepdim=True)
    _, _, axes = torch.linalg.svd(points - middle - inside[:, None] * torch.tensor([0.0, 1.0, 0.0]))
    normal = axes[:, 2]
    normal = normal * torch.where(normal[:, 1:2] < 0, -1.0, 1.0)
    turn = shortest_turn(normal, torch.tensor([0.0, 1.0, 0.0]).expand_as(normal))
    pose = pose.clone()
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0]))
    height = rotate(turn[:, None], points - middle)[..., 1] - inside
    off = (height - height.mean(1, keepdim=True)).abs().amax(1)
    return pose, (off < OFF_FLOOR_M) & (normal[:, 1] > np.cos(np.deg2rad(TILTED_DEG)))


# Bones as capsules: ends and radius in metres.
CAPSULES = {
    "trunk": (0, 9, 0.11),
    "chest": (6, 12, 0.1),
    "head": (15, 15, 0.1),
    "left thigh": (1, 4, 0.065),
    "right thigh": (2, 5, 0.065),
    "left shank": (4, 7, 0.045),
    "right shank": (5, 8, 0.045),
    "left fore": (18, 20, 0.035),
    "right fore": (19, 21, 0.035),
}
APART = tuple(
    (f"{side} {limb}", part if part in ("trunk", "chest", "head") else f"{opposite} {part}")
    for side, opposite in (("left", "right"), ("right", "left"))
    for limb, part in (
        ("fore", "trunk"),
        ("fore", "chest"),
        ("fore", "head"),
        ("fore", "fore"),
        ("fore", "thigh"),
        ("shank", "trunk"),
        ("shank", "shank"),
        ("shank", "thigh"),
    )
)


def are_limbs_apart(joints_m: Tensor) -> Tensor:
    """Return [N] bool: no limb is deeper in another than soft parts give way."""
    fits = torch.ones(len(joints_m), dtype=torch.bool)
    along = torch.linspace(0, 1, 7)[:, None]

    def points(name: str) -> Tensor:
        a, b, _ = CAPSULES[name]
        return torch.lerp(joints_m[:, a, None], joints_m[:, b, None], along)

    for first, second in APART:
        nearest = torch.cdist(points(first), points(second)).flatten(1).amin(1)
        fits &= nearest > CAPSULES[first][2] + CAPSULES[second][2] - DEEP_M
    return fits


# Shares of the mass (Winter: Biomechanics of human movement) at the middle of bones between joints.
MASSES = (
    (0, 6, 0.28),
    (6, 12, 0.22),
    (15, 15, 0.08),
    (1, 4, 0.1),
    (2, 5, 0.1),
    (4, 7, 0.0465),
    (5, 8, 0.0465),
    (7, 10, 0.0145),
    (8, 11, 0.0145),
    (16, 18, 0.028),
    (17, 19, 0.028),
    (18, 22, 0.022),
    (19, 23, 0.022),
)


def is_balanced(joints_m: Tensor, touching_m: float = 0.12) -> Tensor:
    """Return [N] bool: the centre of mass is over the box of what is lowest, y up."""
    share = torch.tensor([m for _, _, m in MASSES])
    middle = torch.stack([(joints_m[:, a] + joints_m[:, b]) / 2 for a, b, _ in MASSES], 1)
    mass = (share[:, None] * middle).sum(1) / share.sum()
    low = joints_m[..., 1] < joints_m[..., 1].amin(1, keepdim=True) + touching_m
    away = torch.zeros(len(joints_m))
    for axis in (0, 2):
        least = torch.where(low, joints_m[..., axis], torch.inf).amin(1)
        most = torch.where(low, joints_m[..., axis], -torch.inf).amax(1)
        away = torch.maximum(away, torch.maximum(least - mass[:, axis], mass[:, axis] - most))
    return away < OUT_OF_BALANCE_M
