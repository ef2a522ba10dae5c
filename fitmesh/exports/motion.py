"""Motion as an animator asks for it: at another frame rate, smoother, on the spot.

The animation formats are made from it (`change_motion`); fit.npz, csv and json keep the numbers of
the fit."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from fitmesh.exports import Motion
from fitmesh.exports import scene as scenes
from fitmesh.exports.feet import plant_feet
from fitmesh.exports.filters import Filter, parse_filter
from fitmesh.exports.motion_size import check_motion_size
from fitmesh.exports.scene import SceneFrame, one_hemisphere
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.body.fingers import BODY_JOINTS

# Standard deviation of the filter of --smooth 1, which halves the power at 1.3 Hz.
STRONGEST_S = 0.1
SAME_TIME = 0.05  # of a frame: containers round timestamps, to a millisecond in mkv
_REACH = 3  # half the filter's length, in standard deviations
# The columns of a person that describe the body.
_BODY_COLUMNS = (
    "pose_rad",
    "translation_m",
    "joints_m",
    "joint_std_mm",
    "joint_std_relative_mm",
    "joint_std_axes_mm",
    "pose_std_deg",
    "contact",
    "hand_pose_rad",
    "hand_std_deg",
)


def change_motion(result: Result, motion: Motion) -> Result:
    """Return the result with its motion changed. Frames of another rate are numbered from 0; values
    that are not motion come from the nearest frame.
    """
    if motion.keep_reliable is not None:
        reliable = [person.rows(_is_reliable(person, motion)) for person in result.people]
        result = replace(result, people=[person for person in reliable if len(person)])
        motion = replace(motion, keep_reliable=None, reliable_mm=Motion.reliable_mm)
    if motion.plant_feet:
        # Before the root is kept in place, because a foot that stands then slides.
        moving = replace(motion, plant_feet=False, in_place=False)
        result = plant_feet(change_motion(result, moving))
        motion = Motion(in_place=motion.in_place)
    if motion == Motion():
        return result
    scene = scenes.scene_frame(result)
    changed = _with_frame_rate(result, motion.fps)
    camera, world = _resample_cameras(result, changed, scene)
    changed = replace(changed, world_from_camera=world)
    frame = SceneFrame(changed.frames, camera, scene.upright)
    people = [_person(result, person, changed, scene, frame, motion) for person in result.people]
    changed = replace(changed, people=people)
    changed.__dict__["body"] = result.body  # what the cached property would read again
    return changed


def _resample_cameras(
    result: Result, changed: Result, scene: SceneFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return scene_from_camera and world_from_camera [F, 4, 4] on the frames of `changed`; the
    latter is NaN where gravity is not known.
    """
    camera = np.tile(np.eye(4), (len(changed.frames), 1, 1))
    world = np.full((len(changed.frames), 4, 4), np.nan, np.float32)
    old_shots = scenes.shot_rows(result)
    new_shots = scenes.shot_rows(changed)
    for old, new, upright in zip(old_shots, new_shots, scene.upright, strict=True):
        pose = scene.from_camera[old]
        new_time_s = changed.time_s[new]
        if len(pose) and len(new_time_s):
            turns = [Rotation.from_matrix(pose[:, :3, :3])]
            (turn,), camera[new, :3, 3] = interpolate_motion(
                result.time_s[old], turns, pose[:, :3, 3], new_time_s
            )
            camera[new, :3, :3] = turn.as_matrix()
            world[new] = camera[new] if upright else np.nan
    return camera, world


def change_motion_at_even_times(result: Result, motion: Motion) -> Result:
    """Return `change_motion` for formats with one frame rate: frames at uneven times are resampled
    at the video's rate.
    """
    rate = float(scenes.frame_rate(result))
    frame_times = (result.time_s - result.time_s[:1]) * rate  # in frames
    is_uneven = np.abs(frame_times - np.arange(len(frame_times))) > SAME_TIME
    if motion.fps is None and is_uneven.any():
        motion = replace(motion, fps=rate)
    return change_motion(result, motion)


