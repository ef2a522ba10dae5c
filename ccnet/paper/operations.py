"""Count the parameters and operations of a network, as mmpose's counter does: a multiply-add counts
once, normalisation twice per element, activations and pooling once per element."""

from typing import Any

import torch
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead
from pose2d.models.base import PoseModel

POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.SiLU, nn.GELU, nn.ReLU6)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable and frozen weights, without buffers."""
    return sum(parameter.numel() for parameter in module.parameters())


def operations_of(module: nn.Module, inputs: Tensor, output: Tensor) -> int:
    """Return the operations of one layer; 0 for containers and layers that are not counted."""
    if isinstance(module, nn.ConvTranspose2d):
        kernel = module.weight[0, 0].numel() * module.in_channels * module.out_channels
        places = inputs.numel() // module.in_channels
        bias = output.numel() if module.bias is not None else 0
        return kernel // module.groups * places + bias
    if isinstance(module, nn.Conv2d):
        bias = output.numel() if module.bias is not None else 0
        return module.weight[0].numel() * output.numel() + bias
    if isinstance(module, nn.Linear):
        bias = output.numel() if module.bias is not None else 0
        return module.in_features * output.numel() + bias
    if isinstance(module, NORMS):
        return 2 * inputs.numel()
    if isinstance(module, ACTIVATIONS):
        return output.numel()
    if isinstance(module, POOLS):
        return inputs.numel()
    return 0


@torch.no_grad()
def count_operations(
    module: PoseModel | CalibrationHead, features: Tensor | None = None
) -> tuple[int, Tensor]:
    """Return the operations for one crop, and what the module returns: features of a network,
    logits of a head. A network runs on a black crop, a head on `features`. Weights may be on the
    device "meta", which counts without computing.
    """
    total = 0

    def add(layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor) and inputs:
            total += operations_of(layer, inputs[0], output)

    hooks = [layer.register_forward_hook(add) for layer in module.modules()]
    try:
        if isinstance(module, PoseModel):
            width, height = module.input_wh
            device = next(module.parameters()).device
            crop = torch.zeros(1, 3, height, width, device=device)
            result = module.features(module.normalize(crop))
            module.predict(result)
        else:
            assert features is not None
            result = module.logits(module.inputs(features.float()))
    finally:
        for hook in hooks:
            hook.remove()
    return total, result
