"""How far a found body is from the true one, in millimetres. Points are metres, [T, J, 3]; errors are per frame."""

import torch
from torch import Tensor


def procrustes(points: Tensor, target: Tensor) -> Tensor:
    """Points [T, J, 3] moved, turned and scaled to lie as close to the target as a similarity can bring them.

    The rotation is a proper one: the last singular direction is turned over when the best orthogonal matrix would
    be a mirror (Umeyama, 1991).
    """
    centre, target_centre = points.mean(-2, keepdim=True), target.mean(-2, keepdim=True)
    x, y = points - centre, target - target_centre
    u, singular, vt = torch.linalg.svd(x.mT @ y)
    sign = torch.ones_like(singular)
    sign[..., -1] = torch.sign(torch.linalg.det(u @ vt))
    rotation = (u * sign.unsqueeze(-2)) @ vt  # y ~ scale x rotation
    scale = (singular * sign).sum(-1) / x.square().sum((-1, -2)).clamp(min=1e-30)
    return scale[..., None, None] * (x @ rotation) + target_centre


def mpjpe_mm(joints: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Mean distance of joints [T, J, 3] after the roots [T, 3] are laid on each other, [T]."""
    away = (joints - root.unsqueeze(-2)) - (target - target_root.unsqueeze(-2))
    return 1000 * away.norm(dim=-1).mean(-1)


def pa_mpjpe_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Mean distance of joints after the best similarity, [T]."""
    return 1000 * (procrustes(joints, target) - target).norm(dim=-1).mean(-1)


def mve_mm(vertices: Tensor, target: Tensor, root: Tensor, target_root: Tensor) -> Tensor:
    """Mean distance of vertices [T, V, 3] after the roots [T, 3] are laid on each other, [T]."""
    return mpjpe_mm(vertices, target, root, target_root)


def acceleration_error_mm(joints: Tensor, target: Tensor) -> Tensor:
    """Mean distance of second differences, mm per frame^2 (as VIBE counts), [T - 2]."""
    away = torch.diff(joints - target, n=2, dim=0)
    return 1000 * away.norm(dim=-1).mean(-1)
