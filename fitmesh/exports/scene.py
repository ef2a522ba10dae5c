"""What the exports share: the scene frame, times and absences, and people's motion.

Scene frame: metres, x to the right as the camera first sees it, y up, z from the people towards the
camera. In a shot whose gravity is known it is the world frame (`fitting.camera`): upright, floor at
y = 0, the camera where it was each time. In a shot whose gravity is not known it is the camera
frame (x right, y down, z forward) rotated by 180 degrees about x and lifted until the lowest feet
stand on y = 0: a camera that is pitched up or down is not levelled. Every shot has a frame of its
own; all have the same origin, under the shot's first camera."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from fitmesh.person import Person, Shot
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitting import Body
from fitting.body.fingers import BODY_JOINTS, JOINT_NAMES_52, PARENTS_52
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.camera.world import points_to_world
from fitting.keypoints.observed import observed_bones
from pose2d.base.files import atomic_folder
from pose2d.skeletons import HALPE26

_SCENE_FROM_CAMERA = np.diag([1.0, -1.0, -1.0])  # axes; a rotation, so left stays left
_FEET_NAMES = ("left_ankle", "right_ankle", "left_foot", "right_foot")
_FEET = [JOINT_NAMES.index(name) for name in _FEET_NAMES]
# Percentile of the lower foot over all frames that is the floor, so that one bad frame does not
# move it.
_LOW_PERCENTILE = 5.0


@dataclass(frozen=True)
class SceneFrame:
    """The frame of all exports of one result, so that they line up when imported together."""

    frames: np.ndarray  # [F] frame numbers
    # [F, 4, 4] takes homogeneous points of the camera frame to the scene frame, metres
    from_camera: np.ndarray
    # For each shot whether gravity is known, so that its scene frame is the world frame.
    upright: tuple[bool, ...]

    def at(self, frame: np.ndarray) -> np.ndarray:
        """Return `from_camera` [T, 4, 4] of frame numbers [T]."""
        return self.from_camera[np.searchsorted(self.frames, frame)]

    def points(self, points_cam_m: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return points [T, N, 3] of the camera frame at frame numbers [T] in the scene frame,
        metres.
        """
        return points_to_world(points_cam_m, self.at(frame))


@dataclass(frozen=True)
class RestBody:
    """A person's T-pose in the body's own frame: x to the body's left, y up, z to the front,
    metres.
    """

    joints_m: np.ndarray  # [J, 3] the body's 24, or 52 with fingers
    vertices_m: np.ndarray  # [V, 3]; with fingers: of flat hands
    weights: np.ndarray  # [V, J] of skinning
    parents: tuple[int, ...]  # [J]
    joint_names: tuple[str, ...]  # [J] SMPL's, with fingers SMPL-H's

    @cached_property
    def offsets_m(self) -> np.ndarray:
        """Return the offset of each joint from its parent, [J, 3]; zero for the root."""
        offsets = self.joints_m - self.joints_m[list(self.parents)]
        offsets[0] = 0
        return offsets


def rest_body(body: Body, person: Person) -> RestBody:
    """Return the T-pose of a person's shape and size, with fingers if the person's are known."""
    hands = None if person.hand_pose_rad is None else torch.zeros(1, 30, 3)
    posed = body(
        torch.zeros(1, 24, 3),
        person.shape,
        vertices=True,
        size=torch.tensor(person.size),
        hands=hands,
    )
    assert posed.vertices is not None
    joints_m = posed.joints[0].double().numpy()
    vertices_m = posed.vertices[0].double().numpy()
    if hands is None:
        return RestBody(joints_m, vertices_m, body.weights.numpy(), PARENTS, JOINT_NAMES)
    with_fingers = body.with_fingers()
    fingers, _ = with_fingers.rest(torch.from_numpy(person.shape))
    fingers_m = person.size * fingers.reshape(30, 3).double().numpy()
    joints_m = np.concatenate([joints_m[:BODY_JOINTS], fingers_m])
    return RestBody(joints_m, vertices_m, with_fingers.weights.numpy(), PARENTS_52, JOINT_NAMES_52)


def joint_poses(person: Person) -> np.ndarray:
    """Return the axis-angles [T, J, 3] of the joints of `rest_body`."""
    if person.hand_pose_rad is None:
        return person.pose_rad
    return np.concatenate([person.pose_rad[:, :BODY_JOINTS], person.hand_pose_rad], 1)