def blank_unreliable_rows(result: Result, motion: Motion) -> Result:
    """Return the result with NaN for the body in rows that are not reliable enough."""
    if motion.keep_reliable is None:
        return result
    people = []
    for person in result.people:
        is_unreliable = ~_is_reliable(person, motion)
        blanked: dict[str, Any] = {}
        for name in _BODY_COLUMNS:
            if (values := getattr(person, name)) is not None:
                blanked[name] = values.copy()
                blanked[name][is_unreliable] = np.nan
        people.append(replace(person, **blanked))
    return replace(result, people=people)


def _is_reliable(person: Person, motion: Motion) -> np.ndarray:
    """Return which rows [T] are reliable enough; rows of unknown reliability are not."""
    return np.nan_to_num(person.reliable(motion.reliable_mm)) >= (motion.keep_reliable or 0)


def _with_frame_rate(result: Result, fps: float | None) -> Result:
    """Return the result with its frames at even times of another rate, without people; None keeps
    the frames.
    """
    if fps is None or not len(result.frames):
        return result
    start_s = float(result.time_s[0])
    end_s = float(result.time_s[-1])
    seconds = end_s - start_s
    person_seconds = sum(float(person.time_s[-1] - person.time_s[0]) for person in result.people)
    check_motion_size(seconds, person_seconds / seconds if seconds else 0.0, fps)
    time_s = start_s + np.arange(int((end_s - start_s) * fps + SAME_TIME) + 1) / fps
    nearest = np.abs(np.searchsorted((result.time_s[1:] + result.time_s[:-1]) / 2, time_s))
    first = np.searchsorted(result.frames, [shot.first_frame for shot in result.shots])
    begins = np.searchsorted(time_s, result.time_s[first] - SAME_TIME / fps)
    return replace(
        result,
        frames=np.arange(len(time_s)),
        time_s=time_s,
        rate=Fraction(fps).limit_denominator(1001),
        focal_px=result.focal_px[nearest],
        shots=[
            replace(shot, first_frame=int(begin))
            for shot, begin in zip(result.shots, begins, strict=True)
        ],
    )


def _person(
    result: Result,
    person: Person,
    changed: Result,
    scene: SceneFrame,
    changed_scene: SceneFrame,
    motion: Motion,
) -> Person:
    """Return a person with changed motion on the frames of `changed`. Segments are interpolated one
    by one, in the scene frame, so that a turning camera does not move a foot that stands.
    """
    pelvis_rest_m = scenes.rest_body(result.body, person).joints_m[0]
    near_s = SAME_TIME / float(scenes.frame_rate(changed))
    parts = []
    for rows in scenes.segments(result, person):
        time_s = person.time_s[rows]
        turns, pelvis_m = scenes.motion_of(result, person, scene, rows)
        if motion.smooth:
            turns, pelvis_m = _smooth(time_s, turns, pelvis_m, motion.smooth * STRONGEST_S)
        motion_filter = parse_filter(motion.filter)
        if motion_filter is not None:
            turns, pelvis_m = _filter(time_s, turns, pelvis_m, motion_filter)
        ends = [time_s[0] - near_s, time_s[-1] + near_s]
        new_rows = np.arange(*np.searchsorted(changed.time_s, ends))
        if not len(new_rows):  # the segment is shorter than a frame of the new rate
            next_row = int(np.searchsorted(changed.time_s, time_s[0]))
            new_rows = np.array([min(next_row, len(changed.time_s) - 1)])
        new_time_s = changed.time_s[new_rows]
        place = np.interp(new_time_s, time_s, np.arange(len(time_s)))
        turns, pelvis_m = interpolate_motion(time_s, turns, pelvis_m, new_time_s)
        if motion.in_place:
            pelvis_m[:, [0, 2]] = 0
        camera = changed_scene.from_camera[new_rows]
        turns[0] = Rotation.from_matrix(camera[:, :3, :3]).inv() * turns[0]
        pelvis_cam_m = np.einsum("tji,tj->ti", camera[:, :3, :3], pelvis_m - camera[:, :3, 3])
        part = person.rows(rows).rows(place.round().astype(int))
        pose = np.stack([turn.as_rotvec() for turn in turns], 1).astype(np.float32)
        if part.hand_pose_rad is not None:
            part = replace(part, hand_pose_rad=pose[:, BODY_JOINTS:])
            pose = np.concatenate([pose[:, :BODY_JOINTS], part.pose_rad[:, BODY_JOINTS:]], 1)
        world = None
        if person.world_from_camera is not None:
            world = changed.world_from_camera[new_rows]
        parts.append(
            replace(
                part,
                frame=changed.frames[new_rows],
                time_s=new_time_s,
                pose_rad=pose,
                translation_m=(pelvis_cam_m - pelvis_rest_m).astype(np.float32),
                world_from_camera=world,
            )
        )
    moved = Person.concat(parts)
    first_rows = np.unique(moved.frame, return_index=True)[1]  # short segments may share a frame
    moved = moved.rows(first_rows)
    return replace(moved, joints_m=result.body.at(result.params(moved)).joints.numpy())


