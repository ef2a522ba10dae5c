"""One fitting problem: what is known, and what a state costs."""

from dataclasses import dataclass, replace

import roma
import torch
from torch import Tensor

from fitting.solver.jacobian import Geometry, Mechanism
from fitting.solver.limits import SIGMA_RAD
from fitting.solver.prior import PosePrior
from fitting.solver.residuals import (
    LEAN_SCALE,
    MOTION_SCALE,
    NEAR_M,
    Ground,
    acceleration,
    box_limits,
    charbonnier,
    geman_mcclure,
    ground_contact,
    lean,
    reprojection,
    shape_prior,
)
from fitting.solver.unknowns import BODY_JOINTS, State

FEET = (10, 11)  # the joints that a floor speaks of
_PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "robust")
CHUNK = 512  # frames handled at a time: bounds memory on long tracks


@dataclass(frozen=True)
class Anchor:
    """An initial guess that the fit should stay close to, and how close (one standard deviation)."""

    state: State
    root_rad: Tensor  # [T, 1]
    pose_rad: Tensor  # [T, 57]
    translation_m: Tensor  # [T, 1]
    shape: float

    def residuals(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Root [T, 3], pose [T, 57], translation [T, 3]."""
        root = roma.rotmat_to_rotvec(state.root @ self.state.root.mT) / self.root_rad
        pose = (state.body_pose - self.state.body_pose) / self.pose_rad
        return root, pose, (state.translation - self.state.translation) / self.translation_m

    def frames(self, index: Tensor | slice) -> "Anchor":
        spreads = (self.root_rad[index], self.pose_rad[index], self.translation_m[index])
        return Anchor(self.state.frames(index), *spreads, self.shape)

    def widened(self, pose: float, place: float) -> "Anchor":
        """The same guess, less sure of the pose by one factor, and of size and distance by another."""
        return Anchor(
            self.state, pose * self.root_rad, pose * self.pose_rad, place * self.translation_m, place * self.shape
        )

    def to(self, dtype: torch.dtype) -> "Anchor":
        root, pose, translation = (value.to(dtype) for value in (self.root_rad, self.pose_rad, self.translation_m))
        return Anchor(self.state.to(dtype), root, pose, translation, self.shape)


def anchor_at(state: State, turn_rad: Tensor, distance: Tensor, shape: float) -> Anchor:
    """Spreads as a `Guess` has them: of 24 joints [T, 24], and of the translation as a share of its length [T]."""
    pose = turn_rad[:, BODY_JOINTS].repeat_interleave(3, dim=1)
    far = state.translation.norm(dim=-1, keepdim=True)
    return Anchor(state, turn_rad[:, :1], pose, distance[:, None] * far, shape)


@dataclass(frozen=True)
class Problem:
    """T frames of one person, or T people in a frame each."""

    mechanism: Mechanism
    prior: PosePrior
    limit_low: Tensor  # [57] radians
    limit_high: Tensor  # [57]
    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 17, 2] pixels of a perfect lens
    weight: Tensor  # [T, 17] 1 / px^2
    robust: Tensor  # [T, 17] c^2 of Geman-McClure, in the units of weight * px^2
    anchor: Anchor | None = None
    fps: float | None = None  # frames a second of a track; None: frames have nothing to do with each other
    ground: Ground | None = None
    lean_rad: float | None = None  # spread of the lean out of the image; None: any lean is as likely
    motion_share: float = 1.0  # how much acceleration counts
    shape_share: float = 1.0  # how much what is known of the shape beforehand counts

    def frames(self, index: Tensor | slice) -> "Problem":
        """The problem of some frames alone."""
        part = {name: getattr(self, name)[index] for name in _PER_FRAME}
        anchor = self.anchor and self.anchor.frames(index)
        return replace(self, **part, anchor=anchor, ground=self.ground and self.ground.rows(index))

    def to(self, dtype: torch.dtype) -> "Problem":
        moved = {name: getattr(self, name).to(dtype) for name in (*_PER_FRAME, "limit_low", "limit_high")}
        mechanism = Mechanism(self.mechanism.body.to(dtype=dtype), self.mechanism.shape_size)
        anchor = self.anchor and self.anchor.to(dtype)
        return replace(self, **moved, prior=self.prior.to(dtype), mechanism=mechanism, anchor=anchor)

    def __len__(self) -> int:
        return len(self.weight)


def frame_costs(problem: Problem, state: State, geometry: Geometry) -> Tensor:
    """-log posterior of each frame by itself [T], up to a constant; infinite for a body behind the camera."""
    p = problem
    residual = reprojection(geometry.keypoints, p.xy_px, p.weight, p.focal_px, p.center_px)
    rho, _ = geman_mcclure(residual.square().sum(-1), p.robust)
    pose = state.body_pose
    beyond = box_limits(pose, p.limit_low, p.limit_high, SIGMA_RAD)
    cost = rho.sum(-1) / 2 + p.prior.energy(pose)[0] + beyond.square().sum(-1) / 2
    if p.lean_rad is not None:
        squared = lean(state.root, p.lean_rad).square()
        cost = cost + geman_mcclure(squared, squared.new_tensor(LEAN_SCALE**2))[0] / 2
    if p.anchor is not None:
        cost = cost + sum(part.square().sum(-1) for part in p.anchor.residuals(state)) / 2
    if p.ground is not None:
        cost = cost + ground_contact(geometry.joints[:, FEET], p.ground).square().sum(-1) / 2
    behind = ((geometry.keypoints[..., 2] < NEAR_M) & (p.weight > 0)).any(-1)
    cost = torch.where(behind | ~torch.isfinite(cost), torch.inf, cost)
    return cost if state.shared_shape else cost + shape_cost(problem, state)


def shape_cost(problem: Problem, state: State) -> Tensor:
    """Of the shape, [] or [T]."""
    cost = shape_prior(state.shape).square().sum(-1) / 2
    if problem.anchor is not None:
        away = (state.shape - problem.anchor.state.shape) / problem.anchor.shape
        cost = cost + away.square().sum(-1) / 2
    return problem.shape_share * cost


def acceleration_sigma(problem: Problem, state: State) -> Tensor:
    """Spread of the joints' acceleration, [24, 1] m/s^2, for a body of this size.

    Large bodies move in large arcs. Without this, a track would be smoother the smaller and closer the body is,
    and the image does not tell a small and close one from a large and far one.
    """
    return (problem.prior.acceleration_sigma * problem.mechanism.size(state.shape))[:, None]


def motion_cost(problem: Problem, state: State, joints: Tensor) -> Tensor:
    """Of a track's acceleration, []; joints [T, 24, 3]."""
    if problem.fps is None or len(state) < 3:
        return joints.new_zeros(())
    linear = acceleration(joints, problem.fps, acceleration_sigma(problem, state))
    angular = acceleration(state.theta[:, BODY_JOINTS].flatten(1), problem.fps, problem.prior.angular_sigma)
    joint = charbonnier(linear.square().sum(-1), MOTION_SCALE)[0].sum()
    turn = charbonnier(angular.unflatten(1, (-1, 3)).square().sum(-1), MOTION_SCALE)[0].sum()
    return problem.motion_share * (joint + turn) / 2


def costs(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """Each frame's own cost [T], and the cost of everything together []."""
    own, joints = [], []
    for first in range(0, len(state), CHUNK):
        frames = slice(first, first + CHUNK)
        geometry = problem.mechanism.place(state.frames(frames), derivatives=False)
        own.append(frame_costs(problem.frames(frames), state.frames(frames), geometry))
        joints.append(geometry.joints)
    each = torch.cat(own)
    total = each.double().sum() + motion_cost(problem, state, torch.cat(joints)).double()
    return each, total + shape_cost(problem, state).double() if state.shared_shape else total
