"""Draw cameras of any height, pitch, distance and focal length."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body.rotations import about_axis
from training.examples.random_numbers import Random

STANDING_M, PELVIS_M = 1.75, 0.95  # how tall, and how high above the floor, people roughly are
FOCAL = (0.55, 2.5)  # of the image's diagonal, as far as FILL allows
FILL = (0.15, 1.2)  # of the image's height
# share of close-ups of the upper body, and how much they would fill
CLOSE = 0.15
CLOSE_FILL = (1.2, 3.0)
DISTANCE_M = (1.4, 12.0)
ASPECTS = (16 / 9, 16 / 9, 4 / 3, 1.0, 3 / 4, 9 / 16)


class Views(NamedTuple):
    """One camera for each of B windows."""

    turn: Tensor  # [B, 3, 3] from the world, y up, to the camera
    target_m: Tensor  # [B, 3] where the person's pelvis is on average, in the camera frame
    half: Tensor  # [B, 2] half width and height of the image on the plane z = 1


def draw_views(count: int, generator: torch.Generator) -> Views:
    """Draw a camera for each window."""
    draw = Random(generator, (count,))
    even = draw.even
    scale = draw.scale
    chance = draw.chance
    aspect = torch.tensor(ASPECTS)[torch.randint(len(ASPECTS), (count,), generator=generator)]
    image = (
        torch.stack((aspect, torch.ones(count)), -1) / (1 + aspect.square()).sqrt()[:, None]
    )  # of its diagonal
    distance = scale(*DISTANCE_M)
    full_height_focal = (
        image[:, 1] * distance / STANDING_M
    )  # the focal length at which a person fills the image's height
    close = chance(CLOSE)
    focal = torch.minimum(
        torch.maximum(scale(*FOCAL), FILL[0] * full_height_focal), FILL[1] * full_height_focal
    )
    focal = torch.where(close, scale(*CLOSE_FILL) * full_height_focal, focal)
    half = image / (2 * focal)[:, None]
    free = half - torch.stack((0.2 / distance, 0.45 * STANDING_M / distance), -1)
    place = torch.stack((even(-1, 1), even(-1, 1)), -1) * torch.maximum(free, 0.1 * half)
    low = (
        half[:, 1] * even(0.2, 0.8) + 0.15 * STANDING_M / distance
    )  # the pelvis is near the image's lower edge
    place[:, 1] = torch.where(close, low, place[:, 1])

    # Either the camera's height says how far it looks down at a person there, or the pitch is
    # anything.
    height = torch.where(chance(0.15), even(2.5, 5.0), even(0.3, 2.5))
    elevation = torch.atan2(PELVIS_M - height, distance)
    pitch = torch.where(chance(0.5), even(-0.25, 0.55), even(-0.52, 1.05))
    down = torch.where(chance(0.6), -(elevation + place[:, 1].atan()), pitch).clamp(-0.7, 1.1)
    roll = torch.where(
        chance(0.12), even(-0.52, 0.52), 0.04 * torch.randn(count, generator=generator)
    )
    turn = _camera_turn(roll, down, even(-math.pi, math.pi))
    target = torch.cat((place, torch.ones(count, 1)), -1) * distance[:, None]
    return Views(turn, target, half)


FLOOR_M = (0.05, 0.35)  # heights of cameras near the floor and the ceiling
CEILING_M = (2.4, 4.5)
STEEPEST_RAD = 1.35


def move_to_floor_or_ceiling(view: Views, share: float, generator: torch.Generator) -> Views:
    """Replace a share of cameras by such near the floor or the ceiling that look at the person."""
    count = len(view.turn)
    draw = Random(generator, (count,))
    height = torch.where(draw.chance(0.5), draw.even(*FLOOR_M), draw.even(*CEILING_M))
    distance = view.target_m[:, 2]
    place = view.target_m[:, 1] / distance
    elevation = torch.asin(((PELVIS_M - height) / distance).clamp(-0.95, 0.95))
    down = -(elevation + place.atan())
    turn = _camera_turn(
        0.04 * draw.normal(), down.clamp(-STEEPEST_RAD, STEEPEST_RAD), draw.even(-math.pi, math.pi)
    )
    moved = draw.chance(share)
    return view._replace(turn=torch.where(moved[:, None, None], turn, view.turn))


def _camera_turn(roll: Tensor, down: Tensor, yaw: Tensor) -> Tensor:
    """Return the turn [B, 3, 3] from the world (y up) to a camera that looks down by an angle."""
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
    return about_axis(2, roll) @ about_axis(0, down) @ flip @ about_axis(1, yaw)
