"""An initial guess of a person's body, and how far it may be off."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from pose2d.base.table import Table, column, nested

# Of a guess that does not state its errors: about those of SPIN and CLIFF on 3DPW. Not tuned.
ROTATION_STD_RAD, DEPTH_STD, SHAPE_STD = 0.5, 0.3, 1.0


@dataclass(frozen=True)
class InitialGuess(Table):
    """One person over T frames, and one standard deviation of the error of each part."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the guess")
    rotation_std_rad: Tensor = column((24,), "f", "of each joint's rotation about any axis", unit="rad")  # [T, 24]
    depth_std: Tensor = column((), "f", "of the translation, as a share of the distance to the camera")  # [T]
    shape_std: float = SHAPE_STD  # of each number of the shape


def with_default_errors(params: BodyParams) -> InitialGuess:
    """Parameters of unknown quality."""
    frames = len(params)
    return InitialGuess(params, torch.full((frames, 24), ROTATION_STD_RAD), torch.full((frames,), DEPTH_STD))


def nearest(available: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For every wanted frame number [M] the index into `available` [N > 0, increasing] of the nearest one.

    Of two at the same distance it is the earlier.
    """
    after = np.searchsorted(available, wanted).clip(0, len(available) - 1)
    before = (after - 1).clip(0)
    return np.where(np.abs(wanted - available[before]) <= np.abs(available[after] - wanted), before, after)
