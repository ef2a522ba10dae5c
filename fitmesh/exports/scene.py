"""What every export shares: the scene frame, the times and absences, and each person's meshes.

Scene frame: metres, x to the right as the camera first sees it, y up, z from the people towards the camera. In a shot
whose gravity is known it is the world frame (`fitting.camera`): upright, floor at y = 0, the camera where it was
each time. In a shot whose gravity is not known it is the camera frame (x right, y down, z forward) rotated by 180
degrees about x and lifted until the lowest feet stand on y = 0: a camera that is pitched up or down is not levelled.
Every shot has a frame of its own; all have the same origin, under the shot's first camera."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation, Slerp

from fitmesh.result import Person, Result, Shot
from fitmesh.ui.events import Reporter
from fitting import Body
from fitting.body.kinematics import BODY_JOINTS, JOINT_NAMES, JOINT_NAMES_52, PARENTS, PARENTS_52
from fitting.camera import points_to_world
from fitting.keypoints.observed import observed_bones
from pose2d.base.files import atomic_folder
from pose2d.skeletons import HALPE26

_SCENE_FROM_CAMERA = np.diag([1.0, -1.0, -1.0])  # axes; a rotation, so left stays left
_FEET = [JOINT_NAMES.index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")]
_SKINNED_AT_ONCE = 16  # frames; 16 meshes of 6,800 vertices are 1.3 MB
_LOW_PERCENTILE = 5.0  # of the lower foot over all frames: one bad frame does not move the floor
SAME_TIME = 0.05  # of a frame: containers round time stamps, to a millisecond in mkv


@dataclass(frozen=True)
class SceneFrame:
    """The frame of all exports of one result, so that they line up when imported together."""

    frames: np.ndarray  # [F] frame numbers
    from_camera: np.ndarray  # [F, 4, 4] takes homogeneous points of the camera frame to the scene frame, metres
    upright: tuple[bool, ...]  # of each shot: gravity is known, and its scene frame is the world frame

    def at(self, frame: np.ndarray) -> np.ndarray:
        """[T, 4, 4] `from_camera` of some frame numbers [T]."""
        return self.from_camera[np.searchsorted(self.frames, frame)]

    def points(self, points_cam_m: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """[T, N, 3] in the camera frame, in frame numbers [T] -> [T, N, 3] in the scene frame, metres."""
        return points_to_world(points_cam_m, self.at(frame))


@dataclass(frozen=True)
class RestBody:
    """One person's T-pose in the body's own frame: x to the body's left, y up, z to the front, metres."""

    joints_m: np.ndarray  # [J, 3] the body's 24, or 52 with fingers
    vertices_m: np.ndarray  # [V, 3]; with fingers: of flat hands

    @property
    def parents(self) -> tuple[int, ...]:
        """[J]"""
        return PARENTS if len(self.joints_m) == len(PARENTS) else PARENTS_52

    @property
    def joint_names(self) -> tuple[str, ...]:
        """[J] SMPL's, with fingers SMPL-H's."""
        return JOINT_NAMES if len(self.joints_m) == len(PARENTS) else JOINT_NAMES_52

    @cached_property
    def offsets_m(self) -> np.ndarray:
        """[J, 3] each joint from its parent; the root's is zero."""
        offsets = self.joints_m - self.joints_m[list(self.parents)]
        offsets[0] = 0
        return offsets

    @property
    def sole_m(self) -> float:
        """How far the soles are below the lower foot joints."""
        return float(self.joints_m[[10, 11], 1].min() - self.vertices_m[:, 1].min())


def rest_body(body: Body, person: Person) -> RestBody:
    """A body of this person's shape and size in its T-pose, with fingers if the person's are known."""
    hands = None if person.hand_pose_rad is None else torch.zeros(1, 30, 3)
    posed = body(torch.zeros(1, 24, 3), person.shape, vertices=True, size=torch.tensor(person.size), hands=hands)
    assert posed.vertices is not None
    joints_m = posed.joints[0].double().numpy()
    if hands is not None:
        fingers, _ = body.with_fingers().rest(torch.from_numpy(person.shape))
        joints_m = np.concatenate([joints_m[:BODY_JOINTS], person.size * fingers.reshape(30, 3).double().numpy()])
    return RestBody(joints_m, posed.vertices[0].double().numpy())


