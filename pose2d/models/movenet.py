"""MoveNet Lightning and Thunder: one person's keypoints in a square crop.

MultiPose, which finds all people in an image, is in pose2d/detector.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.models.base import CropConvention, ModelCard, PoseModel
from pose2d.models.movenet_decode import MirroredView, View, decode
from pose2d.models.movenet_features import MoveNetFeatures, trunk_of
from pose2d.models.movenet_network import HIDDEN, SINGLE_HEADS, STRIDE, MoveNet, adopt, normalize
from pose2d.skeletons import COCO17
from pose2d.types import Prediction


class SinglePose(PoseModel):
    """Lightning or Thunder: the keypoints of the person in the middle of a square crop."""

    skeleton = COCO17
    crop: ClassVar[CropConvention] = "square"
    box_scale: ClassVar[float] = 1.15  # tighter helps exact boxes and hurts detected ones

    def __init__(self, width: float, side: int, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk  # crops at a time on a CPU, so that what lies between layers fits its caches
        self.input_wh = (side, side)
        self.feature_shape = (HIDDEN, side // STRIDE, side // STRIDE)
        self.net = MoveNet(width, SINGLE_HEADS)

    def normalize(self, crops: Tensor) -> Tensor:
        return normalize(crops)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"net.{key.removeprefix('net.')}": value for key, value in adopt(state).items()}

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        parts = crops.split(self.chunk) if crops.device.type == "cpu" and len(crops) else [crops]
        trunk = torch.cat([self.net.trunk(part) for part in parts])
        return MoveNetFeatures.join(self.net.head("kpt_heatmap").hidden(trunk), trunk)

    def predict(self, features: Tensor) -> Prediction:
        return decode([self._view(features)])

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return decode([self._view(features), MirroredView(self._view(mirrored), self.skeleton.flip_order)])

    def _view(self, features: Tensor) -> "View":
        trunk = trunk_of(features)
        hidden = features.as_subclass(Tensor)
        if tuple(hidden.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(f"features must have shape [N, {expected}], got {list(hidden.shape)}.")
        return View(self.net, hidden, trunk)


CARDS = [
    ModelCard(
        name=f"movenet-{name}",
        build=partial(SinglePose, width, side, chunk),
        skeleton=COCO17,
        input_wh=(side, side),
        parameters=parameters,
        licence="Apache-2.0",
        source="Google MoveNet",
        embedded=f"movenet_{name}_fp16.npz",
    )
    for name, width, side, chunk, parameters in (
        ("lightning", 1.0, 192, 8, 2_317_974),
        ("thunder", 1.75, 256, 2, 6_226_046),
    )
]
