"""ResNet (He et al. 2016) with torchvision's key names.

It is "v1.5": the 3x3 convolution has the stride."""

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

# Blocks per stage, by depth
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
NARROW = (64, 128, 256, 512)  # channels of the 3x3 convolutions of the four stages


def stage_channels(depth: int) -> tuple[int, ...]:
    """Return the channels of the four stages, at strides 4, 8, 16, 32."""
    return tuple(narrow if depth == 18 else 4 * narrow for narrow in NARROW)


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, bias: bool = False
) -> nn.Sequential:
    """Return a padded convolution and its batch normalisation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=bias)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """A residual block: 1x1 to few channels, 3x3, 1x1 to four times as many."""

    def __init__(self, inputs: int, narrow: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_bn(inputs, narrow, 1)
        self.conv2, self.bn2 = conv_bn(narrow, narrow, 3, stride)
        self.conv3, self.bn3 = conv_bn(narrow, 4 * narrow, 1)
        needs_projection = stride > 1 or inputs != 4 * narrow
        self.downsample = conv_bn(inputs, 4 * narrow, 1, stride) if needs_projection else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class BasicBlock(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, inputs: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_bn(inputs, channels, 3, stride)
        self.conv2, self.bn2 = conv_bn(channels, channels, 3)
        needs_projection = stride > 1 or inputs != channels
        self.downsample = conv_bn(inputs, channels, 1, stride) if needs_projection else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """The trunk without its classifier.

    Pose models with flat key names inherit from it, so it has no `forward`."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_bn(3, 64, 7, 2)
        inputs = 64
        block = BasicBlock if depth == 18 else Bottleneck
        sizes = zip(BLOCKS[depth], NARROW, stage_channels(depth), strict=True)
        for stage, (count, narrow, channels) in enumerate(sizes, start=1):
            first = block(inputs, narrow, stride=1 if stage == 1 else 2)
            others = (block(channels, narrow) for _ in range(count - 1))
            setattr(self, f"layer{stage}", nn.Sequential(first, *others))
            inputs = channels

    def stages(self, x: Tensor) -> list[Tensor]:
        """Return four maps of images [N, 3, H, W], with `stage_channels` at strides 4, 8, 16, 32."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        maps = []
        for stage in range(1, 5):
            x = cast(nn.Sequential, getattr(self, f"layer{stage}"))(x)
            maps.append(x)
        return maps


DECONV = 256  # channels of every transposed convolution of the published networks


def deconv_layers(inputs: int, count: int, channels: int = DECONV) -> nn.Sequential:
    """Return `count` times [4x4 transposed convolution of stride 2, normalisation, ReLU]."""
    layers: list[nn.Module] = []
    for _ in range(count):
        grow = nn.ConvTranspose2d(inputs, channels, 4, 2, 1, bias=False)
        layers += [grow, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        inputs = channels
    return nn.Sequential(*layers)
