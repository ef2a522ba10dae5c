"""The frame axis of a track: which frames it has, when the person is present, and how values are
interpolated between the frames that were solved.

There are three index spaces, each an array of row numbers into the one before: the rows of the
*grid* (every frame from the first to the last detection), the rows in which the person is *present*
(the segments, without absences), and the rows that are *solved* (of very fast video only some).
`Grid.solved` goes down, `interpolate_params` comes back up.
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

# A body's motion ends far below this rate. Above it, the search takes every n-th frame and bodies
# in between are interpolated: acceleration grows with the square of the rate and its square in the
# normal equations with the fourth power, which at 480 frames/s exceeds what float32 holds beside a
# keypoint's pull.
FASTEST_FPS = 240.0
ROUGH_FPS = 15.0  # of a fit that another one begins from (at 10 frames/s, feet slide)
MOST_FRAMES = 10_000_000  # of one track: four days at 30 frames/s


@dataclass(frozen=True)
class Grid:
    """T frames at even steps."""

    frame: np.ndarray  # [T] frame numbers
    fps: float  # frames of the grid per second
    segment: np.ndarray  # [T] number of the segment in which the person is present, or ABSENT

    @staticmethod
    def over(frame: np.ndarray, fps: float, every: int) -> "Grid":
        """Make a grid of one segment from the first to the last of increasing frame numbers, which
        lie multiples of `every` apart.
        """
        if not 0 < fps < float("inf"):
            raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
        steps = np.diff(frame)
        if every < 1 or (steps <= 0).any() or (steps % every).any():
            raise UserError(f"frame numbers must increase by multiples of every = {every}.")
        if (frame[-1] - frame[0]) // every >= MOST_FRAMES:
            raise UserError(
                f"frames {frame[0]} to {frame[-1]} are too many for one track; "
                f"at most {MOST_FRAMES} are possible."
            )
        grid = np.arange(frame[0], frame[-1] + 1, every)
        return Grid(grid, fps, np.zeros(len(grid), np.int64))

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def present(self) -> np.ndarray:
        """Return the rows in which the person is present."""
        return np.flatnonzero(self.segment != ABSENT)

    def segments(self) -> list[slice]:
        """Return the rows of each segment."""
        present = self.present
        edges = np.searchsorted(self.segment[present], np.arange(self.segment.max() + 2))
        return [
            slice(int(present[a]), int(present[b - 1]) + 1) for a, b in pairwise(edges.tolist())
        ]

    def solved(self, usable: np.ndarray, rough: bool = False) -> tuple[np.ndarray, float]:
        """Return the rows that a fit solves, and how many of them there are in a second.

        These are every n-th row of a segment and, where none of them is usable [T], the first
        usable row.
        """
        stride = max(1, math.ceil(self.fps / FASTEST_FPS))
        if rough:
            stride = max(stride, round(self.fps / ROUGH_FPS))
        first = np.array([rows.start for rows in self.segments()])
        on_stride = (np.arange(len(self)) - first[self.segment]) % stride == 0
        is_solved = (self.segment != ABSENT) & on_stride
        if not usable[is_solved].any():
            is_solved[np.flatnonzero(usable)[0]] = True
        return np.flatnonzero(is_solved), self.fps / stride


def find_neighbours(known_rows: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each row number of `rows`, the indices into the increasing row numbers
    `known_rows` of the one before and the one after it, and how far it is from the one to the
    other, 0..1.
    """
    after = torch.searchsorted(known_rows, rows).clamp(max=len(known_rows) - 1)
    before = (torch.searchsorted(known_rows, rows, right=True) - 1).clamp(min=0)
    distance = (known_rows[after] - known_rows[before]).clamp(min=1)
    return before, after, ((rows - known_rows[before]) / distance).clamp(0, 1)


def interpolate_params(params: BodyParams, known_rows: Tensor, rows: Tensor) -> BodyParams:
    """Return bodies at `rows` from those at the row numbers `known_rows`: interpolated in between,
    constant before the first and after the last.
    """
    before, after, share = find_neighbours(known_rows, rows)
    return blend_params(params.rows(before), params.rows(after), share)


def blend_params(a: BodyParams, b: BodyParams, share: Tensor) -> BodyParams:
    """Return bodies between a (share 0) and b (share 1), in each of T frames; the shape is a's."""
    first = axis_angle_to_quaternion(a.pose)
    second = axis_angle_to_quaternion(b.pose)
    # q and -q are the same rotation; take the one on the shorter way.
    second = torch.where((first * second).sum(-1, keepdim=True) < 0, -second, second)
    blended = torch.nn.functional.normalize(torch.lerp(first, second, share[:, None, None]), dim=-1)
    translation = torch.lerp(a.translation, b.translation, share[:, None])
    return replace(a, pose=quaternion_to_axis_angle(blended), translation=translation)


def nearest(available: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Return, for every frame number [M], the index into `available` [N > 0, increasing] of
    the nearest one. Of two at the same distance it is the earlier.
    """
    after = np.searchsorted(available, frame).clip(0, len(available) - 1)
    before = (after - 1).clip(0)
    before_is_nearer = np.abs(frame - available[before]) <= np.abs(available[after] - frame)
    return np.where(before_is_nearer, before, after)
