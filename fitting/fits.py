"""What a fit is made from (`FitInput`, `InitialGuess`, `FitOptions`) and what it returns: a body in
each of T frames, alone (`Fit`) and together with the keypoints that it was made from (`TrackFit`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.camera import Camera
from fitting.keypoints.hands import HandObservations
from fitting.keypoints.observed import probability_observed
from fitting.keypoints.weights import GATE, Weighting
from fitting.solver.terms.pose_prior import PosePrior
from fitting.solver.terms.reprojection import ROBUST_SCALE
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import ShapeEvidence
from pose2d.base.columns import column, nested, shared
from pose2d.base.table import Table
from pose2d.types import ConfidenceSource, Keypoints

# Standard deviations of a guess that does not state its errors: about those of SPIN and CLIFF on
# 3DPW. Not tuned.
ROTATION_STD_RAD = 0.5
DEPTH_STD = 0.3
SHAPE_STD = 1.0
# Standard deviation of people's lean out of the image plane: pelvises tilt by 0.2, cameras by as
# much. Not tuned.
LEAN_RAD = 0.25


@dataclass(frozen=True)
class FitOptions:
    """The options of one person's fit; the same for every frame."""

    weighting: Weighting = "likelihood"  # how confidence becomes weight (`keypoints.weights`)
    gate: float = GATE  # threshold of the weighting `gate`
    prior: PosePrior | None = None  # None: the embedded one
    # How far people usually lean towards or away from the camera, radians; None for a camera that
    # looks steeply down.
    lean_rad: float | None = LEAN_RAD
    # Geman-McClure scale: at so many standard deviations a keypoint counts half of its square.
    # A large number is least squares.
    robust_sigmas: float = ROBUST_SCALE
    # Solve fewer frames, stop early and state no deviations: for a fit that another one begins
    # from.
    rough: bool = False
    # Keypoints are where RTMPose reads them on dressed people: unknowns of each track, with a prior
    # (`fitting.body.reading`). False: they are the body's own.
    reads: bool = False


DEFAULTS = FitOptions()


@dataclass(frozen=True)
class InitialGuess(Table):
    """One person's body over T frames, and one standard deviation of the error of each part."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the guess")
    rotation_std_rad: Tensor = column(  # [T, 24]
        (24,), "f", "of each joint's rotation about any axis", unit="rad"
    )
    depth_std: Tensor = column(  # [T]
        (), "f", "of the translation, as a share of the distance to the camera"
    )
    shape_std: float = SHAPE_STD  # of each number of the shape


def with_default_errors(params: BodyParams) -> InitialGuess:
    """Return body parameters of unknown quality as a guess with the default errors."""
    frames = len(params)
    return InitialGuess(
        params, torch.full((frames, 24), ROTATION_STD_RAD), torch.full((frames,), DEPTH_STD)
    )


@dataclass(frozen=True)
class OtherView(Table):
    """What another camera sees of a person in the same frames: x_camera = rotation x + offset."""

    keypoints: Keypoints = nested(Keypoints, "what it sees")  # [T]
    camera: Camera = shared()
    rotation: Tensor = shared()  # [3, 3] from the camera in whose frame the body is
    offset_m: Tensor = shared()  # [3]


@dataclass(frozen=True)
class FitInput:
    """What the solver gets of one person over T frames; `rows` cuts all of it alike."""

    keypoints: Keypoints  # [T]
    guess: InitialGuess  # [T] where the fit starts and what it stays close to
    # [T] gravity, floor, contacts and the camera's rotation, where known
    scene: SceneTerms | None = None
    # [T] frames with the same number follow each other; None: all frames do
    segment: Tensor | None = None
    start: BodyParams | None = None  # [T] where the search begins, if not at the guess
    hands: HandObservations | None = None  # [T] None: hands were not looked for
    other_views: tuple[OtherView, ...] = ()  # [T] what other cameras see
    shape: ShapeEvidence | None = None  # what outlines and a known weight say of the shape

    def __len__(self) -> int:
        return len(self.keypoints.xy_px)

    def rows(self, index: slice | Tensor) -> "FitInput":
        """Return the input of some of the frames."""
        return FitInput(
            self.keypoints.rows(index),
            self.guess.rows(index),
            self.scene and self.scene.frames(index),
            None if self.segment is None else self.segment[index],
            self.start and self.start.rows(index),
            self.hands and self.hands.rows(index),
            tuple(view.rows(index) for view in self.other_views),
            self.shape,
        )


@dataclass(frozen=True)
class Fit(Table):
    """A person's body over T frames, in the camera frame, with its uncertainty."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the body")
    observed: Tensor = column(  # [T]
        (), "b", "the frame shows enough; false: filled from its neighbours"
    )
    used: Tensor = column((26,), "b", "keypoints with a weight above zero")  # [T, 26]
    reprojection_px: Tensor = column(  # [T, 26]
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
    joint_std_relative_mm: Tensor | None = column(  # [T, 24, 3]
        (24, 3), "f", "std of joints relative to the pelvis", unit="mm", fill=np.nan, optional=True
    )
    rotation_std_deg: Tensor | None = column(  # [T, 24]
        (24,), "f", "std of joints' rotations; NaN: leaves", unit="deg", fill=np.nan, optional=True
    )
    # [S, S] shared by all frames, or [T, S, S]
    shape_covariance: Tensor | None = column(
        ("directions", "directions"), "f", "of the shape", optional=True
    )


@dataclass(frozen=True)
class HandFit(Table):
    """Both hands of a person in T frames (`fitting.hands`)."""

    pose_rad: np.ndarray = column(  # [T, 30, 3]
        (30, 3), "f", "axis-angle of SMPL-H's finger joints", unit="rad"
    )
    std_deg: np.ndarray = column((30,), "f", "std of their rotations", unit="deg")  # [T, 30]
    seen: np.ndarray = column((2,), "b", "the hand's keypoints pulled")  # [T, 2]
    wrist_rad: np.ndarray = column(  # [T, 2, 3]
        (2, 3), "f", "axis-angle of the wrists, as the palms show them", unit="rad"
    )
    # [T, 2, 21] of a hand keypoint relative to the wrist
    point_std_mm: np.ndarray = column((2, 21), "f", "length of the error to expect", unit="mm")


@dataclass(frozen=True)
class TrackFit(Table):
    """A person's body over every frame of the grid from the first to the last detection."""

    frame: np.ndarray = column((), "i", "frame numbers on the even grid")
    # False: the person's position is unknown; the body moves evenly from where it was to where it
    # will be, for callers who need a number in every frame.
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
    # [T, 4] left heel, left toes, right heel, right toes; None: contacts were not looked for
    contact: np.ndarray | None = column(
        (4,), "f", "probability that heels and toes stand", optional=True
    )
    # [T] (`fitting.stated`); None: confidence not calibrated
    worst_error_mm: np.ndarray | None = column(
        (), "f", "median of the largest joint error", unit="mm", fill=np.nan, optional=True
    )
    hands: HandFit | None = nested(HandFit, "fingers; None: not looked for", optional=True)

    @property
    def keypoint_observed(self) -> np.ndarray:
        """Return the probability [T, 26] that a keypoint is in the image and close to the truth
        (`probability_observed`).
        """
        return probability_observed(self.keypoints).numpy()

    def index(self, frame: np.ndarray) -> np.ndarray:
        """Return the indices of these frame numbers into the T rows."""
        index = np.searchsorted(self.frame, frame).clip(0, len(self.frame) - 1)
        if not np.array_equal(self.frame[index], frame):
            raise KeyError("a frame number that is not on the grid of this track")
        return index
