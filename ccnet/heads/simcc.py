"""The head for SimCC networks (RTMPose). It predicts the distribution of each keypoint's error
(`ccnet/heads/mixture.py`), from which the expected OKS follows.

Everything but a small bias per kind of keypoint is shared by all keypoints, so that keypoints
without annotations (toes, heels, neck ..) are calibrated by what holds for the others."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead, FeatureShape
from ccnet.heads.mixture import CHANNELS, COMPONENTS, distribution_of
from pose2d.models.base import PoseModel
from pose2d.models.rtmpose import BINS, STRIDE, RTMPose
from pose2d.models.trunk import trunk_of
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import ErrorDistribution

NEAR_BINS = 12  # around the peak: about two sigmas of the training target


# Numbers that describe a keypoint's two outputs; the last two are the place of its peak (x, y in
# 0..1).
SUMMARY = 14


def summarize(x: Tensor, y: Tensor) -> Tensor:
    """Describe the shape of both outputs [N, K, bins] by SUMMARY numbers, [N, K, SUMMARY]."""
    numbers = []
    places = []
    for outputs in (x, y):
        bins = outputs.shape[-1]
        peak, index = outputs.max(-1)
        step = torch.arange(bins, device=outputs.device) - index[..., None]
        near = step.abs() <= NEAR_BINS
        positive = outputs.clamp(min=0)
        mass = positive.sum(-1).clamp_min(1e-3)
        mean = (positive * step).sum(-1) / mass
        variance = (positive * (step - mean[..., None]).square()).sum(-1) / mass
        spread = variance.clamp_min(1e-3).log()
        rival = outputs.masked_fill(near, -1).amax(-1)
        place = index / (bins - 1)
        places.append(place)
        edge = torch.minimum(place, 1 - place)
        numbers += [peak, spread, (positive * near).sum(-1) / mass, rival, mean / BINS / 10, edge]
    return torch.stack([*numbers, *places], -1)


AXES = 64  # of tokens and of the map's channels that are read


RANGE = (-5.0, 5.0)  # of the trained layers' inputs, in standard deviations


# Keypoints without COCO labels -> the labelled one whose bias and presence they take: no data set
# says where they are absent, and in training they would all count as absent. Both are as sharp in
# pixels, so an error in units of the one's l is scaled to the other's (a neck's is a third of a
# shoulder's); bench/tuning/unlabelled_keypoints.py checks it.
STAND_IN = {
    "head_top": "nose",
    "neck": "left_shoulder",
    "pelvis": "left_hip",
    **{
        f"{side}_{point}": f"{side}_ankle"
        for side in ("left", "right")
        for point in ("big_toe", "small_toe", "heel")
    },
}


class KeypointNetwork(nn.Module):
    """One hidden layer per keypoint, on its own numbers and on what the whole person shows."""

    def __init__(self, map_cells: int, out: int, width: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.3)
        self.read_token = nn.Linear(AXES, 32)
        self.read_local = nn.Linear(AXES, 24)
        self.read_mean = nn.Linear(AXES, 24)
        self.shrink_map = nn.Conv2d(AXES, 16, 1)
        self.read_map = nn.Linear(16 * map_cells, 48)
        self.read_all = nn.Linear(COCO17.size * SUMMARY, 48)
        self.kind_bias = nn.Embedding(COCO17.size, 16)
        self.hidden = nn.Linear(SUMMARY + 32 + 24 + 24 + 48 + 48 + 16, width)
        self.out = nn.Linear(width, out)
        self.skip = nn.Linear(SUMMARY, out)
        nn.init.zeros_(self.skip.weight)

    def forward(
        self, summary: Tensor, token: Tensor, local: Tensor, maps: Tensor, kind: Tensor
    ) -> Tensor:
        """Return [N, K, out] from summaries [N, K, SUMMARY], tokens, the map at each keypoint, the
        map, and the kinds of the keypoints [K].
        """
        drop = self.dropout
        shrunk = self.shrink_map(maps).relu().flatten(1)
        body = summary[:, : COCO17.size].flatten(1)
        shared = [
            self.read_mean(drop(maps.mean((2, 3)))),
            self.read_map(drop(shrunk)),
            self.read_all(drop(body)),
        ]
        own = [
            summary,
            self.read_token(drop(token)),
            self.read_local(drop(local)),
            self.kind_bias(kind).expand(len(summary), -1, -1),
        ]
        person = torch.cat(shared, -1)[:, None].expand(-1, len(kind), -1)
        hidden = self.hidden(torch.cat([*own, person], -1)).relu()
        return self.out(drop(hidden)) + self.skip(summary)


class SimCCDistributionHead(CalibrationHead):
    """Two networks of the same shape, one for the distribution of the error and one for presence.
    A shared network predicts presence worse (docs/train-ccnet.md), and presence decides which
    keypoints count in a person's confidence. Tokens and map are read along their principal axes.

    `inputs` are [N, K (SUMMARY + token) + C h w]: every keypoint's numbers, then the map. They hold
    all outputs of the network, so the trained layers may change without running it again.
    """

    kind = "simcc"
    states_error = True
    cls_x: Tensor  # [bins, 256] copied from the network
    cls_y: Tensor
    summary_mean: Tensor  # [SUMMARY]
    summary_scale: Tensor  # [SUMMARY]
    token_mean: Tensor  # [256]
    token_axes: Tensor  # [256, AXES]
    map_mean: Tensor  # [C]
    map_axes: Tensor  # [C, AXES]
    keypoint_kind: Tensor  # [K] index in COCO's order; for unlabelled keypoints of their STAND_IN
    log_unit: Tensor  # [K] logarithm of the kind's l over the keypoint's own

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int = CHANNELS,
        bins: tuple[int, int] = (384, 512),
        map_channels: int = 512,
        width: int = 64,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.token = feature_shape[1]
        self.map_shape = (map_channels, bins[1] // (BINS * STRIDE), bins[0] // (BINS * STRIDE))
        self.register_buffer("cls_x", torch.zeros(bins[0], self.token))
        self.register_buffer("cls_y", torch.zeros(bins[1], self.token))
        self.register_buffer("summary_mean", torch.zeros(SUMMARY))
        self.register_buffer("summary_scale", torch.ones(SUMMARY))
        for name, size in (("token", self.token), ("map", map_channels)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_axes", torch.eye(size, AXES))
        names = HALPE26.keypoints if keypoints == HALPE26.size else COCO17.keypoints
        kinds = [COCO17.keypoints.index(STAND_IN.get(name, name)) for name in names]
        self.register_buffer("keypoint_kind", torch.tensor(kinds), persistent=False)
        sigma = dict(zip(HALPE26.keypoints, HALPE26.oks_sigma, strict=True))
        ratio = [sigma[STAND_IN.get(name, name)] / sigma[name] for name in names]
        self.register_buffer("log_unit", torch.tensor(ratio).log(), persistent=False)
        cells = self.map_shape[1] * self.map_shape[2]
        self.error = KeypointNetwork(cells, channels - 2, width)
        self.presence = KeypointNetwork(cells, 1, width)

    def copy_weights(self, model: PoseModel) -> None:
        """Copy the two output layers of the network, which `inputs` applies again."""
        assert isinstance(model, RTMPose)
        self.cls_x = model.head.cls_x.weight.detach().clone()
        self.cls_y = model.head.cls_y.weight.detach().clone()

    def inputs(self, features: Tensor) -> Tensor:
        tokens = features.as_subclass(Tensor).float()
        maps = trunk_of(features).float()
        summary = summarize(tokens @ self.cls_x.to(tokens).mT, tokens @ self.cls_y.to(tokens).mT)
        return torch.cat([torch.cat([summary, tokens], -1).flatten(1), maps.flatten(1)], 1)

    def parts(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split inputs into summaries [N, K, SUMMARY], tokens [N, K, 256] and map [N, C, h, w]."""
        rows = self.keypoints * (SUMMARY + self.token)
        by_keypoint = inputs[:, :rows].unflatten(1, (self.keypoints, -1))
        summary, token = by_keypoint.split([SUMMARY, self.token], -1)
        return summary, token, inputs[:, rows:].unflatten(1, self.map_shape)

    def fit_scale(self, inputs: Tensor) -> None:
        summary, token, maps = self.parts(inputs)
        summary, token = (values[:, : COCO17.size].flatten(0, 1) for values in (summary, token))
        self.summary_mean = summary.mean(0)
        self.summary_scale = summary.std(0) + 1e-3
        self.token_mean, self.token_axes = principal_axes(token)
        self.map_mean, self.map_axes = principal_axes(maps.flatten(2).mT.flatten(0, 1))

    def logits(self, inputs: Tensor) -> Tensor:
        summary, token, maps = self.parts(inputs)
        token = ((token - self.token_mean) @ self.token_axes).clamp(*RANGE)
        cells = (maps.flatten(2).mT - self.map_mean) @ self.map_axes  # [N, h w, AXES]
        maps = cells.clamp(*RANGE).mT.unflatten(2, self.map_shape[1:])
        peak = (2 * summary[..., -2:] - 1).clamp(-1, 1)  # the map's corners are -1 and 1
        grid = peak[:, :, None]  # [N, K, 1, 2]
        local = F.grid_sample(maps, grid, align_corners=False)[..., 0].mT  # [N, K, AXES]
        summary = ((summary - self.summary_mean) / self.summary_scale).clamp(*RANGE)
        error = self.error(summary, token, local, maps, self.keypoint_kind)
        weight, log_sigma, log_ratio = error.tensor_split((COMPONENTS, 2 * COMPONENTS), -1)
        error = torch.cat([weight, log_sigma + self.log_unit[:, None], log_ratio], -1)
        own = [values[:, : COCO17.size] for values in (summary, token, local)]
        presence = self.presence(*own, maps, self.keypoint_kind[: COCO17.size])
        unlabelled = presence[:, self.keypoint_kind[COCO17.size :]].detach()  # not learnt from them
        presence = torch.cat([presence, unlabelled], 1)
        # The first channel, confidence, follows from the distribution in the others.
        placeholder = torch.cat([presence, presence, error], -1)
        oks = distribution_of(placeholder).expected_oks().clamp(1e-4, 1 - 1e-4)
        return torch.cat([torch.logit(oks)[..., None], presence, error], -1)

    def distribution(self, features: Tensor) -> ErrorDistribution:
        """Return the distribution of every keypoint's error, [N, K, M]; the log-ratio [N, K]."""
        return cast(ErrorDistribution, self.state(features)[2])


def principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [C] of rows [M, C] and their principal axes [C, AXES].

    Channels are standardised first. (rows - mean) @ axes has a variance of 1 along each axis.
    """
    mean = rows.mean(0)
    scale = rows.std(0) + 1e-3
    scaled = (rows - mean) / scale
    variance, axes = torch.linalg.eigh(scaled.mT @ scaled / len(rows))
    axes = axes[:, -AXES:] / variance[-AXES:].clamp_min(1e-6).sqrt()
    return mean, (axes / scale[:, None]).half().float()  # as the file stores it
