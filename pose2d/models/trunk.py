"""Features of a network that carry a second map of it with them."""

from typing import Any

import torch
from torch import Tensor

from pose2d.base.errors import UserError

# What may happen to a batch between `features` and `predict` without touching channels or space.
_KEEP_TRUNK = {
    *(
        getattr(torch, name)
        for name in ("index_select", "split", "chunk", "cat", "concat", "detach", "clone")
    ),
    *(
        getattr(Tensor, name)
        for name in ("__getitem__", "index_select", "narrow", "split", "chunk", "detach", "clone")
    ),
    *(
        getattr(Tensor, name)
        for name in ("contiguous", "to", "cpu", "cuda", "float", "half", "bfloat16", "double")
    ),
    Tensor.pin_memory,
}


class FeaturesWithTrunk(Tensor):
    """Features [N, ...] that carry a second map of the network with them, one row a crop. Slicing,
    concatenating, copying or casting a batch keeps both in step. Any other operation gives a plain
    tensor."""

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
            return type(result)(
                cls.join(out, trunk) for out, trunk in zip(result, trunks, strict=True)
            )


def trunk_of(features: Tensor) -> Tensor:
    """The map that travels with features, or a UserError where an operation has lost it."""
    if isinstance(features, FeaturesWithTrunk):
        return features.trunk
    raise UserError(
        "this needs what the network's features() returned: arithmetic on it or a round trip through numpy loses the "
        "map that comes with it. Call it before changing the features, or slice, concatenate and copy only the batch."
    )
