"""Simple Baselines (Xiao et al. 2018): a ResNet, three transposed convolutions, one map per keypoint."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import (
    IMAGENET_BGR,
    IMAGENET_RGB,
    MINIATURE,
    MMPOSE,
    HeatmapModel,
    is_mmpose,
    renamed,
    sized_card,
)
from pose2d.models.resnet import DECONV_CHANNELS, ResNet, deconv_layers, stage_channels
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton


class SimpleBaseline(ResNet, HeatmapModel):
    """Features are the channels at stride 4 (256; 128 in miniature) that the last 1x1 convolution makes the maps of.

    Official checkpoints take BGR; mmpose's of the same shape take RGB. The names tell which it is.
    """

    normalization = IMAGENET_BGR

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV_CHANNELS
    ) -> None:
        super().__init__(depth)
        self.input_wh, self.skeleton = input_wh, skeleton
        self.feature_shape = (channels, input_wh[1] // 4, input_wh[0] // 4)
        self.deconv_layers = deconv_layers(stage_channels(depth)[-1], 3, channels)
        self.final_layer = nn.Conv2d(channels, skeleton.size, 1)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.deconv_layers(self.stages(crops)[-1])

    def maps(self, features: Tensor) -> Tensor:
        return self.final_layer(features)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not is_mmpose(state):
            self.normalization, self.decode = IMAGENET_BGR, decode.quarter_offset
            return dict(state)
        self.normalization, self.decode = IMAGENET_RGB, decode.mmpose_default
        return renamed(state, (r"^(backbone|head|keypoint_head)\.", ""))


_TRUNK = {50: 33_995_328, 101: 52_987_456, 152: 68_631_104}  # parameters without the last convolution
_OFFICIAL = ("MIT", "microsoft/human-pose-estimation.pytorch")
_SETS = (
    ("", COCO17, ("256x192", "384x288"), _OFFICIAL),
    ("-mpii", MPII16, ("256x256", "384x384"), _OFFICIAL),
    ("-wholebody", WHOLEBODY133, ("256x192", "384x288"), MMPOSE),
)
CARDS = [
    sized_card(
        f"sbl-resnet{depth}-{size}{suffix}",
        partial(SimpleBaseline, depth),
        skeleton,
        parameters + (DECONV_CHANNELS + 1) * skeleton.size,
        origin,
    )
    for suffix, skeleton, sizes, origin in _SETS
    for depth, parameters in _TRUNK.items()
    for size in sizes
]
CARDS.append(sized_card("sbl-r18-128x96", partial(SimpleBaseline, 18, channels=128), COCO17, 12_752_337, MINIATURE))
