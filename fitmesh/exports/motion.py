"""Motion as an animator asks for it: at another frame rate, smoother, on the spot. The formats of motion are made of it
(`Exporter.is_motion`); fit.npz, csv and json keep the numbers of the fit."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports import Motion
from fitmesh.exports import scene as scenes
from fitmesh.exports.gltf import one_hemisphere
from fitmesh.exports.scene import SceneFrame
from fitmesh.result import Person, Result
from fitting.body.kinematics import BODY_JOINTS

STRONGEST_S = 0.1  # standard deviation of the filter of --smooth 1: it halves the power of what moves at 1.3 Hz
_REACH = 3  # standard deviations that the filter looks around


def reworked(result: Result, motion: Motion) -> Result:
    """The same people moving so. Frames of another rate are numbered from 0; all but motion is the nearest frame's."""
    if motion.keep_reliable is not None:
        kept = [person.rows(_is_kept(person, motion)) for person in result.people]
        result = replace(result, people=[person for person in kept if len(person)])
        motion = replace(motion, keep_reliable=None, reliable_mm=Motion.reliable_mm)
    if motion == Motion():
        return result
    scene, made, rows = scenes.scene_frame(result), _other_frames(result, motion.fps), np.arange(len(result.frames))
    shots = np.array([result.shot_at(frame) for frame in result.frames.tolist()])
    made_shots = np.array([made.shot_at(frame) for frame in made.frames.tolist()])
    camera = np.tile(np.eye(4), (len(made.frames), 1, 1))
    for shot in range(len(result.shots)):
        old, new = rows[shots == shot], made_shots == shot
        if len(old) and new.any():
            pose = scene.from_camera[old]
            turns = [Rotation.from_matrix(pose[:, :3, :3])]
            (turn,), camera[new, :3, 3] = scenes.at_times(result.time_s[old], turns, pose[:, :3, 3], made.time_s[new])
            camera[new, :3, :3] = turn.as_matrix()
    known = np.array(scene.upright)[made_shots]
    made = replace(made, world_from_camera=np.where(known[:, None, None], camera, np.nan).astype(np.float32))
    frame = SceneFrame(made.frames, camera, scene.upright)
    made = replace(made, people=[_person(result, person, made, scene, frame, motion) for person in result.people])
    made.__dict__["body"] = result.body  # what the cached property would read again
    return made


def emptied(result: Result, motion: Motion) -> Result:
    """The same rows; those that are not reliable enough say nothing of the body."""
    if motion.keep_reliable is None:
        return result
    names = ("pose_rad", "translation_m", "joints_m", "joint_std_mm", "joint_std_relative_mm", "joint_std_axes_mm",
             "pose_std_deg", "contact", "hand_pose_rad", "hand_std_deg")  # fmt: skip
    people = []
    for person in result.people:
        kept = _is_kept(person, motion)
        columns = {name: value for name in names if (value := getattr(person, name)) is not None}
        blank: dict[str, Any] = {
            n: np.where(kept.reshape(-1, *[1] * (v.ndim - 1)), v, np.nan) for n, v in columns.items()
        }
        people.append(replace(person, **blank))
    return replace(result, people=people)


def _is_kept(person: Person, motion: Motion) -> np.ndarray:
    """[T] what is not known to be reliable is not."""
    return np.nan_to_num(person.reliable(motion.reliable_mm)) >= (motion.keep_reliable or 0)


def _other_frames(result: Result, fps: float | None) -> Result:
    """The clip's frames at even times."""
    if fps is None or not len(result.frames):
        return result
    start_s, end_s = float(result.time_s[0]), float(result.time_s[-1])
    time_s = start_s + np.arange(int((end_s - start_s) * fps + scenes.SAME_TIME) + 1) / fps
    nearest = np.abs(np.searchsorted((result.time_s[1:] + result.time_s[:-1]) / 2, time_s))
    first = np.searchsorted(result.frames, [shot.first_frame for shot in result.shots])
    begins = np.searchsorted(time_s, result.time_s[first] - scenes.SAME_TIME / fps)
    return replace(
        result,
        frames=np.arange(len(time_s)),
        time_s=time_s,
        rate=Fraction(fps).limit_denominator(1001),
        focal_px=result.focal_px[nearest],
        shots=[replace(shot, first_frame=int(at)) for shot, at in zip(result.shots, begins, strict=True)],
    )


def _person(
    result: Result, person: Person, made: Result, scene: SceneFrame, made_scene: SceneFrame, motion: Motion
) -> Person:
    """Segment by segment, in the scene frame: a camera that turns does not bend the way of a foot that stands."""
    pelvis_rest_m = scenes.rest_body(result.body, person).joints_m[0]
    parts = []
    for rows in scenes.segments(result, person):
        frame, time_s = person.frame[rows], person.time_s[rows]
        turns = scenes.scene_rotations(scenes.joint_poses(person, rows), scene.at(frame))
        pelvis_m = scene.points((person.translation_m[rows] + pelvis_rest_m)[:, None], frame)[:, 0]
        if motion.smooth:
            turns, pelvis_m = _smoothed(time_s, turns, pelvis_m, motion.smooth * STRONGEST_S)
        at = np.arange(*np.searchsorted(made.time_s, [time_s[0] - 1e-9, time_s[-1] + 1e-9]))
        if not len(at):  # shorter than a frame of the other rate
            at = np.array([min(int(np.searchsorted(made.time_s, time_s[0])), len(made.time_s) - 1)])
        place = np.interp(made.time_s[at], time_s, np.arange(len(time_s)))
        turns, pelvis_m = scenes.at_times(time_s, turns, pelvis_m, made.time_s[at])
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
                world_from_camera=None if person.world_from_camera is None else made.world_from_camera[at],
            )
        )
    moved = Person.concat(parts)
    moved = moved.rows(np.unique(moved.frame, return_index=True)[1])  # two short segments may share a frame
    return replace(moved, joints_m=result.body.at(result.params(moved)).joints.numpy())


def _smoothed(
    time_s: np.ndarray, turns: list[Rotation], pelvis_m: np.ndarray, sigma_s: float
) -> tuple[list[Rotation], np.ndarray]:
    """Means over time weighted by a Gaussian; those of rotations are means of quaternions, on their sphere again."""
    values = np.concatenate([pelvis_m, *(one_hemisphere(turn.as_quat()) for turn in turns)], 1)  # [T, 3 + J * 4]
    total, weights = values.copy(), np.ones(len(values))
    step_s = float(np.diff(time_s).min()) if len(time_s) > 1 else np.inf
    for offset in range(1, min(len(values) - 1, int(_REACH * sigma_s / step_s)) + 1):
        weight = np.exp(-0.5 * ((time_s[offset:] - time_s[:-offset]) / sigma_s) ** 2)
        total[offset:] += weight[:, None] * values[:-offset]
        total[:-offset] += weight[:, None] * values[offset:]
        weights[offset:] += weight
        weights[:-offset] += weight
    mean = total / weights[:, None]
    return [Rotation.from_quat(mean[:, first : first + 4]) for first in range(3, mean.shape[1], 4)], mean[:, :3]