def motion_of(
    result: Result, person: Person, scene: SceneFrame, rows: slice | np.ndarray = slice(None)
) -> tuple[list[Rotation], np.ndarray]:
    """Return a person's motion in these rows: for each joint of `rest_body` its rotations over T
    frames, relative to its parent (the root's: relative to the scene), and the pelvis [T, 3] in the
    scene.
    """
    turns = [Rotation.from_rotvec(joint) for joint in joint_poses(person)[rows].swapaxes(0, 1)]
    turns[0] = Rotation.from_matrix(scene.at(person.frame[rows])[:, :3, :3]) * turns[0]
    pelvis_cam_m = person.translation_m[rows] + rest_body(result.body, person).joints_m[0]
    return turns, scene.points(pelvis_cam_m[:, None], person.frame[rows])[:, 0]


def one_hemisphere(xyzw: np.ndarray) -> np.ndarray:
    """Return quaternions [T, 4] with the sign of each nearest to the one before, because players
    interpolate the numbers.
    """
    flipped = (xyzw[1:] * xyzw[:-1]).sum(-1) < 0
    sign = np.cumprod(np.where(flipped, -1.0, 1.0))
    return np.concatenate([xyzw[:1], xyzw[1:] * sign[:, None]])


def shot_rows(result: Result) -> list[slice]:
    """Return the rows of `result.frames` that each shot has."""
    first = np.searchsorted(result.frames, [shot.first_frame for shot in result.shots]).tolist()
    return [slice(a, b) for a, b in pairwise([*first, len(result.frames)])]


def scene_frame(result: Result) -> SceneFrame:
    """Return the scene frame: the world frame in shots with known gravity; in others the lowest
    feet of the shot's people stand on y = 0.
    """
    from_camera = result.world_from_camera.astype(np.float64)
    upright = []
    for number, rows in enumerate(shot_rows(result)):
        is_upright = bool(len(from_camera[rows]) and np.isfinite(from_camera[rows]).all())
        upright.append(is_upright)
        if not is_upright:
            from_camera[rows] = np.eye(4)
            from_camera[rows, :3, :3] = _SCENE_FROM_CAMERA
            from_camera[rows, 1, 3] = _height_over_feet_m(result, number)
    return SceneFrame(result.frames, from_camera, tuple(upright))


def about_frame(shot: Shot, upright: bool) -> str:
    """Return one line that describes a shot's scene frame."""
    if not upright:
        return "gravity not known: as if the camera were level, the lowest feet at y = 0"
    ground = "the floor is y = 0" if shot.floor_known else "the lowest feet are at y = 0"
    height = ""
    if np.isfinite(shot.camera_height_m):
        height = f", camera {shot.camera_height_m:.2f} m high"
    tilt = ""
    if np.isfinite(shot.up_std_deg):
        tilt = f", gravity ± {shot.up_std_deg:.0f}°"
    path = "; the camera travels, its path is not known" if shot.camera == "moving" else ""
    return f"world frame: upright, {ground}{height}{tilt}{path}"


def _height_over_feet_m(result: Result, shot: int) -> float:
    """Return the camera's height over the lowest feet of a shot, if it is not levelled."""
    people = [person for person in result.people if person.shot == shot]
    if not people:
        return 0.0
    rests = [rest_body(result.body, person) for person in people]
    # How far the soles are below the lower foot joints.
    foot_heights_m = [rest_pose.joints_m[[10, 11], 1].min() for rest_pose in rests]
    sole_heights_m = [rest_pose.vertices_m[:, 1].min() for rest_pose in rests]
    sole_m = float(np.mean(np.subtract(foot_heights_m, sole_heights_m)))
    # The camera's y points down.
    lowest_m = np.concatenate([person.joints_m[:, _FEET, 1].max(1) for person in people])
    return float(np.percentile(lowest_m, 100 - _LOW_PERCENTILE)) + sole_m


def foot_points(result: Result, person: Person, scene: SceneFrame) -> np.ndarray:
    """Return left heel, left toes, right heel and right toes [T, 4, 3] in the scene frame, in the
    order of `Person.contact`.
    """
    keypoints_cam_m = result.body.at(result.params(person)).keypoints.double().numpy()
    points = scene.points(keypoints_cam_m, person.frame)
    index = HALPE26.keypoints.index
    places = []
    for side in ("left", "right"):
        big_toe = points[:, index(f"{side}_big_toe")]
        small_toe = points[:, index(f"{side}_small_toe")]
        places += [points[:, index(f"{side}_heel")], (big_toe + small_toe) / 2]
    return np.stack(places, 1)


