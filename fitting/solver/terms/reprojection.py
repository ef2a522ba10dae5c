"""Keypoints are where they are seen: whitened pixels, under a robust loss or the stated error distribution.

`Palm`: wrist, knuckles and the thumb's base of a hand that is seen, which hang on the wrist without bending. They are
evidence for the wrist's bend and for the forearm's twist, which no keypoint of the body shows. Pixels alone
leave open whether a palm leans towards the camera or away from it; the hand network's 3D landmarks say which, as
differences of depth along the line of sight.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import PARENTS, WRISTS
from fitting.keypoints.observed import PALM, SeenHands
from fitting.solver.terms.term import Blocks, Term, Window, geman_mcclure
from fitting.solver.unknowns import MOVED_JOINTS, POSE, STEP_SIZE, TRANSLATION, cross_matrix
from fitting.thresholds import NEAREST_KEYPOINT_M

ROBUST_SCALE = 5.0  # stds at which a keypoint counts half of its square; bench/weighting.py compares it with 1000


def project(points_cam: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """Camera-frame points [T, K, 3] metres -> pixels [T, K, 2], focal and center [T, 2]; z is at least 0.1 m."""
    z = points_cam[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    return points_cam[..., :2] / z * focal_px.unsqueeze(1) + center_px.unsqueeze(1)


def projection_rows(points_cam: Tensor, focal_px: Tensor) -> Tensor:
    """d pixels / d point, [T, K, 2, 3]."""
    z = points_cam[..., 2].clamp(min=NEAREST_KEYPOINT_M)
    fx, fy = (focal_px[:, None, axis] / z for axis in (0, 1))
    zero = torch.zeros_like(z)
    gx, gy = -fx * points_cam[..., 0] / z, -fy * points_cam[..., 1] / z
    return torch.stack((fx, zero, gx, zero, fy, gy), -1).unflatten(-1, (2, 3))


def mixture_loss(squared: Tensor, weight: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """-2 log of a mixture of plane Gaussians, less its value at 0 [..], and its slopes along x and y [.., 2].

    squared: residuals along x and y, [.., 2]; weight [.., M]; precision along x and y, [.., M, 2]. The slopes are the
    mean precisions under the responsibilities r_m = P(component m | residual), so a step of iteratively reweighted
    least squares is a step of expectation-maximisation, which never raises the cost.
    """
    x, y = precision.unbind(-1)
    at_zero = weight.log() + (x * y).log() / 2
    exponent = at_zero - (x * squared[..., :1] + y * squared[..., 1:]) / 2
    rho = 2 * (torch.logsumexp(at_zero, -1) - torch.logsumexp(exponent, -1))
    responsible = exponent.softmax(-1)
    return rho, torch.stack([(responsible * x).sum(-1), (responsible * y).sum(-1)], -1)


def robust_scale(weight: Tensor, std_px: Tensor, stds: float = ROBUST_SCALE) -> Tensor:
    """c^2 of each keypoint [T, K]: so many of its own stds, in the units of its whitened residual."""
    return (stds**2 * weight * std_px.square()).clamp(min=1e-12)


@dataclass(frozen=True)
class Reprojection(Term):
    """Of the keypoints that one camera sees."""

    PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "robust", "mixture_weight", "mixture_precision")

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 26, 2] pixels of a perfect lens
    weight: Tensor  # [T, 26] 1 / px^2
    robust: Tensor  # [T, 26] c^2 of Geman-McClure, in the units of weight * px^2
    # The stated error distribution of each keypoint instead of `robust`: weights of Gaussians, [T, K, M], and their
    # precisions along x and y in the units of `weight`, [T, K, M, 2].
    mixture_weight: Tensor | None = None
    mixture_precision: Tensor | None = None
    # Of a camera beside the one in whose frame the body is: x_camera = rotation x_body + offset. None: it is that one.
    rotation: Tensor | None = None  # [3, 3]
    offset_m: Tensor | None = None  # [3]

    def in_camera(self, points: Tensor) -> Tensor:
        """Points [T, K, 3] of the body's frame in this camera's."""
        if self.rotation is None or self.offset_m is None:
            return points
        return points @ self.rotation.mT + self.offset_m

    @property
    def used(self) -> Tensor:
        """[T, 26] keypoints that count."""
        return self.weight > 0

    @property
    def without_tails(self) -> "Reprojection":
        """Every keypoint with the one Gaussian of its expected OKS, for the first part of a search: a mixture's heavy
        tails would let go of good keypoints that the start happens to be far from."""
        return replace(self, mixture_weight=None, mixture_precision=None)

    def distance_px(self, points: Tensor) -> Tensor:
        """[T, 26] from the image of points [T, 26, 3] to the keypoints."""
        return (project(self.in_camera(points), self.focal_px, self.center_px) - self.xy_px).norm(dim=-1)

    def behind(self, points: Tensor) -> Tensor:
        """[T] whether a keypoint that counts would be behind the camera."""
        return ((self.in_camera(points)[..., 2] < NEAREST_KEYPOINT_M) & self.used).any(-1)

    def residual(self, points: Tensor) -> Tensor:
        """sqrt(weight) (projection - keypoint), [T, K, 2]: stds under `precision` weighting."""
        seen = project(self.in_camera(points), self.focal_px, self.center_px)
        return self.weight.sqrt().unsqueeze(-1) * (seen - self.xy_px)

    def loss(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """What whitened residuals [T, K, 2] count, -2 log likelihood up to a constant [T, K], and the slopes by the
        square along each axis, [T, K, 2] or, where they are equal, [T, K, 1]."""
        if self.mixture_weight is None or self.mixture_precision is None:
            rho, slope = geman_mcclure(residual.square().sum(-1), self.robust)
            return rho, slope.unsqueeze(-1)
        return mixture_loss(residual.square(), self.mixture_weight, self.mixture_precision)

    def cost(self, window: Window) -> Tensor:
        rho, _ = self.loss(self.residual(window.keypoints))
        return (rho.sum(-1) / 2).masked_fill(self.behind(window.keypoints), torch.inf)

    def add(self, window: Window, blocks: Blocks) -> None:
        points, jacobian = window.keypoints, window.jacobian
        residual = self.residual(points)
        root_slope = self.loss(residual)[1].sqrt()
        rows = projection_rows(self.in_camera(points), self.focal_px)
        rows = rows * (root_slope * self.weight.sqrt().unsqueeze(-1)).unsqueeze(-1)
        if self.rotation is not None:
            rows = rows @ self.rotation
        step = jacobian.keypoint_step_jacobian(window.geometry, rows)
        shape = rows @ jacobian.keypoint_shape_jacobian(window.geometry, window.joint_shape_jacobian)
        blocks.add_rows((residual * root_slope).flatten(1), step.flatten(1, 2), shape.flatten(1, 2))


ROBUST = 3.0  # stds at which a knuckle counts half of its square


@dataclass(frozen=True)
class Palm(Term):
    """Six points of each hand, the wrist first."""

    PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "depth_m", "depth_weight", "line")

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 2, 6, 2] pixels of a perfect lens
    weight: Tensor  # [T, 2, 6] 1 / px^2; 0: not seen
    depth_m: Tensor  # [T, 2, 6] along the line of sight, from the wrist
    depth_weight: Tensor  # [T, 2] 1 / m^2
    line: Tensor  # [T, 2, 3] unit vectors of the line of sight
    offset: Tensor  # [2, 6, 3] metres in the T-pose, from the wrist's joint
    offset_shapedirs: Tensor  # [2, 6, 3, S]

    @classmethod
    def of(cls, seen: SeenHands | None, keypoints: Reprojection, body: Body, shape_size: int) -> "Palm | None":
        """Of hands that are seen by the camera of the keypoints."""
        if seen is None or not bool(seen.seen.any()):
            return None
        fingers, palm = body.with_fingers(), [0, *PALM]
        flat = fingers.flat_points(body.rest_joints)
        directions = []  # linear in the shape: differences are exact
        for one in torch.eye(body.shape_size)[:shape_size]:
            rest = body.rest_joints + body.rest_joint_shapedirs @ one.to(body.dtype)
            directions.append((fingers.flat_points(rest, one.to(body.dtype)) - flat)[:, palm])
        offset = (flat + fingers.offsets)[:, palm]
        along = torch.stack(directions, -1) if directions else offset.new_zeros(*offset.shape, 0)
        return cls(
            keypoints.focal_px, keypoints.center_px, seen.xy_px[:, :, palm], seen.weight[:, :, palm],
            seen.depth_m[:, :, palm], seen.depth_weight, seen.line, offset, along,
        )  # fmt: skip

    def _points(self, window: Window) -> Tensor:
        """[T, 2, 6, 3] metres in the camera frame."""
        wrists = list(WRISTS)
        offset = self.offset + torch.einsum("hkcs,...s->...hkc", self.offset_shapedirs, window.state.shape)
        offset = offset.expand(len(window.state), *self.offset.shape)
        turned = torch.einsum("thij,thkj->thki", window.geometry.placement.rotation[:, wrists], offset)
        return window.geometry.joints[:, wrists].unsqueeze(2) + turned

    def _residuals(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Whitened pixels [T, 12, 2] and depths [T, 12]; those of wrists are zero."""
        flat = points.flatten(1, 2)
        pixels = project(flat, self.focal_px, self.center_px) - self.xy_px.flatten(1, 2)
        away = torch.einsum("thkc,thc->thk", points - points[:, :, :1], self.line)
        depth = self.depth_weight.sqrt().unsqueeze(-1) * (away - self.depth_m)
        return self.weight.sqrt().flatten(1).unsqueeze(-1) * pixels, depth.flatten(1)

    def cost(self, window: Window) -> Tensor:
        pixels, depth = self._residuals(self._points(window))
        rho, _ = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))
        return (rho.sum(-1) + depth.square().sum(-1)) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        points = self._points(window)
        pixels, depth = self._residuals(points)
        slope = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))[1].sqrt()
        rows = projection_rows(points.flatten(1, 2), self.focal_px)
        rows = rows * (slope * self.weight.flatten(1).sqrt())[..., None, None]
        line = self.depth_weight.sqrt().unsqueeze(-1) * self.line

        def stacked(point: Tensor) -> Tensor:
            """Of pixels and depths, from [T, 2, 6, 3, 63 or S]."""
            deeper = torch.einsum("thc,thkcd->thkd", line, point - point[:, :, :1])
            return torch.cat(((rows @ point.flatten(1, 2)).flatten(1, 2), deeper.flatten(1, 2)), 1)

        step, shape = self._jacobians(points, window)
        residual = torch.cat(((pixels * slope.unsqueeze(-1)).flatten(1), depth), 1)
        blocks.add_rows(residual, stacked(step), stacked(shape))

    def _jacobians(self, points: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """By the step [T, 2, 6, 3, 63] and by the shape [T, 2, 6, 3, S]: joints above turn the points."""
        geometry = window.geometry
        step = points.new_zeros(*points.shape, STEP_SIZE)
        for side, joint in enumerate(WRISTS):
            while joint >= 0:
                place = MOVED_JOINTS.index(joint)
                arm = geometry.joints[:, joint, None] - points[:, side]
                by_joint = cross_matrix(arm) @ geometry.axis_jacobian[:, place].unsqueeze(1)
                step[:, side, :, :, : POSE.stop].unflatten(-1, (-1, 3))[..., place, :] = by_joint
                joint = PARENTS[joint]
        step[..., TRANSLATION] = torch.eye(3, dtype=points.dtype)
        turned = torch.einsum("thij,hkjs->thkis", geometry.placement.rotation[:, list(WRISTS)], self.offset_shapedirs)
        return step, window.joint_shape_jacobian[:, list(WRISTS)].unsqueeze(2) + turned
