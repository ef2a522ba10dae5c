"""Simulated shots with exact truth: captured motion of people on one floor, seen by a camera whose lens is not told.

Nothing is rendered but a small grey background for the camera's motion: keypoints are projected exactly and read with
noise of the stated size (`fitting.synthetic.Noise`). World frame: y up, metres, floor at y = 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from eval3dpw.synth.noise import SmoothNoise
from fitting.body import Body
from fitting.camera import Camera
from fitting.motion_capture import Motion
from fitting.synthetic import Noise, noisy
from fitting.synthetic_feet import FEET_KEYPOINTS, feet_over_sole_m, planted, speeds_m_s, standing
from pose2d.types import Keypoints

Kind = Literal["walking", "standing", "jumping", "sitting", "stairs"]
KINDS: tuple[Kind, ...] = ("walking", "standing", "jumping", "sitting", "stairs")
CameraKind = Literal["static", "pan", "hand"]
SIZES = ((1280, 720), (1920, 1080), (720, 1280), (960, 720))
LENS_SHARE = (0.55, 1.3)  # focal length over the image's diagonal
PITCH_DEG, HEIGHT_M = (-10.0, 40.0), (0.5, 3.0)
CHILD_SIZE, ADULT_SPREAD = (0.55, 0.8), 0.045
STILL_M_S = 0.03  # a foot whose speed is measured stands stiller than that in the truth
# Who else is in a shot with somebody who sits or takes steps.
_COMPANY: dict[Kind, Kind] = {"sitting": "standing", "stairs": "walking"}
_KNEES = (4, 5)


@dataclass(frozen=True)
class PersonTruth:
    """One person over T frames, in the world."""

    clip: str
    kind: Kind
    size: float  # on the whole body
    height_m: float  # standing
    shape: torch.Tensor  # [10]
    pose: torch.Tensor  # [T, 24, 3], the root in the world
    joints_m: np.ndarray  # [T, 24, 3]
    keypoints_m: np.ndarray  # [T, 26, 3]
    standing: np.ndarray  # [T, 4] bool: left heel, left toes, right heel, right toes
    still: np.ndarray  # [T, 4] bool: stands stiller than STILL_M_S
    keypoints: Keypoints  # [T, 26] as a network would read them

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
    child: bool
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
        """Of the first camera."""
        return float(self.positions_m()[0, 1])

    def positions_m(self) -> np.ndarray:
        """[T, 3] of the camera."""
        return -np.einsum("tji,tj->ti", self.camera_from_world[:, :3, :3], self.camera_from_world[:, :3, 3])

    def in_camera(self, points_m: np.ndarray) -> np.ndarray:
        """World points [T, N, 3] in each frame's camera."""
        turned = np.einsum("tij,tnj->tni", self.camera_from_world[:, :3, :3], points_m)
        return turned + self.camera_from_world[:, None, :3, 3]


# --- Which clips show what ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClipFacts:
    """What one clip shows, measured on the mean body."""

    number: int
    held_out: bool
    frames: int
    speed_m_s: float  # median of the pelvis over the floor
    lowest_pelvis_m: float
    pelvis_m: float  # median
    stands: float  # share of frames with a standing foot
    flies: float  # share with both feet in the air
    raised: float  # share with the whole weight on something higher than the floor
    deepest_m: float  # below the floor: bad capture

    @property
    def kind(self) -> Kind | None:
        if self.frames < 60 or self.deepest_m > 0.06:
            return None
        if 0.4 < self.lowest_pelvis_m and self.pelvis_m < 0.62:
            return "sitting"
        if self.raised > 0.25 and self.flies < 0.12:
            return "stairs"
        if self.raised > 0.03 or self.lowest_pelvis_m < 0.7:
            return None
        if 0.5 < self.speed_m_s < 1.6 and self.flies < 0.03 and self.pelvis_m > 0.8:
            return "walking"
        if self.speed_m_s < 0.12 and self.flies < 0.02 and self.stands > 0.9 and self.lowest_pelvis_m > 0.8:
            return "standing"
        return "jumping" if 0.08 < self.flies < 0.5 and self.speed_m_s < 1.0 and self.stands > 0.35 else None


