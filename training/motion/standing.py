"""Find people who stand quietly in captured motion."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from eval3dpw.captured.knees import signed_flexion_deg


def stands_quietly(
    joints_m: Tensor, root_m: Tensor | None, clip_start: np.ndarray, fps: float
) -> Tensor:
    """Return [N] bool: feet level, close and still, knees and trunk nearly straight; y up."""
    place = joints_m - joints_m[:, :1] + (0 if root_m is None else root_m[:, None])
    ankles = place[:, (7, 8)]
    hips = place[:, (1, 2)].mean(1, keepdim=True)
    parts = torch.cat((ankles, hips), 1)
    speed = torch.full((len(parts), 3), torch.inf)
    for first, end in zip(clip_start[:-1].tolist(), clip_start[1:].tolist(), strict=True):
        if end - first > 2:
            speed[first:end] = torch.gradient(parts[first:end], dim=0)[0].norm(dim=-1) * fps
    trunk = normalize(place[:, 12] - place[:, 0], dim=-1)[:, 1]
    apart = ankles[:, 0] - ankles[:, 1]
    still = (speed[:, :2].amax(1) < 0.05) & ((speed[:, 2] < 0.06) | (root_m is None))
    upright = (signed_flexion_deg(joints_m).amax(1) < 60) & (trunk > np.cos(np.deg2rad(30)))
    return still & upright & (apart[:, 1].abs() < 0.06) & (apart.norm(dim=-1) < 0.6)
