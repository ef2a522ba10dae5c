"""Simple Baselines (Xiao et al. 2018): a ResNet, three transposed convolutions, one map per
keypoint. And integral pose regression (IPR, Sun et al. 2018): the same network, read by expectation
instead of its peak."""

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
    """Features are the channels at stride 4 (256; 128 in miniature) that the last 1x1 convolution
    makes the maps of. Official checkpoints take BGR; mmpose's of the same shape take RGB. The names
    tell which it is."""

    normalization = IMAGENET_BGR

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV
    ) -> None:
        super().__init__(depth)
        self.input_wh, self.skeleton = input_wh, skeleton
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
    """The expected cell, and a score of one: the system states no confidence."""
    return decode.soft_argmax(maps)[0], torch.ones_like(maps[..., 0, 0])


class IPR(HeatmapModel):
    """Features are the channels at stride 4 (256; 128 in miniature) that the last 1x1 convolution
    makes the maps of. Official and mmpose checkpoints take RGB. The raw confidence is 1 everywhere;
    `maps` are before the softmax, and `heatmap_score` is the largest probability of each map after
    it. `sigma_px` is the spread of those probabilities."""

    decode = staticmethod(expectation)
    has_heatmap_score = True

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV
    ) -> None:
        super().__init__()
        self.input_wh, self.skeleton = input_wh, skeleton
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
        """The two answers averaged; x becomes W - 1 - x. The maps are those of the crops
        themselves.
        """
        order = self.skeleton.flip_order
        maps = self.maps(features)
        others = self.maps(mirrored)
        plain = self.decode_maps(maps)
        back = decode.points_back(self.decode_maps(others).xy_px, order, self.input_wh[0] - 1)
        both = zip(self._peak_and_spread_px(maps), self._peak_and_spread_px(others), strict=True)
        peak, sigma_px = ((one + other[:, order]) / 2 for one, other in both)
        return replace(plain, xy_px=(plain.xy_px + back) / 2, heatmap_score=peak, sigma_px=sigma_px)

    def _peak_and_spread_px(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """The largest probability of each map, [N, K], and the spread of all, [N, K, 2]."""
        return maps.flatten(2).softmax(-1).amax(-1), decode.soft_argmax(maps)[1] * self.cell_px(
            maps
        )

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return rename_tensors(
            state,
            (r"^head\.simplebaseline_head\.deconv_layers\.", "head.features."),
            (r"^head\.simplebaseline_head\.final_layer\.", "head.features.9."),
        )


_TRUNK = {
    50: 33_995_328,
    101: 52_987_456,
    152: 68_631_104,
}  # parameters without the last convolution
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
