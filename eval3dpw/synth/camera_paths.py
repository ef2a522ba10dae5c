"""Move cameras (tripod, pan, hand, dolly, orbit) and check that they show all people.

World frame: y up, metres, floor at y = 0.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation, Slerp

from eval3dpw.synth.staging import SyntheticPerson
from eval3dpw.synth.textures import SmoothNoise
from fitting.camera import Camera

CameraKind = Literal["static", "pan", "hand", "dolly", "orbit"]
PITCH_DEG = (-10.0, 40.0)
HEIGHT_M = (0.5, 3.0)


@dataclass(frozen=True)
class CameraPath:
    """Hold a camera that is known at whole frames; in between it is interpolated."""

    camera_from_world: np.ndarray  # [T, 4, 4]; OpenCV axes: x right, y down, z forward

    def world_to_cam(self, frame: float) -> np.ndarray:
        """Return the matrix [4, 4] at a time in frames, fractions included."""
        last = len(self.camera_from_world) - 1
        time = float(np.clip(frame, 0, last))
        low = min(int(time), last - 1)  # -1 where there is only one frame: it is both ends
        share = time - low
        pair = self.camera_from_world[[low, low + 1]]
        between = np.eye(4)
        between[:3, :3] = Slerp([0, 1], Rotation.from_matrix(pair[:, :3, :3]))(share).as_matrix()
        a, b = CameraPath(pair).positions_m
        between[:3, 3] = -between[:3, :3] @ (a + share * (b - a))
        return between

    @property
    def positions_m(self) -> np.ndarray:
        """Return the camera's places [T, 3] in the world."""
        return -np.einsum(
            "tji,tj->ti", self.camera_from_world[:, :3, :3], self.camera_from_world[:, :3, 3]
        )

    def in_camera(self, points_m: np.ndarray, every: int = 1) -> np.ndarray:
        """Return world points [T, N, 3] of every n-th frame in that frame's camera."""
        turn = self.camera_from_world[::every, :3, :3]
        shift = self.camera_from_world[::every, None, :3, 3]
        return np.einsum("tij,tnj->tni", turn, points_m[::every]) + shift


@dataclass(frozen=True)
class StagedView:
    """Say where a camera stands and looks before it moves."""

    azimuth: float  # radians, from the people to the camera
    distance_m: float
    height_m: float
    pitch_deg: float  # down
    roll_deg: float


def camera_path(
    view: StagedView, kind: CameraKind, centers_m: np.ndarray, fps: float, rng: np.random.Generator
) -> CameraPath:
    """Move a camera in its kind's way; centers_m [T, 3]: the middle of the people."""
    frames = len(centers_m)
    middle = np.broadcast_to((centers_m.min(0) + centers_m.max(0)) / 2, (frames, 3))
    time = np.arange(frames, dtype=float)
    aim = middle
    around = middle
    azimuth = np.full(frames, view.azimuth)
    turn = np.zeros((frames, 3))  # degrees about the camera's x, y, z
    if kind != "static":
        aim = gaussian_filter1d(
            centers_m, fps * (0.7 if kind == "hand" else 0.5), axis=0, mode="nearest"
        )
    if kind in ("dolly", "orbit"):
        around = aim
    if kind == "orbit":
        azimuth = azimuth + rng.uniform(0.5, 1.6) * rng.choice((-1, 1)) * (
            time / max(frames - 1, 1) - 0.5
        )
    position = around * (1, 0, 1) + view.distance_m * np.stack(
        (np.sin(azimuth), 0 * time, np.cos(azimuth)), 1
    )
    position[:, 1] = view.height_m
    if kind == "pan":
        sweep = rng.uniform(2, 5)
        phase = rng.uniform(0, 2 * np.pi)
        turn[:, 1] = sweep * np.sin(2 * np.pi * time / fps / rng.uniform(5, 9) + phase)
        turn[:, 0] = 0.3 * sweep * np.sin(2 * np.pi * time / fps / rng.uniform(4, 9))
    if kind == "hand":
        shake = SmoothNoise(rng, (0.3, 1.5), fps)
        drift = SmoothNoise(rng, (0.04, 0.15), fps)
        tremble = SmoothNoise(rng, (0.4, 2.5), fps)
        position = position + np.stack([0.015 * shake.at(t) + 0.12 * drift.at(t) for t in time]) * (
            1,
            0.4,
            1,
        )
        turn = np.stack([0.5 * tremble.at(t) for t in time])
    ahead = (aim - position) * (1, 0, 1)
    yaw = np.arctan2(ahead[:, 0], ahead[:, 2])
    # Axes of a level camera that looks along yaw: x right, y down, z forward.
    forward = np.stack((np.sin(yaw), np.zeros(frames), np.cos(yaw)), 1)
    right = np.stack((-np.cos(yaw), np.zeros(frames), np.sin(yaw)), 1)
    level = np.stack((right, np.broadcast_to((0.0, -1.0, 0.0), (frames, 3)), forward), 1)
    tilt = Rotation.from_euler("zx", [view.roll_deg, view.pitch_deg], degrees=True)
    rotation = (Rotation.from_euler("xyz", turn, degrees=True) * tilt).as_matrix() @ level
    path = np.broadcast_to(np.eye(4), (frames, 4, 4)).copy()
    path[:, :3, :3] = rotation
    path[:, :3, 3] = -np.einsum("tij,tj->ti", rotation, position)
    return CameraPath(path)


def shown(
    people: list[SyntheticPerson], camera: Camera, path: CameraPath
) -> tuple[float, float, float]:
    """Return share of keypoints in the image, relative height and nearest depth of the worst
    person.
    """
    worst = 1.0
    smallest = np.inf
    nearest = np.inf
    for person in people:
        cam = path.in_camera(person.keypoints.double().numpy(), 10)
        nearest = min(nearest, float(cam[..., 2].min()))
        if nearest < 0.8:
            return 0.0, 0.0, nearest
        xy = cam[..., :2] / cam[..., 2:] * camera.focal_px + camera.center_px
        worst = min(worst, float(((xy > 0) & (xy < camera.size)).all(-1).mean()))
        smallest = min(
            smallest, float(np.median(xy[..., 1].max(1) - xy[..., 1].min(1))) / camera.size[1]
        )
    return worst, smallest, nearest


def framed(
    people: list[SyntheticPerson],
    camera: Camera,
    kind: CameraKind,
    fps: float,
    rng: np.random.Generator,
    least_tall: float = 0.17,
) -> CameraPath | None:
    """Return a camera that shows all people in full; None if there is none at the drawn pitch."""
    centers = np.mean([p.joints[:, 0].double().numpy() for p in people], axis=0)
    pitch = rng.uniform(*PITCH_DEG)
    roll = rng.normal(0, 2)
    for _ in range(60):
        distance = float(np.exp(rng.uniform(np.log(2.2), np.log(11))))
        # The height at which a camera of this pitch looks at people's middle, give or take what the
        # image leaves free.
        height = 0.85 + distance * math.tan(math.radians(pitch)) + rng.normal(0, 0.12) * distance
        if not HEIGHT_M[0] <= height <= HEIGHT_M[1]:
            continue
        view = StagedView(rng.uniform(-np.pi, np.pi), distance, height, pitch, roll)
        path = camera_path(view, kind, centers, fps, np.random.default_rng(rng.integers(2**31)))
        inside, tall, near = shown(people, camera, path)
        if inside > 0.96 and tall > least_tall and near > 1.2:
            return path
    return None
