"""Integral pose regression (Sun et al. 2018): Simple Baselines' network, read by expectation instead of its peak."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from pose2d import decode
from pose2d.decode import soft_argmax, soft_argmax_spread
from pose2d.models.base import MINIATURE, MMPOSE, UNPUBLISHED, HeatmapModel, renamed, sized_card
from pose2d.models.resnet import DECONV_CHANNELS, ResNet, deconv_layers, stage_channels
from pose2d.skeletons import COCO17, Skeleton
from pose2d.types import Prediction


class IPRHead(nn.Module):
    """Three transposed convolutions and the 1x1 convolution, in one row of layers."""

    def __init__(self, inputs: int, channels: int, keypoints: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*deconv_layers(inputs, 3, channels), nn.Conv2d(channels, keypoints, 1))


def expectation(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The expected cell, and a score of one: the system states no confidence."""
    return soft_argmax(maps), torch.ones_like(maps[..., 0, 0])


def _peak(maps: Tensor) -> Tensor:
    """The largest probability of each map, [N, K]."""
    return maps.flatten(2).softmax(-1).amax(-1)


class IPR(HeatmapModel):
    """Features are the channels at stride 4 (256; 128 in miniature) that the last 1x1 convolution makes the maps of.

    Official and mmpose checkpoints take RGB. The raw confidence is 1 everywhere; `maps` are before the softmax, and
    `heatmap_score` is the largest probability of each map after it. `sigma_px` is the spread of those probabilities.
    """

    decode = staticmethod(expectation)
    has_heatmap_score = True

    def __init__(
        self, depth: int, input_wh: tuple[int, int], skeleton: Skeleton, channels: int = DECONV_CHANNELS
    ) -> None:
        super().__init__()
        self.input_wh, self.skeleton = input_wh, skeleton
        self.feature_shape = (channels, input_wh[1] // 4, input_wh[0] // 4)
        self.backbone = ResNet(depth)
        self.head = IPRHead(stage_channels(depth)[-1], channels, skeleton.size)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.head.features[:-1](self.backbone.stages(crops)[-1])

    def maps(self, features: Tensor) -> Tensor:
        return self.head.features[-1](features)

    def decode_maps(self, maps: Tensor) -> Prediction:
        return replace(super().decode_maps(maps), heatmap_score=_peak(maps), sigma_px=self._spread_px(maps))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """The two answers averaged; x becomes W - 1 - x. The maps are those of the crops themselves."""
        order = self.skeleton.flip_order
        maps, others = self.maps(features), self.maps(mirrored)
        plain, other = self.decode_maps(maps), self.decode_maps(others)
        back = decode.points_back(other.xy_px, order, self.input_wh[0] - 1)
        return replace(
            plain,
            xy_px=(plain.xy_px + back) / 2,
            heatmap_score=(_peak(maps) + _peak(others)[:, order]) / 2,
            sigma_px=(self._spread_px(maps) + self._spread_px(others)[:, order]) / 2,
        )

    def _spread_px(self, maps: Tensor) -> Tensor:
        return soft_argmax_spread(maps) * self.cell_px(maps)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return renamed(
            state,
            (r"^head\.simplebaseline_head\.deconv_layers\.", "head.features."),
            (r"^head\.simplebaseline_head\.final_layer\.", "head.features.9."),
        )


CARDS = [
    sized_card("ipr-resnet50-256x256", partial(IPR, 50), COCO17, 33_999_697, MMPOSE),
    sized_card("ipr-resnet50-256x192", partial(IPR, 50), COCO17, 33_999_697, UNPUBLISHED),
    sized_card("ipr-r18-128x96", partial(IPR, 18, channels=128), COCO17, 12_752_337, MINIATURE),
]
