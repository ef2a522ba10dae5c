"""What a fit is told (`FitOptions`), starts from (`InitialGuess`) and finds: a body in each of T
frames, alone (`Fit`) and with the keypoints that it was made from (`TrackFit`).

`Grid` is the frame axis of a track: which frames there are, when the person is there, and what lies
between solved frames. Three index spaces, each an array of row numbers into the one before: rows of
the *grid* (every frame from the first to the last detection), the rows in which the person is
*there* (segments, without absences), and the rows that are *solved* (of very fast video only some).
`Grid.solved` goes down, `interpolated` comes back up."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.body.kinematics import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.keypoints.observed import ABSENT, probability_observed
from fitting.keypoints.weights import GATE, Weighting
from fitting.solver.terms.pose_prior import PosePrior
from fitting.solver.terms.reprojection import ROBUST_SCALE
from pose2d.base.columns import column, nested, shared
from pose2d.base.errors import UserError
from pose2d.base.table import Table
from pose2d.types import ConfidenceSource, Keypoints


@dataclass(frozen=True)
class Fit(Table):
    """A person's body over T frames, in the camera frame, with its uncertainty."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the body")
    observed: Tensor = column(
        (), "b", "the frame shows enough; false: filled from its neighbours"
    )  # [T]
    used: Tensor = column((26,), "b", "keypoints with a weight above zero")  # [T, 26]
    # [T, 26]
    reprojection_px: Tensor = column(
        (26,), "f", "distance to the keypoint; NaN: not used", unit="px", fill=np.nan
    )
    stopped: str = shared()  # why the solver stopped
    converged: Tensor = column((), "b", "the search converged")  # [T]
    weighting: Weighting = shared()
    source: ConfidenceSource = shared()  # where the confidence came from
    # [T, 24, 3] in the camera frame along x, y, z; None: confidence not calibrated
    joint_std_mm: Tensor | None = column(
        (24, 3), "f", "std of joints", unit="mm", fill=np.nan, optional=True
    )
    # [T, 24, 3]
    joint_std_relative_mm: Tensor | None = column(
        (24, 3), "f", "std of joints relative to the pelvis", unit="mm", fill=np.nan, optional=True
    )
    # [T, 24]
    rotation_std_deg: Tensor | None = column(
        (24,), "f", "std of joints' rotations; NaN: leaves", unit="deg", fill=np.nan, optional=True
    )
    # [S, S] shared by all frames, or [T, S, S]
    shape_covariance: Tensor | None = column(
        ("directions", "directions"), "f", "of the shape", optional=True
    )


@dataclass(frozen=True)
class HandFit(Table):
    """Both hands of a person in T frames (`fitting.hands`)."""

    pose_rad: np.ndarray = column(
        (30, 3), "f", "axis-angle of SMPL-H's finger joints", unit="rad"
    )  # [T, 30, 3]
    std_deg: np.ndarray = column((30,), "f", "std of their rotations", unit="deg")  # [T, 30]
    seen: np.ndarray = column((2,), "b", "the hand's keypoints pulled")  # [T, 2]
    wrist_rad: np.ndarray = column(
        (2, 3), "f", "axis-angle of the wrists, as the palms show them", unit="rad"
    )
    # [T, 2, 21] of a hand keypoint relative to the wrist
    point_std_mm: np.ndarray = column((2, 21), "f", "length of the error to expect", unit="mm")


@dataclass(frozen=True)
class TrackFit(Table):
    """A person's body over every frame of the grid from the first to the last one seen."""

    frame: np.ndarray = column((), "i", "frame numbers on the even grid")
    # False: nobody knows where the person is; the body goes evenly from where it was to where it
    # will be, for those who need a number in every frame
    present: np.ndarray = column((), "b", "the person is there, seen or filled in over a short gap")
    detected: np.ndarray = column((), "b", "the frame has a row of keypoints")
    # [T, 26, ...] Halpe's, after side-swap repair, with the confidence that they have once the body
    # is known; presence 0 and pixels NaN in gaps
    keypoints: Keypoints = nested(Keypoints, "keypoints after the fit")
    swapped: np.ndarray = column((26,), "b", "left and right were exchanged")
    joint_observed: np.ndarray = column(
        (24,), "b", "a keypoint that counts lies at the joint or farther out"
    )
    fit: Fit = nested(Fit, "the body")
    # [T, 4] left heel, left toes, right heel, right toes; None: nobody looked
    contact: np.ndarray | None = column(
        (4,), "f", "probability that heels and toes stand", optional=True
    )
    # [T] (`fitting.stated`); None: confidence not calibrated
    worst_error_mm: np.ndarray | None = column(
        (), "f", "median of the largest joint error", unit="mm", fill=np.nan, optional=True
    )
    hands: HandFit | None = nested(HandFit, "fingers; None: nobody looked", optional=True)

    @property
    def keypoint_observed(self) -> np.ndarray:
        """[T, 26] probability that a keypoint is in the image and close to the truth
        (`probability_observed`).
        """
        return probability_observed(self.keypoints).numpy()

    def index(self, frame: np.ndarray) -> np.ndarray:
        """Indices into the T rows of these frame numbers."""
        index = np.searchsorted(self.frame, frame).clip(0, len(self.frame) - 1)
        if not np.array_equal(self.frame[index], frame):
            raise KeyError("a frame number that is not on the grid of this track")
        return index


# A body's motion ends far below this. Above, the search takes every n-th frame and bodies in
# between are interpolated: acceleration grows with the square of the rate and its square in the
# normal equations with the fourth power, which at 480 frames/s exceeds what float32 holds beside a
# keypoint's pull.
FASTEST_FPS, ROUGH_FPS = (
    240.0,
    15.0,
)  # the second: of a fit that another one begins from (at 10, feet slide)
MOST_FRAMES = 10_000_000  # of one track: four days at 30 frames/s


