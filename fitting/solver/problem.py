"""One fitting problem: its residuals, what is given, and what a state costs.

Residuals are pure functions, so that every optimiser can share them, in natural units: half the sum of squares is a
negative log-likelihood, up to a constant. Reprojection is robust: its residuals are whitened pixels, and
`geman_mcclure` says how much a squared one counts.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body.rotations import matrix_to_axis_angle
from fitting.solver.jacobian import BodyJacobian, Geometry
from fitting.solver.prior import PosePrior
from fitting.solver.scene_terms import FLOOR_SCALE, REST_SCALE, SceneTerms, floor_residuals, rest_residuals
from fitting.solver.unknowns import BODY_JOINTS, SIGMA_RAD, State
from fitting.thresholds import NEAREST_KEYPOINT_M

LEAN_SCALE = 3.0  # sigmas at which a lean counts half of its square: people do lie down. Not tuned
ROBUST_SCALE = 5.0  # sigmas at which a keypoint counts half of its square; bench/weighting.py compares it with 1000
MOTION_SCALE = 2.0  # sigmas beyond which an acceleration counts by its size and no longer by its square. Not tuned
REFERENCE_FPS = 30.0  # rate at which the prior states the acceleration's standard deviation


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


def reprojection(points_cam: Tensor, xy_px: Tensor, weight: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """sqrt(weight) (projection - keypoint), [T, K, 2]: sigmas under `precision` weighting."""
    return weight.sqrt().unsqueeze(-1) * (project(points_cam, focal_px, center_px) - xy_px)


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


def geman_mcclure(squared: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """rho(e) = e c^2 / (c^2 + e) of a squared residual e, and its slope (c^2 / (c^2 + e))^2."""
    share = scale / (scale + squared)
    return squared * share, share.square()


def robust_scale(weight: Tensor, sigma_px: Tensor, sigmas: float = ROBUST_SCALE) -> Tensor:
    """c^2 of each keypoint [T, K]: so many of its own sigmas, in the units of its whitened residual."""
    return (sigmas**2 * weight * sigma_px.square()).clamp(min=1e-12)


def lean(root: Tensor, axis: Tensor, sigma_rad: float) -> Tensor:
    """How far bodies turned by root [T, 3, 3] lean along an axis [T, 3], in sigmas [T].

    Seen from the front, a body that leans towards or away from the camera looks like a slightly shorter one that
    does not, so noise alone would make everybody lean. The sine of the lean is the body's up axis along the direction
    away from the camera: the optical axis, or its horizontal part where gravity is known.
    """
    return (root[:, :, 1] * axis).sum(-1) / sigma_rad


def lean_axis(problem: "Problem") -> Tensor:
    """[T, 3] the direction away from the camera that `lean` is measured along."""
    if problem.scene is not None and problem.scene.up is not None:
        return problem.scene.lean_axis(len(problem))
    return problem.focal_px.new_tensor([0.0, 0.0, 1.0]).expand(len(problem), 3)


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


_PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "robust")
CHUNK = 512  # frames handled at a time: bounds memory on long tracks


@dataclass(frozen=True)
class Anchor:
    """An initial guess as a prior: the state, and one standard deviation of each part."""

    state: State
    root_rad: Tensor  # [T, 1]
    pose_rad: Tensor  # [T, 57]
    translation_m: Tensor  # [T, 1]
    shape: float

    def residuals(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Root [T, 3], pose [T, 57], translation [T, 3]."""
        root = matrix_to_axis_angle(state.root @ self.state.root.mT) / self.root_rad
        pose = (state.body_pose - self.state.body_pose) / self.pose_rad
        return root, pose, (state.translation - self.state.translation) / self.translation_m

    def frames(self, index: Tensor | slice) -> "Anchor":
        deviations = (self.root_rad[index], self.pose_rad[index], self.translation_m[index])
        return Anchor(self.state.frames(index), *deviations, self.shape)

    def widened(self, place: float) -> "Anchor":
        """The same guess with deviations of size and distance larger by a factor."""
        return replace(self, translation_m=place * self.translation_m, shape=place * self.shape)

    def to(self, dtype: torch.dtype) -> "Anchor":
        root, pose, translation = (value.to(dtype) for value in (self.root_rad, self.pose_rad, self.translation_m))
        return Anchor(self.state.to(dtype), root, pose, translation, self.shape)


