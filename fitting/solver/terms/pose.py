"""What is likely of a pose by itself: the mixture of poses, the ranges of joints, and that people are upright."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.solver.prior import PosePrior
from fitting.solver.terms.term import Blocks, Term, Window, geman_mcclure
from fitting.solver.unknowns import POSE

LIMIT_STD_RAD = 0.05  # so far beyond its range a number is one std off; not tuned
LEAN_SCALE = 3.0  # stds at which a lean counts half of its square: people do lie down. Not tuned


@dataclass(frozen=True)
class LikelyPose(Term):
    """The nearest component of the pose prior."""

    prior: PosePrior
    weight: float = 1.0  # less beside a guess that was made with such a prior itself

    def cost(self, window: Window) -> Tensor:
        return self.weight * self.prior.energy(window.state.body_pose)[0]

    def add(self, window: Window, blocks: Blocks) -> None:
        pose = window.state.body_pose
        _, nearest = self.prior.energy(pose)
        precision = self.weight * self.prior.precision[nearest]
        blocks.add_block(POSE, torch.einsum("tij,tj->ti", precision, pose - self.prior.mean[nearest]), precision)

    def in_doubt(self) -> "LikelyPose":
        """One Gaussian as wide as the whole mixture."""
        return replace(self, prior=self.prior.single_gaussian())


@dataclass(frozen=True)
class JointLimits(Term):
    """Axis-angle numbers stay in their ranges: free inside, soft beyond."""

    low: Tensor  # [57] radians
    high: Tensor  # [57]

    def beyond(self, pose: Tensor) -> Tensor:
        """How far numbers [T, 57] reach beyond their range, in stds: zero inside."""
        return ((pose - self.high).clamp(min=0) + (pose - self.low).clamp(max=0)) / LIMIT_STD_RAD

    def cost(self, window: Window) -> Tensor:
        return self.beyond(window.state.body_pose).square().sum(-1) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        beyond = self.beyond(window.state.body_pose)
        blocks.add_diagonal(POSE, beyond / LIMIT_STD_RAD, (beyond != 0) / LIMIT_STD_RAD**2)


@dataclass(frozen=True)
class Upright(Term):
    """Bodies do not lean towards or away from the camera.

    Seen from the front, a body that leans towards or away from the camera looks like a slightly shorter one that
    does not, so noise alone would make everybody lean. The sine of the lean is the body's up axis along the direction
    away from the camera: the optical axis, or its horizontal part where gravity is known.
    """

    PER_FRAME = ("axis",)

    axis: Tensor  # [T, 3] unit, away from the camera, in each frame's camera
    std_rad: float

    def residual(self, root: Tensor) -> Tensor:
        """The lean of bodies turned by root [T, 3, 3], in stds [T]."""
        return (root[:, :, 1] * self.axis).sum(-1) / self.std_rad

    def cost(self, window: Window) -> Tensor:
        squared = self.residual(window.state.root).square()
        return geman_mcclure(squared, squared.new_tensor(LEAN_SCALE**2))[0] / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        residual = self.residual(window.state.root)
        _, slope = geman_mcclure(residual.square(), residual.new_tensor(LEAN_SCALE**2))
        up = window.state.root[:, :, 1]  # a turn w moves it by w x up, and axis . (w x up) = w . (up x axis)
        row = torch.linalg.cross(up, self.axis) / self.std_rad
        matrix = slope[:, None, None] * row[:, :, None] * row[:, None]
        blocks.add_block(slice(3), (slope * residual)[:, None] * row, matrix)


def optical_axis(like: Tensor) -> Tensor:
    """[T, 3] away from the camera, for as many frames as `like` [T, ...] has."""
    return like.new_tensor([0.0, 0.0, 1.0]).expand(len(like), 3)
