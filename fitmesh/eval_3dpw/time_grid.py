"""Frames of a track on an even grid: a fit over time must know where frames are missing."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.init.guess import InitialGuess
from pose2d.types import Keypoints

LONGEST_GAP_S = 1.0  # a longer gap is closed up to this: nothing is known across it anyway


@dataclass(frozen=True)
class Grid:
    """Where T frames lie among G even steps."""

    place: Tensor  # [T] increasing, from 0
    size: int  # G

    def keypoints(self, keypoints: Keypoints) -> Keypoints:
        """The same keypoints on the grid; steps without a frame show nothing."""

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(self.size, *values.shape[1:]).index_copy_(0, self.place, values)

        return replace(
            keypoints,
            xy_px=spread(keypoints.xy_px),
            confidence=spread(keypoints.confidence),
            presence=spread(keypoints.presence),
            area_px2=None if keypoints.area_px2 is None else spread(keypoints.area_px2),
        )

    def spread(self, guess: InitialGuess) -> InitialGuess:
        """A guess [T] on the grid; a step without a frame takes that of the last frame before it."""
        return guess.rows(torch.searchsorted(self.place, torch.arange(self.size), right=True) - 1)

    def take(self, guess: InitialGuess) -> InitialGuess:
        """A guess [G] of the frames alone."""
        return guess.rows(self.place)

    def take_params(self, params: BodyParams) -> BodyParams:
        return params.rows(self.place)


def grid(frame: np.ndarray, every: int, fps: float) -> Grid:
    """frame [T] increasing image numbers, fps of the grid."""
    longest = max(1, round(LONGEST_GAP_S * fps))
    steps = np.minimum(np.maximum(np.diff(frame) // every, 1), longest)
    place = np.concatenate([[0], np.cumsum(steps)])
    return Grid(torch.from_numpy(place), int(place[-1]) + 1)
