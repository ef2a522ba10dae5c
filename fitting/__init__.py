"""Keypoints and trust -> body parameters: the body, the camera, the solver."""

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body_files import load_body
from fitting.camera import Camera
from fitting.fit import Fit, fit, fit_frames
from fitting.prior import PosePrior, load_prior
from fitting.render import Mesh, render
from fitting.residuals import Ground

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
