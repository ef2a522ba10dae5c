"""Keypoints and trust -> body parameters: the body, the camera, the solver."""

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fit import Fit, fit, fit_frames
from fitting.render.render import Mesh, render
from fitting.solver.prior import PosePrior, load_prior
from fitting.solver.residuals import Ground

__all__ = [
    "Body",
    "BodyOutput",
    "BodyParams",
    "Camera",
    "Fit",
    "Ground",
    "Mesh",
    "PosePrior",
    "fit",
    "fit_frames",
    "load_body",
    "load_prior",
    "render",
]
