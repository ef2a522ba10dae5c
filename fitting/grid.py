"""The frame axis of a track: which frames there are, when the person is there, and what lies between solved frames.

Three index spaces, each an array of row numbers into the one before: rows of the *grid* (every frame from the first to
the last detection), the rows in which the person is *there* (segments, without absences), and the rows that are
*solved* (of very fast video only some). `Grid.solved` goes down, `interpolated` comes back up.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.body.rotations import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.keypoints.segments import ABSENT
from pose2d.base.errors import UserError

# A body's motion ends far below this. Above, the search takes every n-th frame and bodies in between are interpolated:
# acceleration grows with the square of the rate and its square in the normal equations with the fourth power, which at
# 480 frames/s exceeds what float32 holds beside a keypoint's pull.
FASTEST_FPS = 240.0
MOST_FRAMES = 10_000_000  # of one track: four days at 30 frames/s


@dataclass(frozen=True)
class Grid:
    """T frames at even steps."""

    frame: np.ndarray  # [T] frame numbers
    fps: float  # frames of the grid per second
    segment: np.ndarray  # [T] number of the segment in which the person is there, from 0, or ABSENT

    @staticmethod
    def over(frame: np.ndarray, fps: float, every: int) -> "Grid":
        """From the first to the last of increasing frame numbers, which lie multiples of `every` apart: one segment."""
        if not 0 < fps < float("inf"):
            raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
        steps = np.diff(frame)
        if every < 1 or (steps <= 0).any() or (steps % every).any():
            raise UserError(f"frame numbers must increase by multiples of every = {every}.")
        if (frame[-1] - frame[0]) // every >= MOST_FRAMES:
            raise UserError(f"frames {frame[0]} to {frame[-1]} are too many for one track; at most {MOST_FRAMES}.")
        grid = np.arange(frame[0], frame[-1] + 1, every)
        return Grid(grid, fps, np.zeros(len(grid), np.int64))

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def there(self) -> np.ndarray:
        """Rows in which the person is there."""
        return np.flatnonzero(self.segment != ABSENT)

    def segments(self) -> list[slice]:
        """The rows of each segment."""
        edges = np.searchsorted(self.segment[self.there], np.arange(self.segment.max() + 2))
        return [slice(int(self.there[a]), int(self.there[b - 1]) + 1) for a, b in pairwise(edges.tolist())]

    @property
    def stride(self) -> int:
        """Every so-manyth row of a segment is solved."""
        return max(1, math.ceil(self.fps / FASTEST_FPS))

    def solved(self, usable: np.ndarray) -> np.ndarray:
        """The rows that a fit solves, of usable ones [T]; where none of them shows enough, also one that does."""
        first = np.array([rows.start for rows in self.segments()])
        keep = (self.segment != ABSENT) & ((np.arange(len(self)) - first[self.segment]) % self.stride == 0)
        if not usable[keep].any():
            keep[np.flatnonzero(usable)[0]] = True
        return np.flatnonzero(keep)


def between(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each of the row numbers `row`: the places among increasing row numbers `at` before and after it, and how far
    it is from the one to the other, 0..1."""
    after = torch.searchsorted(at, row).clamp(max=len(at) - 1)
    before = (torch.searchsorted(at, row, right=True) - 1).clamp(min=0)
    return before, after, ((row - at[before]) / (at[after] - at[before]).clamp(min=1)).clamp(0, 1)


def interpolated(params: BodyParams, at: Tensor, row: Tensor) -> BodyParams:
    """Of the rows `at` -> of the rows `row`: in between evenly, before the first and after the last the same."""
    before, after, share = between(at, row)
    return mixed(params.rows(before), params.rows(after), share)


def mixed(a: BodyParams, b: BodyParams, share: Tensor) -> BodyParams:
    """From a (share 0) to b (share 1), in each of T frames; the shape is a's."""
    first, second = axis_angle_to_quaternion(a.pose), axis_angle_to_quaternion(b.pose)
    second = torch.where((first * second).sum(-1, keepdim=True) < 0, -second, second)
    half_way = torch.nn.functional.normalize(torch.lerp(first, second, share[:, None, None]), dim=-1)
    translation = torch.lerp(a.translation, b.translation, share[:, None])
    return replace(a, pose=quaternion_to_axis_angle(half_way), translation=translation)
