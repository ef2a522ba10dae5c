"""SPIN and CLIFF by name: from a checkpoint to a network, and from images, boxes and the camera to
initial guesses. Their weights are not shipped; `docs/initialisers.md` says where they come from.

One network for SPIN's HMR and for CLIFF: a trunk, and a regressor that corrects its own answer
three times.

The regressor reads the trunk's vector, CLIFF's box (where the crop lies in the frame), and the
answer so far: 24 rotations of six numbers, ten of shape, a camera (s, tx, ty). It has no
activation: every round is one linear map.

Crops are windows with whole-pixel corners, black beyond the image, then resized. `pose2d.crops`
does not round; these networks were trained on rounded windows, so theirs are kept."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from fitting.body import BodyParams
from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import matrix_to_axis_angle, rot6d_to_matrix
from fitting.camera import Camera
from fitting.camera.crop import cliff_box_info, crop_to_full
from fitting.init import REGRESSORS
from pose2d.base.arrays import read_npz
from pose2d.base.columns import column
from pose2d.base.errors import UserError
from pose2d.base.table import Table
from pose2d.crops import check_boxes, check_image
from pose2d.models.base import IMAGENET_RGB
from pose2d.models.checkpoints import build_empty, describe_mismatch, read_state
from pose2d.models.hrnet import HRNetVector
from pose2d.models.loading import recognize
from pose2d.models.resnet import ResNet

LARGEST_PX = 20_000  # side of a window; no camera has such images, and the window is held in memory


@dataclass(frozen=True)
class Cropping:
    input_wh: tuple[int, int]  # width, height of the network's input
    box_scale: float  # the box is grown by this
    to_pixel: Callable[[np.ndarray], np.ndarray]  # how a corner becomes a whole number
    shrink: int  # OpenCV's interpolation where pixels become fewer


# SPIN cuts corners off (towards zero) and resizes smoothly; CLIFF rounds and samples without
# smoothing.
SPIN_CROPPING = Cropping((224, 224), 1.2, np.trunc, cv2.INTER_AREA)
CLIFF_CROPPING = Cropping((192, 256), 1.1, np.rint, cv2.INTER_LINEAR)


@dataclass(frozen=True)
class Windows(Table):
    """Positions of N crops in their image. The height is the side b of the crop camera."""

    center_px: np.ndarray = column((2,), "d", "middle", unit="px")  # [N, 2]
    height_px: np.ndarray = column((), "d", "height", unit="px")  # [N]
    first: np.ndarray = column((2,), "i", "x and y of the top left corner", unit="px")  # [N, 2]
    end: np.ndarray = column((2,), "i", "one beyond the bottom right corner", unit="px")  # [N, 2]


def place_windows(boxes_px: np.ndarray, cropping: Cropping) -> Windows:
    """Return windows of the input's aspect ratio for boxes [N, 4] (x1, y1, x2, y2), b = max(w H /
    W, h) x box_scale high.
    """
    boxes = check_boxes(boxes_px)
    center = (boxes[:, :2] + boxes[:, 2:]) / 2
    size = boxes[:, 2:] - boxes[:, :2]
    width, height = cropping.input_wh
    side = np.maximum(size[:, 0] * height / width, size[:, 1]) * cropping.box_scale
    half = side[:, None] * np.array([width / height, 1.0]) / 2
    first = cropping.to_pixel(center - half).astype(int)
    end = np.maximum(cropping.to_pixel(center + half).astype(int), first + 1)
    if (end - first).max(initial=0) > LARGEST_PX:
        raise UserError(
            f"a box is {int(side.max())} pixels high; "
            f"boxes must be in pixels of the image, at most {LARGEST_PX} high."
        )
    return Windows(center, side, first, end)


def cut_crops(image: np.ndarray, windows: Windows, cropping: Cropping) -> Tensor:
    """Cut crops out of an RGB uint8 image, float32 [N, 3, H, W] on a scale of 0..255."""
    check_image(image)
    width, height = cropping.input_wh
    crops = np.empty((len(windows.first), height, width, 3), np.float32)
    size = np.array(image.shape[1::-1])
    for crop, first, end in zip(crops, windows.first, windows.end, strict=True):
        inside = np.clip(first, 0, size)
        beyond = np.clip(end, 0, size)
        window = np.zeros(
            (end[1] - first[1], end[0] - first[0], 3), np.float32
        )  # zero outside the image
        x, y = inside - first
        x_end, y_end = beyond - first
        window[y:y_end, x:x_end] = image[inside[1] : beyond[1], inside[0] : beyond[0]]
        smaller = window.shape[0] > height or window.shape[1] > width
        cv2.resize(
            window,
            (width, height),
            crop,
            interpolation=cropping.shrink if smaller else cv2.INTER_LINEAR,
        )
    return torch.from_numpy(crops).permute(0, 3, 1, 2)


VECTOR, HIDDEN = 2048, 1024
POSE = 6 * JOINT_COUNT
SHAPE = 10
CAMERA = 3
BOX = 3
ROUNDS = 3
MEAN_PARAMS = ("init_pose", "init_shape", "init_cam")
_REGRESSOR = ("fc1.", "fc2.", "decpose.", "decshape.", "deccam.", *MEAN_PARAMS)


class Regression(NamedTuple):
    """The network's output for N crops."""

    rotation: Tensor  # [N, 24, 3, 3] each joint relative to its parent; joint 0 in the camera frame
    shape: Tensor  # [N, 10] standard deviations
    crop_camera: Tensor  # [N, 3] (s, tx, ty), see `fitting.camera`


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

    def forward(self, crops: Tensor, box_info: Tensor | None = None) -> Regression:
        """Return bodies for normalised crops [N, 3, H, W]; CLIFF also reads `cliff_box_info` [N,
        3].
        """
        width, height = self.cropping.input_wh
        if (
            crops.ndim != 4
            or tuple(crops.shape[1:]) != (3, height, width)
            or not torch.is_floating_point(crops)
        ):
            raise UserError(
                f"crops must be normalised floats [N, 3, {height}, {width}], "
                f"got {crops.dtype} {list(crops.shape)}."
            )
        if self.reads_box and (box_info is None or tuple(box_info.shape) != (len(crops), BOX)):
            got = "nothing" if box_info is None else list(box_info.shape)
            raise UserError(
                "CLIFF reads where each crop lies: "
                f"box_info must be [{len(crops)}, {BOX}], got {got}."
            )
        if not self.reads_box and box_info is not None:
            raise UserError("SPIN's network does not read where a crop lies; leave box_info out.")
        vector = self.encoder.stages(crops)[-1].mean((2, 3))
        features = vector if box_info is None else torch.cat((vector, box_info), 1)
        starts = (self.init_pose, self.init_shape, self.init_cam)
        layers = (self.decpose, self.decshape, self.deccam)
        answer = [start.expand(len(crops), -1) for start in starts]
        for _ in range(ROUNDS):
            hidden = self.fc2(self.fc1(torch.cat((features, *answer), 1)))
            answer = [value + layer(hidden) for value, layer in zip(answer, layers, strict=True)]
        pose, shape, camera = answer
        return Regression(rot6d_to_matrix(pose.unflatten(1, (JOINT_COUNT, 6))), shape, camera)

    @staticmethod
    def convert(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert published key names to this module's, without ImageNet's classifier, which is not
        used.
        """
        named = {
            key if key.startswith((*_REGRESSOR, "encoder.")) else f"encoder.{key}": state[key]
            for key in state
        }
        return {
            k: value
            for k, value in named.items()
            if not k.startswith(("encoder.classifier.", "encoder.fc."))
        }


class RegressorCard(NamedTuple):
    trunk: Callable[[], ResNet | HRNetVector]
    cropping: Cropping
    source: str  # where the checkpoint comes from

    def build(self) -> BodyRegressor:
        return BodyRegressor(self.trunk(), self.cropping, reads_box=self.cropping is CLIFF_CROPPING)


_CLIFF = "github.com/huawei-noah/noah-research, folder CLIFF"
_LICENCE = "non-commercial: trained on research data sets with SMPL"  # of the published weights
CARDS = {
    "spin": RegressorCard(
        partial(ResNet, 50),
        SPIN_CROPPING,
        "github.com/nkolot/SPIN (fetch_data.sh: data/model_checkpoint.pt)",
    ),
    "cliff-res50": RegressorCard(partial(ResNet, 50), CLIFF_CROPPING, f"{_CLIFF} (res50-*.pt)"),
    "cliff-hr48": RegressorCard(partial(HRNetVector, 48), CLIFF_CROPPING, f"{_CLIFF} (hr48-*.pt)"),
}


def load_regressor(
    name: str, checkpoint: str | Path | None = None, mean_params: str | Path | None = None
) -> BodyRegressor:
    """Load the network of that name in eval mode with the weights of an official checkpoint.

    "cliff" stands for either CLIFF. mean_params: smpl_mean_params.npz, only for a checkpoint that
    does not hold them itself; the official ones do.
    """
    if name == "cliff":  # whichever of them the checkpoint fits
        with contextlib.suppress(UserError):
            return load_regressor("cliff-hr48", checkpoint, mean_params)
        name = "cliff-res50"
    if name not in CARDS:
        raise UserError(f"unknown body regressor {name!r}: choose {', '.join(REGRESSORS)}.")
    card = CARDS[name]
    if checkpoint is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {card.source} (licence: {_LICENCE})."
        )
    state = read_state(checkpoint)
    converted = BodyRegressor.convert(state)
    if mean_params is not None:
        converted = {**_read_mean_params(Path(mean_params)), **converted}
    elif not any(key in converted for key in MEAN_PARAMS) and "decpose.weight" in converted:
        raise UserError(
            f"{checkpoint} has no mean parameters (init_pose, ..): "
            "pass smpl_mean_params.npz as mean_params.",
            file=checkpoint,
        )
    network = build_empty(card.build)
    if mismatch := describe_mismatch(network.state_dict(), converted):
        raise UserError(
            f"{checkpoint} does not fit {name}: {mismatch}. {_describe_checkpoint(state)}",
            file=checkpoint,
        )
    network.load_state_dict(converted, strict=False)  # batch counters may lack
    return network.eval().requires_grad_(False)


def _describe_checkpoint(state: Mapping[str, Tensor]) -> str:
    with torch.device("meta"):
        regressors = [
            name
            for name, card in CARDS.items()
            if not describe_mismatch(card.build().state_dict(), BodyRegressor.convert(state))
        ]
    if regressors:
        return f"The file looks like {' or '.join(regressors)}: load it under that name."
    pose_networks = recognize(state)
    if pose_networks:
        names = " or ".join(pose_networks)
        return f"The file looks like the 2D pose network {names}, which gives no body."
    return f"It looks like no body regressor known here ({', '.join(CARDS)})."


def _read_mean_params(path: Path) -> dict[str, Tensor]:
    """Read smpl_mean_params.npz: `pose` [144], `shape` [10], `cam` [3]."""
    sizes = {"pose": POSE, "shape": SHAPE, "cam": CAMERA}
    entries = ", ".join(f"`{name}` [{size}]" for name, size in sizes.items())
    expected = f"SMPL's mean parameters: expected an .npz with {entries}."
    arrays = read_npz(path, f"It should hold {expected}", sizes)
    try:
        values = [
            torch.tensor(arrays[name], dtype=torch.float32).view(1, size)
            for name, size in sizes.items()
        ]
    except Exception as error:  # no such entry, another size, text instead of numbers
        raise UserError(f"{path} does not hold {expected}", file=path) from error
    return dict(zip(MEAN_PARAMS, values, strict=True))


def initialise(
    network: BodyRegressor, image: np.ndarray, boxes_px: np.ndarray, camera: Camera, batch: int = 32
) -> BodyParams:
    """Estimate the people in boxes [N, 4] (x1, y1, x2, y2) of one RGB uint8 image; row n of every
    tensor is person n.
    """
    return initialise_track(
        network, itertools.repeat(image, len(boxes_px)), boxes_px, camera, batch
    )


def initialise_track(
    network: BodyRegressor,
    images: Iterable[np.ndarray],
    boxes_px: np.ndarray,
    camera: Camera,
    batch: int = 32,
) -> BodyParams:
    """Estimate one person over T frames: box t [T, 4] is in image t. Images are read one at
    a time.
    """
    windows = place_windows(boxes_px, network.cropping)
    crops = []
    count = 0
    parts = [BodyParams(torch.empty(0, 24, 3), torch.empty(0, SHAPE), torch.empty(0, 3))]
    for count, image in enumerate(images, 1):
        if image.ndim == 3 and tuple(image.shape[1::-1]) != tuple(camera.size):
            sizes = [f"{width} x {height}" for width, height in (image.shape[1::-1], camera.size)]
            raise UserError(f"the image is {sizes[0]}, but the camera sees {sizes[1]} pixels.")
        crops.append(cut_crops(image, windows.rows(slice(count - 1, count)), network.cropping))
        if len(crops) == batch or count == len(windows):
            parts.append(
                _predict(
                    network,
                    torch.cat(crops),
                    windows.rows(slice(count - len(crops), count)),
                    camera,
                )
            )
            crops = []
    if count != len(windows):
        raise UserError(
            f"there are {len(windows)} boxes for {count} images; a track has one box per image."
        )
    return BodyParams.concat(parts)


@torch.inference_mode()
def _predict(network: BodyRegressor, crops: Tensor, windows: Windows, camera: Camera) -> BodyParams:
    center, side = (
        torch.from_numpy(value).float() for value in (windows.center_px, windows.height_px)
    )
    straight = camera.undistort(center)  # the formulas below know a perfect lens only
    center = torch.where(torch.isfinite(straight), straight, center)
    device = network.init_pose.device
    box_info = cliff_box_info(center, side, camera).to(device) if network.reads_box else None
    answer = network(IMAGENET_RGB(crops.to(device)), box_info)
    pose = matrix_to_axis_angle(answer.rotation.cpu())
    return BodyParams(
        pose, answer.shape.cpu(), crop_to_full(answer.crop_camera.cpu(), center, side, camera)
    )
