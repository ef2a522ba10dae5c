"""SPIN and CLIFF by name: from a checkpoint to a network, and from images, boxes and the camera to initial guesses."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.body.rotations import matrix_to_axis_angle
from fitting.camera import Camera
from fitting.camera.crop_camera import cliff_box_info, crop_to_full
from fitting.init.regressors.network import (
    CAMERA,
    CLIFF_CROPPING,
    MEAN_PARAMS,
    POSE,
    SHAPE,
    SPIN_CROPPING,
    BodyRegressor,
    cut,
    windows,
)
from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError
from pose2d.crops import check_boxes
from pose2d.models.base import compare, read_state
from pose2d.models.hrnet import HRNetVector
from pose2d.models.resnet import ResNet
from pose2d.registry import recognize


@dataclass(frozen=True)
class RegressorCard:
    """One name that `load` knows."""

    name: str
    build: Callable[[], BodyRegressor]
    parameters: int  # number of weights, statistics and mean parameters not counted
    source: str  # where the checkpoint comes from
    licence: str  # of the published weights


def _cliff(trunk: Callable[[], ResNet | HRNetVector]) -> BodyRegressor:
    return BodyRegressor(trunk(), CLIFF_CROPPING, reads_box=True)


_SMPL = "non-commercial: trained on research data sets with SMPL"
CARDS = {
    card.name: card
    for card in (
        RegressorCard(
            "spin",
            lambda: BodyRegressor(ResNet(50), SPIN_CROPPING, reads_box=False),
            26_977_501,
            "github.com/nkolot/SPIN (fetch_data.sh: data/model_checkpoint.pt)",
            _SMPL,
        ),
        RegressorCard(
            "cliff-res50",
            partial(_cliff, partial(ResNet, 50)),
            26_980_573,
            "github.com/huawei-noah/noah-research, folder CLIFF (res50-*.pt)",
            _SMPL,
        ),
        RegressorCard(
            "cliff-hr48",
            partial(_cliff, partial(HRNetVector, 48)),
            78_893_405,
            "github.com/huawei-noah/noah-research, folder CLIFF (hr48-*.pt)",
            _SMPL,
        ),
    )
}


FAMILIES = {"cliff": ("cliff-hr48", "cliff-res50")}  # whichever of them the checkpoint fits


def load(name: str, checkpoint: str | Path | None = None, mean_params: str | Path | None = None) -> BodyRegressor:
    """The network of that name in eval mode with the weights of an official checkpoint; "cliff" is either CLIFF.

    mean_params: smpl_mean_params.npz; only for a checkpoint that does not hold them itself. The official ones do.
    """
    if name in FAMILIES:
        *others, last = FAMILIES[name]
        for candidate in others:
            with contextlib.suppress(UserError):
                return load(candidate, checkpoint, mean_params)
        return load(last, checkpoint, mean_params)
    if name not in CARDS:
        spin, *cliffs = CARDS
        raise UserError(f"unknown body regressor {name!r}: choose {', '.join((spin, *FAMILIES, *cliffs))}.")
    card = CARDS[name]
    if checkpoint is None:
        raise UserError(f"{name} ships no weights: pass a checkpoint, from {card.source} (licence: {card.licence}).")
    state = read_state(checkpoint)
    converted = BodyRegressor.convert(state)
    if mean_params is not None:
        converted = {**_read_mean_params(Path(mean_params)), **converted}
    elif not any(key in converted for key in MEAN_PARAMS) and "decpose.weight" in converted:
        raise UserError(
            f"{checkpoint} has no mean parameters (init_pose, ..): pass smpl_mean_params.npz as mean_params."
        )
    with torch.device("meta"):  # the file fills every tensor, so no time is spent on random numbers
        network = card.build()
    wanted = network.state_dict()
    mismatch = compare(wanted, converted)
    if mismatch:
        raise UserError(f"{checkpoint} does not fit {name}: {mismatch}. {_looks_like(state)}")
    network.to_empty(device="cpu")
    counters = {key: torch.zeros(()) for key in wanted if key not in converted}
    network.load_state_dict({**counters, **converted})
    return network.eval().requires_grad_(False)


def _looks_like(state: Mapping[str, Tensor]) -> str:
    with torch.device("meta"):
        mine = [
            name for name, card in CARDS.items() if not compare(card.build().state_dict(), BodyRegressor.convert(state))
        ]
    if mine:
        return f"The file looks like {' or '.join(mine)}: load it under that name."
    theirs = recognize(state)
    if theirs:
        return f"The file looks like the 2D pose network {' or '.join(theirs)}, which gives no body."
    return f"It looks like no body regressor known here ({', '.join(CARDS)})."


def _read_mean_params(path: Path) -> dict[str, Tensor]:
    """smpl_mean_params.npz: `pose` [144], `shape` [10], `cam` [3]."""
    sizes = {"pose": POSE, "shape": SHAPE, "cam": CAMERA}
    wanted = ", ".join(f"`{name}` [{size}]" for name, size in sizes.items())
    expected = f"SMPL's mean parameters: expected an .npz with {wanted}."
    found = read_npz(path, f"It should hold {expected}", sizes)
    try:
        values = [torch.tensor(found[name], dtype=torch.float32).view(1, size) for name, size in sizes.items()]
    except Exception as error:  # no such entry, another size, text instead of numbers
        raise UserError(f"{path} does not hold {expected}") from error
    return dict(zip(MEAN_PARAMS, values, strict=True))


def initialise(
    network: BodyRegressor, image: np.ndarray, boxes_px: np.ndarray, camera: Camera, batch: int = 32
) -> BodyParams:
    """The people in boxes [N, 4] (x1, y1, x2, y2) of one RGB uint8 image; row n of every tensor is person n."""
    boxes = check_boxes(boxes_px)
    return _answers(network, ((image, boxes[first : first + batch]) for first in range(0, len(boxes), batch)), camera)


def initialise_track(
    network: BodyRegressor, images: Iterable[np.ndarray], boxes_px: np.ndarray, camera: Camera, batch: int = 32
) -> BodyParams:
    """One person over T frames: box t [T, 4] is in image t. Images are read one at a time."""
    boxes = check_boxes(boxes_px)
    jobs = ((image, boxes[t : t + 1]) for t, image in enumerate(images))
    found = _answers(network, jobs, camera, batch)
    if len(found.pose) != len(boxes):
        raise UserError(f"there are {len(boxes)} boxes for {len(found.pose)} images; a track has one box per image.")
    return found


def _answers(
    network: BodyRegressor, jobs: Iterable[tuple[np.ndarray, np.ndarray]], camera: Camera, batch: int = 1
) -> BodyParams:
    """Jobs (image, boxes in it) are cut one after the other, and read by the network `batch` jobs at a time."""
    parts = [BodyParams(torch.empty(0, 24, 3), torch.empty(0, 10), torch.empty(0, 3))]
    waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # crops, window centres and heights
    for image, boxes in jobs:
        _check_size(image, camera)
        where = windows(boxes, network.cropping)
        crops = cut(image, where, network.cropping)
        waiting.append((crops, torch.from_numpy(where.center_px).float(), torch.from_numpy(where.height_px).float()))
        if len(waiting) == batch:
            parts.append(_read(network, waiting, camera))
            waiting = []
    if waiting:
        parts.append(_read(network, waiting, camera))
    return BodyParams(
        *(torch.cat(field) for field in zip(*((p.pose, p.shape, p.translation) for p in parts), strict=True))
    )


@torch.inference_mode()
def _read(network: BodyRegressor, waiting: list[tuple[Tensor, Tensor, Tensor]], camera: Camera) -> BodyParams:
    crops, center, side = (torch.cat(field) for field in zip(*waiting, strict=True))
    straight = camera.undistort(center)  # the formulas below know a perfect lens only
    center = torch.where(torch.isfinite(straight), straight, center)
    box_info = cliff_box_info(center, side, camera) if network.reads_box else None
    device = network.init_pose.device
    answer = network(network.normalize(crops.to(device)), None if box_info is None else box_info.to(device))
    pose = matrix_to_axis_angle(answer.rotation.cpu())
    return BodyParams(pose, answer.shape.cpu(), crop_to_full(answer.crop_camera.cpu(), center, side, camera))


def _check_size(image: np.ndarray, camera: Camera) -> None:
    if image.ndim == 3 and tuple(image.shape[1::-1]) != tuple(camera.size):
        width, height = image.shape[1::-1]
        raise UserError(
            f"the image is {width} x {height}, but the camera sees {camera.size[0]} x {camera.size[1]} pixels."
        )
