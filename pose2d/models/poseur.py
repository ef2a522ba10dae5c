"""Poseur (Mao et al. 2022): keypoints as queries of a deformable transformer over a backbone's four maps."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pose2d import flip
from pose2d.backbones.hrnet import HRNet, widths
from pose2d.backbones.resnet import CHANNELS as RESNET_CHANNELS
from pose2d.backbones.resnet import ResNet
from pose2d.base.errors import UserError
from pose2d.models.base import ModelCard, PoseModel
from pose2d.models.flow import MASK, Flow
from pose2d.models.movenet_features import MoveNetFeatures
from pose2d.models.poseur_decoder import CHANNELS, LAYERS, NamedLinear, Transformer, inverse_sigmoid
from pose2d.normalization import IMAGENET_RGB
from pose2d.skeletons import COCO17, WHOLEBODY133, Skeleton
from pose2d.types import Prediction


class PoseurFeatures(MoveNetFeatures):
    """The last layer's queries [N, K, 256]; `trunk` is the reference [N, K, 2] from which they moved."""


class MapToWidth(nn.Module):
    """One map to 256 channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, CHANNELS, 1, bias=False)
        self.gn = nn.GroupNorm(32, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.gn(self.conv(x))


class Neck(nn.Module):
    def __init__(self, inputs: Sequence[int]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(MapToWidth(channels) for channels in inputs)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        return [conv(x) for conv, x in zip(self.convs, maps, strict=True)]


def _coord_branch() -> nn.Sequential:
    hidden = [nn.Linear(CHANNELS, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CHANNELS), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(CHANNELS, 2))


def _sigma_branch() -> nn.Sequential:
    """Three linear layers with nothing between them, as in the repository."""
    return nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS), NamedLinear(CHANNELS, 2))


class Head(nn.Module):
    def __init__(self, keypoints: int) -> None:
        super().__init__()
        self.transformer = Transformer(keypoints)
        self.enc_flow, self.dec_flow = Flow(), Flow()  # for the losses; predictions do not need them
        self.fc_coord_branches = nn.ModuleList(_coord_branch() for _ in range(LAYERS))
        self.fc_coord_output_branches = nn.ModuleList(_coord_branch() for _ in range(LAYERS))
        self.fc_sigma_branches = nn.ModuleList(_sigma_branch() for _ in range(LAYERS))


def certainty(sigma: Tensor) -> Tensor:
    """Poseur's confidence in its flip test: 0.7 prod_xy (1 - exp(-0.2 / sigma)); sigma [..., 2] -> [...]."""
    return 0.7 * (1 - torch.exp(-0.2 / sigma)).prod(-1)


class Poseur(PoseModel):
    """Takes RGB. Features are the last decoder layer's queries: 256 channels per keypoint.

    The raw confidence is the mean of 1 - sigma; in the flip test it is `certainty`, as the repository evaluates
    (its `type2` fusion). `sigma_px` is the network's sigma in crop pixels: a Laplace density with b = sqrt(2) sigma.
    """

    def __init__(
        self, trunk: ResNet | HRNet, channels: Sequence[int], input_wh: tuple[int, int], skeleton: Skeleton
    ) -> None:
        super().__init__()
        self.input_wh, self.skeleton = input_wh, skeleton
        self.feature_shape = (skeleton.size, CHANNELS)
        self.backbone = trunk
        self.neck = Neck(channels)
        self.keypoint_head = Head(skeleton.size)

    def normalize(self, crops: Tensor) -> Tensor:
        return IMAGENET_RGB(crops)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        masks = {f"keypoint_head.{flow}.mask": torch.tensor(MASK) for flow in ("enc_flow", "dec_flow")}
        return {**state, **masks}  # the architecture's, whatever a file says

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        maps = self.neck(self.backbone.stages(crops))
        queries, reference = self.keypoint_head.transformer(maps, self.keypoint_head.fc_coord_branches)
        return PoseurFeatures.join(queries, reference)

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features -> coordinates [N, K, 2] from the crop's corner, and sigma [N, K, 2], both in crop sizes."""
        if not isinstance(features, PoseurFeatures):
            raise UserError(
                "Poseur's predict needs what its features() returned: arithmetic on it or a round trip through numpy "
                "loses the reference points. Call predict before changing the features, or slice, concatenate and "
                "copy only the batch."
            )
        head, queries = self.keypoint_head, features.as_subclass(Tensor)
        moved = (head.fc_coord_branches[-1](queries) + inverse_sigmoid(features.trunk)).sigmoid()
        xy = moved + head.fc_coord_output_branches[-1](queries)
        return xy, head.fc_sigma_branches[-1](queries).sigmoid()

    def predict(self, features: Tensor) -> Prediction:
        xy, sigma = self.coordinates(features)
        return self._prediction(xy, (1 - sigma).mean(-1), sigma)

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Both predictions, averaged with the fifth power of their certainty as weight; x becomes W - x."""
        order = self.skeleton.flip_order
        xy, sigma = self.coordinates(features)
        xy_mirrored, sigma_mirrored = self.coordinates(mirrored)
        xy_back, sigma_back = flip.points_back(xy_mirrored, order, 1.0), sigma_mirrored[:, order]
        p, p_back = certainty(sigma), certainty(sigma_back)
        weight, weight_back = p[..., None] ** 5, p_back[..., None] ** 5
        fused = (weight * xy + weight_back * xy_back) / (weight + weight_back + 1e-10)
        return self._prediction(fused, (p + p_back) / 2, (sigma + sigma_back) / 2)

    def _prediction(self, xy: Tensor, score: Tensor, sigma: Tensor) -> Prediction:
        size = torch.tensor(self.input_wh, dtype=xy.dtype, device=xy.device)
        return Prediction(xy_px=xy * size, score=score, sigma_px=sigma * size)


def _resnet(depth: int, input_wh: tuple[int, int], skeleton: Skeleton) -> Poseur:
    return Poseur(ResNet(depth), RESNET_CHANNELS, input_wh, skeleton)


def _hrnet(width: int, input_wh: tuple[int, int], skeleton: Skeleton) -> Poseur:
    return Poseur(HRNet(width, outputs=4), widths(width, 4), input_wh, skeleton)


# Parameters but for the keypoints' own. The two flows' 107,568 weights are not among a model's parameters.
_TRUNKS = {
    "resnet50": (_resnet, 50, 33_127_012),
    "hrnet-w32": (_hrnet, 32, 38_064_356),
    "hrnet-w48": (_hrnet, 48, 74_145_380),
}
_PER_KEYPOINT = CHANNELS + 4 * (CHANNELS + 1)  # one query, and the coarse guess with its sigma
_VARIANTS = (
    ("resnet50", "256x192", ""),
    ("hrnet-w32", "256x192", ""),
    ("hrnet-w48", "384x288", ""),
    ("resnet50", "256x192", "-wholebody"),
    ("hrnet-w32", "256x192", "-wholebody"),
    ("hrnet-w48", "256x192", "-wholebody"),
)
CARDS = [
    ModelCard(
        name=f"poseur-{trunk}-{size}{suffix}",
        build=partial(build, variant, (width, height), skeleton),
        skeleton=skeleton,
        input_wh=(width, height),
        parameters=parameters + _PER_KEYPOINT * skeleton.size,
        licence="non-commercial",
        source="aim-uofa/Poseur",
    )
    for trunk, size, suffix in _VARIANTS
    for build, variant, parameters in [_TRUNKS[trunk]]
    for skeleton in [WHOLEBODY133 if suffix else COCO17]
    for height, width in [map(int, size.split("x"))]
]
