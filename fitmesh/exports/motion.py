"""Motion as an animator asks for it: at another frame rate, smoother, on the spot. The formats of
motion are made of it (`reworked`); fit.npz, csv and json keep the numbers of the fit."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from fitmesh.exports import Motion
from fitmesh.exports import scene as scenes
from fitmesh.exports.scene import SceneFrame, one_hemisphere
from fitmesh.result import Person, Result
from fitting.body.fingers import BODY_JOINTS

# standard deviation of the filter of --smooth 1: it halves the power of what moves at 1.3 Hz
STRONGEST_S = 0.1
SAME_TIME = 0.05  # of a frame: containers round time stamps, to a millisecond in mkv
_REACH = 3  # standard deviations that the filter looks around


def reworked(result: Result, motion: Motion) -> Result:
    """The same people moving so. Frames of another rate are numbered from 0; all but motion is the
    nearest frame's.
    """
    if motion.keep_reliable is not None:
        kept = [person.rows(_is_kept(person, motion)) for person in result.people]
        result = replace(result, people=[person for person in kept if len(person)])
        motion = replace(motion, keep_reliable=None, reliable_mm=Motion.reliable_mm)
    if motion == Motion():
        return result
    scene = scenes.scene_frame(result)
    made = _other_frames(result, motion.fps)
    camera = np.tile(np.eye(4), (len(made.frames), 1, 1))
    world = np.full((len(made.frames), 4, 4), np.nan, np.float32)
    for old, new, upright in zip(
        scenes.shot_rows(result), scenes.shot_rows(made), scene.upright, strict=True
    ):
        pose = scene.from_camera[old]
        time_s = made.time_s[new]
        if len(pose) and len(time_s):
            turns = [Rotation.from_matrix(pose[:, :3, :3])]
            (turn,), camera[new, :3, 3] = at_times(
                result.time_s[old], turns, pose[:, :3, 3], time_s
            )
            camera[new, :3, :3] = turn.as_matrix()
            world[new] = camera[new] if upright else np.nan
    made = replace(made, world_from_camera=world)
    frame = SceneFrame(made.frames, camera, scene.upright)
    made = replace(
        made,
        people=[_person(result, person, made, scene, frame, motion) for person in result.people],
    )
    made.__dict__["body"] = result.body  # what the cached property would read again
    return made


def evened(result: Result, motion: Motion) -> Result:
    """The same for formats with one frame rate: frames at uneven times are resampled at the
    video's.
    """
    rate = float(scenes.frame_rate(result))
    at = (result.time_s - result.time_s[:1]) * rate  # in frames
    if motion.fps is None and (np.abs(at - np.arange(len(at))) > SAME_TIME).any():
        motion = replace(motion, fps=rate)
    return reworked(result, motion)


def emptied(result: Result, motion: Motion) -> Result:
    """The same rows; those that are not reliable enough say nothing of the body."""
    if motion.keep_reliable is None:
        return result
    names = (
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
    people = []
    for person in result.people:
        values: dict[str, Any] = {
            n: value.copy() for n in names if (value := getattr(person, n)) is not None
        }
        for value in values.values():
            value[~_is_kept(person, motion)] = np.nan
        people.append(replace(person, **values))
    return replace(result, people=people)


def _is_kept(person: Person, motion: Motion) -> np.ndarray:
    """[T] what is not known to be reliable is not."""
    return np.nan_to_num(person.reliable(motion.reliable_mm)) >= (motion.keep_reliable or 0)


def _other_frames(result: Result, fps: float | None) -> Result:
    """The clip's frames at even times."""
    if fps is None or not len(result.frames):
        return result
    start_s = float(result.time_s[0])
    end_s = float(result.time_s[-1])
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
            replace(shot, first_frame=int(at))
            for shot, at in zip(result.shots, begins, strict=True)
        ],
    )


