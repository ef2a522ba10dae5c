"""Heads that read each keypoint's heatmap around its peak: one for any heatmap network, one for
MoveNet.

The network's own last layer turns features into one map per keypoint. The height and width of the
peak, the next peak, the features there and in the rest of the crop become numbers by fixed
arithmetic, computed once per crop and cached (ccnet/data/observations.py); one hidden layer is
trained on them.

MoveNet has more: its heatmaps show keypoints of anyone in the crop, its centre map the middles of
people, and its regression head where the person with a given middle has its keypoints. Where the
three agree, keypoints are mostly right, so its calibration head reads their agreement too."""

from abc import abstractmethod
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead, FeatureShape
from pose2d.models.base import PoseModel
from pose2d.models.movenet import SINGLE_HEADS, ChosenCells, HeadMaps, MapHead, SinglePose, choose
from pose2d.models.trunk import trunk_of
from pose2d.skeletons import COCO17

GRID = 4  # the crop's features are averaged over GRID x GRID fields
RIVAL_RADII = (1 / 16, 1 / 8, 1 / 4)  # map sides: beyond this a peak is another place or person
MASS_RADII = (1 / 24, 1 / 10, 1 / 5)  # how much of the map lies this close to the peak
SPREAD_RADIUS = 1 / 7
LOCAL_WINDOW = 7  # cells: features at the peak, and averaged over this window
CENTRE_FALLOFF = 0.3  # map sides: the person of interest is in the middle of the crop
MOVENET_HEADS = ("kpt_heatmap", "center", "kpt_regress")  # those that choose a keypoint's cell
PEAK_NUMBERS = 6 + len(RIVAL_RADII) + len(MASS_RADII)  # per keypoint, see `describe_peaks`
AGREEMENT_NUMBERS = 6 * COCO17.size + 3 + len(RIVAL_RADII)  # see `describe_agreement`
FLOOR = 1e-4


