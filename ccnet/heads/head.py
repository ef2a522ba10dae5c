"""The interface of calibration heads: small networks on frozen features that predict the expected
OKS and the presence of every keypoint.

A head works in two steps. `inputs` is fixed arithmetic on the features: it is computed once per
crop and can be cached on disk. `logits` holds everything that is trained."""

from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from ccnet.heads.mixture import distribution_of
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.skeletons import Skeleton
from pose2d.types import ErrorDistribution

FeatureShape = tuple[int, ...]  # of one crop: (C, h, w), (C,), or (K, C)


class CalibrationHead(nn.Module):
    """Predict `confidence, presence = head(features)`, both [N, K] in [0, 1]."""

    kind: ClassVar[str]
    about: object = None  # an `About` if the head was loaded from a file (ccnet/heads/files.py)
    states_error: ClassVar[bool] = False  # whether the logits hold the distribution of the error

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int) -> None:
        super().__init__()
        self.feature_shape = feature_shape
        self.keypoints = keypoints
        self.channels = channels
        self.options: dict[str, Any] = {}  # arguments of the constructor, saved in the file

    def inputs(self, features: Tensor) -> Tensor:
        """Return what the trained layers take, [N, *input_shape]: by default the features."""
        return features.as_subclass(Tensor)

    @abstractmethod
    def logits(self, inputs: Tensor) -> Tensor:
        """Return [N, K, channels]: confidence and presence before the sigmoid, and further
        outputs that the loss needs.
        """

    def copy_weights(self, model: PoseModel) -> None:
        """Copy the layers of the pose network that this kind of head reads with. Called before
        training.
        """

    def fit_scale(self, inputs: Tensor) -> None:
        """Store the scale of typical inputs [N, *input_shape]. Called before training."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.state(features)[:2]

    def state(self, features: Tensor) -> tuple[Tensor, Tensor, ErrorDistribution | None]:
        """Return confidence and presence, [N, K] each, and the distribution of the error if the
        head predicts it. Raises UserError for features of another network.
        """
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"this calibration head reads features of shape [N, {expected}], got "
                f"{list(features.shape)}: "
                "it belongs to another pose model. Load the head that was trained for this one."
            )
        logits = self.logits(self.inputs(features.detach().float()))
        error = distribution_of(logits) if self.states_error else None
        return logits[..., 0].sigmoid(), logits[..., 1].sigmoid(), error

    @property
    def heads(self) -> "list[CalibrationHead]":
        """Return the members of an ensemble; for a single head, the head itself."""
        return [self]


def person_confidence(confidence: Tensor, presence: Tensor) -> Tensor:
    """Return c = sum(v s) / sum(v) over keypoints (Eq. 7): [..., K], [..., K] -> [...]."""
    return (presence * confidence).sum(-1) / presence.sum(-1).clamp_min(1e-6)


def flip_average(
    plain: tuple[Tensor, Tensor], mirrored: tuple[Tensor, Tensor], skeleton: Skeleton
) -> tuple[Tensor, Tensor]:
    """Average confidence and presence of crops with those of their mirror images (flip test)."""
    order = skeleton.flip_order
    confidence, presence = ((a + b[:, order]) / 2 for a, b in zip(plain, mirrored, strict=True))
    return confidence, presence
