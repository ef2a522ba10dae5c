"""Convolution and activation in one pass over memory, with the kernel laid out once for the processor at hand.

oneDNN can do both and torch.compile uses them on CPUs, but eager torch has no public name for either. Where they are
missing, fail a first trial, or do not apply (gradients, other devices and types, tracing), torch's public functions
do the same work in two passes.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["none", "relu", "relu6", "silu"]

_ONEDNN_NAMES: dict[Activation, tuple[str, list[float]]] = {
    "none": ("none", []),
    "relu": ("relu", []),
    "relu6": ("hardtanh", [0.0, 6.0]),
    "silu": ("swish", []),
}


def plain(
    x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int, activation: Activation
) -> Tensor:
    """activation(convolution of x [N, C, H, W]) with torch's public functions."""
    y = F.conv2d(x, kernel, bias, stride, padding, groups=groups)
    if activation == "none":
        return y
    if activation == "silu":
        return F.silu(y, inplace=True)
    return y.clamp_(0, 6) if activation == "relu6" else y.relu_()


def pack(kernel: Tensor, stride: int, padding: int, groups: int, shape: tuple[int, ...]) -> Tensor:
    """The kernel as oneDNN likes it best for inputs of that shape (others work too)."""
    twice = ([padding] * 2, [stride] * 2, [1, 1])
    reorder: Callable[..., Tensor] = torch._C._nn.mkldnn_reorder_conv2d_weight
    return reorder(kernel.detach().to_mkldnn(), *twice, groups, list(shape))


def fused(
    x: Tensor, packed: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int, activation: Activation
) -> Tensor:
    """What `plain` gives, with a packed kernel."""
    twice = ([padding] * 2, [stride] * 2, [1, 1])
    return torch.ops.mkldnn._convolution_pointwise(x, packed, bias, *twice, groups, *_ONEDNN_NAMES[activation], "")


class MadeFromWeight:
    """A tensor made from a weight and kept until the weight changes. It is no part of a model's state."""

    def __init__(self) -> None:
        self._made: Tensor | None = None
        self._source: tuple[int, int] | None = None

    def get(self, weight: Tensor, make: Callable[[], Tensor]) -> Tensor:
        source = (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        if self._made is None or self._source != source:
            self._made, self._source = make(), source
        return self._made

    def __deepcopy__(self, memo: object) -> "MadeFromWeight":
        return MadeFromWeight()

    def __reduce__(self) -> tuple[type["MadeFromWeight"], tuple[()]]:
        return MadeFromWeight, ()


def may_fuse(x: Tensor, kernel: Tensor) -> bool:
    """Whether `fused` does what `plain` does with these: frozen float32 weights on a CPU."""
    on_cpu = x.device.type == "cpu" and x.dtype == kernel.dtype == torch.float32 and x.shape[0] > 0
    frozen = not torch.is_grad_enabled() or not (x.requires_grad or kernel.requires_grad)
    return on_cpu and frozen and not (torch.jit.is_tracing() or torch.compiler.is_compiling()) and _onednn_works()


@cache
def _onednn_works() -> bool:
    """One small trial."""
    if not torch.backends.mkldnn.is_available():
        return False
    with torch.inference_mode(False), torch.no_grad():
        x = torch.linspace(-1, 9, 2 * 8 * 8 * 8).reshape(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)
        kernel, bias = torch.linspace(-1, 1, 8 * 9).reshape(8, 1, 3, 3), torch.linspace(-1, 1, 8)
        try:
            result = fused(x, pack(kernel, 1, 1, 8, x.shape), bias, 1, 1, 8, "relu6")
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
        return torch.allclose(result, plain(x, kernel, bias, 1, 1, 8, "relu6"), atol=1e-4)
