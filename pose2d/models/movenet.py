"""MoveNet (Google): a MobileNetV2 with a feature pyramid to stride 4 and CenterNet-style heads, and
Lightning and Thunder, which find one person's keypoints in a square crop with it.

Batch normalisation is folded into the convolutions, as in the published graphs. MultiPose, which
finds all people in an image, is in pose2d/detect/multipose.py. Places are in cells, counted from
the edge of the map: the first cell reaches from 0 to 1, its centre is at 1/2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.decode import fit_gaussian, windows
from pose2d.models import convolutions
from pose2d.models.base import CropConvention, PoseModel, named_layers
from pose2d.models.cards import ModelCard
from pose2d.models.checkpoints import rename_tensors
from pose2d.models.trunk import FeaturesWithTrunk, trunk_of
from pose2d.skeletons import COCO17
from pose2d.types import Prediction

HALF_RANGE = 127.5  # 0..255 becomes -1..1
STRIDE = 4  # input pixels per cell of every head's map
TRUNK, HIDDEN = (
    24,
    96,
)  # channels of the pyramid's finest level, and of each head before its last layer
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


class Conv(convolutions.Conv):
    """A convolution with TensorFlow's SAME padding, then an activation. SAME pads an even input at
    its end only when the stride is 2. Torch pads both ends: a leading zero row and column in the
    kernel undo the one too many, for less than it costs to copy the map into a padded one."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, **more: Any
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, **({"activation": "none"} | more))

    def kernel(self) -> Tensor:
        return self.weight if self.stride == (1, 1) else F.pad(self.weight, (1, 0, 1, 0))


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


def separable(inputs: int, outputs: int) -> Any:
    """Filter each channel, then mix channels."""
    depthwise = Conv(inputs, inputs, 3, groups=inputs, bias=False)
    return named_layers(depthwise=depthwise, pointwise=Conv(inputs, outputs, activation="relu"))


class MapHead(nn.Module):
    """One output head: on the whole map, or only at chosen cells."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.hidden = separable(TRUNK, HIDDEN)
        self.out = Conv(HIDDEN, outputs)

    def forward(self, trunk: Tensor) -> Tensor:
        return self.out(self.hidden(trunk))

    def at(self, trunk: Tensor, cells: Tensor) -> Tensor:
        """The outputs [N, M, outputs] at cells [N, M, 2] (x, y): as on the whole map, at a few
        points' cost.
        """
        # The 3x3 neighbourhoods [N, M, C, 9], zero outside
        wide = F.pad(trunk, (1, 1, 1, 1)).flatten(2)
        _, channels, _, width = trunk.shape
        corner = cells[..., 1] * (width + 2) + cells[..., 0]
        step = torch.tensor(
            [row * (width + 2) + column for row in range(3) for column in range(3)]
        ).to(cells)
        index = (corner[..., None] + step).flatten(1)  # [N, M * 9]
        patches = (
            wide.gather(2, index[:, None].expand(-1, channels, -1))
            .unflatten(2, (-1, 9))
            .transpose(1, 2)
        )
        filtered = torch.einsum("nmcp,cp->nmc", patches, self.hidden.depthwise.weight.flatten(1))
        mixed = F.linear(
            filtered, self.hidden.pointwise.weight.flatten(1), self.hidden.pointwise.bias
        )
        return F.linear(F.relu(mixed), self.out.weight.flatten(1), self.out.bias)


class MoveNet(nn.Module):
    """Image -> stride-4 trunk [N, 24, H/4, W/4] -> heads. Both sides of the image are multiples of
    32.
    """

    def __init__(self, width: float, heads: Mapping[str, int]) -> None:
        super().__init__()
        channels = _channels(32 * width)
        self.stem = Conv(3, channels, 3, 2, activation="relu6")
        self.blocks = nn.ModuleList()
        for expansion, outputs, count, stride in STAGES:
            for index in range(count):
                wide = _channels(outputs * width)
                self.blocks.append(
                    InvertedResidual(channels, wide, expansion, stride if index == 0 else 1)
                )
                channels = wide
        self.last = Conv(channels, 1280, activation="relu6")
        self.lateral = nn.ModuleList(
            [Conv(1280, 64)]
            + [Conv(_channels(c * width), out) for c, out in ((64, 64), (32, 32), (24, TRUNK))]
        )
        self.merge = nn.ModuleList([separable(64, 32), separable(32, 24), separable(24, TRUNK)])
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
            x = merge(
                F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                + lateral(tap)
            )
        return x


def normalize(images: Tensor) -> Tensor:
    """RGB 0..255 -> -1..1."""
    return images.float() / HALF_RANGE - 1


def convert(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of the embedded weights (those of the published graphs, shortened) -> this
    module's.
    """
    return rename_tensors(
        state,
        (r"^hs\.(\w+)\.", r"heads.\1.hidden."),
        (r"^ho\.(\w+)\.", r"heads.\1.out."),
        (r"^lat\.", "lateral."),
        (r"^sep\.", "merge."),
        (r"^out\.", "last."),
        (r"\.dw\.", ".depthwise."),
        (r"\.pw\.", ".pointwise."),
        (r"\.c\.(weight|bias)$", r".\1"),
    )


