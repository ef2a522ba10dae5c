"""A first guess, and how far it may be off."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import BodyParams

TURN_RAD, DISTANCE = 0.5, 0.3  # of a guess that does not say how good it is
SHAPE = 1.0


@dataclass(frozen=True)
class Guess:
    """One person over T frames; spreads are one standard deviation."""

    params: BodyParams
    turn_rad: Tensor  # [T, 24] of each joint's rotation about any axis
    distance: Tensor  # [T] of the translation, as a share of the distance to the camera
    shape: float = SHAPE


def plain_guess(params: BodyParams) -> Guess:
    """Parameters of unknown quality."""
    frames = len(params.pose)
    return Guess(params, torch.full((frames, 24), TURN_RAD), torch.full((frames,), DISTANCE))
