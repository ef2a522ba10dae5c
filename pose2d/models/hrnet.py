"""HRNet for pose (Sun et al. 2019): the finest branch, one 1x1 convolution, one map per keypoint."""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from pose2d import decode
from pose2d.backbones.hrnet import HRNet
from pose2d.models.base import ModelCard
from pose2d.models.dialects import is_mmpose, renamed
from pose2d.models.heatmap import HeatmapModel
from pose2d.skeletons import COCO17, MPII16, WHOLEBODY133, Skeleton


class HRNetPose(HRNet, HeatmapModel):
    """Features are the finest branch: 32 or 48 channels at stride 4. Official and mmpose checkpoints take RGB."""

    def __init__(self, width: int, input_wh: tuple[int, int], skeleton: Skeleton) -> None:
        super().__init__(width)
        self.input_wh, self.skeleton = input_wh, skeleton
        self.feature_shape = (width, input_wh[1] // 4, input_wh[0] // 4)
        self.final_layer = nn.Conv2d(width, skeleton.size, 1)

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return self.stages(crops)[0]

    def maps(self, features: Tensor) -> Tensor:
        return self.final_layer(features)

    def adopt(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.decode = decode.mmpose_default if is_mmpose(state) else decode.quarter_offset
        return renamed(state, (r"^(backbone|head|keypoint_head)\.", ""))


_TRUNK = {32: 28_535_552, 48: 63_594_912}  # parameters without the last convolution
_OFFICIAL = ("MIT", "leoxiaobin/deep-high-resolution-net.pytorch")
_MMPOSE = ("Apache-2.0", "open-mmlab/mmpose")
_SETS = (
    ("", COCO17, (32, 48), ("256x192", "384x288"), _OFFICIAL),
    ("-mpii", MPII16, (32,), ("256x256",), _OFFICIAL),
    ("-mpii", MPII16, (48,), ("256x256",), _MMPOSE),
    ("-wholebody", WHOLEBODY133, (32, 48), ("256x192", "384x288"), _MMPOSE),
)
CARDS = [
    ModelCard(
        name=f"hrnet-w{trunk}-{size}{suffix}",
        build=partial(HRNetPose, trunk, (width, height), skeleton),
        skeleton=skeleton,
        input_wh=(width, height),
        parameters=_TRUNK[trunk] + (trunk + 1) * skeleton.size,
        licence=licence,
        source=source,
    )
    for suffix, skeleton, trunks, sizes, (licence, source) in _SETS
    for trunk in trunks
    for size in sizes
    for height, width in [map(int, size.split("x"))]
]
