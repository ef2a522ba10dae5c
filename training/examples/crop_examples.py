"""Read rendered crops and turn them into examples of single frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import quaternion_to_matrix
from fitting.init.lifter_inputs import Observation
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.skeletons import HALPE26
from training.examples.lifter_examples import Examples, place_bodies, turn_towards_person
from training.examples.simulated_keypoints import COUNT
from training.motion.bank import mirror_rotations


class Crops(NamedTuple):
    """Hold single frames of N rendered people as the 2D network read them, errors and all.

    `python -m training.rendered_crops` makes them.
    """

    keypoints: Observation  # [N, ...] without a time axis
    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), the root's in the camera
    shape: Tensor  # [N, S]
    pelvis_m: Tensor  # [N, 3] in the camera


CROP_ARRAYS = {
    "rays": Array("f", ("crops", COUNT, 2), finite=True),
    "error_weight": Array("f", ("crops", COUNT, "parts")),
    "error_sigma": Array("f", ("crops", COUNT, "parts")),
    "confidence": Array("f", ("crops", COUNT), low=0, high=1),
    "presence": Array("f", ("crops", COUNT), low=0, high=1),
    "edges": Array("f", ("crops", 4)),
    "marked": Array("f", ("crops",)),
    "turn": Array("f", ("crops", 24, 4)),
    "shape": Array("f", ("crops", "numbers")),
    "pelvis_m": Array("f", ("crops", 3)),
}


def load_crops(path: Path) -> Crops:
    """Read the keypoints and the truth of a shard of rendered crops, without its pixels."""
    arrays = read_npz(path, "Expected a shard of training.rendered_crops.", CROP_ARRAYS)
    check_arrays(arrays, CROP_ARRAYS, path, "crops of training.rendered_crops")
    return crops_of_arrays(arrays)


def crops_of_arrays(arrays: Mapping[str, np.ndarray]) -> Crops:
    """Return the crops that checked arrays hold."""
    columns = {name: torch.from_numpy(arrays[name]).float() for name in CROP_ARRAYS}
    keypoints = Observation(*(columns.pop(name) for name in Observation._fields))
    return Crops(keypoints, **columns)


def join_crops(parts: Sequence[Crops]) -> Crops:
    """Return the crops of several shards one after the other."""
    keypoints = Observation(
        *(torch.cat(columns) for columns in zip(*(part.keypoints for part in parts), strict=True))
    )
    columns = [torch.cat(columns) for columns in zip(*(part[1:] for part in parts), strict=True)]
    return Crops(keypoints, *columns)


def draw_crop_examples(
    crops: Crops, body: Body, count: int, generator: torch.Generator
) -> Examples:
    """Draw crops at random, each a window of one frame; half of them mirrored."""
    rows = torch.randint(len(crops.turn), (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5
    keypoints = Observation(*(column[rows] for column in crops.keypoints))
    return crop_examples(crops, keypoints, rows, flip, body)


def crop_examples(
    crops: Crops, keypoints: Observation, rows: Tensor, flip: Tensor, body: Body
) -> Examples:
    """Return the crops of rows [B] as windows of one frame, mirrored where flip [B] is true.

    keypoints [B, ...]: what is read of these rows, before they are mirrored.
    """

    def either(own: Tensor, mirror_image: Tensor) -> Tensor:
        return torch.where(flip.view(-1, *[1] * (own.ndim - 1)), mirror_image, own)

    pairs = zip(keypoints, mirror_keypoints(keypoints), strict=True)
    observed = Observation(*(either(*pair)[:, None] for pair in pairs))
    turn = crops.turn[rows]
    pelvis_m = crops.pelvis_m[rows]
    shape = crops.shape[rows]
    turn = either(turn, mirror_rotations(turn))
    pelvis_m = either(pelvis_m, pelvis_m * torch.tensor([-1.0, 1.0, 1.0]))
    rotation = quaternion_to_matrix(turn)[:, None]
    alone = torch.ones(len(rows), 1, dtype=torch.bool)
    return turn_towards_person(
        observed,
        torch.zeros(len(rows), 1),
        alone[..., None],
        alone,
        rotation,
        shape,
        pelvis_m[:, None],
        place_bodies(body, rotation, shape[:, None]),
    )


def mirror_keypoints(keypoints: Observation) -> Observation:
    """Return the keypoints of the mirror image."""
    sides = HALPE26.flip_order
    return Observation(
        keypoints.rays[:, sides] * torch.tensor([-1.0, 1.0]),
        keypoints.error_weight[:, sides],
        keypoints.error_sigma[:, sides],
        keypoints.confidence[:, sides],
        keypoints.presence[:, sides],
        keypoints.edges[:, [2, 1, 0, 3]] * torch.tensor([-1.0, 1.0, -1.0, 1.0]),
        keypoints.marked,
    )
