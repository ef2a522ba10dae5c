"""Pinhole cameras, lens distortion, and the camera of a crop."""

from fitting.camera.camera import Camera

__all__ = ["Camera"]
