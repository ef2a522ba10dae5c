"""Calibration heads: small networks on frozen features -> expected OKS and presence of every
keypoint.

A head works in two steps. `inputs` is fixed arithmetic on the features: it is computed once per
crop and can be cached on disk. `logits` holds everything that is trained.

The head for SimCC networks (RTMPose) states the distribution of each keypoint's error. With d the
error in units of l = 2 sigma_k sqrt(area), the error of one keypoint is a mixture of Gaussians,
p(d) = sum_m w_m N(d; 0, diag(x_m^2, y_m^2)): a narrow core and heavy tails, which one expected OKS
cannot tell apart. Along a limb a keypoint is less certain than across it, so the axes differ: x_m =
s_m e^(r/2) and y_m = s_m e^(-r/2), with one log-ratio r for all components. The expected OKS
follows exactly, E[exp(-d^2 / 2)] = sum_m w_m / sqrt((1 + x_m^2) (1 + y_m^2)).

Everything but a small bias per kind of keypoint is shared by all keypoints, so that keypoints
without annotations (toes, heels, neck ..) are calibrated by what holds for the others."""

from abc import abstractmethod
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.models.registry import card as model_card
from pose2d.models.rtmpose import BINS, STRIDE, RTMPose
from pose2d.models.trunk import FeaturesWithTrunk, trunk_of
from pose2d.skeletons import COCO17, HALPE26, Skeleton
from pose2d.types import ErrorDistribution, Prediction

FeatureShape = tuple[int, ...]  # of one crop: (C, h, w), (C,), or (K, C)


class CalibrationHead(nn.Module):
    """`confidence, presence = head(features)`: both [N, K] in [0, 1]."""

    kind: ClassVar[str]
    about: object = None  # an `About`, if the head was loaded from a file (ccnet/confidence.py)
    states_error: ClassVar[bool] = False  # whether logits hold the distribution of the error

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int) -> None:
        super().__init__()
        self.feature_shape = feature_shape
        self.keypoints = keypoints
        self.channels = channels
        self.options: dict[str, Any] = {}  # those of the constructor that a file must hold

    def inputs(self, features: Tensor) -> Tensor:
        """What the trained layers take, [N, *input_shape]; by default the features themselves."""
        return features.as_subclass(Tensor)

    @abstractmethod
    def logits(self, inputs: Tensor) -> Tensor:
        """[N, K, channels]: confidence and presence before the sigmoid, and what else the loss
        needs.
        """

    def copy_weights(self, model: PoseModel) -> None:
        """Before training: take over those layers of the pose network that this kind of head has
        copies of.
        """

    def fit_scale(self, inputs: Tensor) -> None:
        """Before training: store the scale of typical inputs [N, *input_shape]."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.state(features)[:2]

    def state(self, features: Tensor) -> tuple[Tensor, Tensor, ErrorDistribution | None]:
        """Confidence and presence, [N, K] each, and the distribution of the error if the head
        states one. Refuses the features of another network."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"this calibration head reads features of shape [N, {expected}], got {list(features.shape)}: "
                "it belongs to another pose model. Load the head that was trained for this one."
            )
        logits = self.logits(self.inputs(features.detach().float()))
        error = distribution_of(logits) if self.states_error else None
        return logits[..., 0].sigmoid(), logits[..., 1].sigmoid(), error

    @property
    def heads(self) -> "list[CalibrationHead]":
        """Itself; of an ensemble, its members."""
        return [self]


class ConvHead(CalibrationHead):
    """A 3x3 convolution of stride 2, averaged over the map; `width`: with a hidden layer of that
    width.
    """

    kind = "conv"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        outputs = keypoints * channels
        self.conv = nn.Conv2d(feature_shape[0], width or outputs, 3, stride=2, padding=1)
        self.last = (
            nn.Sequential(nn.ReLU(), nn.Conv2d(width, outputs, 1)) if width else nn.Identity()
        )

    def logits(self, inputs: Tensor) -> Tensor:
        maps = self.last(self.conv(inputs))
        return maps.mean((2, 3)).unflatten(1, (self.channels, self.keypoints)).transpose(1, 2)


class FcHead(CalibrationHead):
    """One linear layer on a vector of features (RLE); `width`: with a hidden layer of that width."""

    kind = "fc"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, width: int = 0
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.hidden = (
            nn.Sequential(nn.Linear(feature_shape[0], width), nn.ReLU()) if width else nn.Identity()
        )
        self.fc = nn.Linear(width or feature_shape[0], keypoints * channels)

    def logits(self, inputs: Tensor) -> Tensor:
        return (
            self.fc(self.hidden(inputs))
            .unflatten(1, (self.channels, self.keypoints))
            .transpose(1, 2)
        )


