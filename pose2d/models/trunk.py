"""Features that carry a second map of their network through slicing and copying of a batch."""

from typing import Any

import torch
from torch import Tensor

from pose2d.base.errors import UserError

# Operations on a batch between `features` and `predict` that keep channels and space as they are.
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
    """Features [N, ...] that carry a second map [N, ...] of the network, one row per crop.

    Slicing, concatenating, copying or casting a batch does the same to both. Any other operation
    returns a plain tensor."""

    trunk: Tensor  # [N, ...]

    @classmethod
    def join(cls, hidden: Tensor, trunk: Tensor) -> "FeaturesWithTrunk":
        """Return features `hidden` that carry `trunk`."""
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
            all_carry = all(isinstance(part, cls) for part in parts)
            if not all_carry or any(out.shape[1:] != parts[0].shape[1:] for out in outputs):
                return result
            carried = [part.trunk for part in parts] if parts is args[0] else parts[0].trunk
            trunks = func(carried, *args[1:], **kwargs)
            if isinstance(result, Tensor):
                return cls.join(result, trunks)
            return type(result)(
                cls.join(out, trunk) for out, trunk in zip(result, trunks, strict=True)
            )


def trunk_of(features: Tensor) -> Tensor:
    """Return the map that features carry, or raise UserError if an operation has lost it."""
    if isinstance(features, FeaturesWithTrunk):
        return features.trunk
    raise UserError(
        "this needs the features exactly as the network's features() returned them: arithmetic on "
        "them or a round trip through numpy loses the map that they carry. Call it before changing "
        "the features, or slice, concatenate and copy only the batch."
    )
