"""Keep rendered crops in numbered files (shards): pixels as JPEG, keypoints and truth as arrays.

A shard that exists is complete and is not made again, so rendering can be stopped at any time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from ccnet.confidence import confidence_function
from fitting.init.lifter import make_observation
from pose2d import crops as cropping
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.files import atomic_file
from pose2d.models.base import PoseModel
from pose2d.types import AREA_OF_BOX
from training.crops.renderer import RenderedPerson
from training.examples.crop_examples import CROP_ARRAYS, Crops, crops_of_arrays
from training.motion.surface_points import CONTACTS

JPEG_QUALITY = 93  # of the stored crops; the camera's own compression is in them already
# Pixels of crops and where they lie in their images; real and rendered crops have both.
IMAGE_ARRAYS = {
    "jpeg": Array("i", ("bytes",)),
    "jpeg_start": Array("i", ("crops + 1",), low=0),
    "crop_from_image": Array("f", ("crops", 2, 3), finite=True),
    "keypoints_px": Array("f", ("crops", "keypoints", 2), finite=True),
    "focal_px": Array("f", ("crops",), finite=True),
    "image_wh": Array("f", ("crops", 2), finite=True),
    "box_px": Array("f", ("crops", 4), finite=True),
}
SHARD_ARRAYS = {
    **CROP_ARRAYS,
    **IMAGE_ARRAYS,
    "contacts": Array("f", ("crops", "contacts"), optional=True),
}


@dataclass(frozen=True)
class Shard:
    """N rendered crops with their pixels."""

    crops: Crops  # keypoints with their stated errors, and truth
    jpeg: np.ndarray  # [bytes] uint8, one file after the other
    jpeg_start: np.ndarray  # [N + 1]
    keypoints_px: Tensor  # [N, 26, 2] in pixels of the crop
    contacts: Tensor | None  # [N, 12] in the order of CONTACTS; older shards state none

    def __len__(self) -> int:
        return len(self.jpeg_start) - 1

    def pixels(self, rows: Tensor) -> Tensor:
        """Decode the crops of rows [B]: uint8 [B, 3, H, W] RGB."""
        return decode_crops(self.jpeg, self.jpeg_start, rows)


class ShardWriter:
    """Read rendered people with the 2D network and write them as shards."""

    def __init__(self, model: PoseModel, name: str) -> None:
        self.model = model
        self.confidence = confidence_function("ccnet", name, model, None)

    def write(self, path: Path, people: Iterator[RenderedPerson], count: int) -> None:
        """Write the next `count` people to one file."""
        columns: dict[str, list[Tensor]] = {}
        jpegs = []
        for person in islice(people, count):
            row, jpeg = self._read(person)
            jpegs.append(jpeg)
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        arrays: dict[str, Any] = {
            name: torch.cat(values).float().numpy() for name, values in columns.items()
        }
        arrays["jpeg"] = np.concatenate(jpegs)
        arrays["jpeg_start"] = np.cumsum([0, *map(len, jpegs)])
        with atomic_file(path) as temporary:
            np.savez(temporary, **arrays)

    def _read(self, person: RenderedPerson) -> tuple[dict[str, Tensor], np.ndarray]:
        """Return the columns of one person, each with a leading axis of 1, and its JPEG file."""
        in_part = person.box_px - np.tile(person.first_px, 2)
        crop = cropping.crop_people(self.model, person.image, in_part[None])
        with torch.inference_mode():
            keypoints = self.confidence(cropping.estimate_crops(self.model, crop))
        width, height = person.box_px[2:] - person.box_px[:2]
        area = torch.tensor([AREA_OF_BOX * width * height], dtype=torch.float32)
        in_image = keypoints.xy_px + torch.from_numpy(person.first_px).float()
        observed = make_observation(
            replace(keypoints, xy_px=in_image, area_px2=area), [person.camera]
        )
        crop_from_image = crop.affine[0].copy()
        crop_from_image[:, 2] -= crop_from_image[:, :2] @ person.first_px
        row = observed._asdict() | {name: value[None] for name, value in person.truth.items()}
        row |= {
            "crop_from_image": torch.from_numpy(crop_from_image)[None],
            "keypoints_px": in_image,
            "focal_px": torch.tensor([person.camera.focal_px[0]]),
            "image_wh": torch.tensor([person.camera.size]),
            "box_px": torch.from_numpy(person.box_px)[None],
        }
        bgr = np.ascontiguousarray(crop.pixels[0].permute(1, 2, 0).numpy()[..., ::-1])
        jpeg = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
        return row, jpeg.ravel()


def load_shard(path: Path) -> Shard:
    """Read a shard; its keypoints are moved from the image to the crop."""
    arrays = read_npz(path, "Expected a shard of training.rendered_crops.", SHARD_ARRAYS)
    check_arrays(arrays, SHARD_ARRAYS, path, "a shard of training.rendered_crops")
    keypoints_px = keypoints_in_crops(arrays["crop_from_image"], arrays["keypoints_px"])
    contacts = None
    if "contacts" in arrays:
        contacts = torch.from_numpy(arrays["contacts"]).float()
        assert contacts.shape[1] == len(CONTACTS)
    return Shard(
        crops_of_arrays(arrays), arrays["jpeg"], arrays["jpeg_start"], keypoints_px, contacts
    )


def keypoints_in_crops(crop_from_image: np.ndarray, in_image_px: np.ndarray) -> Tensor:
    """Return keypoints [N, K, 2] of images in pixels of their crops, by affine maps [N, 2, 3]."""
    affine = torch.from_numpy(crop_from_image).float()
    points = torch.from_numpy(in_image_px).float()
    return torch.einsum("nij,nkj->nki", affine[:, :, :2], points) + affine[:, None, :, 2]


def decode_crops(jpeg: np.ndarray, jpeg_start: np.ndarray, rows: Tensor) -> Tensor:
    """Decode the JPEG files of rows [B], stored one after the other: uint8 [B, 3, H, W] RGB."""
    images = []
    for row in rows.tolist():
        image = cv2.imdecode(jpeg[jpeg_start[row] : jpeg_start[row + 1]], cv2.IMREAD_COLOR)
        assert image is not None
        images.append(torch.from_numpy(image[..., ::-1].copy()).permute(2, 0, 1))
    return torch.stack(images)
