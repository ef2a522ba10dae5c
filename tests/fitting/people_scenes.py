"""People of captured motion on one floor, seen by a camera that is known exactly, and what a fit
would say of them.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from fitting.body import Body
from fitting.body.rotations import shortest_turn
from fitting.camera.focal import PRIOR_LOG_SIGMA, PRIOR_SHARE, FocalEstimate
from fitting.scene.person_evidence import PersonEvidence, ShotCamera

FPS = 30.0
SIZE = (1280, 720)
HEIGHT_M = 1.696  # of the open body's mean shape


@dataclass(frozen=True)
class Truth:
    """Exact answers, and the evidence made from them."""

    people: list[PersonEvidence]
    camera: ShotCamera
    up_cam: np.ndarray  # [3]
    camera_height_m: float
    focal_px: float
    joints_cam_m: list[np.ndarray]  # [T, 24, 3] each
    height_m: np.ndarray  # [P]
    foot_height_m: list[
        np.ndarray
    ]  # [T, 4] heels and toes (ankle and toe joints less their rest height)
    foot_speed_m_s: list[np.ndarray]  # [T, 4]


@dataclass(frozen=True)
class Errors:
    """What a fit does wrong."""

    lean_deg: float = 4.0  # constant per person, towards or away from the camera
    depth: float = 0.02  # log, slow
    joint_m: float = 0.02  # slow
    foot_px: float = 0.012  # of the apparent height, slow


def world_joints(pose: torch.Tensor, root_m: torch.Tensor, body: Body) -> np.ndarray:
    """[T, 24, 3] y up with the soles on y = 0."""
    joints = body(pose, translation=root_m - body.rest_joints[0]).joints.double().numpy()
    sole = np.minimum(joints[:, (7, 8), 1] - 0.072, joints[:, (10, 11), 1] - 0.031).min(1)
    return joints - np.array([0, np.quantile(sole, 0.1), 0])


def slow_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """[T, ..] standard normal, alike over about a quarter of a second, with a constant part."""
    fresh = gaussian_filter1d(rng.normal(0, 1, (shape[0] + 40, *shape[1:])), 4, axis=0)[
        20 : 20 + shape[0]
    ]
    fresh /= 0.265
    return math.sqrt(0.6) * fresh + math.sqrt(0.4) * rng.normal(0, 1, shape[1:])


def people_scene(
    motions: list[np.ndarray],
    rng: np.random.Generator,
    sizes: list[float],
    pitch_deg: float = 12.0,
    roll_deg: float = 2.0,
    camera_height_m: float = 1.5,
    focal_share: float = PRIOR_SHARE,
    focal_log_sigma: float | None = None,
    errors: Errors | None = None,
    distances_m: list[float] | None = None,
    first_from_camera: np.ndarray | None = None,
) -> Truth:
    """motions: [T, 24, 3] in a world of their own, y up; they are turned, scaled and set down in
    view.

    focal_log_sigma: None for a focal length that is known; else the fits used the prior's.
    """
    errors = errors or Errors()
    diagonal = math.hypot(*SIZE)
    focal_px = focal_share * diagonal
    used = FocalEstimate(focal_px, 0.01, "given")
    if focal_log_sigma is not None:
        used = FocalEstimate(PRIOR_SHARE * diagonal, PRIOR_LOG_SIGMA, "prior")
    # World: y up, floor 0, camera above the origin looking along -z; camera: x right, y down, z
    # forward.
    camera_from_world = (
        Rotation.from_euler("z", roll_deg, degrees=True)
        * Rotation.from_euler("x", pitch_deg, degrees=True)
    ).as_matrix() @ np.diag([1.0, -1.0, -1.0])
    center = (SIZE[0] / 2, SIZE[1] / 2)
    people = []
    joints_cam = []
    foot_height = []
    foot_speed = []
    frames = min(len(m) for m in motions)
    for number, (motion, size) in enumerate(zip(motions, sizes, strict=True)):
        world = motion[:frames] * size
        turn = Rotation.from_euler("y", rng.uniform(0, 360), degrees=True).as_matrix()
        world = world @ turn.T
        middle = world[:, 0].mean(0)
        distance = distances_m[number] if distances_m else rng.uniform(3.5, 9.0)
        reach = 0.3 * SIZE[0] / focal_px * distance
        side = rng.uniform(-reach, reach)
        near = world[:, 0, 2].max() - middle[2]
        world = world + np.array([side - middle[0], 0, -max(distance, near + 2.0) - middle[2]])
        cam = (world - np.array([0, camera_height_m, 0])) @ camera_from_world.T
        feet_world = world[:, (7, 10, 8, 11)]
        foot_height.append(feet_world[..., 1] - size * np.array([0.072, 0.031, 0.072, 0.031]))
        foot_speed.append(np.linalg.norm(np.gradient(feet_world, axis=0), axis=-1) * FPS)
        if first_from_camera is not None:
            cam = np.einsum("tji,tkj->tki", first_from_camera[:frames], cam)
        joints_cam.append(cam)
        people.append(_as_fitted(cam, size, focal_px, used, center, rng, errors))
    up = camera_from_world @ np.array([0.0, 1.0, 0.0])
    camera = ShotCamera(
        used, center, FPS, None if first_from_camera is None else first_from_camera[:frames]
    )
    heights = np.array(sizes) * HEIGHT_M
    return Truth(
        people, camera, up, camera_height_m, focal_px, joints_cam, heights, foot_height, foot_speed
    )


def refocused(points_m: np.ndarray, root_m: np.ndarray, ratio: float) -> np.ndarray:
    """Points [T, N, 3] of a body at root_m [T, 3] as a focal length `ratio` times as long would
    place them.
    """
    new_root = root_m * np.array([1.0, 1.0, ratio])
    turn = shortest_turn(torch.from_numpy(root_m), torch.from_numpy(new_root)).numpy()
    return new_root[:, None] + np.einsum("tij,tnj->tni", turn, points_m - root_m[:, None])


def _as_fitted(
    cam: np.ndarray,
    size: float,
    focal_px: float,
    used: FocalEstimate,
    center: tuple[float, float],
    rng: np.random.Generator,
    errors: Errors,
) -> PersonEvidence:
    """The mean body at the place that its apparent size suggests, leaning a little wrongly."""
    frames = len(cam)
    root = cam[:, 0]
    fitted = refocused(cam, root, used.focal_px / focal_px) / size
    root = fitted[:, 0]
    ray = root / np.linalg.norm(root, axis=1, keepdims=True)
    side = np.cross(np.array([0.0, 1.0, 0.0]), ray)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    tilt = Rotation.from_rotvec(side * math.radians(rng.normal(0, errors.lean_deg))).as_matrix()
    offset = np.einsum("tij,tkj->tki", tilt, fitted - root[:, None])
    offset = offset + errors.joint_m * slow_noise(rng, offset.shape)
    depth = np.exp(errors.depth * slow_noise(rng, (frames,)))
    joints = root[:, None] * depth[:, None, None] + offset
    toe = cam[:, (10, 11)]
    ankle = cam[:, (7, 8)]
    heel = ankle - 0.4 * (toe - ankle)
    points = np.stack((ankle[:, 0], heel[:, 0], toe[:, 0], ankle[:, 1], heel[:, 1], toe[:, 1]), 1)
    sigma = errors.foot_px * focal_px * size * HEIGHT_M / cam[:, 0, 2]
    xy = points[..., :2] / points[..., 2:] * focal_px + np.array(center)
    xy = xy + sigma[:, None, None] * slow_noise(rng, xy.shape)
    return PersonEvidence(
        frames=np.arange(frames),
        joints_cam_m=joints,
        observed=np.ones((frames, 24), bool),
        feet_px=xy,
        feet_sigma_px=np.broadcast_to(np.maximum(sigma, 0.3)[:, None], (frames, 6)).copy(),
        height_m=HEIGHT_M,
    )


def angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    return float(
        np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))
    )


def standing_pose(frames: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Somebody who stands with arms down and sways a little: pose [T, 24, 3], root [T, 3]."""
    pose = torch.zeros(frames, 24, 3)
    pose[:, 16, 2] = -1.2
    pose[:, 17, 2] = 1.2
    pose += 0.03 * torch.from_numpy(slow_noise(rng, (frames, 24, 3))).float()
    return pose, torch.tensor([0.0, 0.97, 0.0]).expand(frames, 3).clone()