def cells_of(index: Tensor, width: int) -> Tensor:
    """Flat map indices -> cells (x, y)."""
    return torch.stack([index % width, index // width], -1)


NEARNESS = (
    1.8  # cells: a person's middle counts 1 / (distance + NEARNESS), the published graph's constant
)
# The same for a keypoint, where the graph has 1.8 too: regressed places are less exact than
# centres.
KEYPOINT_NEARNESS = 6.0
VOTE_RADIUS = (
    2  # cells: offsets are trained around a keypoint too, so its neighbours point to it as well
)


class Heads(Protocol):
    """A MoveNet, or just some of its heads."""

    def head(self, name: str) -> MapHead: ...


class HeadMaps:
    """The heads' outputs for one batch of crops; with a `flip_order`, of mirrored crops, mapped
    back to the crops as they were."""

    def __init__(
        self, net: Heads, hidden: Tensor, trunk: Tensor, flip_order: list[int] | None = None
    ) -> None:
        self.net = net
        self.trunk = trunk
        self._mirror = flip_order is not None
        self._order = slice(None) if flip_order is None else flip_order
        heat = net.head("kpt_heatmap").out(hidden).sigmoid()[:, self._order]
        centre = net.head("center")(trunk).sigmoid()
        self.heat = heat.flip(-1) if self._mirror else heat  # [N, K, h, w] keypoint of anyone
        self.centre = centre.flip(-1) if self._mirror else centre  # [N, 1, h, w] middle of anyone

    def expected(self, centre: Tensor) -> Tensor:
        """Places [N, K, 2] of the keypoints of the person whose middle is in cell `centre` [N, 1,
        2].
        """
        centre = self._mirrored(centre, 1)
        step = self.net.head("kpt_regress").at(self.trunk, centre).unflatten(-1, (-1, 2))[:, 0]
        return self._mirrored(centre + step.flip(-1))[:, self._order]

    def votes(self, cells: Tensor) -> Tensor:
        """Where the offset head puts the keypoint, from each of cells [N, K, V, 2]: places [N, K,
        V, 2].
        """
        cells, (n, k, v, _) = self._mirrored(cells, 1)[:, self._order], cells.shape
        offset = (
            self.net.head("kpt_offset").at(self.trunk, cells.flatten(1, 2)).unflatten(-1, (k, 2))
        )
        own = torch.diagonal(offset.reshape(n, k, v, k, 2), dim1=1, dim2=3)  # [N, V, 2, K]
        return self._mirrored(cells + own.permute(0, 3, 1, 2).flip(-1))[:, self._order]

    def _mirrored(self, xy: Tensor, size: int = 0) -> Tensor:
        """Mirror places, or cells, which have a size, where the crops were mirrored."""
        if not self._mirror:
            return xy
        return torch.stack([self.heat.shape[-1] - size - xy[..., 0], xy[..., 1]], -1)


@dataclass(frozen=True)
class ChosenCells:
    """Whose keypoints are read off where, in cells."""

    heat: Tensor  # [N, K, h, w] mean over the views
    centre: Tensor  # [N, 1, h, w] likewise
    person: Tensor  # [N, 1, 2] cell of the person's middle
    expected: Tensor  # [N, K, 2] places where that person is expected to have its keypoints
    index: Tensor  # [N, K] flat index of the chosen cells

    @property
    def cells(self) -> Tensor:
        return cells_of(self.index, self.heat.shape[-1])


def choose(views: Sequence[HeadMaps]) -> ChosenCells:
    """Much as in the published graph: the person whose middle is likely and near the crop's; for
    each keypoint the cell that is likely and near where that person is expected to have it."""
    heat = torch.stack([view.heat for view in views]).mean(0)
    centre = torch.stack([view.centre for view in views]).mean(0)
    h, w = heat.shape[2:]
    y = torch.arange(h, device=heat.device)[:, None] + 0.5
    x = torch.arange(w, device=heat.device) + 0.5
    near_middle = 1 / (torch.hypot(x - w / 2, y - h / 2) + NEARNESS)
    person = cells_of((centre * near_middle).flatten(2).argmax(2), w)  # [N, 1, 2]
    expected = torch.stack([view.expected(person) for view in views]).mean(0)
    distance = torch.hypot(x - expected[..., 0, None, None], y - expected[..., 1, None, None])
    index = (heat / (distance + KEYPOINT_NEARNESS)).flatten(2).argmax(2)
    return ChosenCells(heat, centre, person, expected, index)


def decode(views: Sequence[HeadMaps]) -> Prediction:
    """The keypoints of the person in the middle of each crop, from one view of it or the mean of
    several. A keypoint's place within its cell is the mean of the votes of the cells around,
    weighted by their squared heat."""
    chosen = choose(views)
    heat = chosen.heat
    cells = chosen.cells
    steps = torch.arange(-VOTE_RADIUS, VOTE_RADIUS + 1, device=heat.device)
    around = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).reshape(-1, 2)
    last = torch.tensor([heat.shape[-1] - 1, heat.shape[-2] - 1], device=heat.device)
    voters = (cells[:, :, None] + around).clamp(torch.zeros_like(last), last)
    weight = (
        windows(heat, cells, VOTE_RADIUS).flatten(2).square()
    )  # zero for voters outside the map
    votes = torch.stack([view.votes(voters) for view in views]).mean(0)
    places = torch.einsum("nkv,nkvc->nkc", weight, votes) / weight.sum(2, keepdim=True)
    return Prediction(
        xy_px=places * STRIDE - 0.5,  # pixels count from the first one's centre
        score=heat.flatten(2).gather(2, chosen.index[..., None])[..., 0],
        sigma_px=fit_gaussian(heat, cells) * STRIDE,
        maps=heat,
    )


class SinglePose(PoseModel):
    """Lightning or Thunder: the keypoints of the person in the middle of a square crop. Features
    are the 96 channels [N, 96, h, w] that the keypoint heatmaps are made of; `trunk` [N, 24, h, w]
    is what all heads hang on, each with hidden features of its own. A calibration head reads the
    former; decoding needs the trunk too."""

    skeleton = COCO17
    crop: ClassVar[CropConvention] = "square"
    box_scale: ClassVar[float] = 1.15  # tighter helps exact boxes and hurts detected ones

    def __init__(self, width: float, side: int, chunk: int) -> None:
        super().__init__()
        self.chunk = (
            chunk  # crops at a time on a CPU, so that what lies between layers fits its caches
        )
        self.input_wh = (side, side)
        self.feature_shape = (HIDDEN, side // STRIDE, side // STRIDE)
        self.net = MoveNet(width, SINGLE_HEADS)

    def normalize(self, crops: Tensor) -> Tensor:
        return normalize(crops)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"net.{key.removeprefix('net.')}": value for key, value in convert(state).items()}

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        parts = crops.split(self.chunk) if crops.device.type == "cpu" and len(crops) else [crops]
        trunk = torch.cat([self.net.trunk(part) for part in parts])
        return FeaturesWithTrunk.join(self.net.head("kpt_heatmap").hidden(trunk), trunk)

    def predict(self, features: Tensor) -> Prediction:
        return decode([self._view(features)])

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return decode([self._view(features), self._view(mirrored, self.skeleton.flip_order)])

    def _view(self, features: Tensor, flip_order: list[int] | None = None) -> "HeadMaps":
        return HeadMaps(self.net, self.plain(features), trunk_of(features), flip_order)


CARDS = [
    ModelCard(
        f"movenet-{name}",
        partial(SinglePose, width, side, chunk),
        COCO17,
        (side, side),
        parameters,
        "Apache-2.0",
        "Google MoveNet",
        embedded=f"movenet_{name}_fp16.npz",
    )
    for name, width, side, chunk, parameters in (
        ("lightning", 1.0, 192, 8, 2_317_974),
        ("thunder", 1.75, 256, 2, 6_226_046),
    )
]
