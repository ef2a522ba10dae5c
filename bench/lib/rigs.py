"""People of captured motion before several cameras: truth, and what each camera's network would say
of them.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from bench.lib.simulation import Noise, noisy
from eval3dpw.synth.camera_paths import CameraPath
from eval3dpw.synth.motion import Clip, load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.rendering import build_scene_mesh
from eval3dpw.synth.sensors import draw_sensor
from eval3dpw.synth.sequence import Shot, frame_images
from eval3dpw.synth.staging import SyntheticPerson, draw_shape, staged_person
from eval3dpw.synth.surroundings import ClearArea, build_scene
from fitmesh.inputs import write_lossless
from fitting.body import Body
from fitting.camera import Camera
from fitting.rig.calibration import write_rig
from fitting.rig.rig import PlacedCamera, Rig
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
    azimuths_deg: list[float],
    size: tuple[int, int] = (1280, 720),
    distance_m: float = 4.5,
    height_m: float = 1.4,
    focal: float = 0.8,
) -> Rig:
    """Cameras in a circle around the origin, at heights that differ a little, as tripods do."""
    cameras = []
    for number, azimuth in enumerate(np.radians(azimuths_deg)):
        far = distance_m * (1 + 0.08 * number)
        position = np.array(
            [far * np.sin(azimuth), -far * np.cos(azimuth), height_m + 0.15 * (number % 3)]
        )
        pose = looking(position, np.array([0.0, 0.0, 0.95]))
        cameras.append(
            PlacedCamera(f"cam{number + 1}", Camera.from_focal(focal * size[0], size), *pose)
        )
    return Rig(tuple(cameras), "truth")


def _everyone(
    body: Body, rng: np.random.Generator, people: int, frames: int, clip: int | None
) -> list[SyntheticPerson]:
    """Captured motion of the test subjects, a person a metre and a half from the next."""
    long = [long_clip for long_clip in load_clips(body, "test") if len(long_clip.pose) >= frames]
    everyone = []
    for number in range(people):
        chosen: Clip = (
            long[int(rng.integers(len(long)))]
            if clip is None
            else long[(clip + number) % len(long)]
        )
        shape = draw_shape(rng)
        yaw = rng.uniform(-np.pi, np.pi)
        person = staged_person(body, chosen, np.arange(frames), shape, 1.0, yaw)
        angle = 2 * np.pi * number / people + 0.5
        out = 0.0 if people == 1 else 0.9 if people < 4 else 1.3
        everyone.append(person.moved_to(out * np.sin(angle), out * np.cos(angle)))
    return everyone


def simulate(
    rig: Rig,
    body: Body,
    seed: int,
    *,
    people: int = 1,
    frames: int = 90,
    noise: Noise | None = None,
    offsets_s: list[float] | None = None,
    rates: list[float] | None = None,
    clip: int | None = None,
) -> SimulatedRig:
    """Keypoints with errors that are stated truly. offsets_s: what each camera's clock lacks to the
    first's; rates: frames per second of each."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    offsets_s = offsets_s or [0.0] * len(rig)
    rates = rates or [FPS] * len(rig)
    margin = math.ceil(FPS * max(map(abs, offsets_s))) + 2
    everyone = _everyone(body, rng, people, frames + 2 * margin, clip)
    motion_s = (np.arange(frames + 2 * margin) - margin) / FPS  # on the first camera's clock
    keypoints = []
    times = []
    for placed, offset, rate in zip(rig.cameras, offsets_s, rates, strict=True):
        time = np.arange(int(frames * rate / FPS)) / rate
        observed = []
        for person in everyone:
            points = _at(person.keypoints.numpy() @ Z_UP.T, motion_s, time + offset)
            exact = placed.camera.project(
                torch.from_numpy(points @ placed.rotation.T + placed.translation_m)
            )
            observed.append(noisy(exact.float(), generator, noise or Noise(mixtures=True), rate))
        keypoints.append(observed)
        times.append(time)
    joints = [_at(person.joints.numpy() @ Z_UP.T, motion_s, times[0]) for person in everyone]
    return SimulatedRig(rig, times, offsets_s, keypoints, joints)


@dataclass(frozen=True)
class _Later(Shot):
    """Return the same scene some frames later, fractions included."""

    later: float = 0.0

    def posed(self) -> list[np.ndarray]:
        place = np.arange(self.frames) + self.later
        return [
            _at(v, np.arange(len(v), dtype=float), place).astype(np.float32)
            for v in super().posed()
        ]


def render(
    out: Path,
    rig: Rig,
    body: Body,
    seed: int,
    *,
    people: int = 1,
    frames: int = 45,
    clip: int | None = None,
    offsets_s: list[float] | None = None,
    subframes: int = 2,
) -> np.ndarray:
    """NAME.mp4 for each camera, rig.toml, and truth.npz: joints [P, T, 24, 3] at the first camera's
    frames.
    """
    out.mkdir(parents=True, exist_ok=True)
    offsets_s = offsets_s or [0.0] * len(rig)
    margin = math.ceil(FPS * max(map(abs, offsets_s))) + 2
    plan = draw_plan(seed, 0)
    sensor = draw_sensor(plan.rng("sensor"), rig.cameras[0].camera.size[0])
    everyone = _everyone(body, plan.rng("people"), people, frames + 2 * margin, clip)
    places = np.stack([(placed.position_m @ Z_UP)[[0, 2]] for placed in rig.cameras])
    area = ClearArea(np.concatenate([person.path for person in everyone]), np.repeat(places, 10, 0))
    around = build_scene("park", area, plan.rng("scene"))
    clothed = plan.dressed(everyone, range(people), body)
    mesh = build_scene_mesh(clothed, around, plan.rng("mesh"))
    for number, (placed, offset) in enumerate(zip(rig.cameras, offsets_s, strict=True)):
        pose = np.eye(4)
        pose[:3, :3] = placed.rotation @ Z_UP
        pose[:3, 3] = placed.translation_m
        # it stands, in the renderer's world with y up
        path = CameraPath(pose[None])
        seed_of = (*plan.seed, number)
        sequence = _Later(
            everyone,
            list(range(people)),
            [],
            clothed,
            placed.camera,
            "static",
            path,
            "park",
            mesh,
            sensor,
            seed_of,
            FPS * offset,
        )
        noise = np.random.default_rng(seed_of)
        visible = range(margin, margin + frames)
        images = frame_images(sequence, sequence.posed(), visible, noise, subframes)
        write_lossless(out / f"{placed.name}.mp4", images, Fraction(int(FPS)))
    write_rig(out / "rig.toml", rig)
    joints = np.stack(
        [person.joints.numpy()[margin : margin + frames] @ Z_UP.T for person in everyone]
    )
    np.savez(out / "truth.npz", joints_m=joints, offset_s=np.array(offsets_s))
    return joints


def _at(points: np.ndarray, have_s: np.ndarray, want_s: np.ndarray) -> np.ndarray:
    """[T, N, 3] at other times."""
    place = np.interp(want_s, have_s, np.arange(len(have_s)))
    low = np.minimum(place.astype(int), len(have_s) - 2)
    share = (place - low)[:, None, None]
    return points[low] + share * (points[low + 1] - points[low])