class GapFcHead(FcHead):
    """Global average pooling, then one linear layer."""

    kind = "gap-fc"

    def inputs(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))


class QueryHead(CalibrationHead):
    """One linear layer for each keypoint's own vector of features (Poseur)."""

    kind = "query"

    def __init__(self, feature_shape: FeatureShape, keypoints: int, channels: int = 2) -> None:
        super().__init__(feature_shape, keypoints, channels)
        width = feature_shape[1]
        self.weight = nn.Parameter(
            torch.empty(keypoints, width, channels).uniform_(-1, 1) / width**0.5
        )
        self.bias = nn.Parameter(torch.zeros(keypoints, channels))

    def logits(self, inputs: Tensor) -> Tensor:
        return torch.einsum("nkc,kco->nko", inputs, self.weight) + self.bias


class Ensemble(CalibrationHead):
    """Several heads that differ in their first weights; their probabilities are averaged."""

    kind = "ensemble"

    def __init__(self, members: list[CalibrationHead]) -> None:
        super().__init__(members[0].feature_shape, members[0].keypoints, members[0].channels)
        self.members = nn.ModuleList(members)

    @property
    def heads(self) -> list[CalibrationHead]:
        return cast(list[CalibrationHead], list(self.members))

    def inputs(self, features: Tensor) -> Tensor:
        return self.heads[0].inputs(features)

    def fit_scale(self, inputs: Tensor) -> None:
        for head in self.heads:
            head.fit_scale(inputs)

    def logits(self, inputs: Tensor) -> Tensor:
        """Of the mean probability."""
        mean = torch.stack([head.logits(inputs).sigmoid() for head in self.heads]).mean(0)
        return torch.logit(mean.clamp(1e-6, 1 - 1e-6))


def person_confidence(confidence: Tensor, presence: Tensor) -> Tensor:
    """c = sum(v s) / sum(v) over keypoints: [..., K], [..., K] -> [...]."""
    return (presence * confidence).sum(-1) / presence.sum(-1).clamp_min(1e-6)


def flip_average(
    plain: tuple[Tensor, Tensor], mirrored: tuple[Tensor, Tensor], skeleton: Skeleton
) -> tuple[Tensor, Tensor]:
    """Flip test: confidence and presence of crops and of their mirror images -> one of each."""
    order = skeleton.flip_order
    confidence, presence = ((a + b[:, order]) / 2 for a, b in zip(plain, mirrored, strict=True))
    return confidence, presence


# What a head may read instead of the penultimate features: for the paper's comparison of inputs.
# The wrapped network predicts as before. Its `features` are another tensor of the same forward
# pass, which carries the penultimate features with it for `predict`; so training and evaluation
# need not know of it.
FEATURES = ("penultimate", "shallow", "output", "copy")
FIRST_STAGE = "layer1"  # of ResNet and HRNet, at stride 4


