"""People of captured motion before several cameras: truth, and what each camera's network would say of them."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from eval3dpw.synth.clothed_people import draw_shape, person_from_clip, shifted
from eval3dpw.synth.motion import Clip, load_clips
from fitting.body import Body
from fitting.camera import Camera
from fitting.rig.rig import PlacedCamera, Rig
from fitting.training.simulation import Noise, noisy
from pose2d.types import Keypoints

FPS = 30.0
Z_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # from a world with y up to one with z up


@dataclass(frozen=True)
class SimulatedRig:
    """Truth in a world with z up and its floor at 0, and each camera's keypoints."""

    rig: Rig
    time_s: list[np.ndarray]  # [C] of [T]: when each frame is shown, on the camera's own clock
    offset_s: list[float]  # [C] what each clock lacks to the first
    keypoints: list[list[Keypoints]]  # [C][P]
    joints_m: list[np.ndarray]  # [P] of [T, 24, 3] at the first camera's frames, in the world


def looking(position: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and translation of a level camera in a world with z up."""
    forward = (target - position) / np.linalg.norm(target - position)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    rotation = np.stack((right, np.cross(forward, right), forward))
    return rotation, -rotation @ position


def placed_around(
    azimuths_deg: list[float], size: tuple[int, int] = (1280, 720), distance_m: float = 4.5, height_m: float = 1.4,
    focal: float = 0.8,
) -> Rig:  # fmt: skip
    """Cameras in a circle around the origin, at heights that differ a little, as tripods do."""
    cameras = []
    for number, azimuth in enumerate(np.radians(azimuths_deg)):
        far = distance_m * (1 + 0.08 * number)
        position = np.array([far * np.sin(azimuth), -far * np.cos(azimuth), height_m + 0.15 * (number % 3)])
        pose = looking(position, np.array([0.0, 0.0, 0.95]))
        cameras.append(PlacedCamera(f"cam{number + 1}", Camera.from_focal(focal * size[0], size), *pose))
    return Rig(tuple(cameras), "truth")


def simulate(
    rig: Rig, body: Body, seed: int, *, people: int = 1, frames: int = 90, noise: Noise | None = None,
    offsets_s: list[float] | None = None, rates: list[float] | None = None, clip: int | None = None,
) -> SimulatedRig:  # fmt: skip
    """Captured motion of the test subjects, a person a metre and a half from the next; noise is Noise's, stated truly.

    offsets_s: what each camera's clock lacks to the first's; rates: frames per second of each."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    clips: tuple[Clip, ...] = load_clips(body, "test")
    offsets_s, rates = offsets_s or [0.0] * len(rig), rates or [FPS] * len(rig)
    margin = math.ceil(FPS * max(map(abs, offsets_s))) + 2
    long = [one for one in clips if len(one.pose) >= frames + 2 * margin]
    everyone = []
    for number in range(people):
        chosen = long[int(rng.integers(len(long)))] if clip is None else long[(clip + number) % len(long)]
        person = person_from_clip(body, chosen, draw_shape(rng), 0, frames + 2 * margin, rng.uniform(-np.pi, np.pi))
        angle = 2 * np.pi * number / people + 0.5
        out = 0.0 if people == 1 else 0.9 if people < 4 else 1.3
        everyone.append(shifted(body, person, (out * np.sin(angle), out * np.cos(angle))))
    motion_s = (np.arange(frames + 2 * margin) - margin) / FPS  # on the first camera's clock
    keypoints, times = [], []
    for placed, offset, rate in zip(rig.cameras, offsets_s, rates, strict=True):
        time = np.arange(int(frames * rate / FPS)) / rate
        seen = []
        for person in everyone:
            points = _at(person.keypoints.numpy() @ Z_UP.T, motion_s, time + offset)
            exact = placed.camera.project(torch.from_numpy(points @ placed.rotation.T + placed.translation_m))
            seen.append(noisy(exact.float(), generator, noise or Noise(mixtures=True), rate))
        keypoints.append(seen)
        times.append(time)
    joints = [_at(person.joints.numpy() @ Z_UP.T, motion_s, times[0]) for person in everyone]
    return SimulatedRig(rig, times, offsets_s, keypoints, joints)


def _at(points: np.ndarray, have_s: np.ndarray, want_s: np.ndarray) -> np.ndarray:
    """[T, N, 3] at other times."""
    place = np.interp(want_s, have_s, np.arange(len(have_s)))
    low = np.minimum(place.astype(int), len(have_s) - 2)
    share = (place - low)[:, None, None]
    return points[low] + share * (points[low + 1] - points[low])
