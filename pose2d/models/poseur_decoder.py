"""Poseur's decoder: one query per keypoint walks from a coarse guess to its place. Key names as in its repository."""

import math
from functools import cache
from typing import cast

import torch
from torch import Tensor, nn

from pose2d.backbones.deformable import DeformableAttention
from pose2d.models.rle import NamedLinear

CHANNELS, HEADS, LEVELS, POINTS, LAYERS, HIDDEN = 256, 8, 4, 4, 6, 1024


def inverse_sigmoid(x: Tensor) -> Tensor:
    """Numbers outside of 0..1 count as 0 or 1, which lie at a finite distance."""
    x = x.clamp(0, 1)
    return (x.clamp_min(1e-5) / (1 - x).clamp_min(1e-5)).log()


def waves(x: Tensor, channels: int) -> Tensor:
    """Numbers [...] -> sines and cosines of falling frequency, alternating, [..., channels]."""
    pair = torch.arange(channels // 2, dtype=x.dtype, device=x.device)
    angle = 2 * math.pi * x[..., None] / 10000 ** (2 * pair / channels)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


@cache
def map_places(h: int, w: int) -> Tensor:
    """What every cell of a map knows of its own place, [256, h, w]: first of its row, then of its column."""
    with torch.inference_mode(False), torch.device("cpu"):
        rows = waves((torch.arange(h) + 0.5) / (h + 1e-6), CHANNELS // 2)
        columns = waves((torch.arange(w) + 0.5) / (w + 1e-6), CHANNELS // 2)
        both = [rows[:, None].expand(h, w, -1), columns[None].expand(h, w, -1)]
        return torch.cat(both, -1).permute(2, 0, 1).contiguous()


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)

    def forward(self, query: Tensor, place: Tensor) -> Tensor:
        """`place` says which keypoint a query is; it steers the attention but is not passed on."""
        key = query + place
        return self.attn(key, key, query, need_weights=False)[0]


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first = nn.Sequential(nn.Linear(CHANNELS, HIDDEN), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(first, nn.Linear(HIDDEN, CHANNELS))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class DecoderLayer(nn.Module):
    """Keypoints look at each other, then at the maps, then think; each time added and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([SelfAttention(), DeformableAttention(CHANNELS, HEADS, LEVELS, POINTS)])
        self.ffns = nn.ModuleList([FeedForward()])
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3))

    def forward(self, query: Tensor, place: Tensor, reference: Tensor, maps: list[Tensor]) -> Tensor:
        query = self.norms[0](query + self.attentions[0](query, place))
        query = self.norms[1](query + self.attentions[1](query + place, reference, maps))
        return self.norms[2](query + self.ffns[0](query))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))


class Transformer(nn.Module):
    """The coarse guess from the pooled coarsest map, and the decoder."""

    def __init__(self, keypoints: int) -> None:
        super().__init__()
        self.level_embeds = nn.Parameter(torch.zeros(LEVELS, CHANNELS))
        self.fc_coord = NamedLinear(CHANNELS, 2 * keypoints)
        self.fc_sigma = NamedLinear(CHANNELS, 2 * keypoints)  # of the coarse guess; only its loss needs it
        self.pos_trans = nn.Linear(2 * CHANNELS, CHANNELS)
        self.pos_trans_norm = nn.LayerNorm(CHANNELS)
        self.pos_embed = nn.Embedding(keypoints, CHANNELS)
        self.decoder = Decoder()

    def coarse(self, last: Tensor) -> Tensor:
        """The coarsest map [N, 256, h, w] -> a first guess [N, K, 2], 0..1 over the crop but not bound to it."""
        vector = last.mean((2, 3))
        linear = self.fc_coord.linear
        guess = nn.functional.linear(vector / vector.norm(dim=1, keepdim=True), linear.weight, linear.bias)
        return guess.unflatten(1, (-1, 2))

    def queries(self, guess: Tensor) -> Tensor:
        """Guesses [N, K, 2] -> queries [N, K, 256], from the guess as it is and as bound to the crop."""
        both = torch.cat([guess, guess.clamp(0, 1)], -1)  # [N, K, 4]
        return self.pos_trans_norm(self.pos_trans(waves(both, CHANNELS // 2).flatten(2)))

    def forward(self, maps: list[Tensor], coord_branches: nn.ModuleList) -> tuple[Tensor, Tensor]:
        """Maps [N, 256, h, w] -> the last layer's queries [N, K, 256] and the references [N, K, 2] they moved from."""
        memory = [
            m + (map_places(m.shape[-2], m.shape[-1]).to(m) + level[:, None, None])
            for m, level in zip(maps, self.level_embeds, strict=True)
        ]
        reference = moved = self.coarse(maps[-1])
        query = self.queries(moved)
        place = self.pos_embed.weight.expand_as(query)
        for layer, branch in zip(self.decoder.layers, coord_branches, strict=True):
            reference = moved
            query = cast(DecoderLayer, layer)(query, place, reference, memory)
            moved = (branch(query) + inverse_sigmoid(reference)).sigmoid()
        return query, reference
