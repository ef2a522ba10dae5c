"""Deformable attention over several maps, in plain torch: each query samples a few places of each map."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sample(maps: list[Tensor], places: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of what lies at the given places, [N, Q, heads, C].

    maps     L of [N, C, h_l, w_l]; outside of a map there is zero
    places   [N, Q, heads, L, P, 2] x and y from 0 (the map's left or upper edge) to 1 (its right or lower edge)
    weights  [N, Q, heads, L, P]
    """
    total = torch.zeros((), dtype=maps[0].dtype, device=maps[0].device)
    for level, values in enumerate(maps):
        grid = 2 * places[:, :, :, level].flatten(1, 2) - 1  # [N, Q * heads, P, 2]
        found = F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        found = found.unflatten(2, weights.shape[1:3])  # [N, C, Q, heads, P]
        total = total + torch.einsum("ncqhp,nqhp->nqhc", found, weights[:, :, :, level])
    return total


class DeformableAttention(nn.Module):
    """Poseur's kind: every head sees all channels, and projects them to its share after the sum.

    Key names as in Poseur's repository, where the per-head projection is kept as two embeddings.
    """

    def __init__(self, channels: int, heads: int, levels: int, points: int) -> None:
        super().__init__()
        self.heads, self.levels, self.points = heads, levels, points
        self.sampling_offsets = nn.Linear(channels, heads * levels * points * 2)
        self.attention_weights = nn.Linear(channels, heads * levels * points)
        self.value_proj_weight = nn.Embedding(heads * channels, channels // heads)
        self.value_proj_bias = nn.Embedding(heads, channels // heads)
        self.output_proj = nn.Linear(channels, channels)

    def forward(self, query: Tensor, reference: Tensor, maps: list[Tensor]) -> Tensor:
        """Queries [N, Q, C] attend around their reference points [N, Q, 2] (0..1) -> [N, Q, C]."""
        shape = (self.heads, self.levels, self.points)
        size = torch.tensor([[m.shape[-1], m.shape[-2]] for m in maps], dtype=query.dtype, device=query.device)
        offsets = self.sampling_offsets(query).unflatten(2, (*shape, 2)) / size[:, None]  # steps are in cells
        weights = self.attention_weights(query).unflatten(2, (self.heads, -1)).softmax(-1)
        places = reference[:, :, None, None, None] + offsets
        seen = sample(maps, places, weights.unflatten(3, (self.levels, self.points)))
        project = self.value_proj_weight.weight.unflatten(0, (self.heads, -1))  # [heads, C, C / heads]
        value = torch.einsum("nqhc,hco->nqho", seen, project) + self.value_proj_bias.weight
        return self.output_proj(value.flatten(2))
