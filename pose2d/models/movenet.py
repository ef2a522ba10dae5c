"""MoveNet Lightning and Thunder: one person's keypoints in a square crop.

MultiPose, which finds all people in an image, is in pose2d/detect/detector.py. Places are in cells, counted from the
edge of the map: the first cell reaches from 0 to 1, its centre is at 1/2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.decode import fit_gaussian, windows
from pose2d.models.base import CropConvention, FeaturesWithTrunk, ModelCard, PoseModel, trunk_of
from pose2d.models.movenet_network import HIDDEN, SINGLE_HEADS, STRIDE, MapHead, MoveNet, adopt, cells_of, normalize
from pose2d.skeletons import COCO17
from pose2d.types import Prediction


class MoveNetFeatures(FeaturesWithTrunk):
    """Penultimate features [N, 96, h, w] of the keypoint heatmaps; `trunk` [N, 24, h, w] is what all heads hang on.

    MoveNet's heads (heatmap, person centre, regression, offset) each have hidden features of their own. A calibration
    head reads the heatmap's 96 channels; decoding needs the trunk too.
    """


NEARNESS = 1.8  # cells: a person's middle counts 1 / (distance + NEARNESS), the published graph's constant
# The same for a keypoint, where the graph has 1.8 too: regressed places are less exact than centres.
KEYPOINT_NEARNESS = 6.0
VOTE_RADIUS = 2  # cells: offsets are trained around a keypoint too, so its neighbours point to it as well


class Heads(Protocol):
    """A MoveNet, or just some of its heads."""

    def head(self, name: str) -> MapHead: ...


class HeadMaps:
    """The heads' outputs for one batch of crops."""

    def __init__(self, net: Heads, hidden: Tensor, trunk: Tensor) -> None:
        self.net, self.trunk = net, trunk
        self.heat = net.head("kpt_heatmap").out(hidden).sigmoid()  # [N, K, h, w] keypoint of anyone
        self.centre = net.head("center")(trunk).sigmoid()  # [N, 1, h, w] middle of anyone

    def expected(self, centre: Tensor) -> Tensor:
        """Places [N, K, 2] of the keypoints of the person whose middle is in cell `centre` [N, 1, 2]."""
        step = self.net.head("kpt_regress").at(self.trunk, centre).unflatten(-1, (-1, 2))[:, 0]
        return centre + step.flip(-1)

    def votes(self, cells: Tensor) -> Tensor:
        """Where the offset head puts the keypoint, from each of cells [N, K, V, 2]: places [N, K, V, 2]."""
        n, k, v, _ = cells.shape
        offset = self.net.head("kpt_offset").at(self.trunk, cells.flatten(1, 2)).unflatten(-1, (k, 2))
        own = torch.diagonal(offset.reshape(n, k, v, k, 2), dim1=1, dim2=3)  # [N, V, 2, K]
        return cells + own.permute(0, 3, 1, 2).flip(-1)


class MirroredHeadMaps:
    """The heads' outputs for mirrored crops, mapped back to the crops as they were."""

    def __init__(self, view: HeadMaps, flip_order: list[int]) -> None:
        self.view, self.flip_order = view, flip_order
        self.heat = view.heat[:, flip_order].flip(-1)
        self.centre = view.centre.flip(-1)

    def expected(self, centre: Tensor) -> Tensor:
        return self._mirrored(self.view.expected(self._mirrored(centre, 1)))[:, self.flip_order]

    def votes(self, cells: Tensor) -> Tensor:
        return self._mirrored(self.view.votes(self._mirrored(cells, 1)[:, self.flip_order]))[:, self.flip_order]

    def _mirrored(self, xy: Tensor, size: int = 0) -> Tensor:
        """Mirror places, or cells, which have a size."""
        width = self.heat.shape[-1]
        return torch.stack([width - size - xy[..., 0], xy[..., 1]], -1)


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
        """[N, K, 2]"""
        return cells_of(self.index, self.heat.shape[-1])


