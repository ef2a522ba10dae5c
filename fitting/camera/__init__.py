"""Cameras: pinhole and lens distortion, the camera of a crop, the focal length, the world frame."""

from fitting.camera.pinhole import Camera

__all__ = ["Camera"]