def skin_weights(body: Body, person: Person) -> np.ndarray:
    """[V, J] skinning weights of the joints of `rest_body`."""
    return (body.weights if person.hand_pose_rad is None else body.with_fingers().weights).numpy()


def joint_poses(person: Person, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
    """[T, J, 3] axis-angle of the joints of `rest_body`."""
    if person.hand_pose_rad is None:
        return person.pose_rad[rows]
    return np.concatenate([person.pose_rad[rows][:, :BODY_JOINTS], person.hand_pose_rad[rows]], 1)


def scene_frame(result: Result) -> SceneFrame:
    """World frames where gravity is known; elsewhere the lowest feet of everybody in the shot stand on y = 0."""
    from_camera = result.world_from_camera.astype(np.float64)
    first = np.searchsorted(result.frames, [shot.first_frame for shot in result.shots])
    upright = []
    for number, (a, b) in enumerate(pairwise([*first.tolist(), len(result.frames)])):
        upright.append(bool(b > a and np.isfinite(from_camera[a:b]).all()))
        if not upright[-1]:
            from_camera[a:b] = np.eye(4)
            from_camera[a:b, :3, :3] = _SCENE_FROM_CAMERA
            from_camera[a:b, 1, 3] = _height_over_feet_m(result, number)
    return SceneFrame(result.frames, from_camera, tuple(upright))


def about_frame(shot: Shot, upright: bool) -> str:
    """One line that says what a shot's scene frame is."""
    if not upright:
        return "gravity not known: as if the camera were level, the lowest feet at y = 0"
    ground = "the floor is y = 0" if shot.floor_known else "the lowest feet are at y = 0"
    height = f", camera {shot.camera_height_m:.2f} m high" if np.isfinite(shot.camera_height_m) else ""
    tilt = f", gravity ± {shot.up_std_deg:.0f}°" if np.isfinite(shot.up_std_deg) else ""
    path = "; the camera travels, its path is not known" if shot.camera == "moving" else ""
    return f"world frame: upright, {ground}{height}{tilt}{path}"


def _height_over_feet_m(result: Result, shot: int) -> float:
    """The camera's height over the lowest feet of a shot, for a camera that is not levelled."""
    people = [person for person in result.people if person.shot == shot]
    if not people:
        return 0.0
    joints_cam_m = np.concatenate([person.joints_m for person in people])
    sole_m = float(np.mean([rest_body(result.body, person).sole_m for person in people]))
    lowest_m = joints_cam_m[:, _FEET, 1].max(1)  # the camera's y points down
    return float(np.percentile(lowest_m, 100 - _LOW_PERCENTILE)) + sole_m


def scene_rotations(pose_rad: np.ndarray, from_camera: np.ndarray) -> list[Rotation]:
    """Axis-angles [T, J, 3] in the camera frame -> one `Rotation` of T frames per joint, the root's in the scene.
    from_camera [T, 4, 4]: of the same frames."""
    joints = [Rotation.from_rotvec(pose_rad[:, joint]) for joint in range(pose_rad.shape[1])]
    joints[0] = Rotation.from_matrix(from_camera[:, :3, :3]) * joints[0]
    return joints


def foot_points(result: Result, person: Person, scene: SceneFrame) -> np.ndarray:
    """[T, 4, 3] left heel, left toes, right heel, right toes in the scene frame, as `Person.contact` orders them."""
    points = scene.points(result.body.at(result.params(person)).keypoints.double().numpy(), person.frame)
    name = HALPE26.keypoints.index
    sides = [(f"{side}_heel", f"{side}_big_toe", f"{side}_small_toe") for side in ("left", "right")]
    feet = [(points[:, name(heel)], (points[:, name(big)] + points[:, name(small)]) / 2) for heel, big, small in sides]
    return np.stack([place for foot in feet for place in foot], 1)


class MeshSequence:
    """The meshes of one person, skinned a few frames at a time: memory does not grow with the track. Rows are cheap
    when they are asked for in order."""

    def __init__(self, result: Result, person: Person) -> None:
        self._result, self._person = result, person
        self._first, self._vertices_m = 0, np.zeros((0, 0, 3), np.float32)
        self._weights = result.body.weights.numpy()  # [V, 24]

    def vertices_m(self, row: int) -> np.ndarray:
        """[V, 3] camera frame."""
        if not self._first <= row < self._first + len(self._vertices_m):
            self._first = row
            params = self._result.params(self._person, slice(row, row + _SKINNED_AT_ONCE))
            posed = self._result.body.at(params, vertices=True)
            assert posed.vertices is not None
            self._vertices_m = posed.vertices.numpy()
        return self._vertices_m[row - self._first]

    def observed(self, row: int) -> np.ndarray:
        """[V] in 0..1: the share of each vertex's skinning weight that lies on observed bones."""
        return np.clip(self._weights @ observed_bones(self._person.joint_observed[row]).astype(np.float32), 0, 1)


def clip_time_s(result: Result, person: Person) -> np.ndarray:
    """[T] seconds since the first processed frame, which is where overlay.mp4 starts."""
    return person.time_s - result.time_s[0]


def frame_rate(result: Result) -> Fraction:
    """Processed frames per second: the video's rate, or a fraction of it where only every n-th frame was used."""
    every = int(np.diff(result.frames).min()) if len(result.frames) > 1 else 1
    return result.rate / every


def chunks(person: Person, rows: int = 500) -> Iterator[Person]:
    """The same person some frames at a time, so that memory does not grow with the track."""
    for first in range(0, len(person), rows):
        part = slice(first, first + rows)
        yield person.rows(part)


# When a person is there: rows may have gaps, in which the person is absent.


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of every run of true values of [T]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def segments(result: Result, person: Person) -> list[slice]:
    """Rows of the person in frames that follow each other, in order."""
    place = np.searchsorted(result.frames, person.frame)
    edges = [0, *(np.flatnonzero(np.diff(place) > 1) + 1).tolist(), len(person)]
    return [slice(a, b) for a, b in pairwise(edges)]


def named_segments(result: Result, person: Person) -> list[tuple[str, slice]]:
    """The same with names for files: person_1, person_1_part_2, .."""
    numbered = enumerate(segments(result, person), 1)
    return [(f"person_{person.identity}" + (f"_part_{n}" if n > 1 else ""), rows) for n, rows in numbered]


def write_each_segment(
    result: Result, folder: Path, progress: Reporter, write: Callable[..., None], suffix: str
) -> None:
    """A folder with a file per person and segment: write(result, scene, path, person, rows) makes one of them."""
    scene = scene_frame(result)
    with progress.stage(folder.name, len(result.people), "people") as tick, atomic_folder(folder) as temporary:
        for person in result.people:
            for name, rows in named_segments(result, person):
                write(result, scene, temporary / f"{name}{suffix}", person, rows)
            tick(1)


def absences(result: Result, person: Person) -> list[tuple[int, int]]:
    """First and last frame number of every absence between the first and the last row."""
    place = np.searchsorted(result.frames, person.frame)
    return [
        (int(result.frames[place[before.stop - 1] + 1]), int(result.frames[place[after.start] - 1]))
        for before, after in pairwise(segments(result, person))
    ]


def on_every_frame(result: Result, person: Person, values: np.ndarray, absent: float = np.nan) -> np.ndarray:
    """Values [T, ...] of a person's rows -> the same for every frame from the first to the last row."""
    place = np.searchsorted(result.frames, person.frame)
    spread = np.full((place[-1] - place[0] + 1, *values.shape[1:]), absent, np.result_type(values, type(absent)))
    spread[place - place[0]] = values
    return spread


def at_times(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, wanted_s: np.ndarray
) -> tuple[list[Rotation], np.ndarray]:
    """Rotations of T frames and positions [T, ...] at times [T] -> the same at others; beyond the ends they stand."""
    wanted_s = np.clip(wanted_s, time_s[0], time_s[-1])
    flat = position_m.reshape(len(position_m), -1)
    moved = np.stack([np.interp(wanted_s, time_s, axis) for axis in flat.T], -1)
    single = np.zeros(len(wanted_s), int)
    turned = [Slerp(time_s, turn)(wanted_s) if len(time_s) > 1 else turn[single] for turn in rotations]
    return turned, moved.reshape(-1, *position_m.shape[1:])


def evenly(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, step_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """The same every `step_s` from the first time on, for formats with one frame rate. Frames that are at even times
    already stay as they are."""
    at = (time_s - time_s[0]) / step_s  # in frames
    if np.abs(at - np.arange(len(at))).max() < SAME_TIME:
        return rotations, position_m
    return at_times(at, rotations, position_m, np.arange(int(np.floor(at[-1] + SAME_TIME)) + 1))
