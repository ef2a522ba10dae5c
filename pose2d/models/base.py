"""What every 2D pose network offers, whatever is inside."""

import re
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pose2d import decode
from pose2d.base.errors import UserError
from pose2d.crops import IMAGENET_RGB, CropConvention, Normalization
from pose2d.skeletons import Skeleton
from pose2d.types import Prediction

# What may happen to a batch between `features` and `predict` without touching channels or space.
_KEEP_TRUNK = {
    *(getattr(torch, name) for name in ("index_select", "split", "chunk", "cat", "concat", "detach", "clone")),
    *(getattr(Tensor, name) for name in ("__getitem__", "index_select", "narrow", "split", "chunk", "detach", "clone")),
    *(getattr(Tensor, name) for name in ("contiguous", "to", "cpu", "cuda", "float", "half", "bfloat16", "double")),
    Tensor.pin_memory,
}


class FeaturesWithTrunk(Tensor):
    """Features [N, ...] that carry a second map of the network with them, one row a crop. Slicing, concatenating,
    copying or casting a batch keeps both in step. Any other operation gives a plain tensor."""

    trunk: Tensor  # [N, ...]

    @classmethod
    def join(cls, hidden: Tensor, trunk: Tensor) -> "FeaturesWithTrunk":
        features = hidden.as_subclass(cls)
        features.trunk = trunk
        return features

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            if func not in _KEEP_TRUNK:
                return result
            parts = args[0] if isinstance(args[0], (tuple, list)) else args[:1]
            outputs = result if isinstance(result, (tuple, list)) else (result,)
            whole = all(isinstance(part, cls) for part in parts)
            if not whole or any(out.shape[1:] != parts[0].shape[1:] for out in outputs):
                return result
            carried = [part.trunk for part in parts] if parts is args[0] else parts[0].trunk
            trunks = func(carried, *args[1:], **kwargs)
            if isinstance(result, Tensor):
                return cls.join(result, trunks)
            return type(result)(cls.join(out, trunk) for out, trunk in zip(result, trunks, strict=True))


def trunk_of(features: Tensor) -> Tensor:
    """The map that travels with features, or a UserError where an operation has lost it."""
    if isinstance(features, FeaturesWithTrunk):
        return features.trunk
    raise UserError(
        "this needs what the network's features() returned: arithmetic on it or a round trip through numpy loses the "
        "map that comes with it. Call it before changing the features, or slice, concatenate and copy only the batch."
    )


