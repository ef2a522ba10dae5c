"""RLE (Li et al. 2021): coordinates and their spread regressed from one vector per crop."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from pose2d import decode
from pose2d.models.base import IMAGENET_RGB, RLE_RGB, Normalization, PoseModel, named_layers
from pose2d.models.cards import MINIATURE, MMPOSE, UNPUBLISHED, sized_card
from pose2d.models.checkpoints import is_mmpose, rename_tensors
from pose2d.models.hrnet import VECTOR, HRNetVector
from pose2d.models.resnet import ResNet, stage_channels
from pose2d.skeletons import COCO17, MPII16, Skeleton
from pose2d.types import Prediction

MIDDLE = 0.5  # coordinates are in crop sizes relative to the crop's middle


class RLE(PoseModel):
    """RLE; features are the pooled trunk, one vector per crop.

    The raw confidence is the mean of 1 - sigma. `sigma_px` is the network's sigma in crop pixels:
    the scale of the error's density, not quite its standard deviation. The simple part of the
    density is Laplace with b = sqrt(2) sigma (mmpose: b = sigma)."""

    normalization: Normalization = RLE_RGB
    # Whether coordinates are computed from the vector divided by its length; mmpose does not.
    direction_only: bool = True

    def __init__(
        self,
        trunk: ResNet | HRNetVector,
        channels: int,
        input_wh: tuple[int, int],
        skeleton: Skeleton,
    ) -> None:
        super().__init__()
        self.input_wh = input_wh
        self.skeleton = skeleton
        self.feature_shape = (channels,)
        self.preact = trunk
        self.fc_coord = named_layers(linear=nn.Linear(channels, 2 * skeleton.size))
        self.fc_sigma = named_layers(linear=nn.Linear(channels, 2 * skeleton.size))

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.preact.stages(crops)[-1].mean((2, 3))

    def coordinates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return coordinates [N, K, 2] from the crop's middle and sigma [N, K, 2], in crop sizes.

        Features are [N, C]."""
        x = features / features.norm(dim=1, keepdim=True) if self.direction_only else features
        xy = self.fc_coord(x).unflatten(1, (-1, 2))
        sigma = self.fc_sigma(features).sigmoid().unflatten(1, (-1, 2))
        return xy, sigma

    def predict(self, features: Tensor) -> Prediction:
        return self._prediction(*self.coordinates(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Average both predictions; x mirrors to -x - 1/W, which is W - 1 - x in pixels."""
        order = self.skeleton.flip_order
        xy, sigma = self.coordinates(features)
        xy_mirrored, sigma_mirrored = self.coordinates(mirrored)
        xy_back = decode.points_back(xy_mirrored, order, -1 / self.input_wh[0])
        return self._prediction((xy + xy_back) / 2, (sigma + sigma_mirrored[:, order]) / 2)

    def _prediction(self, xy: Tensor, sigma: Tensor) -> Prediction:
        size = self.size_px(xy)
        score = (1 - sigma).mean(-1)
        return Prediction(xy_px=(xy + MIDDLE) * size, score=score, sigma_px=sigma * size)

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert official and mmpose checkpoints.

        mmpose has one layer with rows x, y, sigma x, sigma y per keypoint, and measures from the
        crop's corner."""
        if not is_mmpose(state):
            self.normalization = RLE_RGB
            self.direction_only = True
            return rename_tensors(state)
        self.normalization = IMAGENET_RGB
        self.direction_only = False
        names = rename_tensors(state, (r"^backbone\.", "preact."), (r"^(keypoint_)?head\.", ""))
        for part in ("weight", "bias"):
            if (joint := names.pop(f"fc.{part}", None)) is not None:
                coord, sigma = joint.unflatten(0, (-1, 2, 2)).unbind(1)
                if part == "bias":
                    coord = coord - MIDDLE
                names[f"fc_coord.linear.{part}"] = coord.flatten(0, 1)
                names[f"fc_sigma.linear.{part}"] = sigma.flatten(0, 1)
        return names


def _build(trunk: str, input_wh: tuple[int, int], skeleton: Skeleton) -> RLE:
    if trunk.startswith("hrnet"):
        return RLE(HRNetVector(int(trunk[-2:])), VECTOR, input_wh, skeleton)
    depth = int(trunk.removeprefix("resnet"))
    return RLE(ResNet(depth), stage_channels(depth)[-1], input_wh, skeleton)


# Parameters of the trunks
_TRUNKS = {
    "resnet50": 23_508_032,
    "resnet101": 42_500_160,
    "resnet152": 58_143_808,
    "hrnet-w32": 39_183_680,
    "hrnet-w48": 75_420_864,
}
_SETS = (("", COCO17, ("256x192", "384x288")), ("-mpii", MPII16, ("256x256",)))


def _origin(trunk: str, size: str) -> tuple[str, str]:
    if trunk.startswith("hrnet") or (size == "384x288" and trunk != "resnet152"):
        return UNPUBLISHED
    if (trunk, size) == ("resnet50", "256x192"):
        return (
            "none stated (mmpose's: Apache-2.0)",
            "Jeff-sjtu/res-loglikelihood-regression or open-mmlab/mmpose",
        )
    return MMPOSE


CARDS = [
    sized_card(
        f"rle-{trunk}-{size}{suffix}",
        partial(_build, trunk),
        skeleton,
        parameters,
        _origin(trunk, size),
    )
    for suffix, skeleton, sizes in _SETS
    for trunk, of_trunk in _TRUNKS.items()
    for parameters in [of_trunk + 2 * (VECTOR + 1) * 2 * skeleton.size]
    for size in sizes
    if not suffix or trunk == "resnet50"
]
_R18 = 11_176_512 + 2 * (512 + 1) * 2 * COCO17.size
CARDS.append(sized_card("rle-r18-128x96", partial(_build, "resnet18"), COCO17, _R18, MINIATURE))
