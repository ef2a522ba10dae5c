"""Keypoints lie where the image shows them.

Residuals are whitened pixels, under a robust loss or under the stated error distribution.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.camera.pinhole import NEAREST_KEYPOINT_M
from fitting.solver.jacobian import Posed
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure

# stds at which a keypoint counts half of its square; bench/weighting.py compares it with 1000
ROBUST_SCALE = 5.0


def project(points_cam: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """Project camera-frame points [T, K, 3] in metres to pixels [T, K, 2]. focal and center are [T,
    2]; z is at least 0.1 m.
    """
    z = points_cam[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    return points_cam[..., :2] / z * focal_px.unsqueeze(1) + center_px.unsqueeze(1)


def projection_rows(points_cam: Tensor, focal_px: Tensor) -> Tensor:
    """Return d pixels / d point, [T, K, 2, 3]."""
    z = points_cam[..., 2].clamp(min=NEAREST_KEYPOINT_M)
    fx, fy = (focal_px[:, None, axis] / z for axis in (0, 1))
    zero = torch.zeros_like(z)
    gx = -fx * points_cam[..., 0] / z
    gy = -fy * points_cam[..., 1] / z
    return torch.stack((fx, zero, gx, zero, fy, gy), -1).unflatten(-1, (2, 3))


def mixture_loss(squared: Tensor, weight: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Return -2 log of a mixture of plane Gaussians, less its value at 0 [..], and its slopes along
    x and y [.., 2].

    squared: residuals along x and y, [.., 2]; weight [.., M]; precision along x and y, [.., M, 2].
    The slopes are the mean precisions under the responsibilities r_m = P(component m | residual),
    so a step of iteratively reweighted least squares is a step of expectation-maximisation, which
    never raises the cost.
    """
    x, y = precision.unbind(-1)
    at_zero = weight.log() + (x * y).log() / 2
    exponent = at_zero - (x * squared[..., :1] + y * squared[..., 1:]) / 2
    rho = 2 * (torch.logsumexp(at_zero, -1) - torch.logsumexp(exponent, -1))
    responsible = exponent.softmax(-1)
    return rho, torch.stack([(responsible * x).sum(-1), (responsible * y).sum(-1)], -1)


def robust_scale(weight: Tensor, std_px: Tensor, stds: float = ROBUST_SCALE) -> Tensor:
    """Return c^2 of each keypoint [T, K]: this many of its own stds, in the units of its whitened
    residual.
    """
    return (stds**2 * weight * std_px.square()).clamp(min=1e-12)


@dataclass(frozen=True)
class Reprojection(Term):
    """Pull the body's keypoints to those that one camera shows."""

    PER_FRAME = (
        "focal_px",
        "center_px",
        "xy_px",
        "weight",
        "robust",
        "mixture_weight",
        "mixture_precision",
    )

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 26, 2] pixels of a perfect lens
    weight: Tensor  # [T, 26] 1 / px^2
    robust: Tensor  # [T, 26] c^2 of Geman-McClure, in the units of weight * px^2
    # The stated error distribution of each keypoint instead of `robust`: weights of Gaussians, [T,
    # K, M], and their precisions along x and y in the units of `weight`, [T, K, M, 2].
    mixture_weight: Tensor | None = None
    mixture_precision: Tensor | None = None
    # Of a camera beside the one in whose frame the body is: x_camera = rotation x_body + offset.
    # None: it is that one.
    rotation: Tensor | None = None  # [3, 3]
    offset_m: Tensor | None = None  # [3]

    def in_camera(self, points: Tensor) -> Tensor:
        """Return points [T, K, 3] of the body's frame in the frame of this camera."""
        if self.rotation is None or self.offset_m is None:
            return points
        return points @ self.rotation.mT + self.offset_m

    @property
    def used(self) -> Tensor:
        """Return which keypoints count, [T, 26]."""
        return self.weight > 0

    @property
    def without_tails(self) -> "Reprojection":
        """Return the term with the one Gaussian of each keypoint's expected OKS, for the first part
        of a search.

        A mixture's heavy tails would release good keypoints that the start happens to be far from.
        """
        return replace(self, mixture_weight=None, mixture_precision=None)

    def distance_px(self, points: Tensor) -> Tensor:
        """Return the distances [T, 26] from the image of points [T, 26, 3] to the keypoints."""
        return (project(self.in_camera(points), self.focal_px, self.center_px) - self.xy_px).norm(
            dim=-1
        )

    def behind(self, points: Tensor) -> Tensor:
        """Return the frames [T] in which a keypoint that counts would be behind the camera."""
        return ((self.in_camera(points)[..., 2] < NEAREST_KEYPOINT_M) & self.used).any(-1)

    def residual(self, points: Tensor) -> Tensor:
        """Return sqrt(weight) (projection - keypoint), [T, K, 2]: stds under `precision`
        weighting.
        """
        projected = project(self.in_camera(points), self.focal_px, self.center_px)
        return self.weight.sqrt().unsqueeze(-1) * (projected - self.xy_px)

    def loss(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return -2 log likelihood up to a constant of whitened residuals [T, K, 2], [T, K], and
        its slopes by the square along each axis, [T, K, 2] or, where they are equal, [T, K, 1].
        """
        if self.mixture_weight is None or self.mixture_precision is None:
            rho, slope = geman_mcclure(residual.square().sum(-1), self.robust)
            return rho, slope.unsqueeze(-1)
        return mixture_loss(residual.square(), self.mixture_weight, self.mixture_precision)

    def cost(self, posed: Posed) -> Tensor:
        rho, _ = self.loss(self.residual(posed.keypoints))
        return (rho.sum(-1) / 2).masked_fill(self.behind(posed.keypoints), torch.inf)

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        points = posed.keypoints
        jacobian = posed.jacobian
        residual = self.residual(points)
        root_slope = self.loss(residual)[1].sqrt()
        rows = projection_rows(self.in_camera(points), self.focal_px)
        rows = rows * (root_slope * self.weight.sqrt().unsqueeze(-1)).unsqueeze(-1)
        if self.rotation is not None:
            rows = rows @ self.rotation
        step = jacobian.keypoints.step_jacobian(posed, posed.carried, rows)
        shape = rows @ jacobian.keypoints.shape_jacobian(posed)
        equations.add_rows(
            (residual * root_slope).flatten(1), step.flatten(1, 2), shape.flatten(1, 2)
        )