def choose(views: Sequence[HeadMaps | MirroredHeadMaps]) -> ChosenCells:
    """Much as in the published graph: the person whose middle is likely and near the crop's; for each keypoint the
    cell that is likely and near where that person is expected to have it.
    """
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


def decode(views: Sequence[HeadMaps | MirroredHeadMaps]) -> Prediction:
    """The keypoints of the person in the middle of each crop, from one view of it or the mean of several.

    A keypoint's place within its cell is the mean of the votes of the cells around, weighted by their squared heat.
    """
    chosen = choose(views)
    heat, cells = chosen.heat, chosen.cells
    return Prediction(
        xy_px=_vote(views, heat, cells) * STRIDE - 0.5,  # pixels count from the first one's centre
        score=heat.flatten(2).gather(2, chosen.index[..., None])[..., 0],
        sigma_px=fit_gaussian(heat, cells).sigma_cells * STRIDE,
        maps=heat,
    )


def _vote(views: Sequence[HeadMaps | MirroredHeadMaps], heat: Tensor, cells: Tensor) -> Tensor:
    """Places [N, K, 2] within and around cells [N, K, 2]."""
    steps = torch.arange(-VOTE_RADIUS, VOTE_RADIUS + 1, device=heat.device)
    around = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).reshape(-1, 2)
    last = torch.tensor([heat.shape[-1] - 1, heat.shape[-2] - 1], device=heat.device)
    voters = (cells[:, :, None] + around).clamp(torch.zeros_like(last), last)
    weight = windows(heat, cells, VOTE_RADIUS).flatten(2).square()  # zero for voters outside the map
    votes = torch.stack([view.votes(voters) for view in views]).mean(0)
    return torch.einsum("nkv,nkvc->nkc", weight, votes) / weight.sum(2, keepdim=True)


class SinglePose(PoseModel):
    """Lightning or Thunder: the keypoints of the person in the middle of a square crop."""

    skeleton = COCO17
    crop: ClassVar[CropConvention] = "square"
    box_scale: ClassVar[float] = 1.15  # tighter helps exact boxes and hurts detected ones

    def __init__(self, width: float, side: int, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk  # crops at a time on a CPU, so that what lies between layers fits its caches
        self.input_wh = (side, side)
        self.feature_shape = (HIDDEN, side // STRIDE, side // STRIDE)
        self.net = MoveNet(width, SINGLE_HEADS)

    def normalize(self, crops: Tensor) -> Tensor:
        return normalize(crops)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"net.{key.removeprefix('net.')}": value for key, value in adopt(state).items()}

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        parts = crops.split(self.chunk) if crops.device.type == "cpu" and len(crops) else [crops]
        trunk = torch.cat([self.net.trunk(part) for part in parts])
        return MoveNetFeatures.join(self.net.head("kpt_heatmap").hidden(trunk), trunk)

    def predict(self, features: Tensor) -> Prediction:
        return decode([self._view(features)])

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return decode([self._view(features), MirroredHeadMaps(self._view(mirrored), self.skeleton.flip_order)])

    def _view(self, features: Tensor) -> "HeadMaps":
        trunk = trunk_of(features)
        hidden = features.as_subclass(Tensor)
        if tuple(hidden.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(f"features must have shape [N, {expected}], got {list(hidden.shape)}.")
        return HeadMaps(self.net, hidden, trunk)


CARDS = [
    ModelCard(
        name=f"movenet-{name}",
        build=partial(SinglePose, width, side, chunk),
        skeleton=COCO17,
        input_wh=(side, side),
        parameters=parameters,
        licence="Apache-2.0",
        source="Google MoveNet",
        embedded=f"movenet_{name}_fp16.npz",
    )
    for name, width, side, chunk, parameters in (
        ("lightning", 1.0, 192, 8, 2_317_974),
        ("thunder", 1.75, 256, 2, 6_226_046),
    )
]
