"""Cameras that are placed in one world.

A camera is placed by x_camera = rotation x_world + translation, OpenCV's convention, in metres.
`fitting.rig.calibration` reads and writes the files that say where cameras stand.
"""

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from fitting.camera import Camera


@dataclass(frozen=True)
class PlacedCamera:
    """A camera and its place: x_camera = rotation x_world + translation."""

    name: str
    camera: Camera
    rotation: np.ndarray  # [3, 3]
    translation_m: np.ndarray  # [3]

    @property
    def position_m(self) -> np.ndarray:
        """Return the position [3] of the camera in the world."""
        return -self.rotation.T @ self.translation_m

    def inverse(self) -> "PlacedCamera":
        """Return the camera whose file means the way from the camera to the world."""
        return replace(self, rotation=self.rotation.T, translation_m=self.position_m)


@dataclass(frozen=True)
class Rig:
    """Cameras in one world, in the order of their videos."""

    cameras: tuple[PlacedCamera, ...]
    source: str  # a file, or "people"
    notes: tuple[str, ...] = ()  # what was decided while it was read

    def __len__(self) -> int:
        return len(self.cameras)

    def relative(self, number: int, to: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return rotation [3, 3] and translation [3] from camera `to` to camera `number`."""
        camera = self.cameras[number]
        base = self.cameras[to]
        rotation = camera.rotation @ base.rotation.T
        return rotation, camera.translation_m - rotation @ base.translation_m

    def scaled(self, factor: float) -> "Rig":
        """Return the rig with all translations multiplied by a factor."""
        cameras = [replace(c, translation_m=factor * c.translation_m) for c in self.cameras]
        return replace(self, cameras=tuple(cameras))

    def with_upright_world(self, up_cam: np.ndarray, height_m: float) -> "Rig":
        """Return the rig in a world with z up and its floor at 0 under the first camera.

        up_cam [3] is in the first camera's frame, which is height_m above the floor.
        """
        base = self.cameras[0]
        ahead = np.array([0.0, 0.0, 1.0]) - up_cam[2] * up_cam
        ahead /= np.linalg.norm(ahead)
        right = np.cross(ahead, up_cam)
        new_from_old = np.stack((right, ahead, up_cam)) @ base.rotation
        shift = np.array([0.0, 0.0, height_m]) - new_from_old @ base.position_m
        cameras = []
        for camera in self.cameras:
            rotation = camera.rotation @ new_from_old.T
            translation_m = camera.translation_m - rotation @ shift
            cameras.append(replace(camera, rotation=rotation, translation_m=translation_m))
        return replace(self, cameras=tuple(cameras))

    @property
    def angles_deg(self) -> list[float]:
        """Return the angles between the optical axes of every two cameras."""
        axes = [camera.rotation[2] for camera in self.cameras]
        return [math.degrees(math.acos(np.clip(a @ b, -1, 1))) for a, b in combinations(axes, 2)]
