"""ViTPose (Xu et al. 2022): a plain vision transformer and a small head, one map per keypoint."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import CropConvention, HeatmapModel, ModelCard, renamed
from pose2d.models.resnet import DECONV_CHANNELS, deconv_layers
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
        mixed = F.scaled_dot_product_attention(query, key, value)  # [N, heads, patches, channels / heads]
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Each patch by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, 4 * channels)
        self.fc2 = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, EPS)
        self.attn = Attention(channels, heads)
        self.norm2 = nn.LayerNorm(channels, EPS)
        self.mlp = Mlp(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Images -> one vector per patch. The two pixels of padding come from masked pre-training."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, channels, PATCH, PATCH, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class ViT(nn.Module):
    """Key names as in ViTPose. `pos_embed` has one place more than there are patches: it is added to all of them."""

    def __init__(self, channels: int, depth: int, heads: int, input_wh: tuple[int, int]) -> None:
        super().__init__()
        patches = (input_wh[0] // PATCH) * (input_wh[1] // PATCH)
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + 1, channels))
        self.patch_embed = PatchEmbed(channels)
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
    """mmpose 1.x: `backbone.layers.i.ln1`, and no place in `pos_embed` that is added to all patches."""
    if not any(key.startswith("backbone.layers.") for key in state):
        return dict(state)
    names = renamed(
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
    if not any(key.startswith("backbone.encoder.") for key in state):
        return dict(state)
    layer, block = r"^backbone\.encoder\.layer\.(\d+)\.", r"backbone.blocks.\1."
    names = renamed(
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


def without_experts(state: Mapping[str, Tensor], skeleton: Skeleton, channels: int) -> dict[str, Tensor]:
    """ViTPose+: the last rows of every block's second layer belong to a data set; take this one's, and its head."""
    expert, head = _EXPERT[skeleton.name], _HEAD[skeleton.name]
    names = {key: value for key, value in state.items() if ".mlp.experts." not in key}
    for key in [key for key in names if ".mlp.fc2." in key]:
        own = state.get(key.replace("fc2", f"experts.{expert}"))
        if own is not None and len(names[key]) < channels:
            names[key] = torch.cat([names[key], own])
    for key in [key for key in names if key.startswith("associate_keypoint_heads.")]:
        value = names.pop(key)
        _, index, rest = key.split(".", 2)
        if index == str(head):
            names[f"keypoint_head.{rest}"] = value[: skeleton.size] if rest.startswith("final_layer.") else value
    return names


SIZES = {"s": (384, 12, 12), "b": (768, 12, 12), "l": (1024, 24, 16), "h": (1280, 32, 16)}  # channels, depth, heads
INPUT_WH = (192, 256)
PATCHES_HW = (INPUT_WH[1] // PATCH, INPUT_WH[0] // PATCH)


class ClassicHead(nn.Module):
    """Two transposed convolutions to stride 4, then one 1x1 convolution."""

    def __init__(self, channels: int, keypoints: int) -> None:
        super().__init__()
        self.deconv_layers = deconv_layers(channels, 2)
        self.final_layer = nn.Conv2d(DECONV_CHANNELS, keypoints, 1)


class SimpleHead(nn.Module):
    """One 3x3 convolution on the map grown fourfold."""

    def __init__(self, channels: int, keypoints: int) -> None:
        super().__init__()
        self.final_layer = nn.Conv2d(channels, keypoints, 3, padding=1)


class ViTPose(HeatmapModel):
    """Takes RGB; crops and decodes without bias (UDP).

    The official files, those of mmpose 1.x and of transformers name the same tensors differently; the mixture files
    of ViTPose+ hold several data sets, of which the one with this model's keypoints is taken.
    """

    crop: ClassVar[CropConvention] = "udp"
    decode = staticmethod(decode.udp)
    shift_mirrored = False
    keypoint_head: ClassicHead | SimpleHead

    def __init__(self, size: str, skeleton: Skeleton) -> None:
        super().__init__()
        channels, depth, heads = SIZES[size]
        self.input_wh, self.skeleton = INPUT_WH, skeleton
        self.channels = channels
        self.backbone = ViT(channels, depth, heads, INPUT_WH)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = from_transformers(from_mmpose(state))
        return without_experts(names, self.skeleton, self.channels)


class ViTPoseClassic(ViTPose):
    """Features are the 256 channels at stride 4 from which the last 1x1 convolution makes the maps."""

    keypoint_head: ClassicHead

    def __init__(self, size: str, skeleton: Skeleton) -> None:
        super().__init__(size, skeleton)
        self.feature_shape = (DECONV_CHANNELS, 4 * PATCHES_HW[0], 4 * PATCHES_HW[1])
        self.keypoint_head = ClassicHead(self.channels, skeleton.size)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.keypoint_head.deconv_layers(self.backbone(crops))

    def maps(self, features: Tensor) -> Tensor:
        return self.keypoint_head.final_layer(features)


class ViTPoseSimple(ViTPose):
    """Features are the transformer's own map at stride 16: only growing lies between it and the last convolution."""

    keypoint_head: SimpleHead

    def __init__(self, size: str, skeleton: Skeleton) -> None:
        super().__init__(size, skeleton)
        self.feature_shape = (self.channels, *PATCHES_HW)
        self.keypoint_head = SimpleHead(self.channels, skeleton.size)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.backbone(crops)

    def maps(self, features: Tensor) -> Tensor:
        grown = F.interpolate(F.relu(features), scale_factor=4, mode="bilinear", align_corners=False)
        return self.keypoint_head.final_layer(grown)


_BACKBONE = {"s": 21_663_744, "b": 85_794_816, "l": 303_296_512, "h": 630_912_000}  # parameters
_OFFICIAL = "ViTAE-Transformer/ViTPose"


def _card(name: str, build: type[ViTPose], size: str, skeleton: Skeleton, head: int, source: str) -> ModelCard:
    return ModelCard(
        name=name,
        build=partial(build, size, skeleton),
        skeleton=skeleton,
        input_wh=INPUT_WH,
        parameters=_BACKBONE[size] + head,
        licence="Apache-2.0",
        source=source,
    )


def _classic(size: str, suffix: str, skeleton: Skeleton, source: str) -> ModelCard:
    deconv = 16 * DECONV_CHANNELS * (SIZES[size][0] + DECONV_CHANNELS) + 4 * DECONV_CHANNELS
    return _card(
        f"vitpose-{size}{suffix}",
        ViTPoseClassic,
        size,
        skeleton,
        deconv + (DECONV_CHANNELS + 1) * skeleton.size,
        source,
    )


def _simple(size: str) -> ModelCard:
    head = (9 * SIZES[size][0] + 1) * COCO17.size
    return _card(f"vitpose-{size}-simple", ViTPoseSimple, size, COCO17, head, _OFFICIAL)


CARDS = [
    *(_classic(size, "", COCO17, _OFFICIAL) for size in SIZES),
    *(_simple(size) for size in SIZES),
    *(_classic(size, "-mpii", MPII16, f"{_OFFICIAL} (ViTPose+)") for size in SIZES),
    *(_classic(size, "-wholebody", WHOLEBODY133, f"{_OFFICIAL} (ViTPose+)") for size in SIZES),
]
