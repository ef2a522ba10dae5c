"""People of captured motion put onto one floor, and cameras: where they are at any time (tripod, pan, hand, dolly,
orbit), that all people are shown, and their sensors from light to image. World frame: y up, floor at y = 0.

Feet are planted (`capture_corrections`): a foot that stands does not slide, whatever the body's proportions."""

import math
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation
from torch import Tensor

from eval3dpw.synth.clothed_people import SyntheticPerson, draw_shape, leg_length, moved, moved_to, sized_person
from eval3dpw.synth.motion import FPS, Clip
from eval3dpw.synth.textures import SmoothNoise
from fitting.body import Body
from fitting.camera import Camera
from fitting.training.capture_corrections import FEET_KEYPOINTS, feet_over_sole_m, in_contact, planted, speeds_m_s

StagedCameraKind = Literal["static", "pan", "hand"]
PITCH_DEG, HEIGHT_M = (-10.0, 40.0), (0.5, 3.0)
CHILD_SIZE, ADULT_SPREAD = (0.55, 0.8), 0.045
STILL_M_S = 0.03  # a foot whose speed is measured stands stiller than that in the truth


def draw_size(rng: np.random.Generator, child: bool) -> float:
    return float(rng.uniform(*CHILD_SIZE)) if child else float(np.clip(rng.normal(1, ADULT_SPREAD), 0.9, 1.1))


def there_and_back(count: int, frames: int) -> np.ndarray:
    """[frames] indices of a clip of `count` frames played to its end, backwards, and so on."""
    way = np.arange(frames) % max(2 * (count - 1), 1)
    return np.where(way < count, way, 2 * (count - 1) - way)


def staged_person(
    body: Body, clip: Clip, rows: np.ndarray, shape: Tensor, size: float, yaw: float, fps: float = FPS,
    has_steps: bool = False, pose: Tensor | None = None,
) -> SyntheticPerson:  # fmt: skip
    """Frames `rows` [T] of a clip, turned by `yaw`, feet planted, the path's middle over the origin. pose [T, 24, 3]:
    instead of the clip's own, before it is turned."""
    turn = Rotation.from_euler("y", yaw)
    turned = (clip.pose[rows] if pose is None else pose).clone()
    turned[:, 0] = torch.from_numpy((turn * Rotation.from_rotvec(turned[:, 0].double().numpy())).as_rotvec()).float()
    whole = torch.nn.functional.pad(shape, (0, body.shape_size - len(shape)))
    legs = leg_length(body, shape) / leg_length(body, torch.zeros(len(shape)))
    rest_root = body.rest_joints[0] + body.rest_joint_shapedirs[0] @ whole
    root = torch.from_numpy(size * legs * turn.apply(clip.root_m[rows].double().numpy())).float()
    person = sized_person(body, clip.name, turned, shape, root - size * rest_root, size)
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    shift = torch.from_numpy(planted(feet, size * feet_over_sole_m(body, shape), fps, level=not has_steps)).float()
    middle = (person.joints[:, 0] + shift).amin(0) / 2 + (person.joints[:, 0] + shift).amax(0) / 2
    return moved(body, person, shift - middle * torch.tensor([1.0, 0.0, 1.0]))


