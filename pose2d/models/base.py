"""The interface of a 2D pose network: crops -> features -> keypoints with raw confidence."""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pose2d import decode
from pose2d.base.errors import UserError
from pose2d.skeletons import Skeleton
from pose2d.types import Prediction

CropConvention = Literal["sbl", "udp", "square"]


@dataclass(frozen=True)
class Normalization:
    """Normalises colours: (crop / 255 - mean) / std, per channel in the network's own order."""

    mean: tuple[float, float, float]  # per input channel, in 0..1
    std: tuple[float, float, float]
    bgr: bool = False  # whether the network takes blue first

    def __call__(self, crops: Tensor) -> Tensor:
        """Convert RGB crops [N, 3, H, W], 0..255, uint8 or float, to the network's input."""
        x = crops if torch.is_floating_point(crops) else crops.float()
        if self.bgr:
            x = x.flip(1)
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(3, 1, 1)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(3, 1, 1)
        return torch.addcmul(-mean / std, x, 1 / (255 * std))


_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
IMAGENET_RGB = Normalization(_MEAN, _STD)
# The official Simple Baselines read images with OpenCV and do not reorder the channels, so blue gets
# the mean of red.
IMAGENET_BGR = Normalization(_MEAN, _STD, bgr=True)
# Official RLE has its own mean and does not scale.
RLE_RGB = Normalization((0.406, 0.457, 0.480), (1.0, 1.0, 1.0))


class PoseModel(nn.Module):
    """A frozen network in two halves, so that the pose head and CCNet share one forward pass.

    The steps are crops -> `normalize` -> `features` -> `predict`; CCNet reads the features."""

    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height of a crop in pixels
    # Shape of one crop's features: (C, h, w), or (C,) for a vector, (K, C) per keypoint
    feature_shape: tuple[int, ...]
    crop: ClassVar[CropConvention] = "sbl"  # how a box becomes a crop (pose2d/crops.py)
    box_scale: ClassVar[float] = 1.25  # the box is grown by this before cropping
    # Name of what `features` returns; others are for comparison only (ccnet/heads/head.py).
    features_name: str = "penultimate"
    normalization: Normalization = IMAGENET_RGB
    has_heatmap_score: ClassVar[bool] = False  # whether predictions have a `heatmap_score`

    def normalize(self, crops: Tensor) -> Tensor:
        """Convert RGB crops [N, 3, H, W], 0..255, uint8 or float, to the network's input.

        This sets the order of colours, scale and mean."""
        return self.normalization(crops)

    @abstractmethod
    def features(self, crops: Tensor) -> Tensor:
        """Return penultimate features [N, *feature_shape] of normalised crops [N, 3, H, W]."""

    @abstractmethod
    def predict(self, features: Tensor) -> Prediction:
        """Return keypoints in crop pixels from features."""

    @abstractmethod
    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Return the merged prediction of the crops and their mirror images (flip test)."""

    def forward(self, crops: Tensor) -> Prediction:
        return self.predict(self.features(crops))

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of a published checkpoint under this module's own names.

        Override it where names or formats differ."""
        return dict(state)

    def use_graph(self, graph: str) -> None:
        """Compute features on the CPU by ONNX Runtime from now on, with the current weights."""
        raise NotImplementedError(f"{type(self).__name__} has no graph.")

    def plain(self, features: Tensor) -> Tensor:
        """Return features without the map they carry; refuse the shape of another network."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"features must have shape [N, {expected}], got {list(features.shape)}."
            )
        return features.as_subclass(Tensor)

    def size_px(self, like: Tensor) -> Tensor:
        """Return width and height of a crop, [2], with the type and device of `like`."""
        return torch.tensor(self.input_wh, dtype=like.dtype, device=like.device)

    def check_input(self, crops: Tensor) -> None:
        """Refuse a batch that this network cannot read."""
        width, height = self.input_wh
        if crops.ndim != 4 or tuple(crops.shape[1:]) != (3, height, width):
            raise UserError(
                f"crops must have shape [N, 3, {height}, {width}], got {list(crops.shape)}."
            )
        if not torch.is_floating_point(crops):
            raise UserError(
                f"crops must be floating point, got {crops.dtype}: "
                "call model.normalize(crops) first."
            )


def named_layers(**layers: nn.Module) -> Any:
    """Return an `nn.Sequential` of layers with the names that published weights have."""
    return nn.Sequential(OrderedDict(layers))


Decoder = Callable[[Tensor], tuple[Tensor, Tensor]]  # maps -> xy_cells, score (pose2d/decode.py)


class HeatmapModel(PoseModel):
    """A network that makes one heatmap per keypoint; the raw confidence is the height of its peak.

    `decode` may be replaced on a loaded model if the recipe of a checkpoint needs it: `model.decode
    = functools.partial(pose2d.decode.dark, kernel=17)`."""

    decode: Decoder = staticmethod(decode.quarter_offset)
    shift_mirrored: bool = True  # in the flip test, move the map of mirrored crops by one cell

    final_layer: nn.Module  # makes the maps, unless `maps` is overridden

    def maps(self, features: Tensor) -> Tensor:
        """Return heatmaps [N, K, h, w] of features."""
        return self.final_layer(features)

    def predict(self, features: Tensor) -> Prediction:
        return self.decode_maps(self.maps(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        back = decode.maps_back(self.maps(mirrored), self.skeleton.flip_order)
        if self.shift_mirrored:
            back = decode.shift_right(back)
        return self.decode_maps((self.maps(features) + back) / 2)

    def decode_maps(self, maps: Tensor) -> Prediction:
        """Return keypoints in crop pixels from heatmaps."""
        xy_cells, score = self.decode(maps)
        return Prediction(xy_px=xy_cells * self.cell_px(maps), score=score, maps=maps)

    def cell_px(self, maps: Tensor) -> Tensor:
        """Return crop pixels per cell, [2]; UDP measures between centres of the outermost pixels."""
        size = self.size_px(maps)
        cells = maps.new_tensor([maps.shape[-1], maps.shape[-2]])
        return (size - 1) / (cells - 1) if self.crop == "udp" else size / cells
