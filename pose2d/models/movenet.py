"""MoveNet (Google): a MobileNetV2 with a feature pyramid to stride 4 and CenterNet-style heads.

Lightning and Thunder find one person's keypoints in a square crop. MultiPose, which finds all
people in an image, is in pose2d/detect/multipose.py. Batch normalisation is folded into the
convolutions, as in the published graphs. Places are in cells from the edge of the map: the first
cell reaches from 0 to 1, its centre is at 1/2."""

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
TRUNK = 24  # channels of the pyramid's finest level
HIDDEN = 96  # channels of each head before its last layer
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
    """Round channels as MobileNet: to multiples of eight, at most 10 % down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Conv(convolutions.Conv):
    """A convolution with TensorFlow's SAME padding, then an activation.

    With stride 2, SAME pads an even input at its end only, but torch pads both ends. A leading zero
    row and column in the kernel make up for it, and cost less than copying the map."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, **more: Any
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, **({"activation": "none"} | more))

    def kernel(self) -> Tensor:
        return self.weight if self.stride == (1, 1) else F.pad(self.weight, (1, 0, 1, 0))


class InvertedResidual(nn.Module):
    """A block of MobileNetV2: 1x1 to more channels, depthwise 3x3, 1x1 to fewer."""

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
    """Return a depthwise 3x3 convolution followed by a 1x1 convolution."""
    depthwise = Conv(inputs, inputs, 3, groups=inputs, bias=False)
    return named_layers(depthwise=depthwise, pointwise=Conv(inputs, outputs, activation="relu"))


class MapHead(nn.Module):
    """An output head, computed on the whole map or only at chosen cells."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.hidden = separable(TRUNK, HIDDEN)
        self.out = Conv(HIDDEN, outputs)

    def forward(self, trunk: Tensor) -> Tensor:
        return self.out(self.hidden(trunk))

    def at(self, trunk: Tensor, cells: Tensor) -> Tensor:
        """Return the outputs [N, M, outputs] at cells [N, M, 2] (x, y) without the whole map."""
        # The 3x3 neighbourhoods [N, M, C, 9], zero outside
        wide = F.pad(trunk, (1, 1, 1, 1)).flatten(2)
        _, channels, _, width = trunk.shape
        corner = cells[..., 1] * (width + 2) + cells[..., 0]
        steps = [row * (width + 2) + column for row in range(3) for column in range(3)]
        step = torch.tensor(steps).to(cells)
        index = (corner[..., None] + step).flatten(1)  # [N, M * 9]
        patches = wide.gather(2, index[:, None].expand(-1, channels, -1))
        patches = patches.unflatten(2, (-1, 9)).transpose(1, 2)
        depthwise = self.hidden.depthwise
        pointwise = self.hidden.pointwise
        filtered = torch.einsum("nmcp,cp->nmc", patches, depthwise.weight.flatten(1))
        mixed = F.linear(filtered, pointwise.weight.flatten(1), pointwise.bias)
        return F.linear(F.relu(mixed), self.out.weight.flatten(1), self.out.bias)


class MoveNet(nn.Module):
    """Image -> trunk [N, 24, H/4, W/4] -> heads; both sides of the image are multiples of 32."""

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
        self.layout = torch.channels_last  # faster on a CPU
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=self.layout)

    def head(self, name: str) -> MapHead:
        return cast(MapHead, self.heads[name])

    def trunk(self, images: Tensor) -> Tensor:
        """Return the pyramid's finest level [N, 24, H/4, W/4] of normalised images [N, 3, H, W]."""
        x = self.stem(images.contiguous(memory_format=self.layout))
        taps = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in TAPS:
                taps.append(x)
        x = self.lateral[0](self.last(x))
        for lateral, merge, tap in zip(self.lateral[1:], self.merge, reversed(taps), strict=True):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = merge(x + lateral(tap))
        return x


def normalize(images: Tensor) -> Tensor:
    """Convert RGB 0..255 to -1..1."""
    return images.float() / HALF_RANGE - 1


