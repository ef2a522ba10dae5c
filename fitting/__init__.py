"""Keypoints and trust -> body parameters: the body, the camera, the solver."""

from fitting.body import Body, BodyOutput, BodyParams
from fitting.body_files import load_body

__all__ = ["Body", "BodyOutput", "BodyParams", "load_body"]
