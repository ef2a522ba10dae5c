"""One network for SPIN's HMR and for CLIFF: a trunk, and a regressor that corrects its own answer three times.

The regressor reads the trunk's vector, CLIFF's box (where the crop lies in the frame), and the answer so far: 24
rotations of six numbers, ten of shape, a camera (s, tx, ty). It has no activation: every round is one linear map.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import rot6d_to_matrix
from fitting.init.regressors.windows import Cropping
from pose2d.backbones.hrnet import HRNetVector
from pose2d.backbones.resnet import ResNet
from pose2d.base.errors import UserError
from pose2d.normalization import IMAGENET_RGB

VECTOR, HIDDEN = 2048, 1024
POSE, SHAPE, CAMERA, BOX = 6 * JOINT_COUNT, 10, 3, 3
ROUNDS = 3
MEAN_PARAMS = ("init_pose", "init_shape", "init_cam")
_REGRESSOR = ("fc1.", "fc2.", "decpose.", "decshape.", "deccam.", *MEAN_PARAMS)


class Regression(NamedTuple):
    """What the network says of N crops."""

    rotation: Tensor  # [N, 24, 3, 3] each joint relative to its parent; joint 0 in the camera frame
    shape: Tensor  # [N, 10] standard deviations
    crop_camera: Tensor  # [N, 3] (s, tx, ty), see `fitting.camera.crop_camera`


class BodyRegressor(nn.Module):
    """CLIFF's key names. SPIN's are the same with the trunk's tensors at the top level."""

    init_pose: Tensor  # [1, 144] where the rounds begin: the mean body of the training set
    init_shape: Tensor  # [1, 10]
    init_cam: Tensor  # [1, 3]

    def __init__(self, trunk: ResNet | HRNetVector, cropping: Cropping, reads_box: bool) -> None:
        super().__init__()
        self.cropping, self.reads_box = cropping, reads_box
        self.encoder = trunk
        self.fc1 = nn.Linear(VECTOR + BOX * reads_box + POSE + SHAPE + CAMERA, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.decpose = nn.Linear(HIDDEN, POSE)
        self.decshape = nn.Linear(HIDDEN, SHAPE)
        self.deccam = nn.Linear(HIDDEN, CAMERA)
        for name, size in zip(MEAN_PARAMS, (POSE, SHAPE, CAMERA), strict=True):
            self.register_buffer(name, torch.zeros(1, size))

    def normalize(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255 -> the network's input."""
        return IMAGENET_RGB(crops)

    def forward(self, crops: Tensor, box_info: Tensor | None = None) -> Regression:
        """Normalised crops [N, 3, H, W], and for CLIFF `crop_camera.cliff_box_info` [N, 3]."""
        self._check(crops, box_info)
        vector = self.encoder.stages(crops)[-1].mean((2, 3))
        seen = vector if box_info is None else torch.cat((vector, box_info), 1)
        pose, shape, camera = (
            start.expand(len(crops), -1) for start in (self.init_pose, self.init_shape, self.init_cam)
        )
        for _ in range(ROUNDS):
            hidden = self.fc2(self.fc1(torch.cat((seen, pose, shape, camera), 1)))
            pose, shape, camera = (
                pose + self.decpose(hidden),
                shape + self.decshape(hidden),
                camera + self.deccam(hidden),
            )
        return Regression(rot6d_to_matrix(pose.unflatten(1, (JOINT_COUNT, 6))), shape, camera)

    def _check(self, crops: Tensor, box_info: Tensor | None) -> None:
        width, height = self.cropping.input_wh
        if crops.ndim != 4 or tuple(crops.shape[1:]) != (3, height, width) or not torch.is_floating_point(crops):
            raise UserError(
                f"crops must be normalised floats [N, 3, {height}, {width}], got {crops.dtype} {list(crops.shape)}."
            )
        if self.reads_box and (box_info is None or tuple(box_info.shape) != (len(crops), BOX)):
            got = "nothing" if box_info is None else list(box_info.shape)
            raise UserError(f"CLIFF reads where each crop lies: box_info must be [{len(crops)}, {BOX}], got {got}.")
        if not self.reads_box and box_info is not None:
            raise UserError("SPIN's network does not read where a crop lies; leave box_info out.")

    @staticmethod
    def adopt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Published key names -> this module's. ImageNet's classifier may have stayed in a trunk; nothing reads it."""
        named = {key if key.startswith((*_REGRESSOR, "encoder.")) else f"encoder.{key}": state[key] for key in state}
        return {
            key: value for key, value in named.items() if not key.startswith(("encoder.classifier.", "encoder.fc."))
        }
