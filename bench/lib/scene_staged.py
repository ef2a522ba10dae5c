"""Simulated people whose gravity, floor and sizes are known, ordinary ones and ones made to
mislead.

Captured walkers and people who stand, and hand-made postures with small slow motion: lunges, people
who sit, lie, swing, ride an escalator, bounce, mannequins behind a window, a toddler before far
adults. World frame: y up, metres, floor at y = 0. Keypoints are projected exactly and read with
noise of the stated size; no images are made.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from bench.lib.simulation import Noise, noisy
from eval3dpw.captured.feet import FEET_KEYPOINTS, feet_over_sole_m
from eval3dpw.synth.camera_paths import StagedView, camera_path
from eval3dpw.synth.motion import FPS, Clip, Kind
from eval3dpw.synth.staging import (
    SyntheticPerson,
    draw_shape,
    draw_size,
    sized_person,
    staged_person,
    there_and_back,
)
from eval3dpw.synth.textures import SmoothNoise
from fitting.body import Body
from fitting.camera import Camera
from pose2d.types import Keypoints

STEP = 2  # of captured motion at FPS
SECONDS = 3.0
SIZE_PX = (1280, 720)
LENS_SHARE = (0.6, 1.0)
HEAD_POINTS = (0, 1, 2, 3, 4, 17)  # of Halpe's 26
NECK_POINT = 18
TODDLER_SIZE, TODDLER_HEAD = (
    0.48,
    1.9,
)  # of the body, and of its head on top: published heights of heads at 18 months


@dataclass(frozen=True)
class StagedScene:
    """What is shown and what is true of it."""

    name: str
    keypoints: list[Keypoints]
    heights_m: list[float]
    camera: Camera
    fps: float
    up_cam: np.ndarray  # [3]
    camera_height_m: float  # over what the people stand on
    joints_cam_m: list[np.ndarray]  # [T, 24, 3] of each


@dataclass(frozen=True)
class _Stage:
    body: Body
    clips: Mapping[Kind, list[Clip]]
    rng: np.random.Generator

    @property
    def fps(self) -> float:
        return FPS / STEP

    @property
    def frames(self) -> int:
        return round(SECONDS * self.fps)

    def captured(self, kind: Kind, size: float | None = None) -> SyntheticPerson:
        pool = self.clips[kind]
        clip = pool[int(self.rng.integers(len(pool)))]
        rows = there_and_back(len(clip.pose), self.frames * STEP)[::STEP]
        size = draw_size(self.rng, child=False) if size is None else size
        yaw = float(self.rng.uniform(0, 2 * np.pi))
        return staged_person(self.body, clip, rows, draw_shape(self.rng), size, yaw, self.fps)

    def posed(
        self,
        angles_deg: Mapping[int, tuple[float, float, float]],
        sway_deg: float = 2.5,
        yaw: float | None = None,
    ) -> SyntheticPerson:
        """A posture held with small slow motion, its lowest sole on the floor."""
        yaw = float(self.rng.uniform(0, 2 * np.pi)) if yaw is None else yaw
        pose = torch.zeros(self.frames, 24, 3)
        for joint, angle in {16: (0.0, 0.0, -65.0), 17: (0.0, 0.0, 65.0), **angles_deg}.items():
            pose[:, joint] = torch.tensor(angle).deg2rad()
        shake = SmoothNoise(self.rng, (0.1, 0.6), self.fps)
        drifts = torch.tensor(
            np.stack(
                [
                    np.concatenate([shake.at(t + 1000 * j) for j in range(24)])
                    for t in range(self.frames)
                ]
            )
        ).float()
        pose[:, 1:] += math.radians(sway_deg) * drifts.reshape(self.frames, 24, 3)[:, 1:]
        pose[:, 0] = _turned(pose[:, 0], yaw)
        size = draw_size(self.rng, child=False)
        person = sized_person(
            self.body, "posed", pose, draw_shape(self.rng), torch.zeros(self.frames, 3), size
        )
        lowest = self.lowest(person)
        pelvis = person.joints[:, 0]
        shift = torch.stack((-pelvis[:, 0], lowest, -pelvis[:, 2]), 1)
        feet = person.keypoints[:, list(FEET_KEYPOINTS)].mean(1)
        shift[:, (0, 2)] = -(feet[:, (0, 2)])  # feet stay where they are
        return person.moved(shift)

    def lowest(self, person: SyntheticPerson) -> Tensor:
        """[T] so far up that the lowest of feet, and of pelvis and shoulders with their flesh, is
        on the floor.
        """
        over = torch.from_numpy(person.size * feet_over_sole_m(self.body, person.shape)).float()
        feet = (person.keypoints[:, list(FEET_KEYPOINTS), 1] - over).amin(1)
        trunk = (person.joints[:, (0, 16, 17), 1] - 0.1).amin(1)
        return -torch.minimum(feet, trunk)

    def placed(
        self, person: SyntheticPerson, x: float, z: float, y: float | np.ndarray = 0.0
    ) -> SyntheticPerson:
        shift = np.zeros((self.frames, 3))
        shift[:, 0] = x
        shift[:, 1] = y
        shift[:, 2] = z
        return person.moved(torch.from_numpy(shift).float())

    def moving(self, person: SyntheticPerson, path_m: np.ndarray) -> SyntheticPerson:
        return person.moved(torch.from_numpy(path_m).float())

    @property
    def time_s(self) -> np.ndarray:
        return np.arange(self.frames) / self.fps


def _turned(root: Tensor, yaw: float) -> Tensor:
    turn = Rotation.from_euler("y", yaw) * Rotation.from_rotvec(root.double().numpy())
    return torch.from_numpy(turn.as_rotvec()).float()


LUNGE = {1: (-75.0, 0.0, 0.0), 4: (80.0, 0.0, 0.0), 2: (35.0, 0.0, 0.0), 5: (5.0, 0.0, 0.0)}
SITTING = {1: (-85.0, 0.0, 8.0), 2: (-85.0, 0.0, -8.0), 4: (85.0, 0.0, 0.0), 5: (85.0, 0.0, 0.0)}


def _lunges(s: _Stage) -> list[SyntheticPerson]:
    lean = {3: (float(s.rng.uniform(-25, 10)), 0.0, float(s.rng.uniform(-30, 30)))}
    return [s.posed({**LUNGE, **lean})]


def _sitting(s: _Stage) -> list[SyntheticPerson]:
    people = []
    for place in range(int(s.rng.integers(1, 4))):
        lean = {
            0: (float(s.rng.normal(-8, 8)), 0.0, 0.0),
            1: (-78.0, 0.0, 8.0),
            2: (-78.0, 0.0, -8.0),
        }
        facing = float(s.rng.uniform(-0.9, 0.9))
        people.append(s.placed(s.posed({**SITTING, **lean}, yaw=facing), 0.8 * place - 0.5, 0.0))
    return people


def _mannequins(s: _Stage) -> list[SyntheticPerson]:
    still = [s.placed(s.posed({}, sway_deg=0.0), x, -3.0, 0.6) for x in (-0.8, 0.9)]
    rider = s.posed({4: (15.0, 0.0, 0.0), 5: (15.0, 0.0, 0.0)})
    path = np.zeros((s.frames, 3))
    path[:, 0] = 0.8 * np.sin(0.8 * s.time_s)
    path[:, 1] = 0.15
    return [s.moving(rider, path), *still]


def _treadmill(s: _Stage) -> list[SyntheticPerson]:
    walker = s.captured("walking")
    pelvis = walker.joints[:, 0].double().numpy()
    return [s.moving(walker, -(pelvis - pelvis.mean(0)) * (1, 0, 1))]


def _swing(s: _Stage) -> list[SyntheticPerson]:
    angle = 0.5 * np.sin(2 * np.pi * s.time_s / 2.6 + s.rng.uniform(0, 6))
    path = np.stack((2.2 * np.sin(angle), 0.5 + 2.2 * (1 - np.cos(angle)), 0 * angle), 1)
    return [s.moving(s.posed(SITTING, yaw=float(s.rng.choice((-1.57, 1.57)))), path)]


def _escalator(s: _Stage) -> list[SyntheticPerson]:
    people = []
    for place in range(2):
        along = 0.5 * s.time_s + 0.9 * place
        path = np.stack((along * 0.866 - 1.2, along * 0.5, 0 * along), 1)
        people.append(s.moving(s.posed({}, yaw=1.57), path))
    return people


def _trampoline(s: _Stage) -> list[SyntheticPerson]:
    phase = (s.time_s / 1.1 + s.rng.uniform(0, 1)) % 1.0
    height = 0.6 + 1.4 * (4 * phase * (1 - phase)) - 0.35 * (phase < 0.12)
    path = np.zeros((s.frames, 3))
    path[:, 1] = height
    return [s.moving(s.posed({1: (-8.0, 0, 0), 2: (-8.0, 0, 0)}, sway_deg=6.0), path)]


def _lying(s: _Stage) -> list[SyntheticPerson]:
    return [
        s.posed(
            {0: (-90.0, 0.0, 0.0), 1: (-10.0, 0, 0)}, yaw=float(s.rng.choice((-1.57, 1.57, 1.2)))
        )
    ]


def _toddler(s: _Stage) -> list[SyntheticPerson]:
    near = s.captured("standing", size=TODDLER_SIZE)
    far = [
        s.placed(s.captured("walking" if n else "standing"), x, -z)
        for n, (x, z) in enumerate(((-2.5, 8), (3, 11)))
    ]
    return [near, *far]


def _standing(s: _Stage) -> list[SyntheticPerson]:
    return [
        s.placed(s.captured("standing"), 1.1 * n, -0.4 * n)
        for n in range(int(s.rng.integers(1, 3)))
    ]


def _walking(s: _Stage) -> list[SyntheticPerson]:
    return [
        s.placed(s.captured("walking"), 1.2 * n, -0.8 * n) for n in range(int(s.rng.integers(1, 3)))
    ]


SCENES: dict[str, Callable[[_Stage], list[SyntheticPerson]]] = {
    "standing": _standing,
    "walking": _walking,
    "lunges": _lunges,
    "sitting": _sitting,
    "mannequins": _mannequins,
    "treadmill": _treadmill,
    "swing": _swing,
    "escalator": _escalator,
    "trampoline": _trampoline,
    "lying": _lying,
    "toddler": _toddler,
}


def staged_scene(
    name: str, clips: Mapping[Kind, list[Clip]], body: Body, seed: int, number: int
) -> StagedScene:
    """One scene of a kind, under a camera that shows all people."""
    rng = np.random.default_rng([seed, number, list(SCENES).index(name)])
    stage = _Stage(body, clips, rng)
    people = SCENES[name](stage)
    points = [person.keypoints.double().numpy() for person in people]
    if name == "toddler":
        neck = points[0][:, NECK_POINT : NECK_POINT + 1]
        points[0][:, HEAD_POINTS] = neck + TODDLER_HEAD * (points[0][:, HEAD_POINTS] - neck)
    camera, path = _camera(stage, points, low=name == "toddler")
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    keypoints = []
    joints = []
    for person, own in zip(people, points, strict=True):
        turn = path[:, :3, :3]
        shift = path[:, None, :3, 3]
        cam = np.einsum("tij,tnj->tni", turn, own) + shift
        noise = Noise(memory_s=1e6) if name == "mannequins" and person is not people[0] else Noise()
        keypoints.append(
            noisy(camera.project(torch.from_numpy(cam).float()), generator, noise, stage.fps)
        )
        joints.append(np.einsum("tij,tnj->tni", turn, person.joints.double().numpy()) + shift)
    spot = -path[0, :3, :3].T @ path[0, :3, 3]
    heights = [person.size * body.height_m(person.shape) for person in people]
    return StagedScene(
        f"{name} {number}",
        keypoints,
        heights,
        camera,
        stage.fps,
        path[0, :3, 1],
        float(spot[1]),
        joints,
    )


def _camera(stage: _Stage, points_m: list[np.ndarray], low: bool) -> tuple[Camera, np.ndarray]:
    """A static camera, pulled back until all people are in the image."""
    rng = stage.rng
    all_points = np.concatenate(points_m, axis=1)
    share = math.exp(rng.uniform(*np.log(LENS_SHARE)))
    camera = Camera.from_focal(share * math.hypot(*SIZE_PX), SIZE_PX)
    pitch = float(np.clip(rng.normal(6, 10), -15, 35))
    roll = rng.normal(0, 2)
    azimuth = rng.uniform(-0.6, 0.6)
    if low:
        pitch = rng.uniform(0, 8)
        azimuth = rng.uniform(-0.15, 0.15)
    centers = all_points.mean(1)
    target = points_m[0].mean((0, 1))[1] if low else centers.mean(0)[1]
    for distance in np.linspace(1.4 if low else 2.2, 14, 60):
        height = target + distance * math.tan(math.radians(pitch))
        view = StagedView(azimuth, distance, float(np.clip(height, 0.4, 4.0)), pitch, roll)
        aim = points_m[0].mean(1) if low else centers
        path = camera_path(view, "static", aim, stage.fps, rng).camera_from_world
        cam = np.einsum("tij,tnj->tni", path[:, :3, :3], all_points) + path[:, None, :3, 3]
        xy = cam[..., :2] / np.maximum(cam[..., 2:], 0.1) * camera.focal_px + camera.center_px
        inside = ((xy > 0) & (xy < SIZE_PX)).all(-1) & (cam[..., 2] > 0.8)
        if inside.mean() > 0.97:
            break
    return camera, path
