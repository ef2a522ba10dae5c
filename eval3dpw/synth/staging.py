"""People of captured motion put onto one floor, and cameras: where they are at any time (tripod,
pan, hand, dolly, orbit), that all people are shown, and their sensors from light to image. World
frame: y up, metres, floor at y = 0.

Feet are planted (`captured/feet.py`): a foot that stands does not slide, whatever the body's
proportions."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation, Slerp
from torch import Tensor

from eval3dpw.captured.feet import FEET_KEYPOINTS, feet_over_sole_m, in_contact, planted, speeds_m_s
from eval3dpw.captured.motion import legs_m
from eval3dpw.synth.motion import FPS, Clip
from eval3dpw.synth.textures import SmoothNoise
from fitting.body import Body
from fitting.body.kinematics import Placement
from fitting.body.rotations import rotation_matrices
from fitting.camera import Camera

CameraKind = Literal["static", "pan", "hand", "dolly", "orbit"]
BETAS = 10  # as many as 3DPW's files hold
PITCH_DEG = (-10.0, 40.0)
HEIGHT_M = (0.5, 3.0)
CHILD_SIZE = (0.55, 0.8)
ADULT_SPREAD = 0.045
STILL_M_S = 0.03  # a foot whose speed is measured stands stiller than that in the truth


@dataclass(frozen=True)
class SyntheticPerson:
    clip: str
    shape: Tensor  # [10]
    pose: Tensor  # [T, 24, 3] axis-angle, the root in the world
    translation: Tensor  # [T, 3]
    joints: Tensor  # [T, 24, 3]
    keypoints: Tensor  # [T, 26, 3] Halpe's; the first 17 are COCO's
    placement: Placement  # before size and translation
    size: float = (
        1.0  # multiplies the whole body about the origin, before the translation: children
    )
    has_steps: bool = False  # the feet stand on steps, not only on the floor

    @property
    def path(self) -> np.ndarray:
        """[T, 2] x, z of the pelvis."""
        return self.joints[:, 0, ::2].numpy()

    def moved(self, shift_m: Tensor) -> "SyntheticPerson":
        """The same person elsewhere: shift_m [3] or [T, 3]."""
        joints, keypoints = (
            points + shift_m[..., None, :] for points in (self.joints, self.keypoints)
        )
        return replace(
            self, translation=self.translation + shift_m, joints=joints, keypoints=keypoints
        )

    def moved_to(self, x: float, z: float) -> "SyntheticPerson":
        """Moved along the floor."""
        return self.moved(torch.tensor([x, 0.0, z], dtype=torch.float32))


def draw_shape(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.clip(rng.normal(0, 1, BETAS), -2.2, 2.2).astype(np.float32))


def draw_size(rng: np.random.Generator, child: bool) -> float:
    return (
        float(rng.uniform(*CHILD_SIZE))
        if child
        else float(np.clip(rng.normal(1, ADULT_SPREAD), 0.9, 1.1))
    )


def there_and_back(count: int, frames: int) -> np.ndarray:
    """[frames] indices of a clip of `count` frames played to its end, backwards, and so on."""
    way = np.arange(frames) % max(2 * (count - 1), 1)
    return np.where(way < count, way, 2 * (count - 1) - way)


def sized_person(
    body: Body, clip: str, pose: Tensor, shape: Tensor, translation: Tensor, size: float = 1.0
) -> SyntheticPerson:
    """As posed, with every point of the body multiplied by `size` before it is moved."""
    whole = torch.nn.functional.pad(shape, (0, body.shape_size - len(shape)))
    output = body(pose, whole)
    placement = body.placement(rotation_matrices(pose), whole)
    joints, keypoints = (
        size * points + translation[:, None] for points in (output.joints, output.keypoints)
    )
    return SyntheticPerson(clip, shape, pose, translation, joints, keypoints, placement, size)


def staged_person(
    body: Body,
    clip: Clip,
    rows: np.ndarray,
    shape: Tensor,
    size: float,
    yaw: float,
    fps: float = FPS,
    has_steps: bool = False,
    pose: Tensor | None = None,
) -> SyntheticPerson:
    """Frames `rows` [T] of a clip, turned by `yaw`, feet planted, the path's middle over the
    origin. pose [T, 24, 3]: instead of the clip's own, before it is turned."""
    turn = Rotation.from_euler("y", yaw)
    turned = (clip.pose[rows] if pose is None else pose).clone()
    turned[:, 0] = torch.from_numpy(
        (turn * Rotation.from_rotvec(turned[:, 0].double().numpy())).as_rotvec()
    ).float()
    rest = body.rest_joints + body.rest_joint_shapedirs[..., : len(shape)] @ shape
    legs = legs_m(rest) / legs_m(body.rest_joints)
    root = torch.from_numpy(size * legs * turn.apply(clip.root_m[rows].double().numpy())).float()
    person = sized_person(body, clip.name, turned, shape, root - size * rest[0], size)
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    shift = torch.from_numpy(
        planted(feet, size * feet_over_sole_m(body, shape), fps, level=not has_steps)
    ).float()
    middle = (person.joints[:, 0] + shift).amin(0) / 2 + (person.joints[:, 0] + shift).amax(0) / 2
    return replace(
        person.moved(shift - middle * torch.tensor([1.0, 0.0, 1.0])), has_steps=has_steps
    )