def anchor_at(state: State, rotation_std_rad: Tensor, depth_std: Tensor, shape_std: float) -> Anchor:
    """Deviations as `InitialGuess` has them: of 24 joints [T, 24], of the translation as a share of its length [T]."""
    pose = rotation_std_rad[:, BODY_JOINTS].repeat_interleave(3, dim=1)
    far = state.translation.norm(dim=-1, keepdim=True)
    return Anchor(state, rotation_std_rad[:, :1], pose, depth_std[:, None] * far, shape_std)


@dataclass(frozen=True)
class Problem:
    """T frames of one person, or T people in a frame each."""

    jacobian: BodyJacobian
    prior: PosePrior
    limit_low: Tensor  # [57] radians
    limit_high: Tensor  # [57]
    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 26, 2] pixels of a perfect lens
    weight: Tensor  # [T, 26] 1 / px^2
    robust: Tensor  # [T, 26] c^2 of Geman-McClure, in the units of weight * px^2
    # The stated error distribution of each keypoint instead of `robust`: weights of Gaussians, [T, K, M], and their
    # precisions along x and y in the units of `weight`, [T, K, M, 2].
    mixture_weight: Tensor | None = None
    mixture_precision: Tensor | None = None
    anchor: Anchor | None = None
    prior_weight: float = 1.0  # of the pose prior: less beside a guess that was made with such a prior itself
    fps: float | None = None  # frames per second of a track; None: independent frames
    stretch: Tensor | None = None  # [T] frames with the same number follow each other; None: all frames do
    scene: SceneTerms | None = None  # gravity, floor and contacts, and how the camera turned
    lean_rad: float | None = None  # standard deviation of the lean out of the image; None: any lean is as likely
    motion_weight: float = 1.0  # of the acceleration terms
    shape_weight: float = 1.0  # of the shape's prior and initial guess

    def frames(self, index: Tensor | slice) -> "Problem":
        """The problem of some frames alone."""
        part = {name: getattr(self, name)[index] for name in self._per_frame()}
        anchor = self.anchor and self.anchor.frames(index)
        stretch = None if self.stretch is None else self.stretch[index]
        return replace(self, **part, anchor=anchor, scene=self.scene and self.scene.frames(index), stretch=stretch)

    def to(self, dtype: torch.dtype) -> "Problem":
        moved = {name: getattr(self, name).to(dtype) for name in (*self._per_frame(), "limit_low", "limit_high")}
        jacobian = BodyJacobian(self.jacobian.body.to(dtype=dtype), self.jacobian.shape_size)
        anchor = self.anchor and self.anchor.to(dtype)
        scene = self.scene and self.scene.to(dtype)
        return replace(self, **moved, prior=self.prior.to(dtype), jacobian=jacobian, anchor=anchor, scene=scene)

    def __len__(self) -> int:
        return len(self.weight)

    def _per_frame(self) -> tuple[str, ...]:
        return _PER_FRAME if self.mixture_weight is None else (*_PER_FRAME, "mixture_weight", "mixture_precision")

    def follows(self, frames: slice = slice(None)) -> Tensor | float:
        """[t - 2, 1] 1 where three frames of these follow each other, 0 where the person was away in between."""
        if self.stretch is None:
            return 1.0
        stretch = self.stretch[frames]
        return (stretch[2:] == stretch[:-2]).to(self.weight.dtype)[:, None]


def keypoint_loss(problem: Problem, residual: Tensor) -> tuple[Tensor, Tensor]:
    """What whitened residuals [T, K, 2] count, -2 log likelihood up to a constant [T, K], and the slopes by the square
    along each axis, [T, K, 2] or, where they are equal, [T, K, 1]."""
    if problem.mixture_weight is None or problem.mixture_precision is None:
        rho, slope = geman_mcclure(residual.square().sum(-1), problem.robust)
        return rho, slope.unsqueeze(-1)
    return mixture_loss(residual.square(), problem.mixture_weight, problem.mixture_precision)


