"""MoveNet (Google): a MobileNetV2 with a feature pyramid to stride 4 and CenterNet-style heads.

Lightning and Thunder read one person in a crop; MultiPose finds all people in a picture (pose2d/detector.py).
Batch normalisation is folded into the convolutions, as in the published graphs.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.errors import UserError
from pose2d.gaussian_fit import fit_gaussian
from pose2d.models.base import CropConvention, ModelCard, PoseModel
from pose2d.models.movenet_features import MoveNetFeatures, trunk_of
from pose2d.skeletons import COCO17
from pose2d.types import Prediction

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

CHUNK = 2  # crops at a time on a CPU: what they need between layers still fits its caches


def _channels(channels: float) -> int:
    """MobileNet's rounding to multiples of eight, never more than 10 % down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Conv(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding: at stride 2 an even input is padded at its end only."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == (1, 1):
            return super().forward(x)
        # Torch pads both ends. A leading zero row and column in the kernel undo the one too many,
        # for less than it costs to copy the map into a padded one.
        kernel = F.pad(self.weight, (1, 0, 1, 0))
        return F.conv2d(x, kernel, self.bias, self.stride, self.padding, groups=self.groups)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = Conv(inputs, wide) if expansion > 1 else None
        self.depthwise = Conv(wide, wide, 3, stride, groups=wide)
        self.project = Conv(wide, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = self.expand(x).clamp_(0, 6) if self.expand is not None else x
        out = self.project(self.depthwise(wide).clamp_(0, 6))
        return out.add_(x) if self.residual else out


class Separable(nn.Module):
    """Filter each channel, then mix channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = Conv(inputs, inputs, 3, groups=inputs, bias=False)
        self.pointwise = Conv(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x)).relu_()


class Head(nn.Module):
    """What one head says: on the whole map, or only at chosen cells."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.hidden = Separable(TRUNK, HIDDEN)
        self.out = Conv(HIDDEN, outputs)

    def forward(self, trunk: Tensor) -> Tensor:
        return self.out(self.hidden(trunk))

    def at(self, trunk: Tensor, cells: Tensor) -> Tensor:
        """The head's outputs [N, M, outputs] at cells [N, M, 2] (x, y): equal to the whole map, at a few points' cost."""
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
    """Picture -> stride-4 trunk [N, 24, H/4, W/4] -> heads. Both sides of the picture are multiples of 32."""

    def __init__(self, width: float, heads: Mapping[str, int]) -> None:
        super().__init__()
        channels = _channels(32 * width)
        self.stem = Conv(3, channels, 3, 2)
        blocks = []
        for expansion, outputs, count, stride in STAGES:
            for index in range(count):
                blocks.append(
                    InvertedResidual(channels, _channels(outputs * width), expansion, stride if index == 0 else 1)
                )
                channels = _channels(outputs * width)
        self.blocks = nn.ModuleList(blocks)
        self.last = Conv(channels, 1280)
        self.lateral = nn.ModuleList(
            [Conv(1280, 64)] + [Conv(_channels(c * width), out) for c, out in ((64, 64), (32, 32), (24, TRUNK))]
        )
        self.merge = nn.ModuleList([Separable(64, 32), Separable(32, 24), Separable(24, TRUNK)])
        self.heads = nn.ModuleDict({name: Head(outputs) for name, outputs in heads.items()})
        for weight in self.parameters():  # the faster layout for convolutions on a CPU
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)

    def head(self, name: str) -> Head:
        return cast(Head, self.heads[name])

    def trunk(self, pictures: Tensor) -> Tensor:
        """Normalised pictures [N, 3, H, W] -> the pyramid's finest level [N, 24, H/4, W/4]."""
        x = self.stem(pictures.contiguous(memory_format=torch.channels_last)).clamp_(0, 6)
        taps = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in TAPS:
                taps.append(x)
        x = self.lateral[0](self.last(x).clamp_(0, 6))
        for lateral, merge, tap in zip(self.lateral[1:], self.merge, reversed(taps), strict=True):
            x = merge(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False) + lateral(tap))
        return x


def normalize(pictures: Tensor) -> Tensor:
    """RGB 0..255 -> -1..1."""
    return pictures.float() / 127.5 - 1


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


