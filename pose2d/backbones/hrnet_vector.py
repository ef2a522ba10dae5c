"""HRNet's classification trunk: the four branches, widened and folded into one map of 2048 channels at stride 32."""

from itertools import pairwise

from torch import Tensor, nn

from pose2d.backbones.hrnet import HRNet, widths
from pose2d.backbones.resnet import Bottleneck

NARROW = (32, 64, 128, 256)  # of the bottlenecks that widen the branches fourfold


class HRNetVector(HRNet):
    """Key names as in HRNet-Image-Classification, without its classifier."""

    def __init__(self, width: int) -> None:
        super().__init__(width, outputs=4)
        self.incre_modules = nn.ModuleList(
            nn.Sequential(Bottleneck(channels, narrow))
            for channels, narrow in zip(widths(width, 4), NARROW, strict=True)
        )
        self.downsamp_modules = nn.ModuleList(
            _conv_bn_relu(4 * fine, 4 * coarse, 3, 2) for fine, coarse in pairwise(NARROW)
        )
        self.final_layer = _conv_bn_relu(4 * NARROW[-1], 2048, 1, 1)

    def stages(self, x: Tensor) -> list[Tensor]:
        """Images [N, 3, H, W] -> the maps at strides 4, 8, 16 and 32; the last has 2048 channels."""
        wide = [widen(x) for widen, x in zip(self.incre_modules, super().stages(x), strict=True)]
        maps = wide[:1]
        for shrink, finer in zip(self.downsamp_modules, wide[1:], strict=True):
            maps.append(finer + shrink(maps[-1]))
        return [*maps[:-1], self.final_layer(maps[-1])]


def _conv_bn_relu(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """Unlike elsewhere in HRNet, these convolutions have a bias."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
