"""What a fit finds: a body in each of T frames, alone (`Fit`) and with the keypoints that it was made from."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fitting.body import BodyParams
from fitting.keypoints.observed import probability_observed
from fitting.keypoints.weights import Weighting
from pose2d.base.table import Table, column, nested, shared
from pose2d.types import ConfidenceSource, Keypoints


@dataclass(frozen=True)
class Fit(Table):
    """A person's body over T frames, in the camera frame, with its uncertainty."""

    TENSORS = True
    params: BodyParams = nested(BodyParams, "the body")
    observed: Tensor = column((), "b", "the frame shows enough; false: filled from its neighbours")  # [T]
    used: Tensor = column((26,), "b", "keypoints with a weight above zero")  # [T, 26]
    # [T, 26]
    reprojection_px: Tensor = column((26,), "f", "distance to the keypoint; NaN: not used", unit="px", fill=np.nan)
    stopped: str = shared()  # why the solver stopped
    converged: Tensor = column((), "b", "the search converged")  # [T]
    iterations: int = shared()
    cost: float = shared()  # -log posterior, up to a constant
    weighting: Weighting = shared()
    source: ConfidenceSource = shared()  # where the confidence came from
    # [T, 24, 3] in the camera frame along x, y, z; None: confidence not calibrated
    joint_std_mm: Tensor | None = column((24, 3), "f", "std of joints", unit="mm", fill=np.nan, optional=True)
    # [T, 24, 3]
    joint_std_relative_mm: Tensor | None = column(
        (24, 3), "f", "std of joints relative to the pelvis", unit="mm", fill=np.nan, optional=True
    )


@dataclass(frozen=True)
class HandFit(Table):
    """Both hands of a person in T frames (`fitting.hands`)."""

    pose_rad: np.ndarray = column((30, 3), "f", "axis-angle of SMPL-H's finger joints", unit="rad")  # [T, 30, 3]
    std_deg: np.ndarray = column((30,), "f", "std of their rotations", unit="deg")  # [T, 30]
    seen: np.ndarray = column((2,), "b", "the hand's keypoints pulled")  # [T, 2]
    wrist_rad: np.ndarray = column((2, 3), "f", "axis-angle of the wrists, as the palms show them", unit="rad")
    # [T, 2, 21] of a hand keypoint relative to the wrist
    point_std_mm: np.ndarray = column((2, 21), "f", "length of the error to expect", unit="mm")


@dataclass(frozen=True)
class TrackFit(Table):
    """A person's body over every frame of the grid from the first to the last one seen."""

    frame: np.ndarray = column((), "i", "frame numbers on the even grid")
    # False: nobody knows where the person is; the body goes evenly from where it was to where it will be, for those who
    # need a number in every frame
    present: np.ndarray = column((), "b", "the person is there, seen or filled in over a short gap")
    detected: np.ndarray = column((), "b", "the frame has a row of keypoints")
    # [T, 26, ...] Halpe's, after side-swap repair, with the confidence that they have once the body is known; presence
    # 0 and pixels NaN in gaps
    keypoints: Keypoints = nested(Keypoints, "keypoints after the fit")
    swapped: np.ndarray = column((26,), "b", "left and right were exchanged")
    joint_observed: np.ndarray = column((24,), "b", "a keypoint that counts lies at the joint or farther out")
    fit: Fit = nested(Fit, "the body")
    # [T, 4] left heel, left toes, right heel, right toes; None: nobody looked
    contact: np.ndarray | None = column((4,), "f", "probability that heels and toes stand", optional=True)
    hands: HandFit | None = nested(HandFit, "fingers; None: nobody looked", optional=True)

    @property
    def keypoint_observed(self) -> np.ndarray:
        """[T, 26] probability that a keypoint is in the image and close to the truth (`probability_observed`)."""
        return probability_observed(self.keypoints).numpy()

    def index(self, frame: np.ndarray) -> np.ndarray:
        """Indices into the T rows of these frame numbers."""
        index = np.searchsorted(self.frame, frame).clip(0, len(self.frame) - 1)
        if not np.array_equal(self.frame[index], frame):
            raise KeyError("a frame number that is not on the grid of this track")
        return index