def cell_grid(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return row and column of every cell, [h * w] each."""
    rows, columns = (torch.arange(n, device=device, dtype=torch.float32) for n in (height, width))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return y.flatten(), x.flatten()


def find_peaks(heat: Tensor) -> Tensor:
    """Return the flat cell index [N, K] of each keypoint of the person in the middle, from maps
    [N, K, h, w].
    """
    height, width = heat.shape[-2:]
    y, x = cell_grid(height, width, heat.device)
    distance = torch.hypot(y - height / 2, x - width / 2) / max(height, width)
    return (heat.flatten(2) / (distance + CENTRE_FALLOFF)).argmax(-1)


def describe_peaks(heat: Tensor, index: Tensor) -> Tensor:
    """Describe the peaks at cells [N, K] of maps [N, K, h, w] with values in [0, 1] by numbers,
    [N, K, PEAK_NUMBERS].

    These are the height (plain and as log odds), place, mass and spread of the peak, how much
    higher the map is beyond each of RIVAL_RADII, and the share of its mass within each of
    MASS_RADII.
    """
    height, width = heat.shape[-2:]
    side = max(height, width)
    flat = heat.flatten(2).clamp(FLOOR, 1 - FLOOR)
    y, x = cell_grid(height, width, heat.device)
    row = (index // width).float()
    column = (index % width).float()
    # [N, K, h * w] squared distance in cells
    away2 = (y - row[..., None]).square().add_((x - column[..., None]).square())
    peak = flat.gather(2, index[..., None])[..., 0]
    odds = torch.logit(peak)
    mass = flat.sum(-1)
    rivals = [
        (flat * (away2 > (r * side) ** 2)).amax(-1).clamp_min(FLOOR).logit() - odds
        for r in RIVAL_RADII
    ]
    within = [
        ((flat * (away2 <= (r * side) ** 2)).sum(-1) / mass).clamp_min(FLOOR).log()
        for r in MASS_RADII
    ]
    near = flat * (away2 <= (SPREAD_RADIUS * side) ** 2)
    spread = ((near * away2).sum(-1) / near.sum(-1)).sqrt() / side
    return torch.stack(
        [peak, odds, column / width, row / height, mass.log(), spread, *rivals, *within], -1
    )


def features_at(features: Tensor, index: Tensor) -> Tensor:
    """Return features [N, C, h, w] in the cells [N, K] and averaged around them, [N, K, 2 C].

    Beyond the map's edge its last row or column is repeated.
    """
    height, width = features.shape[-2:]
    step = torch.arange(LOCAL_WINDOW, device=features.device) - LOCAL_WINDOW // 2
    rows = ((index // width)[..., None] + step).clamp(0, height - 1)
    columns = ((index % width)[..., None] + step).clamp(0, width - 1)
    cells = (rows[..., :, None] * width + columns[..., None, :]).flatten(2)  # [N, K, window^2]
    picked = features.flatten(2).gather(
        2, cells.flatten(1)[:, None].expand(-1, features.shape[1], -1)
    )
    window = picked.unflatten(2, cells.shape[1:])  # [N, C, K, window^2]
    return torch.cat([window[..., LOCAL_WINDOW**2 // 2], window.mean(-1)], 1).transpose(1, 2)


def describe_agreement(chosen: ChosenCells) -> Tensor:
    """Describe how well MoveNet's heads agree, [N, AGREEMENT_NUMBERS].

    For each keypoint: the offset of its cell from the expected place (x, y, log distance), the log
    distance to its mirror twin's cell, its own map's log odds there over the twin's, and those at
    the expected place over its own. Then the centre map's log odds, how much higher they are beyond
    each of RIVAL_RADII, and where the centre is.
    """
    h, w = chosen.heat.shape[2:]
    odds = chosen.heat.clamp(FLOOR, 1 - FLOOR).logit().flatten(2)
    own = odds.gather(2, chosen.index[..., None])[..., 0]
    twin = torch.tensor(COCO17.flip_order, device=odds.device)
    twin_odds = odds[:, twin].gather(2, chosen.index[..., None])[..., 0]
    column, row = (
        chosen.expected[..., axis].floor().clamp(0, last - 1) for axis, last in ((0, w), (1, h))
    )
    expected = odds.gather(2, (row * w + column).long()[..., None])[..., 0]
    places = chosen.cells + 0.5
    off = (places - chosen.expected) / w
    apart = (places - places[:, twin]).norm(dim=-1) / w
    nearness = torch.stack([off.norm(dim=-1) + 1e-3, apart + 1e-2], -1).log()
    keypoint = torch.cat([off, nearness, torch.stack([own - twin_odds, expected - own], -1)], -1)
    centre = chosen.centre[:, 0].clamp(FLOOR, 1 - FLOOR).logit()
    x, y = (chosen.person[:, 0, axis].float() for axis in (0, 1))
    middle = centre.flatten(1).gather(1, (y * w + x).long()[:, None])[:, 0]
    columns = torch.arange(w, device=odds.device) - x[:, None, None]
    rows = torch.arange(h, device=odds.device)[:, None] - y[:, None, None]
    away = torch.hypot(columns, rows) / w
    lowest = odds.new_tensor(FLOOR).logit()
    rivals = [
        torch.where(away > radius, centre, lowest).amax((1, 2)) - middle for radius in RIVAL_RADII
    ]
    person = torch.stack([middle, *rivals, (x + 0.5) / w - 0.5, (y + 0.5) / h - 0.5], 1)
    return torch.cat([keypoint.flatten(1), person], 1)


class _PeakHead(CalibrationHead):
    """One hidden layer on numbers about each keypoint's peak and the features around it."""

    centre: Tensor  # [R] mean of every input
    scale: Tensor  # [R] and its standard deviation

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, extra: int = 0
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        hidden = 256
        local = 16
        field = 24
        width = feature_shape[0]
        # Inputs: numbers about peaks, features at them, features of the crop, and further numbers of
        # `peaks`. The axes of `alike` share one scale: a number over keypoints, a channel over
        # fields.
        self.shapes = (
            (keypoints, PEAK_NUMBERS),
            (keypoints, 2 * width),
            (width, GRID**2),
            (1, extra),
        )
        self.alike = ((0, 1), (0, 1), (0, 2), (0, 1))
        self.parts = [rows * columns for rows, columns in self.shapes]
        self.register_buffer("centre", torch.zeros(sum(self.parts)))
        self.register_buffer("scale", torch.ones(sum(self.parts)))
        self.local = nn.Parameter(torch.randn(keypoints, 2 * width, local) / (2 * width) ** 0.5)
        self.field = nn.Parameter(torch.randn(width, field) / width**0.5)
        self.hidden = nn.Linear(self.parts[0] + keypoints * local + field * GRID**2 + extra, hidden)
        self.out = nn.Linear(hidden, keypoints * channels)
        self.dropout = nn.Dropout(0.3)

    @abstractmethod
    def peaks(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return heatmaps [N, K, h, w] in [0, 1], flat cells [N, K] of the peaks in them, and
        further numbers [N, extra].
        """

    def inputs(self, features: Tensor) -> Tensor:
        heat, index, extra = self.peaks(features)
        plain = features.as_subclass(Tensor)
        crop = F.adaptive_avg_pool2d(plain, GRID)  # the whole crop at low resolution
        numbers = (describe_peaks(heat, index), features_at(plain, index), crop, extra)
        return torch.cat([number.flatten(1) for number in numbers], 1)

    def fit_scale(self, inputs: Tensor) -> None:
        means = []
        scales = []
        for part, shape, alike in zip(
            inputs.split(self.parts, 1), self.shapes, self.alike, strict=True
        ):
            if part.shape[1] == 0:
                continue
            # Over N, not N - 1: one example has a deviation of 0, not of NaN.
            std, mean = torch.std_mean(part.unflatten(1, shape), alike, correction=0, keepdim=True)
            means.append(mean.expand(1, *shape).flatten())
            scales.append(std.clamp_min(1e-3).expand(1, *shape).flatten())
        self.centre.copy_(torch.cat(means))
        self.scale.copy_(torch.cat(scales))

    def logits(self, inputs: Tensor) -> Tensor:
        scaled = ((inputs - self.centre) / self.scale).clamp(-6, 6)
        peaks, at_peaks, crop, extra = scaled.split(self.parts, 1)
        at_peaks = self.dropout(at_peaks).unflatten(1, (self.keypoints, -1))
        local = torch.einsum("nkc,kcp->nkp", at_peaks, self.local)
        crop = crop.unflatten(1, (self.feature_shape[0], -1))
        field = torch.einsum("ncg,cp->ngp", crop, self.field)
        joined = torch.cat([peaks, local.flatten(1), field.flatten(1), extra], 1)
        hidden = self.dropout(torch.relu(self.hidden(self.dropout(joined))))
        return self.out(hidden).unflatten(1, (self.keypoints, self.channels))


def readout_of(model: PoseModel) -> Tensor | None:
    """Return the 1x1 convolution from features to one map per keypoint with its bias, [K, C + 1];
    None if the network has none.
    """
    if len(model.feature_shape) != 3:
        return None
    convs = [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)
    ]
    shape = (model.feature_shape[0], model.skeleton.size)
    last = [layer for layer in convs if (layer.in_channels, layer.out_channels) == shape]
    if len(last) != 1 or last[0].bias is None:
        return None
    return torch.cat([last[0].weight.flatten(1), last[0].bias[:, None]], 1).detach().float()


class PeaksHead(_PeakHead):
    """The head of any network that ends in heatmaps. `readout` is a copy of the network's own last
    layer, which makes one map per keypoint out of the features.
    """

    kind = "peaks"
    readout: Tensor  # [K, C + 1] weights and bias

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, log_odds: bool = True
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.log_odds = log_odds  # whether the readout gives log odds, not values in [0, 1]
        self.register_buffer("readout", torch.zeros(keypoints, feature_shape[0] + 1))

    @torch.no_grad()
    def copy_weights(self, model: PoseModel) -> None:
        """Copy the last layer, and find out whether its values are the heatmaps or become them by a
        sigmoid or softmax.
        """
        readout = readout_of(model)
        assert readout is not None
        self.readout = readout
        width, height = model.input_wh
        grey = torch.full((1, 3, height, width), 128.0, device=readout.device)
        features = model.features(model.normalize(grey))
        heatmaps = model.predict(features).maps
        own = self.maps(features.as_subclass(Tensor).float())
        same = (
            heatmaps is not None
            and heatmaps.shape == own.shape
            and torch.allclose(heatmaps.float(), own, 1e-3, 1e-3)
        )
        self.log_odds = self.options["log_odds"] = not same

    def maps(self, features: Tensor) -> Tensor:
        """Return the readout's maps [N, K, h, w]."""
        weight = self.readout[:, :-1]
        bias = self.readout[:, -1, None, None]
        return torch.einsum("nchw,kc->nkhw", features, weight) + bias

    def peaks(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heat = self.maps(features).sigmoid() if self.log_odds else self.maps(features)
        return heat, find_peaks(heat), heat.new_zeros(len(heat), 0)


class MoveNetHead(_PeakHead):
    """The head of MoveNet: its own choice of peaks, and how well its heads agree on it."""

    kind = "movenet"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels, extra=AGREEMENT_NUMBERS)
        assert keypoints == COCO17.size
        copied = nn.ModuleDict({name: MapHead(SINGLE_HEADS[name]) for name in MOVENET_HEADS})
        self.map_heads = nn.ModuleDict({"heads": copied}).requires_grad_(False)

    def head(self, name: str) -> MapHead:
        """Return the copy of one of MoveNet's heads."""
        return cast(MapHead, self.get_submodule(f"map_heads.heads.{name}"))

    def copy_weights(self, model: PoseModel) -> None:
        assert isinstance(model, SinglePose)
        for name in MOVENET_HEADS:
            self.head(name).load_state_dict(model.net.head(name).state_dict())

    def peaks(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        chosen = choose([HeadMaps(self, features.as_subclass(Tensor), trunk_of(features).float())])
        return chosen.heat, chosen.index, describe_agreement(chosen)
