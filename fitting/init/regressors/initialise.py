"""ImageFolder, boxes and the camera -> first guesses in the camera's frame."""

from collections.abc import Iterable

import numpy as np
import roma
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.camera import Camera
from fitting.camera.crop_camera import cliff_box_info, crop_to_full
from fitting.init.regressors.network import BodyRegressor
from fitting.init.regressors.windows import cut, windows
from pose2d.base.errors import UserError
from pose2d.crops import check_boxes


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
    pose = roma.rotmat_to_rotvec(answer.rotation.cpu())
    return BodyParams(pose, answer.shape.cpu(), crop_to_full(answer.crop_camera.cpu(), center, side, camera))


def _check_size(image: np.ndarray, camera: Camera) -> None:
    if image.ndim == 3 and tuple(image.shape[1::-1]) != tuple(camera.size):
        width, height = image.shape[1::-1]
        raise UserError(
            f"the image is {width} x {height}, but the camera sees {camera.size[0]} x {camera.size[1]} pixels."
        )
