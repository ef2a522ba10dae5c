"""A head for SimCC networks (RTMPose) that states the distribution of each keypoint's error.

With d the error in units of l = 2 sigma_k sqrt(area), the error of one keypoint is a mixture of isotropic Gaussians,
p(d) = sum_m w_m N(d; 0, s_m^2 I): a narrow core and heavy tails, which one expected OKS cannot tell apart. The expected
OKS follows from it exactly, E[exp(-d^2 / 2)] = sum_m w_m / (1 + s_m^2).

Everything but a small bias per kind of keypoint is shared by all keypoints, so that keypoints without annotations
(toes, heels, neck ..) are calibrated by what holds for the others.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccnet.heads.head import CalibrationHead, FeatureShape
from pose2d.models.base import trunk_of
from pose2d.models.rtmpose import BINS, RTMPose
from pose2d.skeletons import COCO17, HALPE26

COMPONENTS = 3
FIRST_LOG_SIGMA = (-1.6, -0.3, 1.2)  # where the components start: sharp, ordinary, plainly wrong
LOG_SIGMA_RANGE = (-4.0, 4.0)
NEAR_BINS = 12  # around the peak: about two sigmas of the training target
SUMMARY = 12  # numbers that describe a keypoint's two outputs
# Keypoints without COCO labels -> the labelled one whose bias and presence they take: no data set says where they are
# absent, and in training they would all count as absent.
STAND_IN = {
    "head_top": "nose", "neck": "left_shoulder", "pelvis": "left_hip",
    **{f"{side}_{point}": f"{side}_ankle" for side in ("left", "right") for point in ("big_toe", "small_toe", "heel")},
}  # fmt: skip


@dataclass(frozen=True)
class ErrorDistribution:
    """The error of each keypoint, in units of l, as a mixture of isotropic Gaussians."""

    weight: Tensor  # [..., M] sums to 1
    sigma: Tensor  # [..., M]

    def expected_oks(self) -> Tensor:
        return (self.weight / (1 + self.sigma.square())).sum(-1)

    def log_likelihood(self, distance2: Tensor) -> Tensor:
        """Of squared errors [...] in units of l^2, a density over the plane."""
        variance = self.sigma.square()
        exponent = -distance2[..., None] / 2 / variance
        return torch.logsumexp(self.weight.log() - math.log(2 * math.pi) - variance.log() + exponent, -1)

    def cdf(self, distance2: Tensor) -> Tensor:
        """Probability of an error at most this large."""
        return (self.weight * -torch.expm1(-distance2[..., None] / 2 / self.sigma.square())).sum(-1)


def distribution_of(logits: Tensor) -> ErrorDistribution:
    """From a head's logits [..., 2 + 2 M]: after confidence and presence, M weights and M log-sigmas."""
    weight = logits[..., 2 : 2 + COMPONENTS].softmax(-1).clamp_min(1e-6)
    first = logits.new_tensor(FIRST_LOG_SIGMA)
    log_sigma = (logits[..., 2 + COMPONENTS : 2 + 2 * COMPONENTS] + first).clamp(*LOG_SIGMA_RANGE)
    return ErrorDistribution(weight / weight.sum(-1, keepdim=True), log_sigma.exp())


