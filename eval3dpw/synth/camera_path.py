"""Where the camera is at any moment: on a tripod, panning, in a hand, on rails or walking round people."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.ndimage import gaussian_filter1d

from eval3dpw.synth.motion import FPS
from eval3dpw.synth.noise import Sway
from fitting.camera import Camera

Kind = Literal["fixed", "pan", "hand", "dolly", "orbit"]
KINDS: tuple[Kind, ...] = ("fixed", "hand", "pan", "orbit", "hand", "dolly")
_FARTHEST_M = 14.0
_PERSON_M = 1.75


@dataclass(frozen=True)
class View:
    """How people are to be seen."""

    kind: Kind
    azimuth: float  # radians; the camera stands in the direction (sin, cos) of x, z from the people
    height_m: float
    person_share: float  # height of a person as a share of the image's
    aim_y_m: float  # height that the camera looks at
    sway_m: float  # of a hand
    turn: float  # radians that an orbit takes


class CameraPath:
    """World-to-camera transforms over time; the camera frame is x right, y down, z forward."""

    def __init__(self, view: View, camera: Camera, centers_m: np.ndarray, rng: np.random.Generator) -> None:
        """centers_m [T, P, 3]: the pelvis of each person."""
        self.view, self.camera = view, camera
        self._rough = Sway(rng, (0.3, 1.3), FPS), Sway(rng, (0.3, 2.5), FPS)
        self._slow = Sway(rng, (0.05, 0.2), FPS)
        middle = centers_m.mean(1) * (1, 0, 1)
        self._still = (middle.min(0) + middle.max(0)) / 2
        self._followed = gaussian_filter1d(middle, 10, axis=0, mode="nearest")
        self._frames = len(middle)
        self.distance_m = camera.focal_px[1] * _PERSON_M / (view.person_share * camera.size[1])
        while self.distance_m < _FARTHEST_M and not self._holds(centers_m):
            self.distance_m *= 1.1

    def world_to_cam(self, frame: float) -> np.ndarray:
        """[4, 4] at a time in frames, fractions included."""
        position, target = self._place(frame)
        forward = target - position
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, (0.0, 1.0, 0.0))
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        if self.view.kind == "hand":
            roll = 0.012 * self._rough[1].at(frame)[2]
            right, down = np.cos(roll) * right + np.sin(roll) * down, np.cos(roll) * down - np.sin(roll) * right
        transform = np.eye(4)
        transform[:3, :3] = np.stack((right, down, forward))
        transform[:3, 3] = -transform[:3, :3] @ position
        return transform

    def position(self, frame: float) -> np.ndarray:
        """[3] in the world."""
        return self._place(frame)[0]

    def _place(self, frame: float) -> tuple[np.ndarray, np.ndarray]:
        view = self.view
        whole = np.clip(frame, 0, self._frames - 1)
        low = min(int(whole), self._frames - 2) if self._frames > 1 else 0
        high = min(low + 1, self._frames - 1)
        followed = self._followed[low] + (whole - low) * (self._followed[high] - self._followed[low])
        azimuth, center, aim = view.azimuth, self._still, followed
        if view.kind == "orbit":
            azimuth = azimuth + view.turn * (frame / max(self._frames - 1, 1) - 0.5)
        if view.kind in ("dolly", "orbit"):
            center = followed
        if view.kind == "fixed":
            aim = self._still
        position = center + self.distance_m * np.array([np.sin(azimuth), 0, np.cos(azimuth)])
        position = position + np.array([0, view.height_m, 0])
        aim = aim + np.array([0, view.aim_y_m, 0])
        if view.kind == "hand":
            position = position + view.sway_m * self._rough[0].at(frame) + 0.15 * self._slow.at(frame) * (1, 0.3, 1)
            aim = aim + 0.012 * self.distance_m * self._rough[1].at(frame)
        return position, aim

    def _holds(self, centers_m: np.ndarray) -> bool:
        """Whether nearly all people are in the image nearly all of the time, and nobody at the lens."""
        fx, _ = self.camera.focal_px
        inside, near = 0, np.inf
        times = range(0, len(centers_m), 5)
        for frame in times:
            transform = self.world_to_cam(frame)
            seen = centers_m[frame] @ transform[:3, :3].T + transform[:3, 3]
            near = min(near, float(seen[:, 2].min()))
            off = np.abs(seen[:, 0] / np.maximum(seen[:, 2], 0.1) * fx)
            inside += int((off < 0.40 * self.camera.size[0]).sum())
        return near > 1.6 and inside >= 0.95 * len(times) * centers_m.shape[1]


def draw_view(rng: np.random.Generator, kind: Kind) -> View:
    close = rng.random() < 0.15
    share = rng.uniform(1.0, 1.35) if close else np.exp(rng.uniform(np.log(0.42), np.log(1.0)))
    return View(
        kind=kind,
        azimuth=rng.uniform(-np.pi, np.pi),
        height_m=float(np.clip(rng.normal(1.5, 0.45), 0.6, 2.8)),
        person_share=float(share),
        aim_y_m=rng.uniform(1.1, 1.3) if close else rng.uniform(0.8, 1.05),
        sway_m=rng.uniform(0.01, 0.035),
        turn=rng.uniform(0.5, 1.6) * rng.choice((-1, 1)),
    )
