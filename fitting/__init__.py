"""Keypoints and trust -> body parameters: the body, the camera, the solver."""

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body_files import load_body
from fitting.camera import Camera
from fitting.render import Mesh, render

__all__ = ["Body", "BodyOutput", "BodyParams", "Camera", "Mesh", "load_body", "render"]
