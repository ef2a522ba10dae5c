"""Calibration heads: small networks on frozen features -> expected OKS and presence of every keypoint.

A head works in two steps. `inputs` is fixed arithmetic on the features: it is computed once per crop and can be cached
on disk. `logits` holds everything that is trained.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ccnet.other_features import OtherFeatures
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.registry import card as model_card
from pose2d.skeletons import Skeleton

FeatureShape = tuple[int, ...]  # of one crop: (C, h, w), (C,), or (K, C)


class CalibrationHead(nn.Module):
    """`confidence, presence = head(features)`: both [N, K] in [0, 1]."""

    kind: ClassVar[str]
    about: object = None  # an `About`, if the head was loaded from a file (ccnet/heads/files.py)

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int) -> None:
        super().__init__()
        self.feature_shape, self.keypoints, self.channels = feature_shape, keypoints, channels

    def inputs(self, features: Tensor) -> Tensor:
        """What the trained layers take, [N, *input_shape]; by default the features themselves."""
        return features.as_subclass(Tensor)

    @abstractmethod
    def logits(self, inputs: Tensor) -> Tensor:
        """[N, K, channels]: confidence and presence before the sigmoid, and what else the loss needs."""

    def copy_weights(self, model: PoseModel) -> None:
        """Before training: take over those layers of the pose network that this kind of head has copies of."""

    def fit_scale(self, inputs: Tensor) -> None:
        """Before training: store the scale of typical inputs [N, *input_shape]."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        self.check(features)
        return self.calibrate(self.inputs(features.detach().float()))

    def calibrate(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Confidence and presence, [N, K] each."""
        logits = self.logits(inputs)
        return logits[..., 0].sigmoid(), logits[..., 1].sigmoid()

    def check(self, features: Tensor) -> None:
        """Refuse the features of another network."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"this calibration head reads features of shape [N, {expected}], got {list(features.shape)}: "
                "it belongs to another pose model. Load the head that was trained for this one."
            )


class ConvHead(CalibrationHead):
    """A 3x3 convolution of stride 2, averaged over the map; `width`: with a hidden layer of that width."""

    kind = "conv"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0) -> None:
        super().__init__(feature_shape, keypoints, channels)
        outputs = keypoints * channels
        self.conv = nn.Conv2d(feature_shape[0], width or outputs, 3, stride=2, padding=1)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv2d(width, outputs, 1)) if width else nn.Identity()
        self.width = width

    def logits(self, inputs: Tensor) -> Tensor:
        maps = self.last(self.conv(inputs))
        return maps.mean((2, 3)).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class FcHead(CalibrationHead):
    """One linear layer on a vector of features (RLE); `width`: with a hidden layer of that width."""

    kind = "fc"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.hidden = nn.Sequential(nn.Linear(feature_shape[0], width), nn.ReLU()) if width else nn.Identity()
        self.fc = nn.Linear(width or feature_shape[0], keypoints * channels)
        self.width = width

    def logits(self, inputs: Tensor) -> Tensor:
        return self.fc(self.hidden(inputs)).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


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
        self.weight = nn.Parameter(torch.empty(keypoints, width, channels).uniform_(-1, 1) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(keypoints, channels))

    def logits(self, inputs: Tensor) -> Tensor:
        return torch.einsum("nkc,kco->nko", inputs, self.weight) + self.bias


class Ensemble(CalibrationHead):
    """Several heads that differ in their first weights; their probabilities are averaged."""

    kind = "ensemble"

    def __init__(self, members: list[CalibrationHead]) -> None:
        first = members[0]
        super().__init__(first.feature_shape, first.keypoints, first.channels)
        self.members = nn.ModuleList(members)

    def _heads(self) -> list[CalibrationHead]:
        return [member for member in self.members if isinstance(member, CalibrationHead)]

    @property
    def first(self) -> CalibrationHead:
        return self._heads()[0]

    def inputs(self, features: Tensor) -> Tensor:
        return self.first.inputs(features)

    def fit_scale(self, inputs: Tensor) -> None:
        for member in self._heads():
            member.fit_scale(inputs)

    def member_logits(self, inputs: Tensor) -> list[Tensor]:
        """[N, K, channels] of each member."""
        return [member.logits(inputs) for member in self._heads()]

    def logits(self, inputs: Tensor) -> Tensor:
        """Of the mean probability."""
        mean = torch.stack([logits.sigmoid() for logits in self.member_logits(inputs)]).mean(0)
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6))


def person_confidence(confidence: Tensor, presence: Tensor) -> Tensor:
    """c = sum(v s) / sum(v) over keypoints: [..., K], [..., K] -> [...]."""
    return (presence * confidence).sum(-1) / presence.sum(-1).clamp_min(1e-6)


def flip_average(
    plain: tuple[Tensor, Tensor], mirrored: tuple[Tensor, Tensor], skeleton: Skeleton
) -> tuple[Tensor, Tensor]:
    """Flip test: confidence and presence of crops and of their mirror images -> one of each."""
    order = skeleton.flip_order
    confidence, presence = ((a + b[:, order]) / 2 for a, b in zip(plain, mirrored, strict=True))
    return confidence, presence


BY_DIMENSIONS: dict[int, type[CalibrationHead]] = {1: FcHead, 2: QueryHead, 3: ConvHead}


class CopiedTrunkHead(CalibrationHead):
    """Reads the crop itself; trunk and last layer are trained together. Batch statistics stay those of the copy."""

    kind = "copy"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, card: str = "") -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.card = card  # name of the model that the trunk is a copy of
        self.network = model_card(card).build().eval()
        shape = self.network.feature_shape
        self.head = BY_DIMENSIONS[len(shape)](shape, keypoints, channels)

    def copy_weights(self, model: PoseModel) -> None:
        assert isinstance(model, OtherFeatures)
        self.network.load_state_dict(model.network.state_dict())

    def logits(self, inputs: Tensor) -> Tensor:
        return self.head.logits(self.head.inputs(self.network.features(inputs)))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.network.eval()
        return self