def convert(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename embedded weights, whose names are those of the published graphs, shortened."""
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
    """Convert flat indices of a map to cells (x, y)."""
    return torch.stack([index % width, index // width], -1)


# A person's centre is weighted by 1 / (distance + NEARNESS) in cells, as in the published graph.
NEARNESS = 1.8
# Keypoints likewise. The published graph uses 1.8, but regressed places are less exact than centres.
KEYPOINT_NEARNESS = 6.0
# Cells around a keypoint that vote: offsets are trained around it too, so neighbours point to it.
VOTE_RADIUS = 2


class Heads(Protocol):
    """A MoveNet, or only some of its heads."""

    def head(self, name: str) -> MapHead: ...


class HeadMaps:
    """The heads' outputs for a batch of crops.

    With a `flip_order`, the crops are mirrored and the outputs are mapped back."""

    def __init__(
        self, net: Heads, hidden: Tensor, trunk: Tensor, flip_order: list[int] | None = None
    ) -> None:
        self.net = net
        self.trunk = trunk
        self._mirror = flip_order is not None
        self._order = slice(None) if flip_order is None else flip_order
        heat = net.head("kpt_heatmap").out(hidden).sigmoid()[:, self._order]
        centre = net.head("center")(trunk).sigmoid()
        self.heat = heat.flip(-1) if self._mirror else heat  # [N, K, h, w] of all people
        self.centre = centre.flip(-1) if self._mirror else centre  # [N, 1, h, w] of all people

    def expected(self, centre: Tensor) -> Tensor:
        """Return the regressed keypoints [N, K, 2] of the person centred at cells [N, 1, 2]."""
        centre = self._mirrored(centre, 1)
        step = self.net.head("kpt_regress").at(self.trunk, centre).unflatten(-1, (-1, 2))[:, 0]
        return self._mirrored(centre + step.flip(-1))[:, self._order]

    def votes(self, cells: Tensor) -> Tensor:
        """Return the places [N, K, V, 2] that the offset head predicts from cells [N, K, V, 2]."""
        n, k, v, _ = cells.shape
        cells = self._mirrored(cells, 1)[:, self._order]
        offset = self.net.head("kpt_offset").at(self.trunk, cells.flatten(1, 2))
        offset = offset.unflatten(-1, (k, 2))
        own = torch.diagonal(offset.reshape(n, k, v, k, 2), dim1=1, dim2=3)  # [N, V, 2, K]
        return self._mirrored(cells + own.permute(0, 3, 1, 2).flip(-1))[:, self._order]

    def _mirrored(self, xy: Tensor, size: int = 0) -> Tensor:
        """Mirror places (size 0) or cells (size 1) if the crops were mirrored."""
        if not self._mirror:
            return xy
        return torch.stack([self.heat.shape[-1] - size - xy[..., 0], xy[..., 1]], -1)


@dataclass(frozen=True)
class ChosenCells:
    """The person of each crop and the cells that its keypoints are read at."""

    heat: Tensor  # [N, K, h, w] mean over the views
    centre: Tensor  # [N, 1, h, w] mean over the views
    person: Tensor  # [N, 1, 2] cell of the person's centre
    expected: Tensor  # [N, K, 2] regressed keypoints of that person
    index: Tensor  # [N, K] flat index of the chosen cells

    @property
    def cells(self) -> Tensor:
        return cells_of(self.index, self.heat.shape[-1])


def choose(views: Sequence[HeadMaps]) -> ChosenCells:
    """Choose a person and the cells of its keypoints, much as the published graph does.

    The person is likely and near the crop's centre; the cell of each keypoint is likely and near
    the regressed keypoint."""
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
    """Return the keypoints of the person at the centre of each crop, averaged over its views.

    A keypoint's place is the mean of the votes of the cells around it, weighted by their squared
    heat."""
    chosen = choose(views)
    heat = chosen.heat
    cells = chosen.cells
    steps = torch.arange(-VOTE_RADIUS, VOTE_RADIUS + 1, device=heat.device)
    around = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).reshape(-1, 2)
    last = torch.tensor([heat.shape[-1] - 1, heat.shape[-2] - 1], device=heat.device)
    voters = (cells[:, :, None] + around).clamp(torch.zeros_like(last), last)
    # Voters outside the map have weight zero.
    weight = windows(heat, cells, VOTE_RADIUS).flatten(2).square()
    votes = torch.stack([view.votes(voters) for view in views]).mean(0)
    places = torch.einsum("nkv,nkvc->nkc", weight, votes) / weight.sum(2, keepdim=True)
    return Prediction(
        xy_px=places * STRIDE - 0.5,  # pixels count from the first one's centre
        score=heat.flatten(2).gather(2, chosen.index[..., None])[..., 0],
        sigma_px=fit_gaussian(heat, cells) * STRIDE,
        maps=heat,
    )


class SinglePose(PoseModel):
    """Lightning or Thunder: keypoints of the person at the centre of a square crop.

    Features are the 96 channels [N, 96, h, w] from which the keypoint heatmaps are made, and carry
    the trunk [N, 24, h, w] that all heads read. A calibration head reads the features; decoding
    needs the trunk too."""

    skeleton = COCO17
    crop: ClassVar[CropConvention] = "square"
    box_scale: ClassVar[float] = 1.15  # tighter helps exact boxes and hurts detected ones

    def __init__(self, width: float, side: int, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk  # crops at a time on a CPU, so that activations fit its caches
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
