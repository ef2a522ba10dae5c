"""A synthetic `Result` of two walking people with exact values, without a video or a network."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation

import fitting
from fitmesh.person import Person, Shot
from fitmesh.result import FIT_FILE, Result
from fitmesh.schema import SCHEMA_VERSION
from fitting.body.kinematics import JOINT_NAMES
from fitting.camera.world import params_to_world
from pose2d.events import Event

NUMBER = {name: joint for joint, name in enumerate(JOINT_NAMES)}
SIZE = (640, 360)
SECONDS_PER_STEP = 1.1


def walkers(
    folder: Path,
    frames: int = 24,
    rate: Fraction = Fraction(30000, 1001),
    body: fitting.Body | None = None,
) -> Result:
    """Person 1 walks to the right, nearer; person 4 comes in late, walks towards the camera, and
    leaves early.
    """
    body = body or fitting.load_body()
    camera = fitting.Camera.default(SIZE)
    numbers = np.arange(100, 100 + frames)
    time_s = np.array([float(number / rate) for number in numbers.tolist()])
    part = slice(frames // 4, max(frames // 4 + 1, frames - frames // 6))
    people = [
        walker(
            body,
            camera,
            1,
            numbers,
            time_s,
            heading_rad=np.pi / 2,
            start_m=(-1.2, 0.1, 5.0),
            tall=1.0,
        ),
        walker(
            body,
            camera,
            4,
            numbers[part],
            time_s[part],
            heading_rad=0.2,
            start_m=(0.9, 0.1, 6.5),
            tall=-1.5,
        ),
    ]
    return result_of(folder, people, camera, numbers, time_s, rate, body)


def result_of(
    folder: Path,
    people: list[Person],
    camera: fitting.Camera,
    frames: np.ndarray,
    time_s: np.ndarray,
    rate: Fraction,
    body: fitting.Body | None = None,
) -> Result:
    result = Result(
        folder=folder,
        people=people,
        camera=camera,
        frames=frames,
        time_s=time_s,
        rate=rate,
        body_name="open",
        shots=[
            Shot(
                int(frames[0]),
                "unknown",
                None,
                np.nan,
                False,
                np.nan,
                camera.focal_px[0],
                np.nan,
                "given",
            )
        ],
        focal_px=np.full(len(frames), camera.focal_px[0]),
        world_from_camera=np.full((len(frames), 4, 4), np.nan),
        body_path=None,
        body_digest="",
        weighting="precision",
        init="lifter",
        source="ccnet",
        pose_model="movenet-thunder",
        clip_path=Path("walk <b>&.mp4"),
        settings={"video": "walk <b>&.mp4", "every": 1},
        timings_s={"people": 5.75, "fit": 0.5},
    )
    if body is not None:
        result.__dict__["body"] = body  # what the cached property would read from a file
    return result


def walker(
    body: fitting.Body,
    camera: fitting.Camera,
    identity: int,
    frames: np.ndarray,
    time_s: np.ndarray,
    heading_rad: float,
    start_m: tuple[float, float, float],
    tall: float,
) -> Person:
    """Someone who walks along `heading_rad` (0: towards the camera) from `start_m`; the left arm
    bends at the elbow.
    """
    count = len(frames)
    phase = 2 * np.pi * (time_s - time_s[0]) / SECONDS_PER_STEP
    pose = np.zeros((count, 24, 3))
    pose[:, NUMBER["left_hip"], 0] = 0.5 * np.sin(phase)
    pose[:, NUMBER["right_hip"], 0] = -0.5 * np.sin(phase)
    pose[:, NUMBER["left_knee"], 0] = 0.5 - 0.4 * np.cos(phase)
    pose[:, NUMBER["right_knee"], 0] = 0.5 + 0.4 * np.cos(phase)
    pose[:, NUMBER["left_shoulder"], 2] = -1.2
    pose[:, NUMBER["right_shoulder"], 2] = 1.2
    pose[:, NUMBER["left_elbow"], 1] = -1.0 + 0.3 * np.sin(phase)
    pose[:, NUMBER["spine2"], 1] = 0.1 * np.sin(phase)
    upright = np.array([np.pi, 0.0, 0.0])
    turn = np.array([0.0, heading_rad, 0.0])
    pose[:, 0] = _compose(upright, turn)
    shape = np.zeros(body.shape_size, np.float32)
    shape[0] = tall
    forward = np.array([np.sin(heading_rad), 0.0, -np.cos(heading_rad)])
    translation = np.array(start_m) + 1.2 * (time_s - time_s[0])[:, None] * forward
    pose = pose.astype(np.float32)
    translation = translation.astype(np.float32)
    placed = body(pose, shape, translation)
    pixels = camera.project(placed.keypoints).numpy()
    generator = np.random.default_rng(identity)
    error = generator.normal(0, 1.5, pixels.shape)
    confidence = generator.uniform(0.7, 0.98, (count, 26)).astype(np.float32)
    presence = np.full((count, 26), 0.97, np.float32)
    confidence[:, 9], presence[: count // 2, 16] = (
        0.12,
        0.1,
    )  # left wrist hard to see; right ankle out of view at first
    error[count // 3, 13] = (60, 0)  # one wild left knee
    observed = np.ones(count, bool)
    observed[2 * count // 3] = count < 3
    std = (
        np.linspace(10, 90, 24, dtype=np.float32)
        * np.linspace(1, 2, count, dtype=np.float32)[:, None]
    )
    std[~observed] = np.nan
    seen = np.repeat(observed[:, None], 24, 1)
    seen[:, [NUMBER["left_hand"], NUMBER["left_wrist"]]] = False
    keypoints = (pixels + error).astype(np.float32)
    low = keypoints.min(1) - 15
    high = keypoints.max(1) + 15
    used = np.repeat(observed[:, None], 26, 1)
    return Person(
        identity=identity,
        frame=frames,
        time_s=time_s,
        observed=observed,
        pose_rad=pose,
        translation_m=translation,
        shape=shape,
        joints_m=placed.joints.numpy(),
        joint_std_mm=std,
        joint_std_relative_mm=std / 2,
        joint_observed=seen,
        keypoint_observed=confidence * presence,
        keypoints_px=keypoints,
        confidence=confidence,
        presence=presence,
        raw=confidence / 2,
        used=used,
        swapped=np.zeros_like(used),
        reprojection_px=np.where(used, np.linalg.norm(error, axis=-1), np.nan).astype(np.float32),
        box_px=np.concatenate([low, high], 1),
        converged=np.ones(count, bool),
        stopped="converged",
        shot=0,
        same_as=identity,
        size=1.0,
        height_m=body.height_m(shape),
        contact=np.zeros((count, 4), np.float32),
        world_from_camera=None,
        joint_std_axes_mm=np.full((count, 24, 3), np.nan, np.float32),
        pose_std_deg=np.full((count, 24), np.nan, np.float32),
        worst_error_mm=np.full(count, np.nan, np.float32),
    )


def in_world(
    result: Result,
    pitch_deg: float = 18.0,
    height_m: float = 1.4,
    pan_deg: float = 0.0,
    child: float = 0.7,
) -> Result:
    """The same walk before a camera that is pitched down, `height_m` over the floor, and pans to
    the right.

    Everybody stands upright in the world, the lowest sole on y = 0; the last person is a child of
    this size.
    """
    count = len(result.frames)
    body = result.body
    pan = np.linspace(0, pan_deg, count)
    level_from_camera = Rotation.from_euler(
        "YX", np.stack([pan, np.full(count, -pitch_deg)], 1), degrees=True
    )
    world = np.tile(np.eye(4), (count, 1, 1))
    world[:, :3, :3] = np.diag([1.0, -1.0, -1.0]) @ level_from_camera.as_matrix()
    world[:, 1, 3] = height_m
    camera_from_level = np.tile(np.eye(4), (count, 1, 1))
    camera_from_level[:, :3, :3] = level_from_camera.inv().as_matrix()
    people = []
    for person in result.people:
        person = replace(person, size=child if person is result.people[-1] else 1.0)
        level = result.params(person)
        rest = body(np.zeros((1, 24, 3)), person.shape, size=np.float32(person.size), vertices=True)
        lowest = float(body.at(level, vertices=True).vertices[..., 1].max())  # y points down
        level = replace(
            level, translation=level.translation + torch.tensor([0.0, height_m - lowest, 0.0])
        )
        rows = np.searchsorted(result.frames, person.frame)
        params = params_to_world(level, rest.joints[0, 0] / person.size, camera_from_level[rows])
        placed = body.at(params)
        error_px = (
            person.keypoints_px
            - result.camera.project(body.at(result.params(person)).keypoints).numpy()
        )
        over_floor = height_m - body.at(level).keypoints[..., 1]
        feet = torch.stack(
            [
                over_floor[:, [heel, big, small]]
                for heel, big, small in ((24, 20, 22), (25, 21, 23))
            ],
            1,
        )
        contact = torch.stack([feet[..., 0], feet[..., 1:].mean(-1)], -1).flatten(1) < 0.05
        people.append(
            replace(
                person,
                pose_rad=params.pose.numpy(),
                translation_m=params.translation.numpy(),
                joints_m=placed.joints.numpy(),
                keypoints_px=(result.camera.project(placed.keypoints).numpy() + error_px).astype(
                    np.float32
                ),
                height_m=person.size * body.height_m(person.shape),
                contact=contact.numpy().astype(np.float32),
                world_from_camera=world[rows].astype(np.float32),
            )
        )
    up = world[0, 1, :3]
    shot = Shot(
        int(result.frames[0]),
        "rotating" if pan_deg else "static",
        up,
        2.0,
        True,
        height_m,
        result.camera.focal_px[0],
        0.1,
        "people and floor",
    )
    known = replace(result, people=people, shots=[shot], world_from_camera=world.astype(np.float32))
    known.__dict__["body"] = body
    return known


def save(result: Result) -> None:
    """As `fit.npz` in the result's folder, so that `fitmesh.load` reads it back."""
    np.savez(
        result.folder / FIT_FILE,
        schema_version=SCHEMA_VERSION,
        body=result.body_name,
        body_path="",
        body_digest="",
        weighting=result.weighting,
        init=result.init,
        source=result.source,
        pose_model=result.pose_model,
        width_px=result.size[0],
        height_px=result.size[1],
        rate=[result.rate.numerator, result.rate.denominator],
        frame=result.frames,
        time_s=result.time_s,
        focal_px=result.camera.focal_px,
        center_px=result.camera.center_px,
        distortion=np.array(result.camera.distortion, float),
        frame_focal_px=result.focal_px,
        world_from_camera=result.world_from_camera,
        **Event.stack(result.events).to_arrays(),
        **Shot.stack(result.shots).to_arrays(),
        **Person.to_groups(result.people),
    )


def _compose(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Axis-angle of `first` after `second`."""
    from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices

    a, b = (rotation_matrices(torch.from_numpy(v)) for v in (first, second))
    return matrix_to_axis_angle(a @ b).numpy()