def contacts(body: Body, person: SyntheticPerson, fps: float, has_steps: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """[T, 4] whether left heel, left toes, right heel, right toes stand, and whether they are also still."""
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    stands = in_contact(feet, person.size * feet_over_sole_m(body, person.shape), fps, level=not has_steps)
    return stands, stands & (speeds_m_s(feet, fps) < STILL_M_S)


@dataclass(frozen=True)
class RecordedPath:
    """A camera known at whole frames; in between it is interpolated."""

    camera_from_world: np.ndarray  # [T, 4, 4]

    def world_to_cam(self, frame: float) -> np.ndarray:
        """[4, 4] at a time in frames, fractions included."""
        at = float(np.clip(frame, 0, len(self.camera_from_world) - 1))
        low = min(int(at), max(len(self.camera_from_world) - 2, 0))
        a, b = self.camera_from_world[low], self.camera_from_world[min(low + 1, len(self.camera_from_world) - 1)]
        if at == low or np.array_equal(a, b):
            return a.copy()
        share = at - low
        turn = Rotation.from_matrix(b[:3, :3] @ a[:3, :3].T).as_rotvec()
        between = np.eye(4)
        between[:3, :3] = Rotation.from_rotvec(share * turn).as_matrix() @ a[:3, :3]
        places = [-m[:3, :3].T @ m[:3, 3] for m in (a, b)]
        between[:3, 3] = -between[:3, :3] @ (places[0] + share * (places[1] - places[0]))
        return between

    @property
    def positions_m(self) -> np.ndarray:
        """[T, 3]."""
        return -np.einsum("tji,tj->ti", self.camera_from_world[:, :3, :3], self.camera_from_world[:, :3, 3])


@dataclass(frozen=True)
class StagedView:
    """Where a camera stands and looks before it moves."""

    azimuth: float  # radians, from the people to the camera
    distance_m: float
    height_m: float
    pitch_deg: float  # down
    roll_deg: float


def camera_path(
    view: StagedView, kind: StagedCameraKind, centers_m: np.ndarray, fps: float, rng: np.random.Generator
) -> RecordedPath:
    """centers_m [T, 3]: the middle of the people."""
    frames = len(centers_m)
    middle = (centers_m.min(0) + centers_m.max(0)) / 2
    spot = middle * (1, 0, 1) + view.distance_m * np.array([np.sin(view.azimuth), 0, np.cos(view.azimuth)])
    spot[1] = view.height_m
    position = np.broadcast_to(spot, (frames, 3)).copy()
    time = np.arange(frames, dtype=float)
    aim = np.broadcast_to(middle, (frames, 3))
    turn = np.zeros((frames, 3))  # degrees about the camera's x, y, z
    if kind == "pan":
        aim = gaussian_filter1d(centers_m, fps * 0.5, axis=0, mode="nearest")
        sweep, phase = rng.uniform(2, 5), rng.uniform(0, 2 * np.pi)
        turn[:, 1] = sweep * np.sin(2 * np.pi * time / fps / rng.uniform(5, 9) + phase)
        turn[:, 0] = 0.3 * sweep * np.sin(2 * np.pi * time / fps / rng.uniform(4, 9))
    if kind == "hand":
        aim = gaussian_filter1d(centers_m, fps * 0.7, axis=0, mode="nearest")
        shake, drift = SmoothNoise(rng, (0.3, 1.5), fps), SmoothNoise(rng, (0.04, 0.15), fps)
        tremble = SmoothNoise(rng, (0.4, 2.5), fps)
        position = position + np.stack([0.015 * shake.at(t) + 0.12 * drift.at(t) for t in time]) * (1, 0.4, 1)
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
    path[:, :3, :3], path[:, :3, 3] = rotation, -np.einsum("tij,tj->ti", rotation, position)
    return RecordedPath(path)


def shown(people: list[SyntheticPerson], camera: Camera, path: RecordedPath) -> tuple[float, float, float]:
    """Of the person that is seen worst: share of keypoints in the image, height over the image's, nearest depth."""
    worst, smallest, nearest = 1.0, np.inf, np.inf
    turn, shift = path.camera_from_world[::10, :3, :3], path.camera_from_world[::10, None, :3, 3]
    for person in people:
        cam = np.einsum("tij,tnj->tni", turn, person.keypoints[::10].double().numpy()) + shift
        nearest = min(nearest, float(cam[..., 2].min()))
        if nearest < 0.8:
            return 0.0, 0.0, nearest
        xy = cam[..., :2] / cam[..., 2:] * camera.focal_px + camera.center_px
        worst = min(worst, float(((xy > 0) & (xy < camera.size)).all(-1).mean()))
        smallest = min(smallest, float(np.median(xy[..., 1].max(1) - xy[..., 1].min(1))) / camera.size[1])
    return worst, smallest, nearest


def framed(
    people: list[SyntheticPerson], camera: Camera, kind: StagedCameraKind, fps: float, rng: np.random.Generator,
    least_tall: float = 0.17,
) -> tuple[StagedView, RecordedPath] | None:  # fmt: skip
    """A camera that shows everybody whole; None when none was found at the pitch that was drawn."""
    centers = np.mean([p.joints[:, 0].double().numpy() for p in people], axis=0)
    pitch, roll = rng.uniform(*PITCH_DEG), rng.normal(0, 2)
    for _ in range(60):
        distance = float(np.exp(rng.uniform(np.log(2.2), np.log(11))))
        # The height at which a camera of this pitch looks at people's middle, give or take what the image leaves free.
        height = 0.85 + distance * math.tan(math.radians(pitch)) + rng.normal(0, 0.12) * distance
        if not HEIGHT_M[0] <= height <= HEIGHT_M[1]:
            continue
        view = StagedView(rng.uniform(-np.pi, np.pi), distance, height, pitch, roll)
        path = camera_path(view, kind, centers, fps, np.random.default_rng(rng.integers(2**31)))
        inside, tall, near = shown(people, camera, path)
        if inside > 0.96 and tall > least_tall and near > 1.2:
            return view, path
    return None


def stage(
    body: Body, clips: list[Clip], kinds: list[str], sizes: list[float], frames: int, fps: float,
    rng: np.random.Generator,
) -> list[SyntheticPerson]:  # fmt: skip
    """Everybody with their own clip, shape and direction, apart from each other."""
    step = round(FPS / fps)
    people = []
    for clip, kind, size in zip(clips, kinds, sizes, strict=True):
        rows = there_and_back(len(clip.pose), frames * step)[::step]
        yaw = float(rng.uniform(0, 2 * np.pi))
        people.append(staged_person(body, clip, rows, draw_shape(rng), size, yaw, fps, has_steps=kind == "stairs"))
    placed = people[:1]
    for person in people[1:]:  # at a random place where no two come closer than that
        reach, near = 1.0, 0.0
        while near <= 0.55:
            spot = rng.uniform(-reach, reach, 2)
            near = min(np.linalg.norm(p.path - person.path - spot, axis=1).min() for p in placed)
            reach *= 1.03
        placed.append(moved_to(body, person, *spot))
    return placed


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
