"""The focal length and how well it is known, and the world frame.

There is a prior, and estimates are combined by their uncertainty. A focal length acts by its ratio (10 % longer puts
everybody 10 % farther away), so it is Gaussian in log f.

The world frame: metres, y up, floor at y = 0, the first camera above the origin and looking along -z. Right-handed,
like the camera frame (x right, y down, z forward): a level camera's world is its frame turned half way about x. The
first camera stands at (0, its height, 0), and its optical axis, laid onto the floor, is -z, so x is to its right.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from fitting.body import BodyParams
from pose2d.base.errors import UserError

# As shares of the image's diagonal. Phones: 26 mm equivalent is 0.60, EMDB's phone has 1435 px of 2400 (0.60), and
# video crops for stabilisation up to 0.75; 1680 px of 2203 (0.76) was measured on a camera of shared videos. Webcams
# with 65 to 78 degrees across the diagonal: 0.62 to 0.78. Action cameras in their linear mode: 19 to 27 mm, 0.44 to
# 0.62. Lenses for cinema and sports: 35 to 85 mm, 0.8 to 2. The median lies among the phones and webcams, which make
# most videos; one deviation reaches 0.54 .. 0.96, two 0.41 .. 1.28.
PRIOR_SHARE = 0.72
PRIOR_LOG_SIGMA = 0.29
GIVEN_LOG_SIGMA = 0.01  # a focal length or field of view that the user states
SANE_SHARE = (0.2, 15.0)


@dataclass(frozen=True)
class FocalEstimate:
    """A focal length that may be wrong."""

    focal_px: float  # median, pixels of the full frame
    log_sigma: float  # standard deviation of log f
    source: str  # "given", "metadata: ..", "people and floor", "prior", or several joined by " + "

    def interval_px(self, sigmas: float = 1.0) -> tuple[float, float]:
        """From so many deviations below to so many above."""
        spread = math.exp(sigmas * self.log_sigma)
        return self.focal_px / spread, self.focal_px * spread


def focal_prior(size_px: tuple[int, int]) -> FocalEstimate:
    """What cameras have, for an image of (width, height) pixels."""
    return FocalEstimate(PRIOR_SHARE * math.hypot(*size_px), PRIOR_LOG_SIGMA, "prior")


def given_focal(focal_px: float, size_px: tuple[int, int]) -> FocalEstimate:
    """What the user states; impossible values are refused with a message."""
    share = focal_px / math.hypot(*size_px) if math.isfinite(focal_px) else math.nan
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        low, high = (math.hypot(*size_px) * s for s in SANE_SHARE)
        raise UserError(
            f"a focal length of {focal_px:g} pixels cannot belong to an image of {size_px[0]}x{size_px[1]}: "
            f"expected {low:.0f} to {high:.0f}. Give pixels of the full frame (f_mm / 43.27 * diagonal for a "
            "35 mm equivalent), or leave it out to have it estimated."
        )
    return FocalEstimate(focal_px, GIVEN_LOG_SIGMA, "given")


def combined(estimates: Iterable[FocalEstimate]) -> FocalEstimate:
    """The product of independent Gaussians in log f.

    Estimates that contradict each other (chi^2 above their number) widen the answer by Birge's ratio
    sqrt(chi^2 / (n - 1)): the figures are then wrong about themselves, and the mean of two contradictions is no better
    than either.
    """
    usable = [
        e for e in estimates if math.isfinite(e.focal_px) and e.focal_px > 0 and 0 < e.log_sigma < math.inf
    ]  # fmt: skip
    if not usable:
        raise ValueError("no finite estimate of the focal length to combine")
    log_f = np.log([e.focal_px for e in usable])
    precision = 1 / np.square([e.log_sigma for e in usable])
    mean = float(precision @ log_f / precision.sum())
    sigma = float(precision.sum() ** -0.5)
    if len(usable) > 1:
        chi2 = float(precision @ (log_f - mean) ** 2)
        sigma *= max(1.0, math.sqrt(chi2 / (len(usable) - 1)))
    weightiest_first = sorted(usable, key=lambda e: e.log_sigma)
    return FocalEstimate(math.exp(mean), sigma, " + ".join(dict.fromkeys(e.source for e in weightiest_first)))


def refocused(points_cam_m: np.ndarray, root_cam_m: np.ndarray, focal_ratio: float) -> np.ndarray:
    """Points [T, N, 3] of a body at root_cam_m [T, 3], fitted under one focal length, as another would place them.

    focal_ratio: new / old. A body of the same size and the same image lies at z * ratio, with x and y unchanged, and
    keeps its orientation towards its viewing ray, so that it turns with the ray.
    """
    new_root = root_cam_m * np.array([1.0, 1.0, focal_ratio])
    turn = _shortest_turn(root_cam_m, new_root)
    return new_root[:, None] + np.einsum("tij,tnj->tni", turn, points_cam_m - root_cam_m[:, None])


def refocused_params(params: BodyParams, rest_pelvis_m: torch.Tensor, focal_ratio: float) -> BodyParams:
    """The same for a body's parameters; rest_pelvis_m [3]: the pelvis of this body's shape at rest."""
    if focal_ratio == 1.0:
        return params
    rest = rest_pelvis_m.double().numpy()
    root = rest + params.translation.double().numpy()
    new_root = root * np.array([1.0, 1.0, focal_ratio])
    turn = Rotation.from_matrix(_shortest_turn(root, new_root))
    pose = params.pose.clone()
    pose[:, 0] = torch.from_numpy((turn * Rotation.from_rotvec(pose[:, 0].double().numpy())).as_rotvec()).to(pose)
    moved = torch.from_numpy(new_root - rest).to(params.translation)
    return BodyParams(pose, params.shape, moved, params.size)


def _shortest_turn(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[T, 3, 3] rotations that take directions [T, 3] to others, which must not be opposite."""
    a = source / np.linalg.norm(source, axis=-1, keepdims=True)
    b = target / np.linalg.norm(target, axis=-1, keepdims=True)
    axis, cosine = np.cross(a, b), np.sum(a * b, -1)
    skew = np.zeros((*axis.shape[:-1], 3, 3))
    skew[..., 0, 1], skew[..., 0, 2], skew[..., 1, 2] = -axis[..., 2], axis[..., 1], -axis[..., 0]
    skew -= skew.swapaxes(-1, -2)
    return np.eye(3) + skew + skew @ skew / (1 + cosine)[..., None, None]


