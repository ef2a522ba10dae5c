"""MoveNet (Google) as a network: a MobileNetV2 with a feature pyramid to stride 4 and CenterNet-style heads.

Batch normalisation is folded into the convolutions, as in the published graphs.
"""

import re
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.models.convolve import Activation, MadeFromWeight, fused, may_fuse, pack, plain

HALF_RANGE = 127.5  # 0..255 becomes -1..1
STRIDE = 4  # input pixels per cell of every head's map
TRUNK, HIDDEN = 24, 96  # channels of the pyramid's finest level, and of each head before its last layer
SINGLE_HEADS = {"center": 1, "kpt_heatmap": 17, "kpt_regress": 34, "kpt_offset": 34}
MULTI_HEADS = {**SINGLE_HEADS, "box_scale": 2, "box_offset": 2}
# MobileNetV2's stages: expansion, channels at width 1, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
TAPS = (2, 5, 9)  # blocks whose outputs, at strides 4, 8 and 16, feed the pyramid


def _channels(channels: float) -> int:
    """MobileNet's rounding to multiples of eight, never more than 10 % down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Conv(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding, then an activation.

    SAME pads an even input at its end only when the stride is 2. Torch pads both ends: a leading zero row and column
    in the kernel undo the one too many, for less than it costs to copy the map into a padded one.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        bias: bool = True,
        activation: Activation = "none",
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias)
        self.activation: Activation = activation
        self.packed = MadeFromWeight()

    def kernel(self) -> Tensor:
        return self.weight if self.stride == (1, 1) else F.pad(self.weight, (1, 0, 1, 0))

    def forward(self, x: Tensor) -> Tensor:
        how = (self.stride[0], int(self.padding[0]), self.groups)
        if may_fuse(x, self.weight):
            packed = self.packed.get(self.weight, lambda: pack(self.kernel(), *how, x.shape))
            return fused(x, packed, self.bias, *how, self.activation)
        return plain(x, self.kernel(), self.bias, *how, self.activation)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = Conv(inputs, wide, activation="relu6") if expansion > 1 else None
        self.depthwise = Conv(wide, wide, 3, stride, groups=wide, activation="relu6")
        self.project = Conv(wide, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = self.expand(x) if self.expand is not None else x
        out = self.project(self.depthwise(wide))
        return out.add_(x) if self.residual else out


class Separable(nn.Module):
    """Filter each channel, then mix channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = Conv(inputs, inputs, 3, groups=inputs, bias=False)
        self.pointwise = Conv(inputs, outputs, activation="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


class MapHead(nn.Module):
    """One output head: on the whole map, or only at chosen cells."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.hidden = Separable(TRUNK, HIDDEN)
        self.out = Conv(HIDDEN, outputs)

    def forward(self, trunk: Tensor) -> Tensor:
        return self.out(self.hidden(trunk))

    def at(self, trunk: Tensor, cells: Tensor) -> Tensor:
        """The outputs [N, M, outputs] at cells [N, M, 2] (x, y): as on the whole map, at a few points' cost."""
        patches = patches_3x3(trunk, cells)
        filtered = torch.einsum("nmcp,cp->nmc", patches, self.hidden.depthwise.weight.flatten(1))
        mixed = F.linear(filtered, self.hidden.pointwise.weight.flatten(1), self.hidden.pointwise.bias)
        return F.linear(F.relu(mixed), self.out.weight.flatten(1), self.out.bias)


def patches_3x3(maps: Tensor, cells: Tensor) -> Tensor:
    """The 3x3 neighbourhoods [N, M, C, 9] of cells [N, M, 2] (x, y) in maps [N, C, h, w]; zero outside."""
    width = maps.shape[-1] + 2
    corner = cells[..., 1] * width + cells[..., 0]
    step = torch.tensor([row * width + column for row in range(3) for column in range(3)], device=maps.device)
    index = (corner[..., None] + step).flatten(1)  # [N, M * 9]
    padded = F.pad(maps, (1, 1, 1, 1)).flatten(2)
    picked = padded.gather(2, index[:, None].expand(-1, maps.shape[1], -1))
    return picked.unflatten(2, (cells.shape[1], 9)).transpose(1, 2)


class MoveNet(nn.Module):
    """Image -> stride-4 trunk [N, 24, H/4, W/4] -> heads. Both sides of the image are multiples of 32."""

    def __init__(self, width: float, heads: Mapping[str, int]) -> None:
        super().__init__()
        channels = _channels(32 * width)
        self.stem = Conv(3, channels, 3, 2, activation="relu6")
        blocks = []
        for expansion, outputs, count, stride in STAGES:
            for index in range(count):
                blocks.append(
                    InvertedResidual(channels, _channels(outputs * width), expansion, stride if index == 0 else 1)
                )
                channels = _channels(outputs * width)
        self.blocks = nn.ModuleList(blocks)
        self.last = Conv(channels, 1280, activation="relu6")
        self.lateral = nn.ModuleList(
            [Conv(1280, 64)] + [Conv(_channels(c * width), out) for c, out in ((64, 64), (32, 32), (24, TRUNK))]
        )
        self.merge = nn.ModuleList([Separable(64, 32), Separable(32, 24), Separable(24, TRUNK)])
        self.heads = nn.ModuleDict({name: MapHead(outputs) for name, outputs in heads.items()})
        self.layout = torch.channels_last  # the faster one for convolutions on a CPU
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=self.layout)

    def head(self, name: str) -> MapHead:
        return cast(MapHead, self.heads[name])

    def trunk(self, images: Tensor) -> Tensor:
        """Normalised images [N, 3, H, W] -> the pyramid's finest level [N, 24, H/4, W/4]."""
        x = self.stem(images.contiguous(memory_format=self.layout))
        taps = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in TAPS:
                taps.append(x)
        x = self.lateral[0](self.last(x))
        for lateral, merge, tap in zip(self.lateral[1:], self.merge, reversed(taps), strict=True):
            x = merge(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False) + lateral(tap))
        return x


def normalize(images: Tensor) -> Tensor:
    """RGB 0..255 -> -1..1."""
    return images.float() / HALF_RANGE - 1


def normalized(images: np.ndarray) -> np.ndarray:
    """The same, to the bit, without torch: its arithmetic in a second thread slows the network in the first."""
    return np.divide(images, np.float32(HALF_RANGE), dtype=np.float32) - np.float32(1)


def adopt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of the embedded weights (those of the published graphs, shortened) -> this module's."""
    renames = (
        (r"^hs\.(\w+)\.", r"heads.\1.hidden."),
        (r"^ho\.(\w+)\.", r"heads.\1.out."),
        (r"^lat\.", "lateral."),
        (r"^sep\.", "merge."),
        (r"^out\.", "last."),
        (r"\.dw\.", ".depthwise."),
        (r"\.pw\.", ".pointwise."),
        (r"\.c\.(weight|bias)$", r".\1"),
    )
    adopted = {}
    for key, value in state.items():
        for pattern, replacement in renames:
            key = re.sub(pattern, replacement, key)
        adopted[key] = value
    return adopted


def cells_of(index: Tensor, width: int) -> Tensor:
    """Flat map indices -> cells (x, y)."""
    return torch.stack([index % width, index // width], -1)
