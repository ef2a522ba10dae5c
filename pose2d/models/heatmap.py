"""What all heatmap networks share: one map per keypoint, its peak, and the flip test."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from pose2d import decode, flip
from pose2d.models.base import PoseModel
from pose2d.normalization import IMAGENET_RGB, Normalization
from pose2d.types import Prediction

Decoder = Callable[[Tensor], tuple[Tensor, Tensor]]  # maps -> xy_cells, score (pose2d/decode.py)


class HeatmapModel(PoseModel):
    """Features -> one map per keypoint -> its peak. The raw confidence is the height of the peak.

    `decode` may be replaced on a loaded model, for a checkpoint whose recipe says so:
    `model.decode = functools.partial(pose2d.decode.dark, kernel=17)`.
    """

    normalization: Normalization = IMAGENET_RGB
    decode: Decoder = staticmethod(decode.quarter_offset)
    shift_mirrored: bool = True  # in the flip test, move the un-mirrored map one cell to the right

    @abstractmethod
    def maps(self, features: Tensor) -> Tensor:
        """Features -> heatmaps [N, K, h, w]."""

    def normalize(self, crops: Tensor) -> Tensor:
        return self.normalization(crops)

    def predict(self, features: Tensor) -> Prediction:
        return self.decode_maps(self.maps(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        back = flip.maps_back(self.maps(mirrored), self.skeleton.flip_order)
        if self.shift_mirrored:
            back = flip.shift_right(back)
        return self.decode_maps((self.maps(features) + back) / 2)

    def decode_maps(self, maps: Tensor) -> Prediction:
        """Heatmaps -> keypoints in crop pixels."""
        xy_cells, score = self.decode(maps)
        return Prediction(xy_px=xy_cells * self.cell_px(maps), score=score, maps=maps)

    def cell_px(self, maps: Tensor) -> Tensor:
        """Crop pixels per cell, [2]. UDP measures from the first pixel's centre to the last one's."""
        size = torch.tensor(self.input_wh, dtype=maps.dtype, device=maps.device)
        cells = torch.tensor([maps.shape[-1], maps.shape[-2]], dtype=maps.dtype, device=maps.device)
        return (size - 1) / (cells - 1) if self.crop == "udp" else size / cells