def frame_costs(problem: Problem, state: State, geometry: Geometry) -> Tensor:
    """-log posterior of each frame by itself [T], up to a constant; infinite for a body behind the camera."""
    p = problem
    residual = reprojection(geometry.keypoints, p.xy_px, p.weight, p.focal_px, p.center_px)
    rho, _ = keypoint_loss(p, residual)
    pose = state.body_pose
    beyond = box_limits(pose, p.limit_low, p.limit_high, SIGMA_RAD)
    cost = rho.sum(-1) / 2 + p.prior_weight * p.prior.energy(pose)[0] + beyond.square().sum(-1) / 2
    if p.lean_rad is not None:
        squared = lean(state.root, lean_axis(p), p.lean_rad).square()
        cost = cost + geman_mcclure(squared, squared.new_tensor(LEAN_SCALE**2))[0] / 2
    if p.anchor is not None:
        cost = cost + sum(part.square().sum(-1) for part in p.anchor.residuals(state)) / 2
    if p.scene is not None and p.scene.has_floor:
        points = p.scene.in_shot(geometry.keypoints[:, p.scene.points])
        residual, _ = floor_residuals(points, p.scene, p.jacobian.point_lift[list(p.scene.points)])
        cost = cost + geman_mcclure(residual.square(), residual.new_tensor(FLOOR_SCALE**2))[0].sum(-1) / 2
    behind = ((geometry.keypoints[..., 2] < NEAREST_KEYPOINT_M) & (p.weight > 0)).any(-1)
    cost = torch.where(behind | ~torch.isfinite(cost), torch.inf, cost)
    return cost if state.shared_shape else cost + shape_cost(problem, state)


def shape_cost(problem: Problem, state: State) -> Tensor:
    """Of the shape, [] or [T]."""
    cost = shape_prior(state.shape).square().sum(-1) / 2
    if problem.anchor is not None:
        away = (state.shape - problem.anchor.state.shape) / problem.anchor.shape
        cost = cost + away.square().sum(-1) / 2
    return problem.shape_weight * cost


def acceleration_sigma(problem: Problem, state: State) -> Tensor:
    """Standard deviation of the joints' acceleration, [24, 1] m/s^2, for a body of this size.

    Large bodies move in large arcs. Without this, a track would be smoother the smaller and closer the body is,
    and the image does not tell a small and close one from a large and far one.
    """
    return (problem.prior.acceleration_sigma * problem.jacobian.size(state.shape))[:, None]


def motion_cost(problem: Problem, state: State, joints: Tensor) -> Tensor:
    """Of a track's acceleration, []; joints [T, 24, 3] in the shot's axes."""
    if problem.fps is None or len(state) < 3:
        return joints.new_zeros(())
    linear = acceleration(joints, problem.fps, acceleration_sigma(problem, state))
    angular = acceleration(state.theta[:, BODY_JOINTS].flatten(1), problem.fps, problem.prior.angular_sigma)
    joint = (charbonnier(linear.square().sum(-1), MOTION_SCALE)[0] * problem.follows()).sum()
    turn = (charbonnier(angular.unflatten(1, (-1, 3)).square().sum(-1), MOTION_SCALE)[0] * problem.follows()).sum()
    return problem.motion_weight * (joint + turn) / 2


def rest_cost(problem: Problem, keypoints: Tensor) -> Tensor:
    """Of resting points that move, []; keypoints [T, 26, 3] in each frame's camera."""
    if problem.scene is None or problem.scene.rest is None or problem.fps is None or len(keypoints) < 3:
        return keypoints.new_zeros(())
    seen = problem.scene.in_shot(keypoints[:, problem.scene.points])
    residual, _ = rest_residuals(seen, problem.scene, problem.fps)
    return geman_mcclure(residual.square().sum(-1), residual.new_tensor(REST_SCALE**2))[0].sum() / 2


def costs(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """Each frame's own cost [T], and the total cost []."""
    own, joints, keypoints = [], [], []
    for first in range(0, len(state), CHUNK):
        frames = slice(first, first + CHUNK)
        geometry = problem.jacobian.place(state.frames(frames), derivatives=False)
        own.append(frame_costs(problem.frames(frames), state.frames(frames), geometry))
        joints.append(geometry.joints)
        keypoints.append(geometry.keypoints)
    each = torch.cat(own)
    moving = motion_cost(problem, state, in_shot(problem, torch.cat(joints)))
    total = each.double().sum() + moving.double() + rest_cost(problem, torch.cat(keypoints)).double()
    return each, total + shape_cost(problem, state).double() if state.shared_shape else total


def in_shot(problem: Problem, points: Tensor) -> Tensor:
    """Points [T, n, 3] of each frame's camera in axes that do not turn with the camera."""
    return points if problem.scene is None else problem.scene.in_shot(points)