def clip_facts(motion: Motion, body: Body) -> list[ClipFacts]:
    assert motion.root_m is not None
    over_sole, facts = feet_over_sole_m(body), []
    for number in range(len(motion.clip_name)):
        span = motion.clip(number)
        posed = body(motion.pose[span], translation=motion.root_m[span] - body.rest_joints[0])
        feet, pelvis = posed.keypoints[:, list(FEET_KEYPOINTS)].double().numpy(), posed.joints[:, 0].double().numpy()
        floor = np.quantile((feet[..., 1] - over_sole).min(1), 0.1)
        height = feet[..., 1] - over_sole - floor
        lowest, slow = height.min(1), (speeds_m_s(feet, motion.fps) < 0.15)
        lowest_is_slow = np.take_along_axis(slow, height.argmin(1)[:, None], 1)[:, 0]
        facts.append(
            ClipFacts(
                number=number,
                held_out=bool(motion.held_out[number]),
                frames=len(feet),
                speed_m_s=float(np.median(np.linalg.norm(np.gradient(pelvis, axis=0)[:, ::2], axis=1)) * motion.fps),
                lowest_pelvis_m=float(pelvis[:, 1].min() - floor),
                pelvis_m=float(np.median(pelvis[:, 1]) - floor),
                stands=float((slow & (height < 0.05)).any(1).mean()),
                flies=float(((lowest > 0.06) & ~slow.any(1)).mean()),
                raised=float(((lowest > 0.10) & lowest_is_slow).mean()),
                deepest_m=float(-lowest.min()),
            )
        )
    return facts


def clips_by_kind(motion: Motion, body: Body, reporting: bool) -> dict[Kind, list[int]]:
    """Clips to report on (held-out subjects) or to choose with (all others).

    Nobody who sits or takes steps was held out: of those kinds every other subject is for reporting, so that choices
    and reports still share no subject, but the pose prior has seen them.
    """
    found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    facts = [fact for fact in clip_facts(motion, body) if fact.kind is not None]
    for kind in KINDS:
        of_kind = [fact for fact in facts if fact.kind == kind]
        if any(fact.held_out for fact in of_kind):
            found[kind] = [fact.number for fact in of_kind if fact.held_out == reporting]
            continue
        subjects = sorted({motion.clip_name[fact.number].split("_")[0] for fact in of_kind})
        mine = set(subjects[int(reporting) :: 2])
        found[kind] = [fact.number for fact in of_kind if motion.clip_name[fact.number].split("_")[0] in mine]
    return found


# --- People ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Posed:
    clip: str
    kind: Kind
    size: float
    shape: torch.Tensor
    pose: torch.Tensor  # [T, 24, 3]
    joints_m: np.ndarray  # [T, 24, 3] in the world
    keypoints_m: np.ndarray  # [T, 26, 3]
    height_m: float


def _there_and_back(count: int, frames: int) -> np.ndarray:
    """[frames] indices of a clip of `count` frames played to its end, backwards, and so on."""
    way = np.arange(frames) % (2 * (count - 1))
    return np.where(way < count, way, 2 * (count - 1) - way)


def posed_person(
    motion: Motion, clip: int, kind: Kind, body: Body, size: float, frames: int, rng: np.random.Generator
) -> _Posed:
    """A clip on a body of random shape and the given size, feet planted, turned to any side, around the origin."""
    assert motion.root_m is not None
    rows = motion.clip(clip).start + _there_and_back(int(np.diff(motion.clip_start)[clip]), frames)
    shape = torch.from_numpy(np.clip(rng.normal(0, 1, 10), -2, 2).astype(np.float32))
    whole = torch.nn.functional.pad(shape, (0, body.shape_size - 10))
    turn = Rotation.from_euler("y", rng.uniform(0, 2 * np.pi))
    pose = motion.pose[rows].clone()
    pose[:, 0] = torch.from_numpy((turn * Rotation.from_rotvec(pose[:, 0].numpy())).as_rotvec()).float()
    rest = body(torch.zeros(1, 24, 3), shape, vertices=True)
    assert rest.vertices is not None
    tall = float(rest.vertices[0, :, 1].max() - rest.vertices[0, :, 1].min())
    legs = _leg_length(body, whole) / _leg_length(body, torch.zeros(body.shape_size))
    at_origin = body(pose, shape)
    root = size * legs * turn.apply(motion.root_m[rows].numpy())
    place = root - size * at_origin.joints[:, 0].double().numpy()
    joints = size * at_origin.joints.double().numpy() + place[:, None]
    keypoints = size * at_origin.keypoints.double().numpy() + place[:, None]
    shift = planted(
        keypoints[:, FEET_KEYPOINTS], size * feet_over_sole_m(body, shape), motion.fps, level=kind != "stairs"
    )
    middle = (joints[:, 0] + shift).mean(0) * (1, 0, 1)
    shift = shift - middle
    return _Posed(
        motion.clip_name[clip], kind, size, shape, pose, joints + shift[:, None], keypoints + shift[:, None],
        size * tall,
    )  # fmt: skip


