"""Features that a head may read instead of the penultimate ones, or in addition to them, for the
paper's comparison of inputs.

`OtherFeatures` wraps a network, which predicts as before. Its `features` are another tensor of the
same forward pass that carries the penultimate features with it for `predict`, so training and
evaluation need not know of it. Nothing that `fitmesh run` does needs this module."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ccnet.heads.head import CalibrationHead, FeatureShape
from ccnet.heads.linear import BY_DIMENSIONS
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.models.registry import card as model_card
from pose2d.models.trunk import FeaturesWithTrunk, trunk_of
from pose2d.types import Prediction

FEATURES = (
    "penultimate",
    "penultimate+shallow",
    "penultimate+output",
    "shallow",
    "output",
    "copy",
)
FIRST_STAGE = "layer1"  # of ResNet and HRNet, at stride 4


class OtherFeatures(PoseModel):
    """A network with other features. "shallow": the first stage's map. "output": heatmaps, or
    coordinates, score and spread. "copy": the crop itself, for a head with a trunk of its own.
    "penultimate+..": the penultimate features joined with these.
    """

    def __init__(self, network: PoseModel, kind: str) -> None:
        super().__init__()
        self.network = network
        self.features_name = kind
        self.skeleton = network.skeleton
        self.input_wh = network.input_wh
        # Other networks declare these two on the class.
        self.crop = network.crop  # type: ignore[misc]
        self.box_scale = network.box_scale  # type: ignore[misc]
        self._shallow: list[Tensor] = []
        if kind.endswith("shallow"):
            stages = [
                module
                for name, module in network.named_modules()
                if name.split(".")[-1] == FIRST_STAGE
            ]
            if len(stages) != 1:
                raise UserError(
                    f"shallow features are those of the first stage of a ResNet or HRNet, and "
                    f"{type(network).__name__} has none: choose penultimate, output or copy."
                )
            stages[0].register_forward_hook(
                lambda stage, inputs, output: self._shallow.append(output)
            )
        width, height = network.input_wh
        with torch.inference_mode():
            device = next(network.parameters()).device
            black = torch.zeros(1, 3, height, width, device=device)
            (example,) = self.features(network.normalize(black))
        self.feature_shape = tuple(example.shape)

    def normalize(self, crops: Tensor) -> Tensor:
        return self.network.normalize(crops)

    def features(self, crops: Tensor) -> Tensor:
        penultimate = self.network.features(crops)
        if self.features_name == "copy":
            return FeaturesWithTrunk.join(crops, penultimate)
        if self.features_name.endswith("shallow"):
            extra = self._shallow.pop()
        else:
            extra = self._output(penultimate)
        if self.features_name.startswith("penultimate+"):
            extra = add_features(penultimate.as_subclass(Tensor), extra)
        elif extra.ndim == 3:
            extra = extra.flatten(1)
        return FeaturesWithTrunk.join(extra, penultimate)

    def _output(self, penultimate: Tensor) -> Tensor:
        """Return heatmaps [N, K, h, w], or coordinates, score and spread [N, K, numbers]."""
        prediction = self.network.predict(penultimate)
        if prediction.maps is not None:
            return prediction.maps
        size = self.size_px(prediction.xy_px)
        spread = [] if prediction.sigma_px is None else [prediction.sigma_px / size]
        columns = [prediction.xy_px / size, prediction.score[..., None], *spread]
        return torch.cat(columns, -1)

    def predict(self, features: Tensor) -> Prediction:
        return self.network.predict(trunk_of(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return self.network.predict_flip(trunk_of(features), trunk_of(mirrored))


def add_features(penultimate: Tensor, extra: Tensor) -> Tensor:
    """Join other features to the penultimate ones, in the shape of the latter: maps [N, C, h, w],
    vectors [N, C], or a vector for each keypoint [N, K, C].
    """
    if penultimate.ndim == 4:
        if extra.ndim == 3:  # numbers of keypoints: constant maps
            extra = extra.flatten(1)[..., None, None].expand(-1, -1, *penultimate.shape[2:])
        elif extra.shape[2:] != penultimate.shape[2:]:
            extra = F.interpolate(extra, penultimate.shape[2:], mode="bilinear")
        return torch.cat([penultimate, extra], 1)
    if extra.ndim == 4:
        extra = extra.mean((2, 3))
    if penultimate.ndim == 2:
        return torch.cat([penultimate, extra.flatten(1)], 1)
    if extra.ndim == 2:
        extra = extra[:, None].expand(-1, penultimate.shape[1], -1)
    return torch.cat([penultimate, extra], 2)


def with_features(network: PoseModel, kind: str) -> PoseModel:
    """Return the network itself for "penultimate", else one that offers other features."""
    if kind not in FEATURES:
        raise UserError(f"unknown features {kind!r}: choose one of {', '.join(FEATURES)}.")
    if kind == "penultimate":
        return network
    return OtherFeatures(network, kind).eval().requires_grad_(False)


class CopiedTrunkHead(CalibrationHead):
    """A head that reads the crop itself; trunk and last layer are trained together. Batch
    statistics stay those of the copy.
    """

    kind = "copy"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, card: str = ""
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.network = model_card(card).build().eval()  # the model that the trunk is a copy of
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
