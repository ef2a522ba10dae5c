"""Simulated shots with exact truth: captured motion of people on one floor, seen by a camera whose
lens is not told.

Nothing is rendered but a small grey background for the camera's motion (bench/world_background.py):
keypoints are projected exactly and read with noise of the stated size
(`bench.lib.simulation.Noise`). World frame: y up, metres, floor at y = 0.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from bench.lib.simulation import Noise, noisy
from eval3dpw.captured.feet import FEET_KEYPOINTS
from eval3dpw.synth.camera_paths import CameraKind, framed
from eval3dpw.synth.motion import FPS, KINDS, Clip, Kind
from eval3dpw.synth.staging import SyntheticPerson, contacts, draw_size, stage
from fitting.body import Body
from fitting.camera import Camera
from pose2d.types import Keypoints

SIZES = ((1280, 720), (1920, 1080), (720, 1280), (960, 720))
LENS_SHARE = (0.55, 1.3)  # focal length over the image's diagonal
# What the other people of a shot do where one sits or takes steps.
COMPANY: dict[Kind, Kind] = {"sitting": "standing", "stairs": "walking"}


@dataclass(frozen=True)
class PersonTruth:
    """One person over T frames, in the world."""

    clip: str
    size: float  # on the whole body
    height_m: float  # standing
    joints_m: np.ndarray  # [T, 24, 3]
    keypoints_m: np.ndarray  # [T, 26, 3]
    standing: np.ndarray  # [T, 4] bool: left heel, left toes, right heel, right toes
    still: np.ndarray  # [T, 4] bool: stands stiller than STILL_M_S
    keypoints: Keypoints | None  # [T, 26] as a network would read them; None: from images

    @property
    def feet_m(self) -> np.ndarray:
        return self.keypoints_m[:, FEET_KEYPOINTS]


@dataclass(frozen=True)
class ShotTruth:
    """A shot of T frames from frame 0 on."""

    name: str
    kind: Kind
    camera_kind: CameraKind
    people: list[PersonTruth]
    camera: Camera  # the true one
    camera_from_world: np.ndarray  # [T, 4, 4]
    fps: float
    seed: tuple[int, int]

    @property
    def frames(self) -> int:
        return len(self.camera_from_world)

    @property
    def up_cam(self) -> np.ndarray:
        """[3] in the first camera."""
        return self.camera_from_world[0, :3, 1]

    @property
    def camera_height_m(self) -> float:
        """Return the pose of the first camera."""
        return float(self.positions_m()[0, 1])

    def positions_m(self) -> np.ndarray:
        """[T, 3] of the camera."""
        return -np.einsum(
            "tji,tj->ti", self.camera_from_world[:, :3, :3], self.camera_from_world[:, :3, 3]
        )

    def in_camera(self, points_m: np.ndarray) -> np.ndarray:
        """World points [T, N, 3] in each frame's camera."""
        turned = np.einsum("tij,tnj->tni", self.camera_from_world[:, :3, :3], points_m)
        return turned + self.camera_from_world[:, None, :3, 3]


def simulated_shot(
    clips: dict[Kind, list[Clip]],
    body: Body,
    seed: int,
    number: int,
    seconds: float = 10.0,
    noise: Noise | None = None,
) -> ShotTruth:
    """One of a series that goes through kinds, cameras and numbers of people."""
    rng = np.random.default_rng([seed, number, 17])
    kind = KINDS[
        (0, 1, 0, 2, 0, 3, 1, 4)[number % 8]
    ]  # walking, standing, walking, jumping, walking, sitting, ..
    count = (1, 2, 2, 1, 3, 2, 1, 2, 4, 1)[number % 10]
    cameras: tuple[CameraKind, ...] = ("static", "pan", "static", "hand", "static", "static", "pan")
    camera_kind = cameras[number % len(cameras)]
    has_child = count > 1 and bool(rng.random() < 0.5)
    kinds = [kind, *[COMPANY.get(kind, kind)] * (count - 1)]
    frames = round(seconds * FPS)
    result = None
    while result is None:
        chosen = [clips[clip_kind][int(rng.integers(len(clips[clip_kind])))] for clip_kind in kinds]
        sizes = [draw_size(rng, child=has_child and place == count - 1) for place in range(count)]
        people = stage(body, chosen, list(kinds), sizes, frames, FPS, rng)
        size_px = SIZES[int(rng.integers(len(SIZES)))]
        share = math.exp(rng.uniform(*np.log(LENS_SHARE)))
        camera = Camera.from_focal(share * math.hypot(*size_px), size_px)
        tries = (framed(people, camera, camera_kind, FPS, rng) for _ in range(8))
        result = next((path for path in tries if path is not None), None)
    path = result.camera_from_world
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    truths = [_seen(person, camera, path, body, noise or Noise(), generator) for person in people]
    name = f"{number:02d} {kind}, {count} {'with a child, ' if has_child else ''}{camera_kind}"
    return ShotTruth(name, kind, camera_kind, truths, camera, path, FPS, (seed, number))


def _seen(
    person: SyntheticPerson,
    camera: Camera,
    path: np.ndarray,
    body: Body,
    noise: Noise,
    generator: torch.Generator,
) -> PersonTruth:
    points = person.keypoints.double().numpy()
    cam = np.einsum("tij,tnj->tni", path[:, :3, :3], points) + path[:, None, :3, 3]
    exact = camera.project(torch.from_numpy(cam).float())
    stands, still = contacts(body, person, FPS)
    return PersonTruth(
        person.clip,
        person.size,
        person.size * height_m(body, person.shape),
        person.joints.double().numpy(),
        points,
        stands,
        still,
        noisy(exact, generator, noise, FPS),
    )


def height_m(body: Body, shape: torch.Tensor) -> float:
    """Return the height of a body at rest, standing."""
    rest_vertices = body(torch.zeros(1, 24, 3), shape, vertices=True).vertices
    assert rest_vertices is not None
    return float(rest_vertices[0, :, 1].max() - rest_vertices[0, :, 1].min())
