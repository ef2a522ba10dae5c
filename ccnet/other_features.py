"""What a head may read instead of the penultimate features: for the paper's comparison of inputs.

The wrapped network predicts as before. Its `features` are another tensor of the same forward pass, which carries the
penultimate features with it for `predict`; so training and evaluation need not know of it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pose2d.base.errors import UserError
from pose2d.models.base import FeaturesWithTrunk, PoseModel, trunk_of
from pose2d.types import Prediction

FEATURES = ("penultimate", "shallow", "output", "copy")
FIRST_STAGE = "layer1"  # of ResNet and HRNet, at stride 4


class OtherFeatures(PoseModel):
    """A network whose features are `kind`. "shallow": the first stage's map. "output": heatmaps; or coordinates, score
    and spread. "copy": the crop itself, for a head with a trunk of its own."""

    def __init__(self, network: PoseModel, kind: str) -> None:
        super().__init__()
        self.network, self.features_name = network, kind
        self.skeleton, self.input_wh = network.skeleton, network.input_wh
        self.crop, self.box_scale = network.crop, network.box_scale  # type: ignore[misc]  # the class's in others
        self._seen: list[Tensor] = []
        if kind == "shallow":
            found = [module for name, module in network.named_modules() if name.split(".")[-1] == FIRST_STAGE]
            if len(found) != 1:
                raise UserError(
                    f"shallow features are those of the first stage of a ResNet or HRNet, and {type(network).__name__} "
                    "has none: choose penultimate, output or copy."
                )
            found[0].register_forward_hook(partial(_keep, self._seen))
        width, height = network.input_wh
        with torch.inference_mode():
            device = next(network.parameters()).device
            (example,) = self.features(network.normalize(torch.zeros(1, 3, height, width, device=device)))
        self.feature_shape = tuple(example.shape)

    def normalize(self, crops: Tensor) -> Tensor:
        return self.network.normalize(crops)

    def features(self, crops: Tensor) -> Tensor:
        penultimate = self.network.features(crops)
        if self.features_name == "shallow":
            return FeaturesWithTrunk.join(self._seen.pop(), penultimate)
        if self.features_name == "copy":
            return FeaturesWithTrunk.join(crops, penultimate)
        found = self.network.predict(penultimate)
        output = found.maps
        if output is None:
            size = self.size_px(found.xy_px)
            spread = [] if found.sigma_px is None else [found.sigma_px / size]
            output = torch.cat([found.xy_px / size, found.score[..., None], *spread], -1).flatten(1)
        return FeaturesWithTrunk.join(output, penultimate)

    def predict(self, features: Tensor) -> Prediction:
        return self.network.predict(trunk_of(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return self.network.predict_flip(trunk_of(features), trunk_of(mirrored))


def with_features(network: PoseModel, kind: str) -> PoseModel:
    """The network, or one that offers other features."""
    if kind not in FEATURES:
        raise UserError(f"unknown features {kind!r}: choose one of {', '.join(FEATURES)}.")
    return network if kind == "penultimate" else OtherFeatures(network, kind).eval().requires_grad_(False)


def _keep(seen: list[Tensor], module: nn.Module, inputs: Any, output: Tensor) -> None:
    seen[:] = [output]