class OtherFeatures(PoseModel):
    """A network whose features are `kind`. "shallow": the first stage's map. "output": heatmaps; or
    coordinates, score and spread. "copy": the crop itself, for a head with a trunk of its own."""

    def __init__(self, network: PoseModel, kind: str) -> None:
        super().__init__()
        self.network, self.features_name = network, kind
        self.skeleton = network.skeleton
        self.input_wh = network.input_wh
        # Other networks declare these two on the class.
        self.crop = network.crop  # type: ignore[misc]
        self.box_scale = network.box_scale  # type: ignore[misc]
        self._seen: list[Tensor] = []
        if kind == "shallow":
            stages = [
                module
                for name, module in network.named_modules()
                if name.split(".")[-1] == FIRST_STAGE
            ]
            if len(stages) != 1:
                raise UserError(
                    f"shallow features are those of the first stage of a ResNet or HRNet, and {type(network).__name__} "
                    "has none: choose penultimate, output or copy."
                )
            stages[0].register_forward_hook(lambda stage, given, seen: self._seen.append(seen))
        width, height = network.input_wh
        with torch.inference_mode():
            device = next(network.parameters()).device
            (example,) = self.features(
                network.normalize(torch.zeros(1, 3, height, width, device=device))
            )
        self.feature_shape = tuple(example.shape)

    def normalize(self, crops: Tensor) -> Tensor:
        return self.network.normalize(crops)

    def features(self, crops: Tensor) -> Tensor:
        penultimate = self.network.features(crops)
        if self.features_name == "shallow":
            return FeaturesWithTrunk.join(self._seen.pop(), penultimate)
        if self.features_name == "copy":
            return FeaturesWithTrunk.join(crops, penultimate)
        prediction = self.network.predict(penultimate)
        output = prediction.maps
        if output is None:
            size = self.size_px(prediction.xy_px)
            spread = [] if prediction.sigma_px is None else [prediction.sigma_px / size]
            output = torch.cat(
                [prediction.xy_px / size, prediction.score[..., None], *spread], -1
            ).flatten(1)
        return FeaturesWithTrunk.join(output, penultimate)

    def predict(self, features: Tensor) -> Prediction:
        return self.network.predict(trunk_of(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return self.network.predict_flip(trunk_of(features), trunk_of(mirrored))


def with_features(network: PoseModel, kind: str) -> PoseModel:
    """The network, or one that offers other features."""
    if kind not in FEATURES:
        raise UserError(f"unknown features {kind!r}: choose one of {', '.join(FEATURES)}.")
    return (
        network
        if kind == "penultimate"
        else OtherFeatures(network, kind).eval().requires_grad_(False)
    )


BY_DIMENSIONS: dict[int, type[CalibrationHead]] = {1: FcHead, 2: QueryHead, 3: ConvHead}


class CopiedTrunkHead(CalibrationHead):
    """Reads the crop itself; trunk and last layer are trained together. Batch statistics stay those
    of the copy.
    """

    kind = "copy"

    def __init__(
        self, feature_shape: FeatureShape, keypoints: int, channels: int = 2, card: str = ""
    ) -> None:
        super().__init__(feature_shape, keypoints, channels)
        self.network = model_card(card).build().eval()  # the model that the trunk is a copy of
        shape = self.network.feature_shape
        self.head = BY_DIMENSIONS[len(shape)](shape, keypoints, channels)

    def copy_weights(self, model: PoseModel) -> None:
        assert isinstance(model, OtherFeatures)
        self.network.load_state_dict(model.network.state_dict())

    def logits(self, inputs: Tensor) -> Tensor:
        return self.head.logits(self.head.inputs(self.network.features(inputs)))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.network.eval()
        return self


NEAR_BINS = 12  # around the peak: about two sigmas of the training target
# numbers that describe a keypoint's two outputs, the place of its peak (x, y in 0..1) in the last
# two
SUMMARY = 14


def summarize(x: Tensor, y: Tensor) -> Tensor:
    """The shape of both outputs [N, K, bins] as SUMMARY numbers [N, K, SUMMARY]."""
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
        spread = (
            ((positive * (step - mean[..., None]).square()).sum(-1) / mass).clamp_min(1e-3).log()
        )
        rival = outputs.masked_fill(near, -1).amax(-1)
        place = index / (bins - 1)
        places.append(place)
        edge = torch.minimum(place, 1 - place)
        numbers += [peak, spread, (positive * near).sum(-1) / mass, rival, mean / BINS / 10, edge]
    return torch.stack([*numbers, *places], -1)


COMPONENTS = 3
FIRST_LOG_SIGMA = (-1.6, -0.3, 1.2)  # where the components start: sharp, ordinary, plainly wrong
LOG_SIGMA_RANGE = (-4.0, 4.0)
LOG_RATIO_RANGE = (-2.5, 2.5)  # of sigma x to sigma y: up to 12
CHANNELS = 2 + 2 * COMPONENTS + 1  # confidence, presence, weights, log-sigmas, log-ratio
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


def distribution_of(logits: Tensor) -> ErrorDistribution:
    """From a head's logits [..., CHANNELS]: after confidence and presence, M weights, M log-sigmas
    and the log-ratio. Heads of earlier versions have no log-ratio: what they state is isotropic."""
    weight, log_sigma, rest = logits[..., 2:].tensor_split((COMPONENTS, 2 * COMPONENTS), -1)
    weight = weight.softmax(-1).clamp_min(1e-6)
    sigma = (log_sigma + logits.new_tensor(FIRST_LOG_SIGMA)).clamp(*LOG_SIGMA_RANGE).exp()
    log_ratio = rest[..., 0].clamp(*LOG_RATIO_RANGE) if rest.shape[-1] else None
    return ErrorDistribution(weight / weight.sum(-1, keepdim=True), sigma, log_ratio)


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
        """[N, K, out] of summaries [N, K, SUMMARY], tokens, the map at each keypoint, the map, and
        kinds [K].
        """
        drop = self.dropout
        shrunk = self.shrink_map(maps).relu().flatten(1)
        everyone = summary[:, : COCO17.size].flatten(1)
        shared = [
            self.read_mean(drop(maps.mean((2, 3)))),
            self.read_map(drop(shrunk)),
            self.read_all(drop(everyone)),
        ]
        own = [
            summary,
            self.read_token(drop(token)),
            self.read_local(drop(local)),
            self.kind_bias(kind).expand(len(summary), -1, -1),
        ]
        person = torch.cat(shared, -1)[:, None].expand(-1, len(kind), -1)
        return self.out(drop(self.hidden(torch.cat([*own, person], -1)).relu())) + self.skip(
            summary
        )


class SimCCDistributionHead(CalibrationHead):
    """Two networks of the same shape, one for the distribution of the error and one for presence.
    Presence wants a network of its own: sharing one, it is the worse for it, and a person's
    confidence is the mean over the keypoints that are there (docs/train-ccnet.md). Tokens and map
    are read along their AXES principal axes.

    `inputs` are [N, K (SUMMARY + token) + C h w]: every keypoint's numbers, then the map. They hold
    all that the network says, so that the trained layers may change without running it again."""

    kind, states_error = "simcc", True
    cls_x: Tensor  # [bins, 256] copied from the network
    cls_y: Tensor
    summary_mean: Tensor  # [SUMMARY]
    summary_scale: Tensor  # [SUMMARY]
    token_mean: Tensor  # [256]
    token_axes: Tensor  # [256, AXES]
    map_mean: Tensor  # [C]
    map_axes: Tensor  # [C, AXES]
    keypoint_kind: (
        Tensor  # [K] in COCO's order: of keypoints without labels, the one whose presence they have
    )
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
        """The two output layers of the network, from which the shape of its outputs is read."""
        assert isinstance(model, RTMPose)
        self.cls_x = model.head.cls_x.weight.detach().clone()
        self.cls_y = model.head.cls_y.weight.detach().clone()

    def inputs(self, features: Tensor) -> Tensor:
        tokens = features.as_subclass(Tensor).float()
        maps = trunk_of(features).float()
        summary = summarize(tokens @ self.cls_x.to(tokens).mT, tokens @ self.cls_y.to(tokens).mT)
        return torch.cat([torch.cat([summary, tokens], -1).flatten(1), maps.flatten(1)], 1)

    def parts(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Summaries [N, K, SUMMARY], tokens [N, K, 256] and map [N, C, h, w] of inputs."""
        rows = self.keypoints * (SUMMARY + self.token)
        summary, token = (
            inputs[:, :rows].unflatten(1, (self.keypoints, -1)).split([SUMMARY, self.token], -1)
        )
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
        grid = (2 * summary[..., -2:] - 1).clamp(-1, 1)[
            :, :, None
        ]  # [N, K, 1, 2] the map's corners are -1 and 1
        local = F.grid_sample(maps, grid, align_corners=False)[..., 0].mT  # [N, K, AXES]
        summary = ((summary - self.summary_mean) / self.summary_scale).clamp(*RANGE)
        error = self.error(summary, token, local, maps, self.keypoint_kind)
        weight, log_sigma, log_ratio = error.tensor_split((COMPONENTS, 2 * COMPONENTS), -1)
        error = torch.cat([weight, log_sigma + self.log_unit[:, None], log_ratio], -1)
        own = [values[:, : COCO17.size] for values in (summary, token, local)]
        presence = self.presence(*own, maps, self.keypoint_kind[: COCO17.size])
        unlabelled = presence[:, self.keypoint_kind[COCO17.size :]].detach()  # not learnt from them
        presence = torch.cat([presence, unlabelled], 1)
        both = torch.cat([presence, presence, error], -1)  # the confidence's place is filled below
        oks = distribution_of(both).expected_oks().clamp(1e-4, 1 - 1e-4)
        return torch.cat([torch.logit(oks)[..., None], presence, error], -1)

    def distribution(self, features: Tensor) -> ErrorDistribution:
        """Of every keypoint, [N, K, M]; the log-ratio [N, K]."""
        return cast(ErrorDistribution, self.state(features)[2])


def principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [C] of rows [M, C], and the AXES [C, AXES] along which the rows, each channel in its
    standard deviations, vary most, scaled so that (rows - mean) @ axes varies by 1 along each."""
    mean = rows.mean(0)
    scale = rows.std(0) + 1e-3
    scaled = (rows - mean) / scale
    variance, axes = torch.linalg.eigh(scaled.mT @ scaled / len(rows))
    axes = axes[:, -AXES:] / variance[-AXES:].clamp_min(1e-6).sqrt()
    return mean, (axes / scale[:, None]).half().float()  # what the file keeps


# The kinds that need no network of MoveNet (ccnet/heads/peaks.py).
PLAIN: tuple[type[CalibrationHead], ...] = (
    *BY_DIMENSIONS.values(),
    GapFcHead,
    SimCCDistributionHead,
    CopiedTrunkHead,
)
