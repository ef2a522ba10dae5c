"""What a fit should make small. Pure functions that return residuals, so that every optimiser can share them.

All are in natural units: half the sum of squares is a negative log-likelihood, up to a constant. Reprojection is
robust: its residuals are whitened pixels, and `geman_mcclure` says how much a squared one counts.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

NEAR_M = 0.1  # nothing closer to the camera than this has an image
LEAN_SCALE = 3.0  # sigmas at which a lean counts half of its square: people do lie down
ROBUST_SCALE = 5.0  # sigmas at which a keypoint counts half of its square
MOTION_SCALE = 2.0  # sigmas beyond which an acceleration counts by its size and no longer by its square
REFERENCE_FPS = 30.0  # rate at which the acceleration's spread is stated


@dataclass(frozen=True)
class Ground:
    """A floor, in the camera frame: points x with normal . x = height."""

    normal_cam: tuple[float, float, float]  # unit vector, out of the floor
    height_m: float  # normal . x of the floor's own points
    contact: Tensor | None = None  # [T, 2] 0..1, how surely the left and right foot stand on it; None: unknown
    sigma_m: float = 0.02

    def rows(self, index: slice | Tensor) -> "Ground":
        """The floor of some of the frames."""
        return self if self.contact is None else replace(self, contact=self.contact[index])


def project(points_cam: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """Camera-frame points [T, K, 3] metres -> pixels [T, K, 2], focal and center [T, 2]; z is held at NEAR_M."""
    z = points_cam[..., 2:].clamp(min=NEAR_M)
    return points_cam[..., :2] / z * focal_px.unsqueeze(1) + center_px.unsqueeze(1)


def projection_rows(points_cam: Tensor, focal_px: Tensor) -> Tensor:
    """d pixels / d point, [T, K, 2, 3]."""
    z = points_cam[..., 2].clamp(min=NEAR_M)
    fx, fy = (focal_px[:, None, axis] / z for axis in (0, 1))
    zero = torch.zeros_like(z)
    gx, gy = -fx * points_cam[..., 0] / z, -fy * points_cam[..., 1] / z
    return torch.stack((fx, zero, gx, zero, fy, gy), -1).unflatten(-1, (2, 3))


def reprojection(points_cam: Tensor, xy_px: Tensor, weight: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """sqrt(weight) (projection - keypoint), [T, K, 2]: sigmas under `precision` weighting."""
    return weight.sqrt().unsqueeze(-1) * (project(points_cam, focal_px, center_px) - xy_px)


def geman_mcclure(squared: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """rho(e) = e c^2 / (c^2 + e) of a squared residual e, and its slope (c^2 / (c^2 + e))^2."""
    share = scale / (scale + squared)
    return squared * share, share.square()


def robust_scale(weight: Tensor, sigma_px: Tensor, sigmas: float = ROBUST_SCALE) -> Tensor:
    """c^2 of each keypoint [T, K]: so many of its own sigmas, in the units of its whitened residual."""
    return (sigmas**2 * weight * sigma_px.square()).clamp(min=1e-12)


def lean(root: Tensor, sigma_rad: float) -> Tensor:
    """How far bodies turned by root [T, 3, 3] lean out of the image's plane, in sigmas [T].

    Seen from the front, a body that leans towards or away from the camera looks like a slightly shorter one that
    does not, so noise alone would make everybody lean. The sine of the lean is the depth of the body's up axis.
    """
    return root[:, 2, 1] / sigma_rad


def shape_prior(shape: Tensor) -> Tensor:
    """A shape is given in standard deviations already."""
    return shape


def box_limits(theta: Tensor, low: Tensor, high: Tensor, sigma: float) -> Tensor:
    """How far axis-angle numbers [T, n] reach beyond their range, in units of sigma: zero inside."""
    return ((theta - high).clamp(min=0) + (theta - low).clamp(max=0)) / sigma


def acceleration(values: Tensor, fps: float, sigma: Tensor) -> Tensor:
    """Second difference over time of values [T, ...] -> [T - 2, ...], in sigmas per second^2.

    Summed over frames it stands for an integral over time, so the rate cancels: a video of twice the rate has twice
    as many terms, each counting half.
    """
    second = values[2:] - 2 * values[1:-1] + values[:-2]
    return second * acceleration_factor(fps) / sigma


def charbonnier(squared: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """rho(e) = 2 c^2 (sqrt(1 + e / c^2) - 1) of a squared residual e, square near zero and a cone far out; its slope.

    For motion: mostly people move evenly, and then somebody lands from a jump.
    """
    root = (1 + squared / scale**2).sqrt()
    return 2 * squared / (root + 1), 1 / root  # the same, without the difference of nearly equal numbers


def acceleration_factor(fps: float) -> float:
    """From a second difference to the rate-free acceleration residual."""
    return fps**2 * (REFERENCE_FPS / fps) ** 0.5


def ground_contact(feet_cam: Tensor, ground: Ground) -> Tensor:
    """Feet [T, 2, 3] -> [T, 2]: height over the floor where they stand on it, and depth below it anywhere."""
    height = feet_cam @ feet_cam.new_tensor(ground.normal_cam) - ground.height_m
    return ground_share(height, ground) * height / ground.sigma_m


def ground_share(height: Tensor, ground: Ground) -> Tensor:
    """How much of the height counts: all below the floor, sqrt(contact) above."""
    above = torch.zeros_like(height) if ground.contact is None else ground.contact.to(height).sqrt()
    return torch.where(height < 0, torch.ones_like(height), above)
