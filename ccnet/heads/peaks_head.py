"""Heads that look at each keypoint's peak: one for any network that makes heatmaps, one that knows MoveNet."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ccnet.heads import movenet_evidence, peaks
from ccnet.heads.head import FeatureShape, Head
from pose2d.models.movenet_features import trunk_of


class _AroundPeaks(Head):
    """What the features say at and around each keypoint's peak (ccnet/peaks.py), weighed by one hidden layer."""

    centre: Tensor  # [R] mean of every number read
    scale: Tensor  # [R] and its standard deviation

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int = 2,
        more: int = 0,
        hidden: int = 256,
        local: int = 16,
        field: int = 24,
        dropout: float = 0.3,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        width = feature_shape[0]
        # What is read: numbers about peaks, features at them, features of the whole crop, and what else `look` finds;
        # and which of it is put on one scale: a number over keypoints, a channel over fields.
        self.shapes = ((keypoints, peaks.PEAK_NUMBERS), (keypoints, 2 * width), (width, peaks.GRID**2), (1, more))
        self.alike = ((0, 1), (0, 1), (0, 2), (0, 1))
        self.parts = [rows * columns for rows, columns in self.shapes]
        self.register_buffer("centre", torch.zeros(sum(self.parts)))
        self.register_buffer("scale", torch.ones(sum(self.parts)))
        self.local = nn.Parameter(torch.randn(keypoints, 2 * width, local) / (2 * width) ** 0.5)
        self.field = nn.Parameter(torch.randn(width, field) / width**0.5)
        self.hidden = nn.Linear(self.parts[0] + keypoints * local + field * peaks.GRID**2 + more, hidden)
        self.out = nn.Linear(hidden, keypoints * channels)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def look(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Heatmaps [N, K, h, w] in [0, 1], flat cells [N, K] of the peaks in them, and further numbers [N, more]."""

    def read(self, features: Tensor) -> Tensor:
        heat, index, more = self.look(features)
        plain = features.as_subclass(Tensor)
        numbers = (
            peaks.describe_peaks(heat, index),
            peaks.features_at(plain, index),
            peaks.survey(plain),
            more,
        )
        return torch.cat([number.flatten(1) for number in numbers], 1)

    def prepare(self, read: Tensor) -> None:
        means, scales = [], []
        for part, shape, alike in zip(read.split(self.parts, 1), self.shapes, self.alike, strict=True):
            if part.shape[1] == 0:
                continue
            std, mean = torch.std_mean(part.unflatten(1, shape), alike, keepdim=True)
            means.append(mean.expand(1, *shape).flatten())
            scales.append(std.clamp_min(1e-3).expand(1, *shape).flatten())
        self.centre.copy_(torch.cat(means))
        self.scale.copy_(torch.cat(scales))

    def decide(self, read: Tensor) -> Tensor:
        scaled = ((read - self.centre) / self.scale).clamp(-6, 6)
        about, at, around, more = scaled.split(self.parts, 1)
        at = self.dropout(at).unflatten(1, (self.keypoints, -1))
        local = torch.einsum("nkc,kcp->nkp", at, self.local)
        field = torch.einsum("ncg,cp->ngp", around.unflatten(1, (self.feature_shape[0], -1)), self.field)
        joined = torch.cat([about, local.flatten(1), field.flatten(1), more], 1)
        hidden = self.dropout(torch.relu(self.hidden(self.dropout(joined))))
        return self.out(hidden).unflatten(1, (self.keypoints, self.channels))


class PeaksHead(_AroundPeaks):
    """Any network that ends in heatmaps.

    `readout` is a copy of the pose network's own last layer, which makes one map per keypoint out of the features.
    """

    kind = "peaks"
    readout: Tensor  # [K, C + 1] weights and bias

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int = 2,
        readout: Tensor | None = None,
        log_odds: bool = True,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.log_odds = log_odds  # whether the maps of the readout are log odds, or already values in [0, 1]
        empty = torch.zeros(keypoints, feature_shape[0] + 1)
        self.register_buffer("readout", empty if readout is None else readout.clone())

    def look(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps = torch.einsum("nchw,kc->nkhw", features, self.readout[:, :-1]) + self.readout[:, -1, None, None]
        heat = maps.sigmoid() if self.log_odds else maps
        return heat, peaks.find_peaks(heat), heat.new_zeros(len(heat), 0)


class MoveNetHead(_AroundPeaks):
    """MoveNet's own choice of peaks, and how well its heads agree on it (ccnet/movenet_evidence.py)."""

    kind = "movenet"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels, more=movenet_evidence.count(keypoints))
        self.witnesses = movenet_evidence.Witnesses(keypoints).requires_grad_(False)

    def look(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        chosen = self.witnesses(features.as_subclass(Tensor), trunk_of(features).float())
        return chosen.heat, chosen.index, movenet_evidence.describe(chosen)