def interpolate_motion(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, new_time_s: np.ndarray
) -> tuple[list[Rotation], np.ndarray]:
    """Return rotations and positions [T, ...] at new times; constant beyond the ends."""
    new_time_s = np.clip(new_time_s, time_s[0], time_s[-1])
    flat = position_m.reshape(len(position_m), -1)
    moved = np.stack([np.interp(new_time_s, time_s, axis) for axis in flat.T], -1)
    if len(time_s) > 1:
        turned = [Slerp(time_s, rotation)(new_time_s) for rotation in rotations]
    else:
        repeated = np.zeros(len(new_time_s), int)
        turned = [rotation[repeated] for rotation in rotations]
    return turned, moved.reshape(-1, *position_m.shape[1:])


def _filter(
    time_s: np.ndarray, turns: list[Rotation], pelvis_m: np.ndarray, motion_filter: Filter
) -> tuple[list[Rotation], np.ndarray]:
    """Return filtered motion; rotations are filtered as quaternions, which are normalised again."""
    quaternions = [one_hemisphere(turn.as_quat()) for turn in turns]
    values = motion_filter.apply(time_s, np.concatenate([pelvis_m, *quaternions], 1))
    first_columns = range(3, values.shape[1], 4)
    turned = [Rotation.from_quat(values[:, first : first + 4]) for first in first_columns]
    return turned, values[:, :3]


def _smooth(
    time_s: np.ndarray, turns: list[Rotation], pelvis_m: np.ndarray, sigma_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """Return means over time weighted by a Gaussian; rotations are averaged as quaternions, which
    are normalised again.
    """
    quaternions = [one_hemisphere(turn.as_quat()) for turn in turns]
    values = np.concatenate([pelvis_m, *quaternions], 1)  # [T, 3 + J * 4]
    total = values.copy()
    weights = np.ones(len(values))
    step_s = float(np.diff(time_s).min()) if len(time_s) > 1 else np.inf
    for offset in range(1, min(len(values) - 1, int(_REACH * sigma_s / step_s)) + 1):
        weight = np.exp(-0.5 * ((time_s[offset:] - time_s[:-offset]) / sigma_s) ** 2)
        total[offset:] += weight[:, None] * values[:-offset]
        total[:-offset] += weight[:, None] * values[offset:]
        weights[offset:] += weight
        weights[:-offset] += weight
    mean = total / weights[:, None]
    first_columns = range(3, mean.shape[1], 4)
    turned = [Rotation.from_quat(mean[:, first : first + 4]) for first in first_columns]
    return turned, mean[:, :3]
