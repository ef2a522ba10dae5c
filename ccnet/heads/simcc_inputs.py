"""What a calibration head reads of a SimCC network (RTMPose): tokens, the shape of both outputs, the backbone's map."""

import torch
from torch import Tensor

from ccnet.heads.head import CalibrationHead, FeatureShape
from pose2d.models.base import PoseModel, trunk_of
from pose2d.models.rtmpose import BINS, STRIDE, RTMPose

NEAR_BINS = 12  # around the peak: about two sigmas of the training target
SUMMARY = 14  # numbers that describe a keypoint's two outputs, the place of its peak (x, y in 0..1) in the last two


class SimCCInputs(CalibrationHead):
    """`inputs` are [N, K (SUMMARY + token) + C h w]: every keypoint's numbers, then the map.

    They hold all that the network says, so that the trained layers may change without running it again: the cache of
    training features hangs on the module that `inputs` is defined in.
    """

    cls_x: Tensor  # [bins, 256] copied from the network
    cls_y: Tensor

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int,
        bins: tuple[int, int] = (384, 512),
        map_channels: int = 512,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.token = feature_shape[1]
        self.map_shape = (map_channels, bins[1] // (BINS * STRIDE), bins[0] // (BINS * STRIDE))
        self.register_buffer("cls_x", torch.zeros(bins[0], self.token))
        self.register_buffer("cls_y", torch.zeros(bins[1], self.token))

    def copy_weights(self, model: PoseModel) -> None:
        """The two output layers of the network, from which the shape of its outputs is read."""
        assert isinstance(model, RTMPose)
        self.cls_x = model.head.cls_x.weight.detach().clone()
        self.cls_y = model.head.cls_y.weight.detach().clone()

    def inputs(self, features: Tensor) -> Tensor:
        tokens, maps = features.as_subclass(Tensor).float(), trunk_of(features).float()
        summary = summarize(tokens @ self.cls_x.to(tokens).mT, tokens @ self.cls_y.to(tokens).mT)
        return torch.cat([torch.cat([summary, tokens], -1).flatten(1), maps.flatten(1)], 1)

    def parts(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Summaries [N, K, SUMMARY], tokens [N, K, 256] and map [N, C, h, w] of inputs."""
        rows = self.keypoints * (SUMMARY + self.token)
        summary, token = inputs[:, :rows].unflatten(1, (self.keypoints, -1)).split([SUMMARY, self.token], -1)
        return summary, token, inputs[:, rows:].unflatten(1, self.map_shape)


def summarize(x: Tensor, y: Tensor) -> Tensor:
    """The shape of both outputs [N, K, bins] as SUMMARY numbers [N, K, SUMMARY]."""
    numbers, places = [], []
    for outputs in (x, y):
        bins = outputs.shape[-1]
        peak, index = outputs.max(-1)
        step = torch.arange(bins, device=outputs.device) - index[..., None]
        near = step.abs() <= NEAR_BINS
        positive = outputs.clamp(min=0)
        mass = positive.sum(-1).clamp_min(1e-3)
        mean = (positive * step).sum(-1) / mass
        spread = ((positive * (step - mean[..., None]).square()).sum(-1) / mass).clamp_min(1e-3).log()
        rival = outputs.masked_fill(near, -1).amax(-1)
        place = index / (bins - 1)
        places.append(place)
        edge = torch.minimum(place, 1 - place)
        numbers += [peak, spread, (positive * near).sum(-1) / mass, rival, mean / BINS / 10, edge]
    return torch.stack([*numbers, *places], -1)
