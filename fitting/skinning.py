"""Linear blend skinning of the whole mesh."""

import torch
from torch import Tensor

from fitting.kinematics import Placement

_FRAMES_AT_A_TIME = 16  # bounds the [T, 12, V] blend of transforms: 16 frames of 6,800 vertices are 5 MB


def skin(rest_vertices: Tensor, weights_by_bone: Tensor, placement: Placement) -> Tensor:
    """Posed vertices [T, V, 3] of rest vertices [3, V] or [T, 3, V], with weights [24, V].

    v = sum_j w_j (G_j x + P_j - G_j J_j). Vertices run along the last axis, so the blend is one plain matrix
    product and its use is element-wise over long rows.
    """
    rotation, joints, rest_joints = placement
    shift = joints - (rotation @ rest_joints.unsqueeze(-1)).squeeze(-1)
    transform = torch.cat((rotation, shift.unsqueeze(-1)), -1)  # [T, 24, 3, 4]
    by_entry = torch.einsum("tjac->tacj", transform)
    parts = []
    for first in range(0, len(by_entry), _FRAMES_AT_A_TIME):
        frames = slice(first, first + _FRAMES_AT_A_TIME)
        blend = by_entry[frames] @ weights_by_bone  # [t, 3, 4, V]
        x, y, z = (rest_vertices if rest_vertices.ndim == 2 else rest_vertices[frames].unsqueeze(1)).unbind(
            -2
        )
        posed = torch.addcmul(blend[:, :, 3], blend[:, :, 0], x)
        posed = torch.addcmul(posed, blend[:, :, 1], y)
        posed = torch.addcmul(posed, blend[:, :, 2], z)
        parts.append(posed.transpose(1, 2))
    return torch.cat(parts)