def _person(
    result: Result,
    person: Person,
    made: Result,
    scene: SceneFrame,
    made_scene: SceneFrame,
    motion: Motion,
) -> Person:
    """Segment by segment, in the scene frame: a camera that turns does not bend the way of a foot
    that stands.
    """
    pelvis_rest_m = scenes.rest_body(result.body, person).joints_m[0]
    near_s = SAME_TIME / float(scenes.frame_rate(made))
    parts = []
    for rows in scenes.segments(result, person):
        time_s = person.time_s[rows]
        turns, pelvis_m = scenes.motion_of(result, person, scene, rows)
        if motion.smooth:
            turns, pelvis_m = _smoothed(time_s, turns, pelvis_m, motion.smooth * STRONGEST_S)
        at = np.arange(*np.searchsorted(made.time_s, [time_s[0] - near_s, time_s[-1] + near_s]))
        if not len(at):  # shorter than a frame of the other rate
            at = np.array([min(int(np.searchsorted(made.time_s, time_s[0])), len(made.time_s) - 1)])
        place = np.interp(made.time_s[at], time_s, np.arange(len(time_s)))
        turns, pelvis_m = at_times(time_s, turns, pelvis_m, made.time_s[at])
        if motion.in_place:
            pelvis_m[:, [0, 2]] = 0
        camera = made_scene.from_camera[at]
        turns[0] = Rotation.from_matrix(camera[:, :3, :3]).inv() * turns[0]
        pelvis_cam_m = np.einsum("tji,tj->ti", camera[:, :3, :3], pelvis_m - camera[:, :3, 3])
        part = person.rows(rows).rows(place.round().astype(int))
        pose = np.stack([turn.as_rotvec() for turn in turns], 1).astype(np.float32)
        if part.hand_pose_rad is not None:
            part = replace(part, hand_pose_rad=pose[:, BODY_JOINTS:])
            pose = np.concatenate([pose[:, :BODY_JOINTS], part.pose_rad[:, BODY_JOINTS:]], 1)
        parts.append(
            replace(
                part,
                frame=made.frames[at],
                time_s=made.time_s[at],
                pose_rad=pose,
                translation_m=(pelvis_cam_m - pelvis_rest_m).astype(np.float32),
                world_from_camera=None
                if person.world_from_camera is None
                else made.world_from_camera[at],
            )
        )
    moved = Person.concat(parts)
    moved = moved.rows(
        np.unique(moved.frame, return_index=True)[1]
    )  # two short segments may share a frame
    return replace(moved, joints_m=result.body.at(result.params(moved)).joints.numpy())


def at_times(
    time_s: np.ndarray, rotations: list[Rotation], position_m: np.ndarray, wanted_s: np.ndarray
) -> tuple[list[Rotation], np.ndarray]:
    """Rotations of T frames and positions [T, ...] at times [T] -> the same at others; beyond the
    ends they stand.
    """
    wanted_s = np.clip(wanted_s, time_s[0], time_s[-1])
    flat = position_m.reshape(len(position_m), -1)
    moved = np.stack([np.interp(wanted_s, time_s, axis) for axis in flat.T], -1)
    single = np.zeros(len(wanted_s), int)
    turned = [
        Slerp(time_s, turn)(wanted_s) if len(time_s) > 1 else turn[single] for turn in rotations
    ]
    return turned, moved.reshape(-1, *position_m.shape[1:])


def _smoothed(
    time_s: np.ndarray, turns: list[Rotation], pelvis_m: np.ndarray, sigma_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """Means over time weighted by a Gaussian; those of rotations are means of quaternions, on their
    sphere again.
    """
    values = np.concatenate(
        [pelvis_m, *(one_hemisphere(turn.as_quat()) for turn in turns)], 1
    )  # [T, 3 + J * 4]
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
    return [
        Rotation.from_quat(mean[:, first : first + 4]) for first in range(3, mean.shape[1], 4)
    ], mean[:, :3]
