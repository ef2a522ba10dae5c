"""ViTPose (Xu et al. 2022): a plain vision transformer and a small head, one map per keypoint."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import decode
from pose2d.backbones.deconv import WIDTH, deconv_layers
from pose2d.backbones.vit import PATCH, ViT
from pose2d.models.base import CropConvention, ModelCard
from pose2d.models.heatmap import HeatmapModel
from pose2d.models.vitpose_dialects import from_mmpose, from_transformers, without_experts
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton

SIZES = {"s": (384, 12, 12), "b": (768, 12, 12), "l": (1024, 24, 16), "h": (1280, 32, 16)}  # channels, depth, heads
INPUT_WH = (192, 256)
PATCHES_HW = (INPUT_WH[1] // PATCH, INPUT_WH[0] // PATCH)


class ClassicHead(nn.Module):
    """Two transposed convolutions to stride 4, then one 1x1 convolution."""

    def __init__(self, channels: int, keypoints: int) -> None:
        super().__init__()
        self.deconv_layers = deconv_layers(channels, 2)
        self.final_layer = nn.Conv2d(WIDTH, keypoints, 1)


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

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = from_transformers(from_mmpose(state))
        return without_experts(names, self.skeleton, self.channels)


class ViTPoseClassic(ViTPose):
    """Features are the 256 channels at stride 4 from which the last 1x1 convolution makes the maps."""

    keypoint_head: ClassicHead

    def __init__(self, size: str, skeleton: Skeleton) -> None:
        super().__init__(size, skeleton)
        self.feature_shape = (WIDTH, 4 * PATCHES_HW[0], 4 * PATCHES_HW[1])
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
    deconv = 16 * WIDTH * (SIZES[size][0] + WIDTH) + 4 * WIDTH
    return _card(
        f"vitpose-{size}{suffix}", ViTPoseClassic, size, skeleton, deconv + (WIDTH + 1) * skeleton.size, source
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
