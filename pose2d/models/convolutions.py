"""Convolutions with their activation, and the blocks of cross-stage partial networks (CSPNet, Wang
et al. 2020) that RTMPose and YOLOX are made of. Batch normalisation is folded into the
convolutions: `fold_batch_norms` does it to a checkpoint that has both.

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

Activation = Literal["none", "relu", "relu6", "silu"]


class Conv(nn.Conv2d):
    """A convolution with bias, then SiLU unless told otherwise. Output cells per axis: input /
    stride.
    """

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
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(
            x, self.kernel(), self.bias, self.stride, int(self.padding[0]), groups=self.groups
        )
        if self.activation == "silu":
            return F.silu(y, inplace=True)
        return {"none": lambda: y, "relu6": lambda: y.clamp_(0, 6), "relu": y.relu_}[
            self.activation
        ]()


class Block(nn.Module):
    """Two layers; plus the input, where it is residual."""

    def __init__(self, conv1: nn.Module, conv2: nn.Module, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.conv1 = conv1
        self.conv2 = conv2

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.conv1(x))
        return out + x if self.residual else out


def next_block(channels: int, residual: bool) -> Block:
    """CSPNeXt's: 3x3, then a depthwise 5x5 with a 1x1."""
    depthwise = Conv(channels, channels, 5, groups=channels)
    separable = nn.Sequential(
        OrderedDict(depthwise_conv=depthwise, pointwise_conv=Conv(channels, channels))
    )
    return Block(Conv(channels, channels, 3), separable, residual)


def darknet_block(channels: int, residual: bool) -> Block:
    """CSPDarknet's: 1x1, then 3x3."""
    return Block(Conv(channels, channels), Conv(channels, channels, 3), residual)


class ChannelAttention(nn.Module):
    """Each channel times a gate in [0, 1] made from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(F.linear(x.mean((2, 3)), self.fc.weight.flatten(1), self.fc.bias))
        return x * gate[:, :, None, None]


class CSPLayer(nn.Module):
    """Half of the channels pass through blocks, the other half goes round them. `attended`: as
    CSPNeXt has it, else as CSPDarknet."""

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
        both = torch.cat([self.blocks(self.main_conv(x)), self.short_conv(x)], 1)
        return self.final_conv(self.attention(both) if hasattr(self, "attention") else both)


class SpatialPyramid(nn.Module):
    """Maxima over windows of 5, 9 and 13 cells beside the map itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = Conv(channels, channels // 2)
        self.conv2 = Conv(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.conv1(x)]
        for _ in range(3):  # windows of 5 on windows of 5 are windows of 9, and again: of 13
            maps.append(F.max_pool2d(maps[-1], 5, 1, 2))
        return self.conv2(torch.cat(maps, 1))


class CSPNeXt(nn.Module):
    """RTMDet's backbone: three convolutions, four stages; images [N, 3, H, W] -> [N, channels,
    H/32, W/32]. Attributes are named as in OpenMMLab's checkpoints, and stand in the order of
    computation."""

    def __init__(self, depth: float, width: float) -> None:
        super().__init__()
        sizes = [int(channels * width) for channels in (64, 128, 256, 512, 1024)]
        half = sizes[0] // 2
        self.stem = nn.Sequential(Conv(3, half, 3, 2), Conv(half, half, 3), Conv(half, sizes[0], 3))
        for number, (inputs, outputs, count) in enumerate(
            zip(sizes, sizes[1:], (3, 6, 6, 3), strict=False), 1
        ):
            last = number == 4
            layer = CSPLayer(
                outputs, outputs, max(round(count * depth), 1), not last, attended=True
            )
            between = [SpatialPyramid(outputs)] if last else []
            setattr(
                self, f"stage{number}", nn.Sequential(Conv(inputs, outputs, 3, 2), *between, layer)
            )
        self.channels = sizes[-1]

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(
            images.contiguous(memory_format=torch.channels_last)
        )  # the faster layout on a CPU
        for number in range(1, 5):
            x = getattr(self, f"stage{number}")(x)
        return x


def fold_batch_norms(state: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
    """`X.conv.weight` and `X.bn.*` become `X.weight` and `X.bias`: w * g / sd, b - mean * g / sd.
    All else stays.
    """
    folded = {}
    for key, value in state.items():
        layer, _, kind = key.rpartition(".")[0].rpartition(".")
        if kind == "conv" and f"{layer}.bn.running_var" in state:
            scale = (
                state[f"{layer}.bn.weight"] / (state[f"{layer}.bn.running_var"] + epsilon).sqrt()
            )
            folded[f"{layer}.weight"] = value * scale[:, None, None, None]
            folded[f"{layer}.bias"] = (
                state[f"{layer}.bn.bias"] - state[f"{layer}.bn.running_mean"] * scale
            )
        elif kind != "bn":
            folded[key] = value
    return folded


_SLOTS = ((1, "weight"), (2, "bias"))  # of a convolution's inputs in ONNX


def onnx_convolutions(state: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """The convolutions of an ONNX file (keys of `ordered_weights`) under the names of a module's,
    in order. Convolutions beyond those named keep their keys, so that a file of another network
    does not pass."""
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
    """One network on the CPU. Calls may come from several threads, and each computes on its own."""

    def __init__(self, graph: str, weights: Mapping[str, Tensor]) -> None:
        """graph: file in pose2d/graphs; weights: by the names of its initialisers."""
        import onnxruntime

        path = Path(__file__).parents[1] / "graphs" / graph
        options = onnxruntime.SessionOptions()
        # A pool of its own would spin while it waits, and take that time from whatever else runs.
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
        """Every output for a batch [N, ...] of float32, in as many threads as torch would use."""
        threads = min(torch.get_num_threads(), len(inputs))
        if threads < 2:
            return [torch.from_numpy(output) for output in self._run(inputs.numpy())]
        parts = list(_pool(threads).map(self._run, np.array_split(inputs.numpy(), threads)))
        return [torch.from_numpy(np.concatenate(outputs)) for outputs in zip(*parts, strict=True)]

    def __deepcopy__(self, memo: object) -> "OnnxNetwork":
        """A session never changes once it is made, so copies of a model share it."""
        return self

    def _run(self, inputs: np.ndarray) -> list[np.ndarray]:
        return self._session.run(None, {self._input: np.ascontiguousarray(inputs)})


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="onnx")
