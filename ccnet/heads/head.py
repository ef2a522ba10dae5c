"""Small networks on frozen features: features -> expected OKS and presence of every keypoint.

A head reads and decides. `read` is fixed arithmetic on the features and can be done once per crop and kept on disk;
`decide` holds everything that learns.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from ccnet.losses import person_confidence
from pose2d.base.errors import UserError
from pose2d.skeletons import Skeleton

FeatureShape = tuple[int, ...]  # of one crop: (C, h, w), (C,), or (K, C)


class Head(nn.Module):
    """`confidence, presence = head(features)`: both [N, K] in [0, 1]."""

    kind: ClassVar[str]
    about: object = None  # where it comes from, if it was loaded from a file (ccnet/files.py)

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int) -> None:
        super().__init__()
        self.feature_shape, self.keypoints, self.channels = feature_shape, keypoints, channels

    def read(self, features: Tensor) -> Tensor:
        """What the learning part looks at, [N, *read_shape]; by default the features themselves."""
        return features.as_subclass(Tensor)

    @abstractmethod
    def decide(self, read: Tensor) -> Tensor:
        """Outputs before the sigmoid, [N, K, channels]: confidence, presence, and what the loss asked for."""

    def prepare(self, read: Tensor) -> None:
        """Look at examples [N, *read_shape] before training, to put them on a common scale."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        self.check(features)
        return self.judge(self.read(features.detach().float()))

    def judge(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """Confidence and presence, [N, K] each, from what was read."""
        outputs = self.decide(read)
        return outputs[..., 0].sigmoid(), outputs[..., 1].sigmoid()

    def check(self, features: Tensor) -> None:
        """Refuse the features of another network, in words."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"this calibration head reads features of shape [N, {expected}], got {list(features.shape)}: "
                "it belongs to another pose model. Load the head that was trained for this one."
            )


class ConvHead(Head):
    """A 3x3 convolution of stride 2, averaged over the map."""

    kind = "conv"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.conv = nn.Conv2d(feature_shape[0], keypoints * channels, 3, stride=2, padding=1)

    def decide(self, read: Tensor) -> Tensor:
        return self.conv(read).mean((2, 3)).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class GapFcHead(Head):
    """The map's mean, and one linear layer."""

    kind = "gap-fc"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.fc = nn.Linear(feature_shape[0], keypoints * channels)

    def read(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))

    def decide(self, read: Tensor) -> Tensor:
        return self.fc(read).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class FcHead(Head):
    """One linear layer on a vector of features (RLE)."""

    kind = "fc"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.fc = nn.Linear(feature_shape[0], keypoints * channels)

    def decide(self, read: Tensor) -> Tensor:
        return self.fc(read).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class QueryHead(Head):
    """One linear layer for each keypoint's own vector of features (Poseur)."""

    kind = "query"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        width = feature_shape[1]
        self.weight = nn.Parameter(torch.empty(keypoints, width, channels).uniform_(-1, 1) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(keypoints, channels))

    def decide(self, read: Tensor) -> Tensor:
        return torch.einsum("nkc,kco->nko", read, self.weight) + self.bias


class Ensemble(Head):
    """Several heads that differ in where they started; their answers are averaged."""

    kind = "ensemble"

    def __init__(self, members: list[Head]) -> None:
        first = members[0]
        super().__init__(first.feature_shape, first.keypoints, first.channels)
        self.members = nn.ModuleList(members)

    def _heads(self) -> list[Head]:
        return [member for member in self.members if isinstance(member, Head)]

    def read(self, features: Tensor) -> Tensor:
        return self._heads()[0].read(features)

    def prepare(self, read: Tensor) -> None:
        for member in self._heads():
            member.prepare(read)

    def every(self, read: Tensor) -> list[Tensor]:
        """Each member's outputs, [N, K, channels]."""
        return [member.decide(read) for member in self._heads()]

    def decide(self, read: Tensor) -> Tensor:
        """Log odds of the mean probability."""
        mean = torch.stack([outputs.sigmoid() for outputs in self.every(read)]).mean(0)
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6))


def flip_average(
    plain: tuple[Tensor, Tensor], mirrored: tuple[Tensor, Tensor], skeleton: Skeleton
) -> tuple[Tensor, Tensor]:
    """Flip test: confidence and presence of crops and of their mirror images -> one of each."""
    order = skeleton.flip_order
    confidence, presence = ((a + b[:, order]) / 2 for a, b in zip(plain, mirrored, strict=True))
    return confidence, presence


__all__ = [
    "ConvHead",
    "Ensemble",
    "FcHead",
    "GapFcHead",
    "Head",
    "QueryHead",
    "flip_average",
    "person_confidence",
]