def observed_surface(body: Body, joint_observed: np.ndarray) -> np.ndarray:
    """Return for each vertex [V] the share of its skinning weight that lies on observed bones, on
    average over frames; joint_observed [T, 24].
    """
    return np.clip(body.weights.numpy() @ observed_bones(joint_observed).mean(0), 0, 1)


def clip_time_s(result: Result, person: Person) -> np.ndarray:
    """Return the seconds [T] since the first processed frame, which is where overlay.mp4 starts."""
    return person.time_s - result.time_s[0]


def clip_name(result: Result) -> str:
    """Return the name of the video, or of the result's folder if the video is not known."""
    return result.clip_path.name if result.clip_path is not None else result.folder.resolve().name


def frame_rate(result: Result) -> Fraction:
    """Return the processed frames per second: the video's rate, or a fraction of it if only every
    n-th frame was used.
    """
    every = int(np.diff(result.frames).min()) if len(result.frames) > 1 else 1
    return result.rate / every


# Presence and absence of people: a person's rows may have gaps, in which the person is absent.


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last index of every run of true values of [T]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def segments(result: Result, person: Person) -> list[slice]:
    """Return the rows of a person in frames that follow each other, in order."""
    place = np.searchsorted(result.frames, person.frame)
    edges = [0, *(np.flatnonzero(np.diff(place) > 1) + 1).tolist(), len(person)]
    return [slice(a, b) for a, b in pairwise(edges)]


def pieces(result: Result, person: Person, each: str) -> list[tuple[str, slice]]:
    """Return names and rows of a person's files in a format with one file for each "person",
    "segment" or "frame".
    """
    name = result.name_of(person)
    if each == "person":
        return [(name, slice(None))]
    if each == "segment":
        first, *later = segments(result, person)
        return [(name, first), *((f"{name}_part_{n}", rows) for n, rows in enumerate(later, 2))]
    frames = person.frame.tolist()
    return [(f"{name}/frame_{frame:06d}", slice(n, n + 1)) for n, frame in enumerate(frames)]


def write_pieces(
    result: Result,
    folder: Path,
    progress: Reporter,
    each: str,
    suffix: str,
    write: Callable[..., None],
) -> list[str]:
    """Write a folder of `pieces`, each by write(result, scene, path, person, rows), and return
    their names relative to the result's folder.
    """
    scene = scene_frame(result)
    files = [(person, *piece) for person in result.people for piece in pieces(result, person, each)]
    with (
        progress.stage(folder.name, len(files), "files") as tick,
        atomic_folder(folder) as temporary,
    ):
        for person, name, rows in files:
            path = temporary / f"{name}{suffix}"
            path.parent.mkdir(exist_ok=True)
            write(result, scene, path, person, rows)
            tick(1)
    return [f"{folder.name}/{name}{suffix}" for _, name, _ in files]


def write_people(
    result: Result,
    folder: Path,
    progress: Reporter,
    entry: str,
    write: Callable[..., None],
) -> list[str]:
    """Write a folder with a file for each person, by write(result, folder, progress), which leaves
    `entry`, and return their names relative to the result's folder.
    """
    files = []
    with atomic_folder(folder) as temporary:
        for person in result.people:
            alone = replace(result, people=[person])
            alone.__dict__["body"] = result.body  # what the cached property would read again
            write(alone, temporary, progress)
            file = f"{result.name_of(person)}{Path(entry).suffix}"
            (temporary / entry).rename(temporary / file)
            files.append(f"{folder.name}/{file}")
    return files


def absences(result: Result, person: Person) -> list[tuple[int, int]]:
    """Return the first and last frame number of every absence between two rows."""
    frames = result.frames[(result.frames >= person.frame[0]) & (result.frames <= person.frame[-1])]
    return [(int(frames[a]), int(frames[b])) for a, b in runs(~np.isin(frames, person.frame))]


def on_every_frame(
    result: Result, person: Person, values: np.ndarray, absent: float = np.nan
) -> np.ndarray:
    """Return the values [T, ...] of a person's rows for every frame from the first to the last row,
    with `absent` where the person is absent.
    """
    place = np.searchsorted(result.frames, person.frame)
    shape = (place[-1] - place[0] + 1, *values.shape[1:])
    spread = np.full(shape, absent, np.result_type(values, type(absent)))
    spread[place - place[0]] = values
    return spread
