"""Layers shared by networks: convolutions, blocks of CSPNet, and networks in ONNX Runtime.

RTMPose and YOLOX are made of the blocks of cross-stage partial networks (CSPNet, Wang et al. 2020).
Batch normalisation is folded into the convolutions; `fold_batch_norms` does this to a checkpoint.

`OnnxNetwork` runs such a network in ONNX Runtime, with the graph from a file in pose2d/graphs.
Graphs hold no weights (tools/export_graphs.py), so whatever weights a module was loaded with run
here, and they ship once. On one core of a CPU this is about 1.5 times as fast as torch
(bench/engines.py)."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.base.embedded import check_embedded

GRAPHS = Path(__file__).parents[1] / "graphs"
Activation = Literal["none", "relu", "relu6", "silu"]


class Conv(nn.Conv2d):
    """A convolution with bias and an activation; the output has input / stride cells per axis."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        bias: bool = True,
        activation: Activation = "silu",
    ) -> None:
        super().__init__(
            inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=bias
        )
        self.activation: Activation = activation

    def kernel(self) -> Tensor:
        """Return the weights to convolve with; subclasses may pad them."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        padding = int(self.padding[0])
        y = F.conv2d(x, self.kernel(), self.bias, self.stride, padding, groups=self.groups)
        if self.activation == "silu":
            return F.silu(y, inplace=True)
        if self.activation == "relu":
            return y.relu_()
        if self.activation == "relu6":
            return y.clamp_(0, 6)
        return y


class Block(nn.Module):
    """Two layers, plus the input if it is residual."""

    def __init__(self, conv1: nn.Module, conv2: nn.Module, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.conv1 = conv1
        self.conv2 = conv2

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.conv1(x))
        return out + x if self.residual else out


def next_block(channels: int, residual: bool) -> Block:
    """Return a block of CSPNeXt: 3x3, then a depthwise 5x5 with a 1x1."""
    depthwise = Conv(channels, channels, 5, groups=channels)
    separable = nn.Sequential(
        OrderedDict(depthwise_conv=depthwise, pointwise_conv=Conv(channels, channels))
    )
    return Block(Conv(channels, channels, 3), separable, residual)


def darknet_block(channels: int, residual: bool) -> Block:
    """Return a block of CSPDarknet: 1x1, then 3x3."""
    return Block(Conv(channels, channels), Conv(channels, channels, 3), residual)


class ChannelAttention(nn.Module):
    """Multiplies each channel by a gate in [0, 1] computed from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(F.linear(x.mean((2, 3)), self.fc.weight.flatten(1), self.fc.bias))
        return x * gate[:, :, None, None]


class CSPLayer(nn.Module):
    """Half of the channels pass through blocks, the other half bypasses them.

    `attended`: with the blocks and attention of CSPNeXt, else the blocks of CSPDarknet."""

    def __init__(
        self, inputs: int, outputs: int, blocks: int, residual: bool, attended: bool = False
    ) -> None:
        super().__init__()
        half = outputs // 2
        block = next_block if attended else darknet_block
        self.main_conv = Conv(inputs, half)
        self.blocks = nn.Sequential(*(block(half, residual) for _ in range(blocks)))
        self.short_conv = Conv(inputs, half)
        if attended:
            self.attention = ChannelAttention(2 * half)
        self.final_conv = Conv(2 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.blocks(self.main_conv(x)), self.short_conv(x)], 1)
        return self.final_conv(self.attention(joined) if hasattr(self, "attention") else joined)


