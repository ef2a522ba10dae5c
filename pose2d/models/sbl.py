"""Simple Baselines (Xiao et al. 2018) and integral pose regression (IPR, Sun et al. 2018).

Both are a ResNet with three transposed convolutions and one map per keypoint. Simple Baselines read
the peak of a map, IPR its expectation."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import IMAGENET_BGR, IMAGENET_RGB, HeatmapModel, named_layers
from pose2d.models.cards import MINIATURE, MMPOSE, UNPUBLISHED, sized_card
from pose2d.models.checkpoints import is_mmpose, rename_tensors
from pose2d.models.resnet import DECONV, ResNet, deconv_layers, stage_channels
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton
from pose2d.types import Prediction


class SimpleBaseline(ResNet, HeatmapModel):
    """Simple Baselines; official checkpoints take BGR, mmpose's RGB, as the tensor names tell.

    Features are the channels at stride 4 (256; 128 in miniature) from which the last 1x1
    convolution makes the maps."""

    normalization = IMAGENET_BGR

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV
    ) -> None:
        super().__init__(depth)
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (channels, input_wh[1] // 4, input_wh[0] // 4)
        self.deconv_layers = deconv_layers(stage_channels(depth)[-1], 3, channels)
        self.final_layer = nn.Conv2d(channels, skeleton.size, 1)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.deconv_layers(self.stages(crops)[-1])

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not is_mmpose(state):
            self.normalization = IMAGENET_BGR
            self.decode = decode.quarter_offset
            return dict(state)
        self.normalization = IMAGENET_RGB
        self.decode = decode.mmpose_default
        return rename_tensors(state, (r"^(backbone|head|keypoint_head)\.", ""))


def expectation(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the expected cell, and a score of 1 since the method has no confidence."""
    return decode.soft_argmax(maps)[0], torch.ones_like(maps[..., 0, 0])


class IPR(HeatmapModel):
    """Integral pose regression; official and mmpose checkpoints take RGB.

    Features are the channels at stride 4 (256; 128 in miniature) from which the last 1x1
    convolution makes the maps. The raw confidence is 1 everywhere. `maps` are before the softmax;
    `heatmap_score` is the largest probability of each map after it, and `sigma_px` the spread of
    those probabilities."""

    decode = staticmethod(expectation)
    has_heatmap_score = True

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV
    ) -> None:
        super().__init__()
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (channels, input_wh[1] // 4, input_wh[0] // 4)
        self.backbone = ResNet(depth)
        layers = deconv_layers(stage_channels(depth)[-1], 3, channels)
        self.head = named_layers(
            features=nn.Sequential(*layers, nn.Conv2d(channels, skeleton.size, 1))
        )

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.head.features[:-1](self.backbone.stages(crops)[-1])

    def maps(self, features: Tensor) -> Tensor:
        return self.head.features[-1](features)

    def decode_maps(self, maps: Tensor) -> Prediction:
        peak, sigma_px = self._peak_and_spread_px(maps)
        return replace(super().decode_maps(maps), heatmap_score=peak, sigma_px=sigma_px)

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Average both predictions; x mirrors to W - 1 - x. The maps are those of the crops."""
        order = self.skeleton.flip_order
        maps = self.maps(features)
        mirrored_maps = self.maps(mirrored)
        prediction = self.decode_maps(maps)
        mirrored_xy = self.decode_maps(mirrored_maps).xy_px
        back = decode.points_back(mirrored_xy, order, self.input_wh[0] - 1)
        peak, sigma_px = self._peak_and_spread_px(maps)
        mirrored_peak, mirrored_sigma_px = self._peak_and_spread_px(mirrored_maps)
        return replace(
            prediction,
            xy_px=(prediction.xy_px + back) / 2,
            heatmap_score=(peak + mirrored_peak[:, order]) / 2,
            sigma_px=(sigma_px + mirrored_sigma_px[:, order]) / 2,
        )

    def _peak_and_spread_px(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest probability of each map, [N, K], and the spread, [N, K, 2]."""
        peak = maps.flatten(2).softmax(-1).amax(-1)
        return peak, decode.soft_argmax(maps)[1] * self.cell_px(maps)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return rename_tensors(
            state,
            (r"^head\.simplebaseline_head\.deconv_layers\.", "head.features."),
            (r"^head\.simplebaseline_head\.final_layer\.", "head.features.9."),
        )


# Parameters without the last convolution
_TRUNK = {50: 33_995_328, 101: 52_987_456, 152: 68_631_104}
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
        parameters,
        origin,
    )
    for suffix, skeleton, sizes, origin in _SETS
    for depth, trunk in _TRUNK.items()
    for parameters in [trunk + (DECONV + 1) * skeleton.size]
    for size in sizes
]
CARDS += [
    sized_card(
        "sbl-r18-128x96",
        partial(SimpleBaseline, 18, channels=128),
        COCO17,
        12_752_337,
        MINIATURE,
    ),
    sized_card("ipr-resnet50-256x256", partial(IPR, 50), COCO17, 33_999_697, MMPOSE),
    sized_card("ipr-resnet50-256x192", partial(IPR, 50), COCO17, 33_999_697, UNPUBLISHED),
    sized_card("ipr-r18-128x96", partial(IPR, 18, channels=128), COCO17, 12_752_337, MINIATURE),
]
