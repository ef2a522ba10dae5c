"""The paper's heads: one layer on the penultimate features, by the shape that these have."""

import torch
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead, FeatureShape


class ConvHead(CalibrationHead):
    """A 3x3 convolution of stride 2, averaged over the map; with `width`, a hidden layer."""

    kind = "conv"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        outputs = keypoints * channels
        self.conv = nn.Conv2d(feature_shape[0], width or outputs, 3, stride=2, padding=1)
        self.last: nn.Module = nn.Identity()
        if width:
            self.last = nn.Sequential(nn.ReLU(), nn.Conv2d(width, outputs, 1))

    def logits(self, inputs: Tensor) -> Tensor:
        maps = self.last(self.conv(inputs))
        return maps.mean((2, 3)).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class FcHead(CalibrationHead):
    """One linear layer on a vector of features (RLE); with `width`, a hidden layer."""

    kind = "fc"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.hidden: nn.Module = nn.Identity()
        if width:
            self.hidden = nn.Sequential(nn.Linear(feature_shape[0], width), nn.ReLU())
        self.fc = nn.Linear(width or feature_shape[0], keypoints * channels)

    def logits(self, inputs: Tensor) -> Tensor:
        outputs = self.fc(self.hidden(inputs))
        return outputs.unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class GapFcHead(FcHead):
    """Global average pooling, then one linear layer."""

    kind = "gap-fc"

    def inputs(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))


class QueryHead(CalibrationHead):
    """One linear layer for each keypoint's own vector of features (Poseur)."""

    kind = "query"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        width = feature_shape[1]
        weight = torch.empty(keypoints, width, channels).uniform_(-1, 1) / width**0.5
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(keypoints, channels))

    def logits(self, inputs: Tensor) -> Tensor:
        return torch.einsum("nkc,kco->nko", inputs, self.weight) + self.bias


# The paper's head for features of one, two or three dimensions.
BY_DIMENSIONS: dict[int, type[CalibrationHead]] = {1: FcHead, 2: QueryHead, 3: ConvHead}