class SpatialPyramid(nn.Module):
    """Joins the map with its maxima over windows of 5, 9 and 13 cells."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = Conv(channels, channels // 2)
        self.conv2 = Conv(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.conv1(x)]
        for _ in range(3):  # windows of 5 on windows of 5 are windows of 9, then of 13
            maps.append(F.max_pool2d(maps[-1], 5, 1, 2))
        return self.conv2(torch.cat(maps, 1))


class CSPNeXt(nn.Module):
    """RTMDet's backbone: images [N, 3, H, W] -> [N, channels, H/32, W/32].

    It has three convolutions and four stages. Attributes are named as in OpenMMLab's checkpoints,
    in the order of computation."""

    def __init__(self, depth: float, width: float) -> None:
        super().__init__()
        sizes = [int(channels * width) for channels in (64, 128, 256, 512, 1024)]
        half = sizes[0] // 2
        self.stem = nn.Sequential(Conv(3, half, 3, 2), Conv(half, half, 3), Conv(half, sizes[0], 3))
        stages = zip(sizes[:-1], sizes[1:], (3, 6, 6, 3), strict=True)
        for number, (inputs, outputs, count) in enumerate(stages, 1):
            is_last = number == 4
            blocks = max(round(count * depth), 1)
            layers: list[nn.Module] = [Conv(inputs, outputs, 3, 2)]
            if is_last:
                layers.append(SpatialPyramid(outputs))
            layers.append(CSPLayer(outputs, outputs, blocks, not is_last, attended=True))
            setattr(self, f"stage{number}", nn.Sequential(*layers))
        self.channels = sizes[-1]

    def forward(self, images: Tensor) -> Tensor:
        # Channels last is the faster layout on a CPU.
        x = self.stem(images.contiguous(memory_format=torch.channels_last))
        for number in range(1, 5):
            x = getattr(self, f"stage{number}")(x)
        return x


def fold_batch_norms(state: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
    """Fold batch norms: `X.conv.weight` and `X.bn.*` become `X.weight` and `X.bias`.

    The weight is w * g / sd, the bias b - mean * g / sd. Other tensors stay as they are."""
    folded = {}
    for key, value in state.items():
        layer, _, kind = key.rpartition(".")[0].rpartition(".")
        if kind == "conv" and f"{layer}.bn.running_var" in state:
            deviation = (state[f"{layer}.bn.running_var"] + epsilon).sqrt()
            scale = state[f"{layer}.bn.weight"] / deviation
            shift = state[f"{layer}.bn.running_mean"] * scale
            folded[f"{layer}.weight"] = value * scale[:, None, None, None]
            folded[f"{layer}.bias"] = state[f"{layer}.bn.bias"] - shift
        elif kind != "bn":
            folded[key] = value
    return folded


_SLOTS = ((1, "weight"), (2, "bias"))  # inputs of a convolution in ONNX


def onnx_convolutions(state: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """Rename the convolutions of an ONNX file (keys of `ordered_weights`) to `names`, in order.

    Convolutions beyond `names` keep their keys, so that a file of another network does not pass."""
    own = {
        f"Conv.{n}.{slot}": f"{name}.{part}"
        for n, name in enumerate(names)
        for slot, part in _SLOTS
    }
    return {
        own.get(key, key): value
        for key, value in state.items()
        if re.fullmatch(r"Conv\.\d+\.[12]", key)
    }


class OnnxNetwork:
    """A network in ONNX Runtime on the CPU; several threads may call it at once."""

    def __init__(self, graph: str, weights: Mapping[str, Tensor]) -> None:
        """Load a graph (file in pose2d/graphs) with weights by the names of its initialisers."""
        import onnxruntime

        path = check_embedded(GRAPHS / graph)
        options = onnxruntime.SessionOptions()
        # Its own thread pool would spin while it waits and slow down everything else.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        for pool in ("intra", "inter"):
            options.add_session_config_entry(f"session.{pool}_op.allow_spinning", "0")
        options.log_severity_level = 3
        values = [
            onnxruntime.OrtValue.ortvalue_from_numpy(value.numpy()) for value in weights.values()
        ]
        options.add_external_initializers(list(weights), values)
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """Return all outputs for a float32 batch [N, ...], with as many threads as torch uses."""
        threads = min(torch.get_num_threads(), len(inputs))
        if threads < 2:
            return [torch.from_numpy(output) for output in self._run(inputs.numpy())]
        parts = list(_pool(threads).map(self._run, np.array_split(inputs.numpy(), threads)))
        return [torch.from_numpy(np.concatenate(outputs)) for outputs in zip(*parts, strict=True)]

    def __deepcopy__(self, memo: object) -> "OnnxNetwork":
        """Share the session between copies of a model, since it never changes."""
        return self

    def _run(self, inputs: np.ndarray) -> list[np.ndarray]:
        return self._session.run(None, {self._input: np.ascontiguousarray(inputs)})


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="onnx")
