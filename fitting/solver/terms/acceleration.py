"""People move smoothly: joints and joint angles have small accelerations.

Summed over frames, squared accelerations stand for an integral over time, so the frame rate
cancels: a video of twice the rate has twice as many residuals, each counting half.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from fitting.solver.jacobian import BodyJacobian, Posed
from fitting.solver.terms.term import (
    SECOND_DIFFERENCE,
    NormalEquations,
    Term,
    charbonnier,
)
from fitting.solver.unknowns import POSE

# stds beyond which an acceleration counts by its size and no longer by its square. Not tuned
MOTION_SCALE = 2.0
REFERENCE_FPS = 30.0  # rate at which the prior states the acceleration's standard deviation
# In doubt, on the weight in the search: bridges frames that show nothing. bench/left_out.py
# --choose: left-out frames are predicted with -4.38, -3.05 and -2.08 nats at 0.003, 0.03 and 0.3.
MOTION_FACTOR = 0.3


def acceleration_factor(fps: float) -> float:
    """Return the factor from a second difference to the residual, which does not depend on the
    frame rate.
    """
    return fps**2 * (REFERENCE_FPS / fps) ** 0.5


def second_difference(values: Tensor) -> Tensor:
    return values[2:] - 2 * values[1:-1] + values[:-2]


def acceleration(values: Tensor, fps: float, std: Tensor) -> Tensor:
    """Return the second difference over time of values [T, ...] as [T - 2, ...], in stds per
    second^2.
    """
    return second_difference(values) * acceleration_factor(fps) / std


@dataclass(frozen=True)
class _Acceleration(Term):
    """Penalise the accelerations of n vectors, under a robust loss of their length."""

    std: Tensor
    weight: float

    def residual(self, posed: Posed, fps: float) -> Tensor:
        """Return the whitened accelerations, [T - 2, n, 3]."""
        raise NotImplementedError

    def cost(self, posed: Posed) -> Tensor:
        if posed.fps is None:
            return self.std.new_zeros(())
        squared = self.residual(posed, posed.fps).square().sum(-1)
        return self.weight * (charbonnier(squared, MOTION_SCALE)[0] * posed.follows(2)).sum() / 2

    def weighted(self, posed: Posed, fps: float) -> tuple[Tensor, Tensor]:
        """Return weighted residuals and the slopes of their loss for each number, both [T - 2, 3
        n].
        """
        residual = self.residual(posed, fps)
        _, slope = charbonnier(residual.square().sum(-1), MOTION_SCALE)
        slope = (slope * posed.follows(2)).repeat_interleave(3, dim=1)
        return self.weight**0.5 * residual.flatten(1), slope

    def in_doubt(self) -> "_Acceleration":
        return replace(self, weight=MOTION_FACTOR * self.weight)


@dataclass(frozen=True)
class JointAcceleration(_Acceleration):
    """Penalise accelerations of the joints in the shot's axes. std: [24] m/s^2 along one axis, of a
    body of mean size.

    Large bodies move in large arcs. Without this scale, a track would be smoother the smaller and
    closer the body is, and the image cannot distinguish a small, close body from a large, distant
    one.
    """

    def _std(self, jacobian: BodyJacobian, shape: Tensor) -> Tensor:
        return (self.std * jacobian.size(shape))[:, None]

    def residual(self, posed: Posed, fps: float) -> Tensor:
        return acceleration(posed.joints_shot, fps, self._std(posed.jacobian, posed.state.shape))

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        if posed.fps is None:
            return
        jacobian = posed.jacobian
        shape = posed.state.shape
        linear, slope = self.weighted(posed, posed.fps)
        scale = acceleration_factor(posed.fps) * self.weight**0.5 / self._std(jacobian, shape)
        step, by_shape = (
            (part * scale.unsqueeze(-1)).flatten(1, 2) for part in posed.joint_jacobians_shot
        )
        # a / size(shape): the shape moves the joints, and changes the size they are measured by.
        relative = jacobian.size_gradient / jacobian.size(shape)
        by_shape = second_difference(by_shape) - linear.unsqueeze(-1) * relative
        equations.add_difference(SECOND_DIFFERENCE, linear, slope, step, by_shape)


@dataclass(frozen=True)
class AngularAcceleration(_Acceleration):
    """Penalise accelerations of the axis-angle numbers of BODY_JOINTS. std: [57] rad/s^2."""

    def residual(self, posed: Posed, fps: float) -> Tensor:
        return acceleration(posed.state.body_pose, fps, self.std).unflatten(1, (-1, 3))

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        if posed.fps is None:
            return
        angular, slope = self.weighted(posed, posed.fps)
        scale = acceleration_factor(posed.fps) * self.weight**0.5 / self.std
        equations.add_diagonal_difference(SECOND_DIFFERENCE, angular, slope, POSE, scale)