class SimCCDistributionHead(CalibrationHead):
    """Reads each keypoint's token, the shape of its two outputs, and the backbone's map at the keypoint and on average.

    `inputs` are [N, K + 1, P]: one row per keypoint, and the map's mean in the last.
    """

    kind = "simcc"
    cls_x: Tensor  # [bins, 256] copied from the network
    cls_y: Tensor
    presence_of: Tensor  # [K] the keypoint whose presence each one has

    def __init__(
        self,
        feature_shape: FeatureShape,
        keypoints: int,
        channels: int = 2 + 2 * COMPONENTS,
        bins: tuple[int, int] = (384, 512),
        map_channels: int = 512,
        width: int = 64,
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        token = feature_shape[1]
        self.token, self.map_channels = token, map_channels
        self.register_buffer("cls_x", torch.zeros(bins[0], token))
        self.register_buffer("cls_y", torch.zeros(bins[1], token))
        self.register_buffer("mean", torch.zeros(SUMMARY + token + map_channels))
        self.register_buffer("scale", torch.ones(SUMMARY + token + map_channels))
        names = HALPE26.keypoints if keypoints == HALPE26.size else COCO17.keypoints
        kinds = [COCO17.keypoints.index(STAND_IN.get(name, name)) for name in names]
        self.register_buffer("keypoint_kind", torch.tensor(kinds))
        presence_of = [number if number < COCO17.size else kinds[number] for number in range(keypoints)]
        self.register_buffer("presence_of", torch.tensor(presence_of), persistent=False)
        self.dropout = nn.Dropout(0.3)
        self.read_token = nn.Linear(token, 32)
        self.read_map = nn.Linear(map_channels, 24)
        self.read_mean = nn.Linear(map_channels, 24)
        self.read_all = nn.Linear(COCO17.size * SUMMARY, 48)
        self.kind_bias = nn.Embedding(COCO17.size, 16)
        self.hidden = nn.Linear(SUMMARY + 32 + 24 + 24 + 48 + 16, width)
        self.out = nn.Linear(width, channels - 1)
        self.skip = nn.Linear(SUMMARY, channels - 1)
        nn.init.zeros_(self.skip.weight)

    def copy_weights(self, model: RTMPose) -> None:
        """The two output layers of the network, from which the shape of its outputs is read."""
        self.cls_x = model.head.cls_x.weight.detach().clone()
        self.cls_y = model.head.cls_y.weight.detach().clone()

    def inputs(self, features: Tensor) -> Tensor:
        tokens, maps = features.as_subclass(Tensor).float(), trunk_of(features).float()
        x, y = tokens @ self.cls_x.to(tokens).mT, tokens @ self.cls_y.to(tokens).mT
        summary, place = _summary(x, y)
        grid = (2 * place - 1).clamp(-1, 1)[:, :, None]  # [N, K, 1, 2] the map's corners are -1 and 1
        local = F.grid_sample(maps, grid, align_corners=False)[..., 0].mT  # [N, K, C]
        rows = torch.cat([summary, tokens, local], -1)
        mean = torch.zeros_like(rows[:, :1])
        mean[:, 0, -self.map_channels :] = maps.mean((2, 3))
        return torch.cat([rows, mean], 1)

    def fit_scale(self, inputs: Tensor) -> None:
        rows = inputs[:, : COCO17.size].flatten(0, 1)
        self.mean, self.scale = rows.mean(0), rows.std(0) + 1e-3

    def logits(self, inputs: Tensor) -> Tensor:
        scaled = ((inputs - self.mean) / self.scale).clamp(-5, 5)
        rows, mean = scaled[:, :-1], scaled[:, -1, -self.map_channels :]
        summary, token, local = rows.split([SUMMARY, self.token, self.map_channels], -1)
        everyone = self.read_all(self.dropout(summary[:, : COCO17.size].flatten(1)))
        shared = torch.cat([self.read_mean(self.dropout(mean)), everyone], -1)[:, None].expand(-1, rows.shape[1], -1)
        kind = self.kind_bias(self.keypoint_kind).expand(len(rows), -1, -1)
        own = [summary, self.read_token(self.dropout(token)), self.read_map(self.dropout(local))]
        found = self.out(self.dropout(self.hidden(torch.cat([*own, shared, kind], -1)).relu())) + self.skip(summary)
        presence = torch.cat([found[:, : COCO17.size, 0], found[:, self.presence_of, 0][:, COCO17.size :].detach()], 1)
        found = torch.cat([presence[..., None], found[..., 1:]], -1)
        both = torch.cat([found[..., :1], found], -1)  # the confidence's place is filled below
        oks = distribution_of(both).expected_oks().clamp(1e-4, 1 - 1e-4)
        return torch.cat([torch.logit(oks)[..., None], found], -1)

    def distribution(self, features: Tensor) -> ErrorDistribution:
        """Of every keypoint, [N, K, M]."""
        self.check(features)
        return distribution_of(self.logits(self.inputs(features.detach().float())))


def _summary(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The shape of both outputs [N, K, bins] as SUMMARY numbers [N, K, ..], and the place of the peak in 0..1."""
    numbers, places = [], []
    for outputs in (x, y):
        bins = outputs.shape[-1]
        peak, index = outputs.max(-1)
        step = torch.arange(bins, device=outputs.device) - index[..., None]
        near = step.abs() <= NEAR_BINS
        positive = outputs.clamp(min=0)
        mass = positive.sum(-1).clamp_min(1e-3)
        mean = (positive * step).sum(-1) / mass
        spread = ((positive * (step - mean[..., None]).square()).sum(-1) / mass).clamp_min(1e-3).log()
        rival = outputs.masked_fill(near, -1).amax(-1)
        place = index / (bins - 1)
        places.append(place)
        edge = torch.minimum(place, 1 - place)
        numbers += [peak, spread, (positive * near).sum(-1) / mass, rival, mean / BINS / 10, edge]
    return torch.stack(numbers, -1), torch.stack(places, -1)