def _leg_length(body: Body, shape: torch.Tensor) -> float:
    joints = body.rest_joints + torch.einsum("jcs,s->jc", body.rest_joint_shapedirs, shape)
    return sum(float((joints[a] - joints[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8)))


def _moved(person: _Posed, shift: np.ndarray) -> _Posed:
    return _Posed(
        person.clip, person.kind, person.size, person.shape, person.pose, person.joints_m + shift,
        person.keypoints_m + shift, person.height_m,
    )  # fmt: skip


def _set_apart(people: list[_Posed], rng: np.random.Generator, apart_m: float = 0.55) -> list[_Posed]:
    """Everybody at a random place where no two come closer than that."""
    placed: list[_Posed] = []
    for person in people:
        reach = 1.0
        while True:
            spot = rng.uniform(-reach, reach, 2) if placed else np.zeros(2)
            there = _moved(person, np.array([spot[0], 0.0, spot[1]]))
            paths = [np.linalg.norm((p.joints_m - there.joints_m)[:, 0, ::2], axis=1).min() for p in placed]
            if not paths or min(paths) > apart_m:
                placed.append(there)
                break
            reach *= 1.03
    return placed


# --- Cameras --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """Where a camera stands and looks before it moves."""

    azimuth: float  # radians, from the people to the camera
    distance_m: float
    height_m: float
    pitch_deg: float
    roll_deg: float


def camera_path(
    view: _View, kind: CameraKind, centers_m: np.ndarray, fps: float, rng: np.random.Generator
) -> np.ndarray:
    """[T, 4, 4] camera from world; centers_m [T, 3] the middle of the people."""
    frames = len(centers_m)
    middle = (centers_m.min(0) + centers_m.max(0)) / 2
    position = middle * (1, 0, 1) + view.distance_m * np.array([np.sin(view.azimuth), 0, np.cos(view.azimuth)])
    position = np.broadcast_to(position + (0, view.height_m, 0), (frames, 3)).copy()
    time = np.arange(frames)
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
    # Camera axes of a level camera that looks along yaw: x right, y down, z forward.
    forward = np.stack((np.sin(yaw), np.zeros(frames), np.cos(yaw)), 1)
    right = np.stack((-np.cos(yaw), np.zeros(frames), np.sin(yaw)), 1)
    level = np.stack((right, np.broadcast_to((0.0, -1.0, 0.0), (frames, 3)), forward), 1)
    tilt = Rotation.from_euler("zx", [view.roll_deg, view.pitch_deg], degrees=True)
    rotation = (Rotation.from_euler("xyz", turn, degrees=True) * tilt).as_matrix() @ level
    path = np.broadcast_to(np.eye(4), (frames, 4, 4)).copy()
    path[:, :3, :3], path[:, :3, 3] = rotation, -np.einsum("tij,tj->ti", rotation, position)
    return path


def _inside(people: list[_Posed], camera: Camera, path: np.ndarray) -> tuple[float, float, float]:
    """Of the person that is seen worst: share of keypoints in the image, height over the image's, nearest depth."""
    worst, smallest, nearest = 1.0, np.inf, np.inf
    for person in people:
        points = person.keypoints_m[::10]
        cam = np.einsum("tij,tnj->tni", path[::10, :3, :3], points) + path[::10, None, :3, 3]
        nearest = min(nearest, float(cam[..., 2].min()))
        if nearest < 0.8:
            return 0.0, 0.0, nearest
        xy = cam[..., :2] / cam[..., 2:] * camera.focal_px + camera.center_px
        worst = min(worst, float(((xy > 0) & (xy < camera.size)).all(-1).mean()))
        smallest = min(smallest, float(np.median(xy[..., 1].max(1) - xy[..., 1].min(1))) / camera.size[1])
    return worst, smallest, nearest


def framed(
    people: list[_Posed], camera: Camera, kind: CameraKind, fps: float, rng: np.random.Generator
) -> np.ndarray | None:
    """A camera path that shows everybody whole; None when this lens and pitch found none."""
    centers = np.mean([p.joints_m[:, 0] for p in people], axis=0)
    pitch, roll = rng.uniform(*PITCH_DEG), rng.normal(0, 2)
    for _ in range(60):
        distance = float(np.exp(rng.uniform(np.log(2.2), np.log(11))))
        # The height at which a camera of this pitch looks at people's middle, give or take what the image leaves free.
        height = 0.85 + distance * math.tan(math.radians(pitch)) + rng.normal(0, 0.12) * distance
        if not HEIGHT_M[0] <= height <= HEIGHT_M[1]:
            continue
        view = _View(rng.uniform(-np.pi, np.pi), distance, height, pitch, roll)
        seed = rng.integers(2**31)
        path = camera_path(view, kind, centers, fps, np.random.default_rng(seed))
        inside, tall, near = _inside(people, camera, path)
        if inside > 0.96 and tall > 0.17 and near > 1.2:
            return path
    return None


# --- Shots ----------------------------------------------------------------------------------------------------------


def simulated_shot(
    motion: Motion,
    clips: dict[Kind, list[int]],
    body: Body,
    seed: int,
    number: int,
    seconds: float = 10.0,
    noise: Noise | None = None,
) -> ShotTruth:
    """One of a series that goes through kinds, cameras and numbers of people."""
    rng = np.random.default_rng([seed, number, 17])
    kind = KINDS[(0, 1, 0, 2, 0, 3, 1, 4)[number % 8]]  # walking, standing, walking, jumping, walking, sitting, ..
    count = (1, 2, 2, 1, 3, 2, 1, 2, 4, 1)[number % 10]
    camera_kind: CameraKind = ("static", "pan", "static", "hand", "static", "static", "pan")[number % 7]  # type: ignore[assignment]
    has_child = count > 1 and bool(rng.random() < 0.5)
    frames = round(seconds * motion.fps)
    while True:
        posed = []
        for place in range(count):
            of = kind if place == 0 else _COMPANY.get(kind, kind)
            small = has_child and place == count - 1
            size = rng.uniform(*CHILD_SIZE) if small else float(np.clip(rng.normal(1, ADULT_SPREAD), 0.9, 1.1))
            posed.append(posed_person(motion, int(rng.choice(clips[of])), of, body, size, frames, rng))
        posed = _set_apart(posed, rng)
        size_px = SIZES[int(rng.integers(len(SIZES)))]
        share = math.exp(rng.uniform(*np.log(LENS_SHARE)))
        camera = Camera.from_focal(share * math.hypot(*size_px), size_px)
        path = next((p for p in (framed(posed, camera, camera_kind, motion.fps, rng) for _ in range(8)) if p is not None), None)  # fmt: skip
        if path is not None:
            break
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    people = [_seen(p, camera, path, body, motion.fps, noise or Noise(), generator) for p in posed]
    name = f"{number:02d} {kind}, {count} {'with a child, ' if has_child else ''}{camera_kind}"
    return ShotTruth(name, kind, camera_kind, people, camera, path, motion.fps, has_child, (seed, number))


def _seen(
    person: _Posed, camera: Camera, path: np.ndarray, body: Body, fps: float, noise: Noise, generator: torch.Generator
) -> PersonTruth:
    cam = np.einsum("tij,tnj->tni", path[:, :3, :3], person.keypoints_m) + path[:, None, :3, 3]
    exact = camera.project(torch.from_numpy(cam).float())
    feet = person.keypoints_m[:, FEET_KEYPOINTS]
    over_sole = person.size * feet_over_sole_m(body, person.shape)
    stands = standing(feet, over_sole, fps, level=person.kind != "stairs")
    return PersonTruth(
        person.clip, person.kind, person.size, person.height_m, person.shape, person.pose, person.joints_m,
        person.keypoints_m, stands, stands & (speeds_m_s(feet, fps) < STILL_M_S),
        noisy(exact, generator, noise, fps),
    )  # fmt: skip


def series(
    motion: Motion, body: Body, seed: int, shots: int, reporting: bool, seconds: float, only: Callable[[int], bool]
) -> list[ShotTruth]:
    clips = clips_by_kind(motion, body, reporting)
    return [simulated_shot(motion, clips, body, seed, n, seconds) for n in range(shots) if only(n)]
