"""How keypoints are fitted: what `fitting.fit` and everything that calls it can be told."""

from dataclasses import dataclass

from fitting.keypoints.weights import GATE, Weighting
from fitting.solver.prior import PosePrior
from fitting.solver.terms.reprojection import ROBUST_SCALE

LEAN_RAD = 0.25  # standard deviation of the lean out of the image: pelvises tilt by 0.2, cameras as much; not tuned


@dataclass(frozen=True)
class FitOptions:
    """The options of one person's fit; the same for every frame."""

    weighting: Weighting = "likelihood"  # how confidence becomes weight (`fitting.keypoints.weights`)
    gate: float = GATE  # threshold of the weighting `gate`
    prior: PosePrior | None = None  # None: the embedded one
    # How far people usually lean towards or away from the camera, radians; None for a camera that looks steeply down.
    lean_rad: float | None = LEAN_RAD
    # Geman-McClure scale: at so many standard deviations a keypoint counts half of its square. Large is least squares.
    robust_sigmas: float = ROBUST_SCALE
    rough: bool = False  # stop early and state no deviations, for a fit that another one begins from


DEFAULTS = FitOptions()
