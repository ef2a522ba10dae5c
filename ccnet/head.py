"""Small networks on frozen features: features -> expected OKS and presence of every keypoint.

A head reads and decides. `read` is fixed arithmetic on the features and can be done once per crop and kept on disk;
`decide` holds everything that learns.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from ccnet import peaks
from ccnet.losses import person_confidence
from pose2d.errors import UserError
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
        return features

    @abstractmethod
    def decide(self, read: Tensor) -> Tensor:
        """Outputs before the sigmoid, [N, K, channels]: confidence, presence, and what the loss asked for."""

    def prepare(self, read: Tensor) -> None:
        """Look at examples [N, *read_shape] before training, to put them on a common scale."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        self.check(features)
        return self.judge(self.read(features.detach().as_subclass(Tensor).float()))

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


class PeaksHead(Head):
    """What the features say at and around each keypoint's peak (ccnet/peaks.py), weighed by one hidden layer.

    `readout` is a copy of the pose network's own last layer, which makes one map per keypoint out of the features.
    """

    kind = "peaks"
    readout: Tensor  # [K, C + 1] weights and bias
    centre: Tensor  # [R] mean of every number read
    scale: Tensor  # [R] and its standard deviation

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int = 2,
        readout: Tensor | None = None,
        log_odds: bool = True,
        hidden: int = 256,
        local: int = 16,
        field: int = 24,
        dropout: float = 0.3,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        width = feature_shape[0]
        self.log_odds = log_odds  # whether the maps of the readout are log odds, or already values in [0, 1]
        parts = (keypoints * peaks.PEAK_NUMBERS, keypoints * 2 * width, width * peaks.GRID**2)
        self.parts = parts  # lengths of what is read: peaks, features at them, features of the whole crop
        self.register_buffer("readout", torch.zeros(keypoints, width + 1) if readout is None else readout.clone())
        self.register_buffer("centre", torch.zeros(sum(parts)))
        self.register_buffer("scale", torch.ones(sum(parts)))
        self.local = nn.Parameter(torch.randn(keypoints, 2 * width, local) / (2 * width) ** 0.5)
        self.field = nn.Parameter(torch.randn(width, field) / width**0.5)
        self.hidden = nn.Linear(parts[0] + keypoints * local + field * peaks.GRID**2, hidden)
        self.out = nn.Linear(hidden, keypoints * channels)
        self.dropout = nn.Dropout(dropout)

    def read(self, features: Tensor) -> Tensor:
        maps = torch.einsum("nchw,kc->nkhw", features, self.readout[:, :-1]) + self.readout[:, -1, None, None]
        heat = maps.sigmoid() if self.log_odds else maps
        index = peaks.find_peaks(heat)
        numbers = (
            peaks.describe_peaks(heat, index),
            peaks.features_at(features, index),
            peaks.survey(features),
        )
        return torch.cat([number.flatten(1) for number in numbers], 1)

    def prepare(self, read: Tensor) -> None:
        """Mean and spread are shared by what means the same: a number over keypoints, a channel over fields."""
        width, keypoints = self.feature_shape[0], self.keypoints
        means, scales = [], []
        for part, dims, shape in zip(
            read.split(self.parts, 1),
            ((0, 1), (0, 1), (0, 2)),
            ((keypoints, peaks.PEAK_NUMBERS), (keypoints, 2 * width), (width, peaks.GRID**2)),
            strict=True,
        ):
            grouped = part.unflatten(1, shape)
            std, mean = torch.std_mean(grouped, dims, keepdim=True)
            means.append(mean.expand(1, *shape).flatten())
            scales.append(std.clamp_min(1e-3).expand(1, *shape).flatten())
        self.centre.copy_(torch.cat(means))
        self.scale.copy_(torch.cat(scales))

    def decide(self, read: Tensor) -> Tensor:
        scaled = ((read - self.centre) / self.scale).clamp(-6, 6)
        about, at, around = scaled.split(self.parts, 1)
        at = self.dropout(at).unflatten(1, (self.keypoints, -1))
        local = torch.einsum("nkc,kcp->nkp", at, self.local)
        field = torch.einsum("ncg,cp->ngp", around.unflatten(1, (self.feature_shape[0], -1)), self.field)
        joined = torch.cat([about, local.flatten(1), field.flatten(1)], 1)
        hidden = self.dropout(torch.relu(self.hidden(self.dropout(joined))))
        return self.out(hidden).unflatten(1, (self.keypoints, self.channels))


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
    "PeaksHead",
    "QueryHead",
    "flip_average",
    "person_confidence",
]
