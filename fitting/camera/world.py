"""The world frame: y up, floor at y = 0, the first camera above the origin, looking along -z.

Units are metres. Right-handed, like the camera frame (x right, y down, z forward): a level camera's
world is its frame turned half way about x. The first camera stands at (0, its height, 0), and its
optical axis, laid onto the floor, is -z, so x is to its right.
"""

from dataclasses import replace

import numpy as np
import torch

from fitting.body import BodyParams
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices

# length of the optical axis laid on the floor, below which the image's up direction is used instead
_STEEPEST = 0.02


def world_from_camera(
    up_cam: np.ndarray,
    camera_height_m: float,
    first_from_camera: np.ndarray | None,
    frames: int = 1,
) -> np.ndarray:
    """Return the pose of the camera in the world, [F, 4, 4].

    It follows from `GroundEstimate`'s up direction and camera height and `CameraMotion`'s rotations
    [F, 3, 3]; with None it did not turn in this many frames. Its position is the first frame's.
    """
    turn = np.tile(np.eye(3), (frames, 1, 1)) if first_from_camera is None else first_from_camera
    transform = np.tile(np.eye(4), (len(turn), 1, 1))
    transform[:, :3, :3] = rotation_to_world(up_cam) @ turn
    transform[:, 1, 3] = camera_height_m
    return transform


def rotation_to_world(up_cam: np.ndarray) -> np.ndarray:
    """Return the rotation [3, 3] from the first camera's axes to the world's: up_cam becomes y, the
    optical axis lies over -z.
    """
    up = np.asarray(up_cam, float)
    size = np.linalg.norm(up)
    if up.shape != (3,) or not np.isfinite(size) or size < 1e-6:
        raise ValueError(
            f"the up direction must be three finite numbers that are not all zero, got {up_cam}"
        )
    up = up / size
    forward = np.array([0.0, 0.0, 1.0]) - up[2] * up
    # looking straight down or up, the top of the image points ahead or back
    if np.linalg.norm(forward) < _STEEPEST:
        forward = np.array([0.0, -1.0, 0.0]) * -np.sign(up[2])
        forward = forward - (forward @ up) * up
    forward /= np.linalg.norm(forward)
    return np.stack((np.cross(forward, up), up, -forward))


def points_to_world(points_cam_m: np.ndarray, world_from_camera: np.ndarray) -> np.ndarray:
    """Transform points [T, N, 3] of T frames by their matrices [T, 4, 4]."""
    rotated = np.einsum("tij,tnj->tni", world_from_camera[:, :3, :3], points_cam_m)
    return rotated + world_from_camera[:, None, :3, 3]


def params_to_world(
    params: BodyParams, rest_pelvis_m: torch.Tensor, world_from_camera: np.ndarray
) -> BodyParams:
    """Return a body's parameters [T] in the world: the root is turned, and the translation puts the
    pelvis in its place.

    rest_pelvis_m [3]: the pelvis of this body's shape at rest, before its size multiplies the whole
    body. A body turns about its pelvis, not about the origin, so the translation is not simply
    transformed:

        pelvis = size * rest_pelvis + translation
        translation' = R pelvis + t - size * rest_pelvis
    """
    dtype = params.translation.dtype
    rest_pelvis = (
        params.size.detach().cpu().double().reshape(-1, 1).numpy()
        * rest_pelvis_m.detach().cpu().double().numpy()
    )
    pelvis = rest_pelvis + params.translation.detach().cpu().double().numpy()
    moved = points_to_world(pelvis[:, None], world_from_camera)[:, 0] - rest_pelvis
    pose = params.pose.detach().clone()
    turn = torch.from_numpy(world_from_camera[:, :3, :3]).double()
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0].double().cpu())).to(pose)
    return replace(params, pose=pose, translation=torch.from_numpy(moved).to(dtype))
