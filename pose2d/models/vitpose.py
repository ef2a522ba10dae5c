"""ViTPose (Xu et al. 2022): a plain vision transformer and a small head, one map per keypoint."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import CropConvention, HeatmapModel, named_layers
from pose2d.models.cards import ModelCard
from pose2d.models.checkpoints import rename_tensors
from pose2d.models.resnet import DECONV, deconv_layers
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton

PATCH = 16  # pixels
EPS = 1e-6  # of every layer normalisation


class Attention(nn.Module):
    """Self-attention over all patches."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        # [N, heads, patches, channels / heads]
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer block: attention over patches, then layers on each patch by itself."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, EPS)
        self.norm2 = nn.LayerNorm(channels, EPS)
        self.attn = Attention(channels, heads)
        wide = 4 * channels
        self.mlp = named_layers(
            fc1=nn.Linear(channels, wide), gelu=nn.GELU(), fc2=nn.Linear(wide, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """The vision transformer with ViTPose's key names.

    `pos_embed` has one row more than there are patches, which is added to all of them."""

    def __init__(self, channels: int, depth: int, heads: int, input_wh: tuple[int, int]) -> None:
        super().__init__()
        patches = (input_wh[0] // PATCH) * (input_wh[1] // PATCH)
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, channels))
        # One vector per patch. The two pixels of padding come from masked pre-training.
        self.patch_embed = named_layers(proj=nn.Conv2d(3, channels, PATCH, PATCH, padding=2))
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(channels, EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Return one map [N, channels, H / 16, W / 16] of images [N, 3, H, W]."""
        maps = self.patch_embed(x)
        x = maps.flatten(2).transpose(1, 2) + self.pos_embed[:, 1:] + self.pos_embed[:, :1]
        for block in self.blocks:
            x = block(x)
        return self.last_norm(x).transpose(1, 2).unflatten(2, maps.shape[2:])


# A data set's expert in every block of ViTPose+, and its head (None: the main one)
_EXPERT = {COCO17.name: 0, MPII16.name: 2, WHOLEBODY133.name: 5}
_HEAD = {COCO17.name: None, MPII16.name: 1, WHOLEBODY133.name: 4}


def from_mmpose(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert names of mmpose 1.x, whose `pos_embed` lacks the row that is added to all patches."""
    if not any(key.startswith("backbone.layers.") for key in state):
        return dict(state)
    names = rename_tensors(
        state,
        (r"^head\.", "keypoint_head."),
        (r"^backbone\.ln1\.", "backbone.last_norm."),
        (r"^backbone\.patch_embed\.projection\.", "backbone.patch_embed.proj."),
        (r"^backbone\.layers\.(\d+)\.ln([12])\.", r"backbone.blocks.\1.norm\2."),
        (r"^backbone\.layers\.(\d+)\.attn\.", r"backbone.blocks.\1.attn."),
        (r"^backbone\.layers\.(\d+)\.ffn\.layers\.0\.0\.", r"backbone.blocks.\1.mlp.fc1."),
        (r"^backbone\.layers\.(\d+)\.ffn\.layers\.1\.", r"backbone.blocks.\1.mlp.fc2."),
    )
    places = names.get("backbone.pos_embed")
    if places is not None:
        names["backbone.pos_embed"] = torch.cat([torch.zeros_like(places[:, :1]), places], 1)
    return names


def from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert names of transformers, which has query, key and value as three tensors."""
    layer, block = r"^backbone\.encoder\.layer\.(\d+)\.", r"backbone.blocks.\1."
    names = rename_tensors(
        state,
        (r"^backbone\.embeddings\.position_embeddings$", "backbone.pos_embed"),
        (r"^backbone\.embeddings\.patch_embeddings\.projection\.", "backbone.patch_embed.proj."),
        (layer + r"attention\.output\.dense\.", block + "attn.proj."),
        (layer + r"attention\.attention\.", block + "attn."),
        (layer + r"layernorm_before\.", block + "norm1."),
        (layer + r"layernorm_after\.", block + "norm2."),
        (layer + r"mlp\.", block + "mlp."),
        (r"\.mlp\.experts\.experts\.", ".mlp.experts."),
        (r"^backbone\.layernorm\.", "backbone.last_norm."),
        (r"^head\.conv\.", "keypoint_head.final_layer."),
        (r"^head\.deconv1\.", "keypoint_head.deconv_layers.0."),
        (r"^head\.batchnorm1\.", "keypoint_head.deconv_layers.1."),
        (r"^head\.deconv2\.", "keypoint_head.deconv_layers.3."),
        (r"^head\.batchnorm2\.", "keypoint_head.deconv_layers.4."),
    )
    for key in [key for key in names if ".attn.query." in key]:
        parts = [names.pop(key.replace("query", part), None) for part in ("query", "key", "value")]
        names[key.replace("query", "qkv")] = torch.cat([part for part in parts if part is not None])
    return names


def without_experts(
    state: Mapping[str, Tensor], skeleton: Skeleton, channels: int
) -> dict[str, Tensor]:
    """Take the part of a ViTPose+ checkpoint that belongs to the data set of a skeleton.

    That is its head, and the last rows of every block's second layer."""
    expert = _EXPERT[skeleton.name]
    head = _HEAD[skeleton.name]
    names = {key: value for key, value in state.items() if ".mlp.experts." not in key}
    for key in [key for key in names if ".mlp.fc2." in key]:
        own = state.get(key.replace("fc2", f"experts.{expert}"))
        if own is not None and len(names[key]) < channels:
            names[key] = torch.cat([names[key], own])
    for key in [key for key in names if key.startswith("associate_keypoint_heads.")]:
        value = names.pop(key)
        _, index, layer = key.split(".", 2)
        if index == str(head):
            is_final = layer.startswith("final_layer.")
            names[f"keypoint_head.{layer}"] = value[: skeleton.size] if is_final else value
    return names


# Channels, depth, heads
SIZES = {"s": (384, 12, 12), "b": (768, 12, 12), "l": (1024, 24, 16), "h": (1280, 32, 16)}
INPUT_WH = (192, 256)
PATCHES_HW = (INPUT_WH[1] // PATCH, INPUT_WH[0] // PATCH)


class ViTPose(HeatmapModel):
    """ViTPose; takes RGB, crops and decodes without bias (UDP).

    Features are the 256 channels at stride 4 from which the last 1x1 convolution makes the maps.
    With a simple head they are the transformer's own map at stride 16, since only interpolation
    lies between it and the last convolution. The official files, those of mmpose 1.x and those of
    transformers name the same tensors differently. The mixture files of ViTPose+ hold several data
    sets, of which the one with this model's keypoints is taken."""

    crop: ClassVar[CropConvention] = "udp"
    decode = staticmethod(decode.udp)
    shift_mirrored = False

    def __init__(self, size: str, skeleton: Skeleton, simple: bool = False) -> None:
        super().__init__()
        channels, depth, heads = SIZES[size]
        self.input_wh = INPUT_WH
        self.skeleton = skeleton
        self.channels = channels
        self.simple = simple
        self.backbone = ViT(channels, depth, heads, INPUT_WH)
        if simple:
            self.feature_shape = (channels, *PATCHES_HW)
            self.keypoint_head = named_layers(
                final_layer=nn.Conv2d(channels, skeleton.size, 3, padding=1)
            )
        else:
            self.feature_shape = (DECONV, 4 * PATCHES_HW[0], 4 * PATCHES_HW[1])
            last = nn.Conv2d(DECONV, skeleton.size, 1)
            self.keypoint_head = named_layers(
                deconv_layers=deconv_layers(channels, 2), final_layer=last
            )

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        maps = self.backbone(crops)
        return maps if self.simple else self.keypoint_head.deconv_layers(maps)

    def maps(self, features: Tensor) -> Tensor:
        if self.simple:
            features = F.relu(features)
            features = F.interpolate(features, scale_factor=4, mode="bilinear", align_corners=False)
        return self.keypoint_head.final_layer(features)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return without_experts(from_transformers(from_mmpose(state)), self.skeleton, self.channels)


_BACKBONE = {"s": 21_663_744, "b": 85_794_816, "l": 303_296_512, "h": 630_912_000}  # parameters


def _card(size: str, suffix: str, skeleton: Skeleton) -> ModelCard:
    """Return the card of a size for a data set."""
    channels = SIZES[size][0]
    simple = suffix == "-simple"
    deconv = 16 * DECONV * (channels + DECONV) + 4 * DECONV + (DECONV + 1) * skeleton.size
    head = (9 * channels + 1) * skeleton.size if simple else deconv
    source = "ViTAE-Transformer/ViTPose" + ("" if skeleton == COCO17 else " (ViTPose+)")
    name = f"vitpose-{size}{suffix}"
    facts = (INPUT_WH, _BACKBONE[size] + head, "Apache-2.0", source)
    return ModelCard(name, partial(ViTPose, size, skeleton, simple), skeleton, *facts)


_SETS = (("", COCO17), ("-simple", COCO17), ("-mpii", MPII16), ("-wholebody", WHOLEBODY133))
CARDS = [_card(size, suffix, skeleton) for suffix, skeleton in _SETS for size in SIZES]