_STEEPEST = 0.02  # length of the optical axis laid on the floor, below which the image's up direction is used instead


@dataclass(frozen=True)
class WorldFrame:
    """Where the camera was in the world at each of F frames."""

    frames: np.ndarray  # [F] frame numbers
    world_from_camera: np.ndarray  # [F, 4, 4] rigid, metres
    position_known: bool  # False: the camera went somewhere, and its place is held at the first frame's


def world_frame(
    up_cam: np.ndarray,
    camera_height_m: float,
    frames: np.ndarray,
    first_from_camera: np.ndarray | None = None,
    moving: bool = False,
) -> WorldFrame:
    """From `GroundEstimate`'s up direction and camera height and `CameraMotion`'s rotations [F, 3, 3]."""
    rotation = rotation_to_world(up_cam)
    transform = np.broadcast_to(np.eye(4), (len(frames), 4, 4)).copy()
    transform[:, :3, :3] = rotation if first_from_camera is None else rotation @ first_from_camera
    transform[:, 1, 3] = camera_height_m
    return WorldFrame(np.asarray(frames), transform, not moving)


def rotation_to_world(up_cam: np.ndarray) -> np.ndarray:
    """[3, 3] from the first camera's axes to the world's: up_cam becomes y, the optical axis lies over -z."""
    up = np.asarray(up_cam, float)
    size = np.linalg.norm(up)
    if up.shape != (3,) or not np.isfinite(size) or size < 1e-6:
        raise ValueError(f"the up direction must be three finite numbers that are not all zero, got {up_cam}")
    up = up / size
    forward = np.array([0.0, 0.0, 1.0]) - up[2] * up
    if np.linalg.norm(forward) < _STEEPEST:  # straight down or up: the top of the image points ahead or back
        forward = np.array([0.0, -1.0, 0.0]) * -np.sign(up[2])
        forward = forward - (forward @ up) * up
    forward /= np.linalg.norm(forward)
    return np.stack((np.cross(forward, up), up, -forward))


def points_to_world(points_cam_m: np.ndarray, world_from_camera: np.ndarray) -> np.ndarray:
    """Points [T, N, 3] of T frames by their [T, 4, 4]."""
    rotated = np.einsum("tij,tnj->tni", world_from_camera[:, :3, :3], points_cam_m)
    return rotated + world_from_camera[:, None, :3, 3]


def points_to_camera(points_world_m: np.ndarray, world_from_camera: np.ndarray) -> np.ndarray:
    """The other way."""
    shifted = points_world_m - world_from_camera[:, None, :3, 3]
    return np.einsum("tji,tnj->tni", world_from_camera[:, :3, :3], shifted)


def params_to_world(params: BodyParams, rest_pelvis_m: torch.Tensor, world_from_camera: np.ndarray) -> BodyParams:
    """A body's parameters [T] in the world: the root is turned, and the translation puts the pelvis in its place.

    rest_pelvis_m [3]: the pelvis of this body's shape at rest, before its size multiplies the whole body. A body turns
    about its pelvis, not about the origin, so the translation is not simply transformed:

        pelvis = size * rest_pelvis + translation,     translation' = R pelvis + t - size * rest_pelvis
    """
    dtype = params.translation.dtype
    rest = params.size.detach().cpu().double().reshape(-1, 1).numpy() * rest_pelvis_m.detach().cpu().double().numpy()
    pelvis = rest + params.translation.detach().cpu().double().numpy()
    moved = points_to_world(pelvis[:, None], world_from_camera)[:, 0] - rest
    root = Rotation.from_rotvec(params.pose[:, 0].detach().cpu().double().numpy())
    pose = params.pose.detach().clone()
    turned = (Rotation.from_matrix(world_from_camera[:, :3, :3]) * root).as_rotvec()
    pose[:, 0] = torch.from_numpy(turned).to(pose)
    return BodyParams(pose, params.shape, torch.from_numpy(moved).to(dtype), params.size)
