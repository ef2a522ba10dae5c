"""The camera: where it is at any time (tripod, pan, hand, dolly, orbit), and its sensor from light to JPEG."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from scipy.ndimage import gaussian_filter1d

from eval3dpw.synth.motion import FPS
from eval3dpw.synth.textures import SmoothNoise
from fitting.camera import Camera

CameraMotion = Literal["fixed", "pan", "hand", "dolly", "orbit"]
CAMERA_MOTIONS: tuple[CameraMotion, ...] = ("fixed", "hand", "pan", "orbit", "hand", "dolly")
_FARTHEST_M = 14.0
_PERSON_M = 1.75
# One image is the mean of several renderings within the exposure time, each shifted by a part of a pixel.
SUBFRAME_SHIFTS_PX = np.array([(-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375)])
SUBFRAMES = len(SUBFRAME_SHIFTS_PX)


@dataclass(frozen=True)
class CameraView:
    """From where, how large and with which motion people are recorded."""

    motion: CameraMotion
    azimuth: float  # radians; the camera stands in the direction (sin, cos) of x, z from the people
    height_m: float
    person_share: float  # height of a person as a share of the image's
    aim_y_m: float  # height of the point that the camera is aimed at
    sway_m: float  # of a hand-held camera
    orbit_rad: float


class CameraPath:
    """World-to-camera transforms over time; the camera frame is x right, y down, z forward."""

    def __init__(self, view: CameraView, camera: Camera, centers_m: np.ndarray, rng: np.random.Generator) -> None:
        """centers_m [T, P, 3]: the pelvis of each person."""
        self.view, self.camera = view, camera
        self._shake = SmoothNoise(rng, (0.3, 1.3), FPS), SmoothNoise(rng, (0.3, 2.5), FPS)
        self._drift = SmoothNoise(rng, (0.05, 0.2), FPS)
        middle = centers_m.mean(1) * (1, 0, 1)
        self._centre = (middle.min(0) + middle.max(0)) / 2
        self._followed = gaussian_filter1d(middle, 10, axis=0, mode="nearest")
        self._frames = len(middle)
        self.distance_m = camera.focal_px[1] * _PERSON_M / (view.person_share * camera.size[1])
        while self.distance_m < _FARTHEST_M and not self._shows_everybody(centers_m):
            self.distance_m *= 1.1

    def world_to_cam(self, frame: float) -> np.ndarray:
        """[4, 4] at a time in frames, fractions included."""
        position, target = self._place(frame)
        forward = target - position
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, (0.0, 1.0, 0.0))
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        if self.view.motion == "hand":
            roll = 0.012 * self._shake[1].at(frame)[2]
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
        azimuth, center, aim = view.azimuth, self._centre, followed
        if view.motion == "orbit":
            azimuth = azimuth + view.orbit_rad * (frame / max(self._frames - 1, 1) - 0.5)
        if view.motion in ("dolly", "orbit"):
            center = followed
        if view.motion == "fixed":
            aim = self._centre
        position = center + self.distance_m * np.array([np.sin(azimuth), 0, np.cos(azimuth)])
        position = position + np.array([0, view.height_m, 0])
        aim = aim + np.array([0, view.aim_y_m, 0])
        if view.motion == "hand":
            position = position + view.sway_m * self._shake[0].at(frame) + 0.15 * self._drift.at(frame) * (1, 0.3, 1)
            aim = aim + 0.012 * self.distance_m * self._shake[1].at(frame)
        return position, aim

    def _shows_everybody(self, centers_m: np.ndarray) -> bool:
        """Whether 95 % of the people's frames are in the image, and nobody is close to the lens."""
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


def draw_view(rng: np.random.Generator, motion: CameraMotion) -> CameraView:
    close = rng.random() < 0.15
    share = rng.uniform(1.0, 1.35) if close else np.exp(rng.uniform(np.log(0.42), np.log(1.0)))
    return CameraView(
        motion=motion, azimuth=rng.uniform(-np.pi, np.pi), height_m=float(np.clip(rng.normal(1.5, 0.45), 0.6, 2.8)),
        person_share=float(share), aim_y_m=rng.uniform(1.1, 1.3) if close else rng.uniform(0.8, 1.05),
        sway_m=rng.uniform(0.01, 0.035), orbit_rad=rng.uniform(0.5, 1.6) * rng.choice((-1, 1)),
    )  # fmt: skip


@dataclass(frozen=True)
class Sensor:
    shutter: float  # share of the time between frames that the shutter is open
    brightness: float  # mean of the image that the exposure aims for, linear
    shot_noise: float  # variance per unit of light
    read_noise: float  # standard deviation
    blur_px: float  # of the lens
    tint: np.ndarray  # [3] error of the white balance
    contrast: float
    saturation: float
    vignette: float  # share of light lost in the corners
    quality: int  # of the JPEG


def draw_sensor(rng: np.random.Generator, width: int) -> Sensor:
    dim = rng.random() < 0.3
    return Sensor(
        shutter=rng.uniform(0.5, 0.95) if dim else rng.uniform(0.1, 0.8),
        brightness=rng.uniform(0.05, 0.10) if dim else rng.uniform(0.14, 0.27),
        shot_noise=rng.uniform(1.5e-3, 6e-3) if dim else rng.uniform(1e-4, 1.2e-3),
        read_noise=rng.uniform(0.004, 0.012) if dim else rng.uniform(0.001, 0.004),
        blur_px=rng.uniform(0.4, 1.3) * width / 640, tint=np.exp(rng.normal(0, 0.05, 3)),
        contrast=rng.uniform(0.9, 1.2), saturation=rng.uniform(0.75, 1.15), vignette=rng.uniform(0, 0.35),
        quality=int(rng.integers(72, 95)),
    )  # fmt: skip


def exposure_gain(sensor: Sensor, light: np.ndarray) -> float:
    """The factor for light [H, W, 3]; set once for a sequence, by its first image."""
    grey = light.mean(2)
    return sensor.brightness / max(float(np.minimum(grey, 4 * np.median(grey)).mean()), 1e-6)


def sensor_image(sensor: Sensor, light: np.ndarray, gain: float, rng: np.random.Generator) -> np.ndarray:
    """Light [H, W, 3] linear -> uint8 RGB: lens blur, vignette, noise and tone curve."""
    height, width = light.shape[:2]
    y, x = np.ogrid[:height, :width]
    corner = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2
    exposed: np.ndarray = cv2.GaussianBlur(light, (0, 0), sensor.blur_px)
    exposed *= (gain * (1 - sensor.vignette * corner)).astype(np.float32)[..., None]
    exposed *= sensor.tint.astype(np.float32)
    np.maximum(exposed, 0, out=exposed)
    exposed += np.sqrt(sensor.shot_noise * exposed + sensor.read_noise**2) * rng.standard_normal(
        exposed.shape, np.float32
    )
    np.maximum(exposed, 0, out=exposed)
    exposed *= (1 + exposed / 4) / (1 + exposed)  # highlights roll off; 4 is white
    toned = np.sqrt(exposed) * 1.1  # about the inverse of a screen's gamma
    grey = cv2.transform(toned, np.full((1, 3), 1 / 3, np.float32))[..., None]
    toned = (grey + sensor.saturation * (toned - grey) - 0.45) * sensor.contrast + 0.45
    return (np.clip(toned, 0, 1) * 255 + 0.5).astype(np.uint8)
