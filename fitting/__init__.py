"""Keypoints and trust -> body parameters: the body, the camera, the solver."""

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fit import Fit, fit, fit_frames
from fitting.init.guess import InitialGuess
from fitting.render.render import Mesh, render
from fitting.solver.prior import PosePrior, load_prior
from fitting.solver.residuals import Ground
from fitting.track import TrackFit, fit_track, start_track

__all__ = [
    "Body",
    "BodyOutput",
    "BodyParams",
    "Camera",
    "Fit",
    "Ground",
    "InitialGuess",
    "Mesh",
    "PosePrior",
    "TrackFit",
    "fit",
    "fit_frames",
    "fit_track",
    "load_body",
    "load_prior",
    "render",
    "start_track",
]
