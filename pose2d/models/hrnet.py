"""HRNet (Sun et al. 2019): branches at strides 4, 8, 16, 32 that exchange features repeatedly."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import HeatmapModel
from pose2d.models.cards import MMPOSE, sized_card
from pose2d.models.checkpoints import is_mmpose, rename_tensors
from pose2d.models.resnet import BasicBlock, Bottleneck, conv_bn
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton

MODULES = {2: 1, 3: 4, 4: 3}  # exchange modules in the stage with that many branches
BLOCKS = 4  # residual blocks per branch and module
VECTOR = 2048  # channels of `HRNetVector`'s last map


def widths(width: int, branches: int) -> list[int]:
    """Return the channels of each branch: C, 2C, 4C, 8C."""
    return [width << branch for branch in range(branches)]


def conv_bn_relu(
    inputs: int, outputs: int, stride: int, kernel: int = 3, bias: bool = False
) -> nn.Sequential:
    """Return a padded convolution, its batch normalisation and ReLU."""
    return nn.Sequential(*conv_bn(inputs, outputs, kernel, stride, bias), nn.ReLU(inplace=True))


class Exchange(nn.Module):
    """Runs the blocks of every branch, then sums all branches, resized, for every output."""

    def __init__(self, width: int, branches: int, outputs: int) -> None:
        super().__init__()
        channels = widths(width, branches)
        self.branches = nn.ModuleList(
            nn.Sequential(*(BasicBlock(c, c) for _ in range(BLOCKS))) for c in channels
        )
        self.fuse_layers = nn.ModuleList(
            nn.ModuleDict({str(j): _resize(channels, j, i) for j in range(branches) if j != i})
            for i in range(outputs)
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        maps = [branch(x) for branch, x in zip(self.branches, maps, strict=True)]
        outputs = []
        for i, fuse in enumerate(self.fuse_layers):  # coarser branches grow to branch i's size
            layers = cast(nn.ModuleDict, fuse)
            terms = [maps[j] if j == i else layers[str(j)](maps[j]) for j in range(i + 1)]
            total = terms[0] + terms[1] if i > 0 else terms[0]
            for term in terms[2:]:
                total += term
            for j in range(i + 1, len(maps)):
                coarse = layers[str(j)](maps[j])
                coarse = F.interpolate(coarse, scale_factor=2.0 ** (j - i), mode="nearest")
                total = coarse.add_(total)
            outputs.append(F.relu(total, inplace=True))
        return outputs


def _resize(channels: list[int], source: int, target: int) -> nn.Sequential:
    """Return layers that give branch `source` the channels of `target`, and its size if smaller."""
    if source > target:
        return conv_bn(channels[source], channels[target], 1)
    steps = [
        conv_bn_relu(channels[source], channels[source], 2) for _ in range(target - source - 1)
    ]
    return nn.Sequential(*steps, conv_bn(channels[source], channels[target], 3, 2))


class HRNet(nn.Module):
    """The trunk, with its finest map or all four.

    Pose models with flat key names inherit from it, so it has no `forward`."""

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_bn(3, 64, 3, 2)
        self.conv2, self.bn2 = conv_bn(64, 64, 3, 2)
        self.layer1 = nn.Sequential(Bottleneck(64, 64), *(Bottleneck(256, 64) for _ in range(3)))
        finest = conv_bn_relu(256, width, 1)
        finer = nn.Sequential(conv_bn_relu(256, 2 * width, 2))
        self.transition1 = nn.ModuleDict({"0": finest, "1": finer})
        self.stage2 = self._stage(width, 2, 2)
        self.transition2 = nn.ModuleDict(
            {"2": nn.Sequential(conv_bn_relu(2 * width, 4 * width, 2))}
        )
        self.stage3 = self._stage(width, 3, 3)
        self.transition3 = nn.ModuleDict(
            {"3": nn.Sequential(conv_bn_relu(4 * width, 8 * width, 2))}
        )
        self.stage4 = self._stage(width, 4, outputs)

    @staticmethod
    def _stage(width: int, branches: int, outputs: int) -> nn.Sequential:
        modules = [Exchange(width, branches, branches) for _ in range(MODULES[branches] - 1)]
        return nn.Sequential(*modules, Exchange(width, branches, outputs))

    def stages(self, x: Tensor) -> list[Tensor]:
        """Return the finest `outputs` maps of images [N, 3, H, W].

        They have C, 2C, 4C, 8C channels at strides 4, 8, 16, 32."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer1(F.relu(self.bn2(self.conv2(x)), inplace=True))
        maps = self.stage2([self.transition1["0"](x), self.transition1["1"](x)])
        maps = self.stage3([*maps, self.transition2["2"](maps[-1])])
        return self.stage4([*maps, self.transition3["3"](maps[-1])])


NARROW = (32, 64, 128, 256)  # channels of the bottlenecks that widen the branches fourfold


class HRNetVector(HRNet):
    """HRNet-Image-Classification without its classifier, with its key names."""

    def __init__(self, width: int) -> None:
        super().__init__(width, outputs=4)
        self.incre_modules = nn.ModuleList(
            nn.Sequential(Bottleneck(channels, narrow))
            for channels, narrow in zip(widths(width, 4), NARROW, strict=True)
        )
        self.downsamp_modules = nn.ModuleList(
            conv_bn_relu(4 * fine, 4 * coarse, 2, bias=True) for fine, coarse in pairwise(NARROW)
        )
        self.final_layer = conv_bn_relu(4 * NARROW[-1], VECTOR, 1, 1, bias=True)

    def stages(self, x: Tensor) -> list[Tensor]:
        """Return maps at strides 4, 8, 16 and 32 of images [N, 3, H, W]; the last has 2048 channels."""
        wide = [widen(x) for widen, x in zip(self.incre_modules, super().stages(x), strict=True)]
        maps = wide[:1]
        for shrink, finer in zip(self.downsamp_modules, wide[1:], strict=True):
            maps.append(finer + shrink(maps[-1]))
        return [*maps[:-1], self.final_layer(maps[-1])]


class HRNetPose(HRNet, HeatmapModel):
    """HRNet for poses; official and mmpose checkpoints take RGB.

    Features are the finest branch: 32 or 48 channels at stride 4."""

    def __init__(self, width: int, input_wh: tuple[int, int], skeleton: Skeleton) -> None:
        super().__init__(width)
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (width, input_wh[1] // 4, input_wh[0] // 4)
        self.final_layer = nn.Conv2d(width, skeleton.size, 1)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.stages(crops)[0]

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.decode = decode.mmpose_default if is_mmpose(state) else decode.quarter_offset
        return rename_tensors(state, (r"^(backbone|head|keypoint_head)\.", ""))


_TRUNK = {32: 28_535_552, 48: 63_594_912}  # parameters without the last convolution
_OFFICIAL = ("MIT", "leoxiaobin/deep-high-resolution-net.pytorch")
_SETS = (
    ("", COCO17, (32, 48), ("256x192", "384x288"), _OFFICIAL),
    ("-mpii", MPII16, (32,), ("256x256",), _OFFICIAL),
    ("-mpii", MPII16, (48,), ("256x256",), MMPOSE),
    ("-wholebody", WHOLEBODY133, (32, 48), ("256x192", "384x288"), MMPOSE),
)
CARDS = [
    sized_card(
        f"hrnet-w{width}-{size}{suffix}", partial(HRNetPose, width), skeleton, parameters, origin
    )
    for suffix, skeleton, trunks, sizes, origin in _SETS
    for width in trunks
    for parameters in [_TRUNK[width] + (width + 1) * skeleton.size]
    for size in sizes
]