def contacts(body: Body, person: SyntheticPerson, fps: float) -> tuple[np.ndarray, np.ndarray]:
    """[T, 4] whether left heel, left toes, right heel, right toes stand, and whether they are also
    still.
    """
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    over_sole = person.size * feet_over_sole_m(body, person.shape)
    stands = in_contact(feet, over_sole, fps, level=not person.has_steps)
    return stands, stands & (speeds_m_s(feet, fps) < STILL_M_S)


def heading(path_m: np.ndarray | Tensor) -> float:
    """Radians (x = sin, z = cos) from the first to the last of places [T, 3]."""
    went = np.asarray(path_m[-1] - path_m[0])
    return float(np.arctan2(went[0], went[2]))


@dataclass(frozen=True)
class CameraPath:
    """A camera known at whole frames; in between it is interpolated."""

    camera_from_world: np.ndarray  # [T, 4, 4]; OpenCV axes: x right, y down, z forward

    def world_to_cam(self, frame: float) -> np.ndarray:
        """[4, 4] at a time in frames, fractions included."""
        last = len(self.camera_from_world) - 1
        at = float(np.clip(frame, 0, last))
        low = min(int(at), last - 1)  # -1 where there is only one frame: it is both ends
        share = at - low
        pair = self.camera_from_world[[low, low + 1]]
        between = np.eye(4)
        between[:3, :3] = Slerp([0, 1], Rotation.from_matrix(pair[:, :3, :3]))(share).as_matrix()
        a, b = CameraPath(pair).positions_m
        between[:3, 3] = -between[:3, :3] @ (a + share * (b - a))
        return between

    @property
    def positions_m(self) -> np.ndarray:
        """[T, 3]."""
        return -np.einsum(
            "tji,tj->ti", self.camera_from_world[:, :3, :3], self.camera_from_world[:, :3, 3]
        )

    def in_camera(self, points_m: np.ndarray, every: int = 1) -> np.ndarray:
        """World points [T, N, 3] of every n-th frame in that frame's camera."""
        turn = self.camera_from_world[::every, :3, :3]
        shift = self.camera_from_world[::every, None, :3, 3]
        return np.einsum("tij,tnj->tni", turn, points_m[::every]) + shift


@dataclass(frozen=True)
class StagedView:
    """Where a camera stands and looks before it moves."""

    azimuth: float  # radians, from the people to the camera
    distance_m: float
    height_m: float
    pitch_deg: float  # down
    roll_deg: float


def camera_path(
    view: StagedView, kind: CameraKind, centers_m: np.ndarray, fps: float, rng: np.random.Generator
) -> CameraPath:
    """centers_m [T, 3]: the middle of the people."""
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
    """Of the person that is seen worst: share of keypoints in the image, height over the image's,
    nearest depth.
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
    """A camera that shows everybody whole; None when none was found at the pitch that was drawn."""
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


def stage(
    body: Body,
    clips: list[Clip],
    kinds: list[str],
    sizes: list[float],
    frames: int,
    fps: float,
    rng: np.random.Generator,
) -> list[SyntheticPerson]:
    """Everybody with their own clip, shape and direction, apart from each other."""
    step = round(FPS / fps)
    people = []
    for clip, kind, size in zip(clips, kinds, sizes, strict=True):
        rows = there_and_back(len(clip.pose), frames * step)[::step]
        yaw = float(rng.uniform(0, 2 * np.pi))
        people.append(
            staged_person(
                body, clip, rows, draw_shape(rng), size, yaw, fps, has_steps=kind == "stairs"
            )
        )
    placed = people[:1]
    for person in people[1:]:
        placed.append(apart(person, [(p.path, 0.55) for p in placed], rng))
    return placed


def apart(
    person: SyntheticPerson, others: list[tuple[np.ndarray, float]], rng: np.random.Generator
) -> SyntheticPerson:
    """At a random place at no time closer to the paths [T, 2] of others than these distances."""
    reach = 1.0
    spot = rng.uniform(-1, 1, 2)
    while any(
        np.linalg.norm(path - person.path - spot, axis=1).min() <= least for path, least in others
    ):
        reach *= 1.03
        spot = rng.uniform(-reach, reach, 2)
    return person.moved_to(*spot)


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
        blur_px=rng.uniform(0.4, 1.3) * width / 640,
        tint=np.exp(rng.normal(0, 0.05, 3)),
        contrast=rng.uniform(0.9, 1.2),
        saturation=rng.uniform(0.75, 1.15),
        vignette=rng.uniform(0, 0.35),
        quality=int(rng.integers(72, 95)),
    )


def exposure_gain(sensor: Sensor, light: np.ndarray) -> float:
    """The factor for light [H, W, 3]; set once for a sequence, by its first image."""
    grey = light.mean(2)
    return sensor.brightness / max(float(np.minimum(grey, 4 * np.median(grey)).mean()), 1e-6)


def sensor_image(
    sensor: Sensor, light: np.ndarray, gain: float, rng: np.random.Generator
) -> np.ndarray:
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
