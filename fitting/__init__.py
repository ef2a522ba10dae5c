"""Keypoints and confidence -> body parameters: the body, the camera, the solver."""

from typing import TYPE_CHECKING

from pose2d.base.errors import lazy_names

if TYPE_CHECKING:
    from fitting.body import Body, BodyOutput, BodyParams
    from fitting.body.load import load_body
    from fitting.camera import Camera
    from fitting.fits import Fit, InitialGuess, TrackFit
    from fitting.optimise import fit_frames
    from fitting.solver.terms.pose_prior import PosePrior, load_prior
    from fitting.solver.terms.scene import SceneTerms
    from fitting.track import fit_track
    from fitting.windows import fit

__all__ = [
    "Body",
    "BodyOutput",
    "BodyParams",
    "Camera",
    "Fit",
    "InitialGuess",
    "PosePrior",
    "SceneTerms",
    "TrackFit",
    "fit",
    "fit_frames",
    "fit_track",
    "load_body",
    "load_prior",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Body", "BodyOutput", "BodyParams"), "fitting.body"),
        "load_body": "fitting.body.load",
        "Camera": "fitting.camera",
        **dict.fromkeys(("Fit", "InitialGuess", "TrackFit"), "fitting.fits"),
        "fit_frames": "fitting.optimise",
        **dict.fromkeys(("PosePrior", "load_prior"), "fitting.solver.terms.pose_prior"),
        "SceneTerms": "fitting.solver.terms.scene",
        "fit_track": "fitting.track",
        "fit": "fitting.windows",
    },
)
