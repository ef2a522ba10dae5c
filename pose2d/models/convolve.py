"""A convolution and its activation in one pass over memory, where torch can do that."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["none", "relu", "relu6"]

# oneDNN's fused convolution, the one that torch.compile uses on CPUs; eager torch offers no public name for it.
_FUSED = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if torch.backends.mkldnn.is_available() else None
_FUSED_NAMES: dict[Activation, tuple[str, list[float]]] = {
    "none": ("none", []),
    "relu": ("relu", []),
    "relu6": ("hardtanh", [0.0, 6.0]),
}


def convolve(
    x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int, activation: Activation
) -> Tensor:
    """activation(convolution of x [N, C, H, W]); fused for frozen float32 weights on a CPU, in two steps elsewhere."""
    if _FUSED is not None and _may_fuse(x, kernel):
        name, limits = _FUSED_NAMES[activation]
        return _FUSED(x, kernel, bias, [padding] * 2, [stride] * 2, [1, 1], groups, name, limits, "")
    return plain(x, kernel, bias, stride, padding, groups, activation)


def plain(
    x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, groups: int, activation: Activation
) -> Tensor:
    """The same with torch's public functions."""
    y = F.conv2d(x, kernel, bias, stride, padding, groups=groups)
    return y if activation == "none" else y.clamp_(0, 6) if activation == "relu6" else y.relu_()


def _may_fuse(x: Tensor, kernel: Tensor) -> bool:
    on_cpu = x.device.type == "cpu" and x.dtype == kernel.dtype == torch.float32 and x.shape[0] > 0
    frozen = not torch.is_grad_enabled() or not (x.requires_grad or kernel.requires_grad)
    return on_cpu and frozen and not (torch.jit.is_tracing() or torch.compiler.is_compiling())
