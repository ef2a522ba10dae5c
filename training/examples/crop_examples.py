"""Read rendered crops and turn them into examples of single frames."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import quaternion_to_matrix
from fitting.init.lifter_inputs import Observation
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.skeletons import HALPE26
from training.examples.lifter_examples import Examples, placed, turn_towards_person
from training.examples.simulated_keypoints import COUNT
from training.motion.bank import mirrored


class Crops(NamedTuple):
    """Single frames of N rendered people as the 2D network read them, errors and all;
    training/rendered_crops.py.
    """

    seen: Observation  # [N, ...] without a time axis
    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), the root's in the camera
    shape: Tensor  # [N, S]
    pelvis_m: Tensor  # [N, 3] in the camera


_CROPS = {
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
    arrays = read_npz(path, "Expected crops as training/rendered_crops.py writes them.", _CROPS)
    check_arrays(arrays, _CROPS, path, "crops of training/rendered_crops.py")
    columns = {name: torch.from_numpy(arrays[name]).float() for name in _CROPS}
    seen = Observation(*(columns.pop(name) for name in Observation._fields))
    return Crops(seen, **columns)


def crop_examples(crops: Crops, body: Body, count: int, generator: torch.Generator) -> Examples:
    """Crops drawn at random, each a window of one frame; half of them mirrored."""
    rows = torch.randint(len(crops.turn), (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5

    def either(own: Tensor, other: Tensor) -> Tensor:
        return torch.where(flip.view(-1, *[1] * (own.ndim - 1)), other, own)

    seen = Observation(*(column[rows] for column in crops.seen))
    sides = HALPE26.flip_order
    other = Observation(
        seen.rays[:, sides] * torch.tensor([-1.0, 1.0]),
        seen.error_weight[:, sides],
        seen.error_sigma[:, sides],
        seen.confidence[:, sides],
        seen.presence[:, sides],
        seen.edges[:, [2, 1, 0, 3]] * torch.tensor([-1.0, 1.0, -1.0, 1.0]),
        seen.marked,
    )
    turn = crops.turn[rows]
    pelvis_m = crops.pelvis_m[rows]
    shape = crops.shape[rows]
    turn = either(turn, mirrored(turn))
    pelvis_m = either(pelvis_m, pelvis_m * torch.tensor([-1.0, 1.0, 1.0]))
    rotation = quaternion_to_matrix(turn)[:, None]
    alone = torch.ones(count, 1, dtype=torch.bool)
    return turn_towards_person(
        Observation(*(either(*both)[:, None] for both in zip(seen, other, strict=True))),
        torch.zeros(count, 1),
        alone[..., None],
        alone,
        rotation,
        shape,
        pelvis_m[:, None],
        placed(body, rotation, shape[:, None]),
    )
