"""People who stand on a floor before a camera that looks down on them, and what it sees."""

import math

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate
from fitting.shot import ShotFit, ShotPerson
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints
from tests.fitting.people_scenes import standing_pose

SIZE = (1280, 720)
FOCAL_PX = 1000.0
FPS = 30.0
FRAMES = 24
CAMERA = Camera.from_focal(FOCAL_PX, SIZE)
KNOWN = FocalEstimate(FOCAL_PX, 0.01, "given")
PITCH_DEG = 14.0
CAMERA_M = 1.9
HEAD = [0, 1, 2, 3, 4, 17]
FEET = (24, 20, 25, 21)


def standing(
    body: Body, size: float, x_m: float, far_m: float, seed: int, frames: int = FRAMES
) -> np.ndarray:
    """Return keypoints [T, 26, 3] of a person who stands on the floor in the world (y up, the camera
    looks along -z).
    """
    pose, _ = standing_pose(frames, np.random.default_rng(seed))
    pose[:, (1, 2, 4, 5, 7, 8)] *= 0.05  # people who stand do not shuffle
    pose[:, 0] *= 0.3
    posed = body(pose, vertices=True)
    assert posed.vertices is not None
    points = size * posed.keypoints.double().numpy()
    turn = Rotation.from_euler("y", 20 * seed, degrees=True).as_matrix()
    points = points @ turn.T
    points[..., 1] -= size * float(posed.vertices[..., 1].min())
    points[..., (0, 2)] -= points[:, FEET].mean(1)[:, None, (0, 2)]  # the feet stay where they are
    return points + np.array([x_m, 0, -far_m])


def in_camera(points: np.ndarray, turn: np.ndarray | None = None) -> np.ndarray:
    """Return world points in the camera frame. turn [T, 3, 3]: first_from_camera."""
    rotation = Rotation.from_euler("x", PITCH_DEG, degrees=True).as_matrix() @ np.diag(
        [1.0, -1.0, -1.0]
    )
    cam = (points - np.array([0, CAMERA_M, 0])) @ rotation.T
    return cam if turn is None else np.einsum("tji,tnj->tni", turn, cam)


UP = (
    Rotation.from_euler("x", PITCH_DEG, degrees=True).as_matrix()
    @ np.diag([1.0, -1.0, -1.0])
    @ np.array([0, 1.0, 0])
)


def observe(points_cam: np.ndarray, zoom: np.ndarray | None = None) -> Keypoints:
    """Return exact keypoints with good confidence; zoom [T]."""
    focal = FOCAL_PX * (np.ones(len(points_cam)) if zoom is None else zoom)
    xy = points_cam[..., :2] / points_cam[..., 2:] * focal[:, None, None] + np.array(
        CAMERA.center_px
    )
    confidence = torch.full(xy.shape[:2], 0.9)
    sides = np.ptp(xy, axis=1)
    area = torch.from_numpy(0.5 * sides[:, 0] * sides[:, 1]).float()
    return Keypoints(
        torch.from_numpy(xy).float(),
        confidence,
        torch.ones_like(confidence),
        "oracle",
        area,
        HALPE26,
    )


def shot_person(identity: int, keypoints: Keypoints, **more: object) -> ShotPerson:
    return ShotPerson(identity, keypoints, np.arange(len(keypoints.xy_px)), **more)  # type: ignore[arg-type]


def is_finite(fit: ShotFit) -> bool:
    """Return whether all bodies and the focal length are finite."""
    params = [p.fit.params for p in fit.people.values()]
    numbers = [
        torch.cat((p.pose.flatten(), p.shape.flatten(), p.translation.flatten(), p.size.flatten()))
        for p in params
    ]
    return all(bool(torch.isfinite(n).all()) for n in numbers) and math.isfinite(fit.focal.focal_px)