class PoseModel(nn.Module):
    """A frozen network in two halves, so that the pose head and CCNet share one forward pass. crops -> `normalize` ->
    `features` -> `predict`; CCNet reads what `features` returns."""

    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height of a crop in pixels
    feature_shape: tuple[int, ...]  # of one crop's features: (C, h, w), or (C,) for a vector, (K, C) per keypoint
    crop: ClassVar[CropConvention] = "sbl"  # how a box becomes a crop (pose2d/crops.py)
    box_scale: ClassVar[float] = 1.25  # the box is grown by this before cropping
    features_name: str = "penultimate"  # what `features` returns; others for comparison only (ccnet/other_features.py)
    normalization: Normalization = IMAGENET_RGB
    has_heatmap_score: ClassVar[bool] = False  # whether predictions have a `heatmap_score` beside the score

    def normalize(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255, uint8 or float -> the network's input (colour order, scale, mean)."""
        return self.normalization(crops)

    @abstractmethod
    def features(self, crops: Tensor) -> Tensor:
        """Normalised crops [N, 3, H, W] -> penultimate features [N, *feature_shape]."""

    @abstractmethod
    def predict(self, features: Tensor) -> Prediction:
        """Features -> keypoints in crop pixels."""

    @abstractmethod
    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Flip test: features of the crops and of their mirror images -> one merged prediction."""

    def forward(self, crops: Tensor) -> Prediction:
        return self.predict(self.features(crops))

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A published checkpoint under this module's own names of tensors. Override where formats differ."""
        return dict(state)

    def use_graph(self, graph: str) -> None:
        """Compute features on the CPU by ONNX Runtime from now on, with the weights as they are now."""
        raise NotImplementedError(f"{type(self).__name__} has no graph.")

    def plain(self, features: Tensor) -> Tensor:
        """Features without what travels with them, refused where their shape is not this network's."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(f"features must have shape [N, {expected}], got {list(features.shape)}.")
        return features.as_subclass(Tensor)

    def size_px(self, like: Tensor) -> Tensor:
        """Width and height of a crop, [2], of the type and on the device of `like`."""
        return torch.tensor(self.input_wh, dtype=like.dtype, device=like.device)

    def check_input(self, crops: Tensor) -> None:
        """Refuse a batch that this network cannot read, in words."""
        width, height = self.input_wh
        if crops.ndim != 4 or tuple(crops.shape[1:]) != (3, height, width):
            raise UserError(f"crops must have shape [N, 3, {height}, {width}], got {list(crops.shape)}.")
        if not torch.is_floating_point(crops):
            raise UserError(f"crops must be floating point, got {crops.dtype}: call model.normalize(crops) first.")


def named(**layers: nn.Module) -> Any:
    """Layers in a row, an `nn.Sequential`, under the names that published weights have."""
    return nn.Sequential(OrderedDict(layers))


@dataclass(frozen=True)
class ModelCard:
    """One name that `pose2d.load` knows; `pose2d.register` adds one."""

    name: str
    build: Callable[[], PoseModel]  # the architecture, weights not yet loaded
    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height in pixels
    parameters: int = 0  # number of weights, normalisation statistics not counted; 0: not stated
    licence: str = "your own"  # of the published weights
    source: str = "your own"  # where the checkpoint comes from, for a person to read
    embedded: str | None = None  # file in pose2d/weights, when the weights ship with the package
    graph: str | None = None  # file in pose2d/graphs, when ONNX Runtime can compute its features


# Licence and source of checkpoints
MMPOSE = ("Apache-2.0", "open-mmlab/mmpose")
UNPUBLISHED = ("your own", "your own training: no checkpoint is published")
MINIATURE = ("your own", "your own training with tools/train_mini.py")  # docs/paper.md: for one processor core


Build = Callable[[tuple[int, int], Skeleton], PoseModel]


def sized_card(name: str, build: Build, skeleton: Skeleton, parameters: int, origin: tuple[str, str]) -> ModelCard:
    """A card whose name states the crop's height and width, as in "hrnet-w32-256x192"; origin: licence and source."""
    height, width = (int(side) for side in re.findall(r"(\d+)x(\d+)", name)[0])
    return ModelCard(name, partial(build, (width, height), skeleton), skeleton, (width, height), parameters, *origin)


Decoder = Callable[[Tensor], tuple[Tensor, Tensor]]  # maps -> xy_cells, score (pose2d/decode.py)


class HeatmapModel(PoseModel):
    """Features -> one map per keypoint -> its peak. The raw confidence is the height of the peak. `decode` may be
    replaced on a loaded model, for a checkpoint whose recipe says so: `model.decode =
    functools.partial(pose2d.decode.dark, kernel=17)`."""

    decode: Decoder = staticmethod(decode.quarter_offset)
    shift_mirrored: bool = True  # in the flip test, move the un-mirrored map one cell to the right

    @abstractmethod
    def maps(self, features: Tensor) -> Tensor:
        """Features -> heatmaps [N, K, h, w]."""

    def predict(self, features: Tensor) -> Prediction:
        return self.decode_maps(self.maps(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        back = decode.maps_back(self.maps(mirrored), self.skeleton.flip_order)
        if self.shift_mirrored:
            back = decode.shift_right(back)
        return self.decode_maps((self.maps(features) + back) / 2)

    def decode_maps(self, maps: Tensor) -> Prediction:
        """Heatmaps -> keypoints in crop pixels."""
        xy_cells, score = self.decode(maps)
        return Prediction(xy_px=xy_cells * self.cell_px(maps), score=score, maps=maps)

    def cell_px(self, maps: Tensor) -> Tensor:
        """Crop pixels per cell, [2]. UDP measures from the first pixel's centre to the last one's."""
        size, cells = self.size_px(maps), maps.new_tensor([maps.shape[-1], maps.shape[-2]])
        return (size - 1) / (cells - 1) if self.crop == "udp" else size / cells
