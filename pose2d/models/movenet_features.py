"""MoveNet's features: the 96-channel map that a calibration head reads, with the map its other heads need."""

from typing import Any

import torch
from torch import Tensor

from pose2d.base.errors import UserError

# What may happen to a batch between `features` and `predict` without touching channels or space.
_KEEP_TRUNK = {
    Tensor.__getitem__,
    Tensor.index_select,
    torch.index_select,
    Tensor.narrow,
    Tensor.split,
    torch.split,
    Tensor.chunk,
    torch.chunk,
    torch.cat,
    torch.concat,
    Tensor.detach,
    torch.detach,
    Tensor.clone,
    torch.clone,
    Tensor.contiguous,
    Tensor.to,
    Tensor.cpu,
    Tensor.cuda,
    Tensor.float,
    Tensor.half,
    Tensor.bfloat16,
    Tensor.double,
    Tensor.pin_memory,
}


class MoveNetFeatures(Tensor):
    """Penultimate features [N, 96, h, w] of the keypoint heatmaps that carry `trunk` [N, 24, h, w] with them.

    MoveNet's heads (heatmap, person centre, regression, offset) hang on one 24-channel trunk, each with hidden
    features of its own. A calibration head reads the heatmap's 96 channels; decoding needs the trunk too. Slicing,
    concatenating, copying or casting a batch keeps both in step. Any other operation gives a plain tensor.
    """

    trunk: Tensor  # [N, 24, h, w]

    @classmethod
    def join(cls, hidden: Tensor, trunk: Tensor) -> "MoveNetFeatures":
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
            trunks = func(_trunk_of(args[0]), *args[1:], **kwargs)
            if isinstance(result, Tensor):
                return cls.join(result, trunks)
            return type(result)(cls.join(out, trunk) for out, trunk in zip(result, trunks, strict=True))


def _trunk_of(features: Any) -> Any:
    if isinstance(features, (tuple, list)):
        return [_trunk_of(part) for part in features]
    return features.trunk


def trunk_of(features: Tensor) -> Tensor:
    """The trunk that travels with MoveNet's features, or what to do when it was lost on the way."""
    if isinstance(features, MoveNetFeatures):
        return features.trunk
    raise UserError(
        "MoveNet's predict needs what its features() returned: arithmetic on it or a round trip through numpy loses "
        "the trunk map. Call predict before changing the features, or slice, concatenate and copy only the batch."
    )
