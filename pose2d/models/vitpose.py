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
        mixed = F.scaled_dot_product_attention(
            query, key, value
        )  # [N, heads, patches, channels / heads]
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, EPS)
        self.norm2 = nn.LayerNorm(channels, EPS)
        self.attn = Attention(channels, heads)
        wide = 4 * channels  # each patch by itself
        self.mlp = named_layers(
            fc1=nn.Linear(channels, wide), gelu=nn.GELU(), fc2=nn.Linear(wide, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Key names as in ViTPose. `pos_embed` has one place more than there are patches: it is added
    to all of them.
    """

    def __init__(self, channels: int, depth: int, heads: int, input_wh: tuple[int, int]) -> None:
        super().__init__()
        patches = (input_wh[0] // PATCH) * (input_wh[1] // PATCH)
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, channels))
        # One vector per patch. The two pixels of padding come from masked pre-training.
        self.patch_embed = named_layers(proj=nn.Conv2d(3, channels, PATCH, PATCH, padding=2))
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(channels, EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Images [N, 3, H, W] -> one map [N, channels, H / 16, W / 16]."""
        maps = self.patch_embed(x)
        x = maps.flatten(2).transpose(1, 2) + self.pos_embed[:, 1:] + self.pos_embed[:, :1]
        for block in self.blocks:
            x = block(x)
        return self.last_norm(x).transpose(1, 2).unflatten(2, maps.shape[2:])


# Where ViTPose+ keeps a data set: its expert in every block, and its head (None: the main one).
_EXPERT = {COCO17.name: 0, MPII16.name: 2, WHOLEBODY133.name: 5}
_HEAD = {COCO17.name: None, MPII16.name: 1, WHOLEBODY133.name: 4}


def from_mmpose(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """mmpose 1.x: `backbone.layers.i.ln1`, and no place in `pos_embed` that is added to all
    patches.
    """
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
    """transformers: `backbone.encoder.layer.i`, with query, key and value as three tensors."""
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
    """ViTPose+: the last rows of every block's second layer belong to a data set; take this one's,
    and its head.
    """
    expert = _EXPERT[skeleton.name]
    head = _HEAD[skeleton.name]
    names = {key: value for key, value in state.items() if ".mlp.experts." not in key}
    for key in [key for key in names if ".mlp.fc2." in key]:
        own = state.get(key.replace("fc2", f"experts.{expert}"))
        if own is not None and len(names[key]) < channels:
            names[key] = torch.cat([names[key], own])
    for key in [key for key in names if key.startswith("associate_keypoint_heads.")]:
        value = names.pop(key)
        _, index, rest = key.split(".", 2)
        if index == str(head):
            names[f"keypoint_head.{rest}"] = (
                value[: skeleton.size] if rest.startswith("final_layer.") else value
            )
    return names


SIZES = {
    "s": (384, 12, 12),
    "b": (768, 12, 12),
    "l": (1024, 24, 16),
    "h": (1280, 32, 16),
}  # channels, depth, heads
INPUT_WH = (192, 256)
PATCHES_HW = (INPUT_WH[1] // PATCH, INPUT_WH[0] // PATCH)


class ViTPose(HeatmapModel):
    """Takes RGB; crops and decodes without bias (UDP). Features are the 256 channels at stride 4
    from which the last 1x1 convolution makes the maps; of a simple head, the transformer's own map
    at stride 16: only growing lies between it and the last convolution. The official files, those
    of mmpose 1.x and of transformers name the same tensors differently; the mixture files of
    ViTPose+ hold several data sets, of which the one with this model's keypoints is taken."""

    crop: ClassVar[CropConvention] = "udp"
    decode = staticmethod(decode.udp)
    shift_mirrored = False

    def __init__(self, size: str, skeleton: Skeleton, simple: bool = False) -> None:
        super().__init__()
        channels, depth, heads = SIZES[size]
        self.input_wh, self.skeleton = INPUT_WH, skeleton
        self.channels, self.simple = channels, simple
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
            features = F.interpolate(
                F.relu(features), scale_factor=4, mode="bilinear", align_corners=False
            )
        return self.keypoint_head.final_layer(features)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return without_experts(from_transformers(from_mmpose(state)), self.skeleton, self.channels)


_BACKBONE = {"s": 21_663_744, "b": 85_794_816, "l": 303_296_512, "h": 630_912_000}  # parameters


def _card(size: str, suffix: str, skeleton: Skeleton) -> ModelCard:
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
