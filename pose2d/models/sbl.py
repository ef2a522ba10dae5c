"""Simple Baselines (Xiao et al. 2018): a ResNet, three transposed convolutions, one map per keypoint."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from pose2d import decode
from pose2d.backbones.resnet import DECONV_CHANNELS, ResNet, deconv_layers, stage_channels
from pose2d.models.base import ModelCard
from pose2d.models.dialects import is_mmpose, renamed
from pose2d.models.heatmap import HeatmapModel
from pose2d.normalization import IMAGENET_BGR, IMAGENET_RGB
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

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not is_mmpose(state):
            self.normalization, self.decode = IMAGENET_BGR, decode.quarter_offset
            return dict(state)
        self.normalization, self.decode = IMAGENET_RGB, decode.mmpose_default
        return renamed(state, (r"^(backbone|head|keypoint_head)\.", ""))


_TRUNK = {50: 33_995_328, 101: 52_987_456, 152: 68_631_104}  # parameters without the last convolution
_OFFICIAL = "microsoft/human-pose-estimation.pytorch"
_SETS = (
    ("", COCO17, ("256x192", "384x288"), "MIT", _OFFICIAL),
    ("-mpii", MPII16, ("256x256", "384x384"), "MIT", _OFFICIAL),
    ("-wholebody", WHOLEBODY133, ("256x192", "384x288"), "Apache-2.0", "open-mmlab/mmpose"),
)
CARDS = [
    ModelCard(
        name=f"sbl-resnet{depth}-{size}{suffix}",
        build=partial(SimpleBaseline, depth, (width, height), skeleton),
        skeleton=skeleton,
        input_wh=(width, height),
        parameters=parameters + (DECONV_CHANNELS + 1) * skeleton.size,
        licence=licence,
        source=source,
    )
    for suffix, skeleton, sizes, licence, source in _SETS
    for depth, parameters in _TRUNK.items()
    for size in sizes
    for height, width in [map(int, size.split("x"))]
]

# The miniature: trained by tools/train_mini.py (docs/paper.md), small enough for one processor core.
CARDS.append(
    ModelCard(
        name="sbl-r18-128x96",
        build=partial(SimpleBaseline, 18, (96, 128), COCO17, channels=128),
        skeleton=COCO17,
        input_wh=(96, 128),
        parameters=12_752_337,
        licence="your own",
        source="your own training with tools/train_mini.py",
    )
)