@dataclass(frozen=True)
class Grid:
    """T frames at even steps."""

    frame: np.ndarray  # [T] frame numbers
    fps: float  # frames of the grid per second
    segment: np.ndarray  # [T] number of the segment in which the person is there, from 0, or ABSENT

    @staticmethod
    def over(frame: np.ndarray, fps: float, every: int) -> "Grid":
        """From the first to the last of increasing frame numbers, which lie multiples of `every`
        apart: one segment.
        """
        if not 0 < fps < float("inf"):
            raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
        steps = np.diff(frame)
        if every < 1 or (steps <= 0).any() or (steps % every).any():
            raise UserError(f"frame numbers must increase by multiples of every = {every}.")
        if (frame[-1] - frame[0]) // every >= MOST_FRAMES:
            raise UserError(
                f"frames {frame[0]} to {frame[-1]} are too many for one track; at most {MOST_FRAMES}."
            )
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
        return [
            slice(int(self.there[a]), int(self.there[b - 1]) + 1)
            for a, b in pairwise(edges.tolist())
        ]

    def solved(self, usable: np.ndarray, rough: bool = False) -> tuple[np.ndarray, float]:
        """The rows that a fit solves, every n-th of a segment and, where none of these is usable
        [T], one that is; and how many there are in a second."""
        stride = max(
            1, math.ceil(self.fps / FASTEST_FPS), round(self.fps / ROUGH_FPS) if rough else 1
        )
        first = np.array([rows.start for rows in self.segments()])
        keep = (self.segment != ABSENT) & (
            (np.arange(len(self)) - first[self.segment]) % stride == 0
        )
        if not usable[keep].any():
            keep[np.flatnonzero(usable)[0]] = True
        return np.flatnonzero(keep), self.fps / stride


def between(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each of the row numbers `row`: the places among increasing row numbers `at` before and
    after it, and how far it is from the one to the other, 0..1."""
    after = torch.searchsorted(at, row).clamp(max=len(at) - 1)
    before = (torch.searchsorted(at, row, right=True) - 1).clamp(min=0)
    return before, after, ((row - at[before]) / (at[after] - at[before]).clamp(min=1)).clamp(0, 1)


def interpolated(params: BodyParams, at: Tensor, row: Tensor) -> BodyParams:
    """Of the rows `at` -> of the rows `row`: in between evenly, before the first and after the last
    the same.
    """
    before, after, share = between(at, row)
    return mixed(params.rows(before), params.rows(after), share)


def mixed(a: BodyParams, b: BodyParams, share: Tensor) -> BodyParams:
    """From a (share 0) to b (share 1), in each of T frames; the shape is a's."""
    first = axis_angle_to_quaternion(a.pose)
    second = axis_angle_to_quaternion(b.pose)
    second = torch.where((first * second).sum(-1, keepdim=True) < 0, -second, second)
    half_way = torch.nn.functional.normalize(
        torch.lerp(first, second, share[:, None, None]), dim=-1
    )
    translation = torch.lerp(a.translation, b.translation, share[:, None])
    return replace(a, pose=quaternion_to_axis_angle(half_way), translation=translation)


# Of a guess that does not state its errors: about those of SPIN and CLIFF on 3DPW. Not tuned.
ROTATION_STD_RAD = 0.5
DEPTH_STD = 0.3
SHAPE_STD = 1.0


@dataclass(frozen=True)
class InitialGuess(Table):
    """One person over T frames, and one standard deviation of the error of each part."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the guess")
    rotation_std_rad: Tensor = column(
        (24,), "f", "of each joint's rotation about any axis", unit="rad"
    )  # [T, 24]
    depth_std: Tensor = column(
        (), "f", "of the translation, as a share of the distance to the camera"
    )  # [T]
    shape_std: float = SHAPE_STD  # of each number of the shape


def with_default_errors(params: BodyParams) -> InitialGuess:
    """Parameters of unknown quality."""
    frames = len(params)
    return InitialGuess(
        params, torch.full((frames, 24), ROTATION_STD_RAD), torch.full((frames,), DEPTH_STD)
    )


def nearest(available: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For every wanted frame number [M] the index into `available` [N > 0, increasing] of the
    nearest one. Of two at the same distance it is the earlier."""
    after = np.searchsorted(available, wanted).clip(0, len(available) - 1)
    before = (after - 1).clip(0)
    return np.where(
        np.abs(wanted - available[before]) <= np.abs(available[after] - wanted), before, after
    )


# standard deviation of the lean out of the image: pelvises tilt by 0.2, cameras as much; not tuned
LEAN_RAD = 0.25


@dataclass(frozen=True)
class FitOptions:
    """The options of one person's fit; the same for every frame."""

    weighting: Weighting = (
        "likelihood"  # how confidence becomes weight (`fitting.keypoints.weights`)
    )
    gate: float = GATE  # threshold of the weighting `gate`
    prior: PosePrior | None = None  # None: the embedded one
    # How far people usually lean towards or away from the camera, radians; None for a camera that
    # looks steeply down.
    lean_rad: float | None = LEAN_RAD
    # Geman-McClure scale: at so many standard deviations a keypoint counts half of its square.
    # Large is least squares.
    robust_sigmas: float = ROBUST_SCALE
    # of fewer frames, stop early and state no deviations: for a fit that another one begins from
    rough: bool = False


DEFAULTS = FitOptions()
