"""An initial guess of a person's body, and how far it may be off."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams

# Of a guess that does not state its errors: about those of SPIN and CLIFF on 3DPW. Not tuned.
ROTATION_STD_RAD, DEPTH_STD, SHAPE_STD = 0.5, 0.3, 1.0


@dataclass(frozen=True)
class InitialGuess:
    """One person over T frames, and one standard deviation of the error of each part."""

    params: BodyParams
    rotation_std_rad: Tensor  # [T, 24] of each joint's rotation about any axis
    depth_std: Tensor  # [T] of the translation, as a share of the distance to the camera
    shape_std: float = SHAPE_STD  # of each number of the shape

    def __len__(self) -> int:
        return len(self.params)

    def rows(self, index: slice | Tensor | np.ndarray) -> "InitialGuess":
        """Some of the frames."""
        return replace(
            self,
            params=self.params.rows(index),
            rotation_std_rad=self.rotation_std_rad[index],
            depth_std=self.depth_std[index],
        )


def with_default_errors(params: BodyParams) -> InitialGuess:
    """Parameters of unknown quality."""
    frames = len(params)
    return InitialGuess(params, torch.full((frames, 24), ROTATION_STD_RAD), torch.full((frames,), DEPTH_STD))


def joined_guesses(parts: Sequence[InitialGuess]) -> InitialGuess:
    """Stretches of one person, one after the other."""
    frames = [len(part) for part in parts]
    shape = torch.cat([p.params.shape.expand(n, -1) for p, n in zip(parts, frames, strict=True)])
    return replace(
        parts[0],
        params=replace(
            parts[0].params,
            pose=torch.cat([part.params.pose for part in parts]),
            shape=shape,
            translation=torch.cat([part.params.translation for part in parts]),
        ),
        rotation_std_rad=torch.cat([part.rotation_std_rad for part in parts]),
        depth_std=torch.cat([part.depth_std for part in parts]),
    )


def nearest(available: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For every wanted frame number [M] the index into `available` [N > 0, increasing] of the nearest one.

    Of two at the same distance it is the earlier.
    """
    after = np.searchsorted(available, wanted).clip(0, len(available) - 1)
    before = (after - 1).clip(0)
    return np.where(np.abs(wanted - available[before]) <= np.abs(available[after] - wanted), before, after)