class SinglePose(PoseModel):
    """Lightning or Thunder: the keypoints of the person in the middle of a square crop."""

    skeleton = COCO17
    crop: ClassVar[CropConvention] = "square"
    box_scale: ClassVar[float] = 1.1

    def __init__(self, width: float, side: int) -> None:
        super().__init__()
        self.input_wh = (side, side)
        self.feature_shape = (HIDDEN, side // STRIDE, side // STRIDE)
        self.net = MoveNet(width, SINGLE_HEADS)

    def normalize(self, crops: Tensor) -> Tensor:
        return normalize(crops)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"net.{key.removeprefix('net.')}": value for key, value in adopt(state).items()}

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        parts = crops.split(CHUNK) if crops.device.type == "cpu" and len(crops) else [crops]
        trunk = torch.cat([self.net.trunk(part) for part in parts])
        return MoveNetFeatures.join(self.net.head("kpt_heatmap").hidden(trunk), trunk)

    def predict(self, features: Tensor) -> Prediction:
        return decode([self._view(features)])

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return decode([self._view(features), MirroredView(self._view(mirrored), self.skeleton.flip_order)])

    def _view(self, features: Tensor) -> "View":
        trunk = trunk_of(features)
        hidden = features.as_subclass(Tensor)
        if tuple(hidden.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(f"features must have shape [N, {expected}], got {list(hidden.shape)}.")
        return View(self.net, hidden, trunk)


def cells_of(index: Tensor, width: int) -> Tensor:
    """Flat map indices -> cells (x, y)."""
    return torch.stack([index % width, index // width], -1)


class View:
    """What the heads say of one batch of crops."""

    def __init__(self, net: MoveNet, hidden: Tensor, trunk: Tensor) -> None:
        self.net, self.trunk = net, trunk
        self.heat = net.head("kpt_heatmap").out(hidden).sigmoid()  # [N, 17, h, w]
        self.centre = net.head("center")(trunk).sigmoid()  # [N, 1, h, w]

    def guess(self, cell: Tensor) -> Tensor:
        """Where the person with that centre cell [N, 1, 2] should have its keypoints: [N, 17, 2] cells from the edge."""
        step = self.net.head("kpt_regress").at(self.trunk, cell).unflatten(-1, (17, 2))[:, 0]
        return cell + step.flip(-1)

    def locate(self, cells: Tensor) -> Tensor:
        """The place of each keypoint found in cells [N, 17, 2]: [N, 17, 2] cells from the map's edge."""
        every = self.net.head("kpt_offset").at(self.trunk, cells).unflatten(-1, (17, 2))  # [N, 17, 17, 2]
        return cells + torch.diagonal(every, dim1=1, dim2=2).transpose(1, 2).flip(-1)


class MirroredView:
    """What the heads say of mirrored crops, told as if the crops were not mirrored."""

    def __init__(self, view: View, flip_order: list[int]) -> None:
        self.view, self.flip_order = view, flip_order
        self.heat = view.heat[:, flip_order].flip(-1)
        self.centre = view.centre.flip(-1)

    def guess(self, cell: Tensor) -> Tensor:
        return self._back(self.view.guess(self._mirror_cells(cell))[:, self.flip_order])

    def locate(self, cells: Tensor) -> Tensor:
        return self._back(self.view.locate(self._mirror_cells(cells)[:, self.flip_order])[:, self.flip_order])

    def _mirror_cells(self, cells: Tensor) -> Tensor:
        return torch.stack([self.heat.shape[-1] - 1 - cells[..., 0], cells[..., 1]], -1)

    def _back(self, xy_cells: Tensor) -> Tensor:
        """Places count from the map's edge, so x becomes width - x."""
        return torch.stack([self.heat.shape[-1] - xy_cells[..., 0], xy_cells[..., 1]], -1)


def decode(views: Sequence[View | MirroredView]) -> Prediction:
    """The keypoints of the person in the middle, averaged over views of the same crops.

    As the published graph does: the person whose centre is likely and near the crop's; for each keypoint the place
    that is likely and near where that centre expects it; then the offset within the cell.
    """
    heat = torch.stack([view.heat for view in views]).mean(0)
    centre = torch.stack([view.centre for view in views]).mean(0)
    h, w = heat.shape[2:]
    rows, columns = (torch.arange(size, device=heat.device, dtype=heat.dtype) for size in (h, w))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    prior = 1 / (torch.hypot(y - h / 2, x - w / 2) + 1.8)
    cell = cells_of((centre * prior).flatten(2).argmax(2), w)  # [N, 1, 2]
    guess = torch.stack([view.guess(cell) for view in views]).mean(0)
    distance = torch.hypot(x - guess[..., 0, None, None], y - guess[..., 1, None, None])
    index = (heat / (distance + 1.8)).flatten(2).argmax(2)
    cells = cells_of(index, w)
    return Prediction(
        xy_px=torch.stack([view.locate(cells) for view in views]).mean(0) * STRIDE,
        score=heat.flatten(2).gather(2, index[..., None])[..., 0],
        sigma_px=fit_gaussian(heat, cells).sigma_cells * STRIDE,
        maps=heat,
    )


CARDS = [
    ModelCard(
        name=f"movenet-{name}",
        build=partial(SinglePose, width, side),
        skeleton=COCO17,
        input_wh=(side, side),
        parameters=parameters,
        licence="Apache-2.0",
        source="Google MoveNet",
        embedded=f"movenet_{name}_fp16.npz",
    )
    for name, width, side, parameters in (
        ("lightning", 1.0, 192, 2_317_974),
        ("thunder", 1.75, 256, 6_226_046),
    )
]
