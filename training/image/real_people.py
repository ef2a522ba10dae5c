"""Real people for the image network: crops with annotated keypoints, or with measured 3D points.

No one knows the bodies of real people, but their keypoints can be marked. Where the network's
bodies project beside the marks, its rotations are wrong in the image at least.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.camera.pinhole import NEAREST_KEYPOINT_M
from fitting.init.lifter_inputs import Box, Observation
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.files import atomic_file
from training.crops.shards import IMAGE_ARRAYS, decode_crops, keypoints_in_crops
from training.examples.crop_examples import CROP_ARRAYS
from training.examples.lifter_examples import Placed
from training.examples.marks import mark_offsets

MARKED = 17  # COCO's keypoints, the first of Halpe's 26
# Annotators mark hips by eye in clothes, with errors that are no sign of a wrong body.
NO_MARKS = (11, 12)
FARTHEST_BOXES = 2.0  # errors beyond count as this
MEASURED = slice(5, 17)  # shoulders to ankles, the points that were measured in 3D
_KEYPOINT_ARRAYS = {name: CROP_ARRAYS[name] for name in Observation._fields}
REAL_ARRAYS = {
    **_KEYPOINT_ARRAYS,
    **IMAGE_ARRAYS,
    "marked_rays": Array("f", ("crops", MARKED, 2), finite=True, optional=True),
    "mark_weight": Array("f", ("crops", MARKED), low=0, high=1, optional=True),
    "points_m": Array("f", ("crops", 12, 3), optional=True),
}

FIT_ARRAYS = {
    "turn": Array("f", ("people", 24, 4), finite=True),
    "shape": Array("f", ("people", "numbers"), finite=True),
    "pelvis_m": Array("f", ("people", 3), finite=True),
    "is_good": Array("b", ("people",)),
}


@dataclass(frozen=True)
class RealShard:
    """N real people with their pixels."""

    keypoints: Observation  # as the 2D network read them, [N, ...] without a time axis
    jpeg: np.ndarray  # [bytes] uint8, one file after the other
    jpeg_start: np.ndarray  # [N + 1]
    keypoints_px: Tensor  # [N, 26, 2] in pixels of the crop
    focal_px: Tensor  # [N]
    image_wh: Tensor  # [N, 2]
    box_px: Tensor  # [N, 4] x1, y1, x2, y2 in the image
    marked_rays: Tensor | None  # [N, 17, 2] annotated keypoints on the plane z = 1
    mark_weight: Tensor | None  # [N, 17] 0: not annotated
    points_m: Tensor | None  # [N, 12, 3] measured, in the camera; shoulders to ankles

    def __len__(self) -> int:
        return len(self.jpeg_start) - 1

    def pixels(self, rows: Tensor) -> Tensor:
        """Decode the crops of rows [B]: uint8 [B, 3, H, W] RGB."""
        return decode_crops(self.jpeg, self.jpeg_start, rows)


def load_real(path: Path) -> RealShard:
    """Read a file of `training.real_crops`."""
    arrays = read_npz(path, "Expected a file of training.real_crops.", REAL_ARRAYS)
    check_arrays(arrays, REAL_ARRAYS, path, "a file of training.real_crops")
    files = ("jpeg", "jpeg_start")
    columns = {
        name: torch.from_numpy(arrays[name]).float()
        for name in REAL_ARRAYS
        if name in arrays and name not in files
    }
    return RealShard(
        Observation(*(columns[name] for name in _KEYPOINT_ARRAYS)),
        arrays["jpeg"],
        arrays["jpeg_start"],
        keypoints_in_crops(arrays["crop_from_image"], arrays["keypoints_px"]),
        columns["focal_px"],
        columns["image_wh"],
        columns["box_px"],
        columns.get("marked_rays"),
        columns.get("mark_weight"),
        columns.get("points_m"),
    )


@dataclass(frozen=True)
class PseudoTruth:
    """Fitted bodies of the N people of a file of real crops."""

    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), the root's in the camera
    shape: Tensor  # [N, S]
    pelvis_m: Tensor  # [N, 3] in the camera
    is_good: Tensor  # [N] bool

    def save(self, path: Path) -> None:
        """Write the fits atomically."""
        arrays = {name: value.numpy() for name, value in vars(self).items()}
        with atomic_file(path) as temporary:
            np.savez(temporary, **arrays)


def load_fits(path: Path) -> PseudoTruth:
    """Read a file of `training.real_fits`."""
    arrays = read_npz(path, "Expected a file of training.real_fits.", FIT_ARRAYS)
    check_arrays(arrays, FIT_ARRAYS, path, "a file of training.real_fits")
    return PseudoTruth(**{name: torch.from_numpy(arrays[name]) for name in FIT_ARRAYS})


def reprojection_loss(
    placed: Placed, pelvis_m: Tensor, box: Box, marked_rays: Tensor, mark_weight: Tensor
) -> Tensor:
    """Return the mean distance, in boxes, between bodies' keypoints and annotators' marks.

    placed, pelvis_m [B, 3]: bodies in the camera that is turned towards each person. marked_rays
    [B, 17, 2]: in the real camera.
    """
    spread = placed.keypoints.new_zeros(len(pelvis_m), 26, 3)
    points = placed.keypoints + mark_offsets(placed.turned[:, None], spread)[:, 0]
    points = points[:, :MARKED] + pelvis_m[:, None]
    image = points[..., :2] / points[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    ahead = torch.cat((marked_rays, torch.ones_like(marked_rays[..., :1])), -1)
    marks = torch.einsum("bki,bij->bkj", ahead, box.to_camera)
    marks = marks[..., :2] / marks[..., 2:].clamp(min=0.05)
    error = (((image - marks) / box.size[:, None, None]).square().sum(-1) + 1e-8).sqrt()
    weight = mark_weight.clone()
    weight[:, NO_MARKS] = 0
    return (weight * error.clamp(max=FARTHEST_BOXES)).sum() / weight.sum().clamp(min=1)
