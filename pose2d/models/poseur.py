"""Poseur (Mao et al. 2022): keypoint queries of a deformable transformer over a backbone's maps."""

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import PoseModel, named_layers
from pose2d.models.cards import sized_card
from pose2d.models.checkpoints import rename_tensors
from pose2d.models.hrnet import HRNet, widths
from pose2d.models.resnet import ResNet, stage_channels
from pose2d.models.trunk import FeaturesWithTrunk, trunk_of
from pose2d.skeletons import COCO17, WHOLEBODY133, Skeleton
from pose2d.types import Prediction


def sample(maps: list[Tensor], places: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum [N, Q, heads, C] of values of maps at places.

    maps: L of [N, C, h_l, w_l], zero outside; places [N, Q, heads, L, P, 2]: x and y from 0 (left
    or upper edge) to 1; weights [N, Q, heads, L, P]."""
    total = torch.zeros((), dtype=maps[0].dtype, device=maps[0].device)
    for level, values in enumerate(maps):
        grid = 2 * places[:, :, :, level].flatten(1, 2) - 1  # [N, Q * heads, P, 2]
        sampled = F.grid_sample(
            values, grid, mode="bilinear", padding_mode="zeros", align_corners=False
        )
        sampled = sampled.unflatten(2, weights.shape[1:3])  # [N, C, Q, heads, P]
        total = total + torch.einsum("ncqhp,nqhp->nqhc", sampled, weights[:, :, :, level])
    return total


class DeformableAttention(nn.Module):
    """Poseur's attention: every head reads all channels and projects them after the sum.

    Key names are those of Poseur's repository, where the projection per head is two embeddings."""

    def __init__(self, channels: int, heads: int, levels: int, points: int) -> None:
        super().__init__()
        self.heads = heads
        self.levels = levels
        self.points = points
        self.sampling_offsets = nn.Linear(channels, heads * levels * points * 2)
        self.attention_weights = nn.Linear(channels, heads * levels * points)
        self.value_proj_weight = nn.Embedding(heads * channels, channels // heads)
        self.value_proj_bias = nn.Embedding(heads, channels // heads)
        self.output_proj = nn.Linear(channels, channels)

    def forward(self, query: Tensor, reference: Tensor, maps: list[Tensor]) -> Tensor:
        """Let queries [N, Q, C] attend around reference points [N, Q, 2] (0..1) -> [N, Q, C]."""
        shape = (self.heads, self.levels, self.points)
        sizes = [[level.shape[-1], level.shape[-2]] for level in maps]
        size = torch.tensor(sizes, dtype=query.dtype, device=query.device)
        # The layer predicts offsets in cells.
        offsets = self.sampling_offsets(query).unflatten(2, (*shape, 2)) / size[:, None]
        weights = self.attention_weights(query).unflatten(2, (self.heads, -1)).softmax(-1)
        places = reference[:, :, None, None, None] + offsets
        sampled = sample(maps, places, weights.unflatten(3, (self.levels, self.points)))
        # [heads, C, C / heads]
        project = self.value_proj_weight.weight.unflatten(0, (self.heads, -1))
        value = torch.einsum("nqhc,hco->nqho", sampled, project) + self.value_proj_bias.weight
        return self.output_proj(value.flatten(2))


CHANNELS = 256
HEADS = 8
LEVELS = 4
POINTS = 4
LAYERS = 6
HIDDEN = 1024


def inverse_sigmoid(x: Tensor) -> Tensor:
    """Return the logit of numbers clipped to 0..1; 0 and 1 give finite values."""
    x = x.clamp(0, 1)
    return (x.clamp_min(1e-5) / (1 - x).clamp_min(1e-5)).log()


def waves(x: Tensor, channels: int) -> Tensor:
    """Encode numbers [...] as sines and cosines of falling frequency, [..., channels]."""
    pair = torch.arange(channels // 2, dtype=x.dtype, device=x.device)
    angle = 2 * math.pi * x[..., None] / 10000 ** (2 * pair / channels)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


@cache
def map_places(h: int, w: int) -> Tensor:
    """Return the position encoding [256, h, w] of a map: first of the row, then of the column."""
    with torch.inference_mode(False), torch.device("cpu"):
        rows = waves((torch.arange(h) + 0.5) / (h + 1e-6), CHANNELS // 2)
        columns = waves((torch.arange(w) + 0.5) / (w + 1e-6), CHANNELS // 2)
        encodings = [rows[:, None].expand(h, w, -1), columns[None].expand(h, w, -1)]
        return torch.cat(encodings, -1).permute(2, 0, 1).contiguous()


class DecoderLayer(nn.Module):
    """Self-attention among keypoints, deformable attention to the maps, feed-forward.

    Each has a shortcut and a norm."""

    def __init__(self) -> None:
        super().__init__()
        among = named_layers(attn=nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True))
        self.attentions = nn.ModuleList(
            [among, DeformableAttention(CHANNELS, HEADS, LEVELS, POINTS)]
        )
        widen = nn.Sequential(nn.Linear(CHANNELS, HIDDEN), nn.ReLU(inplace=True))
        self.ffns = nn.ModuleList(
            [named_layers(layers=nn.Sequential(widen, nn.Linear(HIDDEN, CHANNELS)))]
        )
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3))

    def forward(
        self, query: Tensor, place: Tensor, reference: Tensor, maps: list[Tensor]
    ) -> Tensor:
        """Update queries; `place` encodes which keypoint a query is.

        Among keypoints it steers the attention but is not passed on."""
        among, around = cast(Any, self.attentions)
        key = query + place
        query = self.norms[0](query + among.attn(key, key, query, need_weights=False)[0])
        query = self.norms[1](query + around(query + place, reference, maps))
        return self.norms[2](query + self.ffns[0](query))


class Transformer(nn.Module):
    """A coarse guess from the pooled coarsest map, and the decoder that refines it."""

    def __init__(self, keypoints: int) -> None:
        super().__init__()
        self.level_embeds = nn.Parameter(torch.zeros(LEVELS, CHANNELS))
        self.fc_coord = named_layers(linear=nn.Linear(CHANNELS, 2 * keypoints))
        # Sigma of the coarse guess, which only its loss needs
        self.fc_sigma = named_layers(linear=nn.Linear(CHANNELS, 2 * keypoints))
        self.pos_trans = nn.Linear(2 * CHANNELS, CHANNELS)
        self.pos_trans_norm = nn.LayerNorm(CHANNELS)
        self.pos_embed = nn.Embedding(keypoints, CHANNELS)
        self.decoder = named_layers(layers=nn.ModuleList(DecoderLayer() for _ in range(LAYERS)))

    def coarse(self, last: Tensor) -> Tensor:
        """Return a first guess [N, K, 2] from the coarsest map [N, 256, h, w].

        The crop is 0..1; guesses may lie outside."""
        vector = last.mean((2, 3))
        return self.fc_coord(vector / vector.norm(dim=1, keepdim=True)).unflatten(1, (-1, 2))

    def queries(self, guess: Tensor) -> Tensor:
        """Return queries [N, K, 256] from guesses [N, K, 2], as they are and clipped to the crop."""
        guesses = torch.cat([guess, guess.clamp(0, 1)], -1)  # [N, K, 4]
        return self.pos_trans_norm(self.pos_trans(waves(guesses, CHANNELS // 2).flatten(2)))

    def forward(self, maps: list[Tensor], coord_branches: nn.ModuleList) -> tuple[Tensor, Tensor]:
        """Return the last layer's queries [N, K, 256] and their reference points [N, K, 2].

        maps: four of [N, 256, h, w]."""
        memory = [
            m + (map_places(m.shape[-2], m.shape[-1]).to(m) + level[:, None, None])
            for m, level in zip(maps, self.level_embeds, strict=True)
        ]
        reference = moved = self.coarse(maps[-1])
        query = self.queries(moved)
        place = self.pos_embed.weight.expand_as(query)
        for layer, branch in zip(self.decoder.layers, coord_branches, strict=True):
            reference = moved
            query = layer(query, place, reference, memory)
            moved = (branch(query) + inverse_sigmoid(reference)).sigmoid()
        return query, reference


def _branch(xy: bool) -> nn.Sequential:
    """Return three linear layers; as in the repository, only those of coordinates have ReLU."""
    first = nn.Linear(CHANNELS, CHANNELS)
    second = nn.Linear(CHANNELS, CHANNELS)
    if xy:
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(CHANNELS, 2))
    return nn.Sequential(first, second, named_layers(linear=nn.Linear(CHANNELS, 2)))


def certainty(sigma: Tensor) -> Tensor:
    """Return Poseur's confidence [...] in its flip test from sigma [..., 2].

    It is 0.7 prod_xy (1 - exp(-0.2 / sigma))."""
    return 0.7 * (1 - torch.exp(-0.2 / sigma)).prod(-1)


class Poseur(PoseModel):
    """Poseur; takes RGB.

    Features are the last decoder layer's queries, 256 channels per keypoint, and carry their
    reference points [N, K, 2]. The raw confidence is the mean of 1 - sigma; in the flip test it is
    `certainty`, as the repository evaluates (its `type2` fusion). `sigma_px` is the network's sigma
    in crop pixels: a Laplace density with b = sqrt(2) sigma."""

    def __init__(
        self,
        trunk: ResNet | HRNet,
        channels: Sequence[int],
        input_wh: tuple[int, int],
        skeleton: Skeleton,
    ) -> None:
        super().__init__()
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (skeleton.size, CHANNELS)
        self.backbone = trunk
        # Each map is brought to 256 channels.
        convs = (nn.Conv2d(inputs, CHANNELS, 1, bias=False) for inputs in channels)
        self.neck = named_layers(
            convs=nn.ModuleList(
                named_layers(conv=conv, gn=nn.GroupNorm(32, CHANNELS)) for conv in convs
            )
        )
        coord, output, sigma = (
            nn.ModuleList(_branch(xy) for _ in range(LAYERS)) for xy in (True, True, False)
        )
        self.keypoint_head = named_layers(
            transformer=Transformer(skeleton.size),
            fc_coord_branches=coord,
            fc_coord_output_branches=output,
            fc_sigma_branches=sigma,
        )

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return rename_tensors(state)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        maps = [
            conv(x) for conv, x in zip(self.neck.convs, self.backbone.stages(crops), strict=True)
        ]
        queries, reference = self.keypoint_head.transformer(
            maps, self.keypoint_head.fc_coord_branches
        )
        return FeaturesWithTrunk.join(queries, reference)

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return coordinates [N, K, 2] from the crop's corner and sigma [N, K, 2], in crop sizes."""
        head = self.keypoint_head
        queries = features.as_subclass(Tensor)
        reference = trunk_of(features)
        moved = (head.fc_coord_branches[-1](queries) + inverse_sigmoid(reference)).sigmoid()
        xy = moved + head.fc_coord_output_branches[-1](queries)
        return xy, head.fc_sigma_branches[-1](queries).sigmoid()

    def predict(self, features: Tensor) -> Prediction:
        xy, sigma = self.coordinates(features)
        return self._prediction(xy, (1 - sigma).mean(-1), sigma)

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Average both predictions, weighted by certainty^5; x mirrors to W - x."""
        order = self.skeleton.flip_order
        xy, sigma = self.coordinates(features)
        xy_mirrored, sigma_mirrored = self.coordinates(mirrored)
        xy_back = decode.points_back(xy_mirrored, order, 1.0)
        sigma_back = sigma_mirrored[:, order]
        p = certainty(sigma)
        p_back = certainty(sigma_back)
        weight = p[..., None] ** 5
        weight_back = p_back[..., None] ** 5
        fused = (weight * xy + weight_back * xy_back) / (weight + weight_back + 1e-10)
        return self._prediction(fused, (p + p_back) / 2, (sigma + sigma_back) / 2)

    def _prediction(self, xy: Tensor, score: Tensor, sigma: Tensor) -> Prediction:
        return Prediction(
            xy_px=xy * self.size_px(xy), score=score, sigma_px=sigma * self.size_px(xy)
        )


# Parameters without those per keypoint
_TRUNKS = {"resnet50": 33_127_012, "hrnet-w32": 38_064_356, "hrnet-w48": 74_145_380}


def _build(trunk: str, input_wh: tuple[int, int], skeleton: Skeleton) -> Poseur:
    if trunk == "resnet50":
        return Poseur(ResNet(50), stage_channels(50), input_wh, skeleton)
    width = int(trunk[-2:])
    return Poseur(HRNet(width, outputs=4), widths(width, 4), input_wh, skeleton)


_PER_KEYPOINT = CHANNELS + 4 * (CHANNELS + 1)  # one query, and the coarse guess with its sigma
_ORIGIN = ("non-commercial", "aim-uofa/Poseur")
CARDS = [
    sized_card(
        f"poseur-{trunk}-{size}{suffix}", partial(_build, trunk), skeleton, parameters, _ORIGIN
    )
    for suffix, skeleton in (("", COCO17), ("-wholebody", WHOLEBODY133))
    for trunk, of_trunk in _TRUNKS.items()
    for size in ["384x288" if trunk == "hrnet-w48" and not suffix else "256x192"]
    for parameters in [of_trunk + _PER_KEYPOINT * skeleton.size]
]
