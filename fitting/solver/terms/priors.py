"""What is likely of a body before it is seen: poses, ranges of joints, upright people, shapes; even
motion, and near the guess.

`PosePrior`: a mixture over axis-angle, in least-squares form. Of the mixture only the nearest
component counts, as in SMPLify: -log p = min_m (e(|L_m^T (x - mu_m)|^2) + c_m), with P_m = L_m
L_m^T. For Gaussians e(q) = q / 2. The embedded prior's components are Student t distributions of v
degrees of freedom over d numbers, e(q) = (v + d) / 2 log(1 + q / v), which pull less the farther a
pose is from any of them. Each solver step takes the component that is nearest now, and is an
ordinary quadratic with the precision 2 e'(q) P_m.

`JointAcceleration`, `AngularAcceleration`: people move evenly. Summed over frames accelerations
stand for an integral over time, so the rate cancels: a video of twice the rate has twice as many
terms, each counting half.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body.kinematics import matrix_to_axis_angle
from fitting.solver.terms.term import (
    SECOND_DIFFERENCE,
    NormalEquations,
    Term,
    charbonnier,
    geman_mcclure,
)
from fitting.solver.unknowns import (
    BODY_JOINTS,
    POSE,
    TRANSLATION,
    BodyJacobian,
    Posed,
    State,
    left_jacobian,
)
from pose2d.base import unpickle
from pose2d.base.errors import UserError

GAUSSIAN = 1e9  # degrees of freedom with which a t distribution is a Gaussian, to rounding
EMBEDDED = files("fitting") / "data" / "pose_prior.npz"  # written by `training/pose_prior.py`


@dataclass(frozen=True)
class Mixture:
    """M components over the axis-angle numbers of joints 1 to 23."""

    weights: np.ndarray  # [M]
    means: np.ndarray  # [M, 69] radians
    covariances: (
        np.ndarray
    )  # [M, 69, 69], symmetric and positive definite; of a t distribution its scale matrix
    freedom: float = GAUSSIAN  # degrees of freedom


def read_mixture(path: str | Path | None = None) -> Mixture:
    """The embedded mixture, or SMPLify's (gmm_08.pkl)."""
    if path is None:
        with np.load(str(EMBEDDED)) as file:
            return Mixture(
                file["weights"],
                file["means"],
                _unpacked(file["covariances"]),
                float(file["freedom"]),
            )
    content = unpickle.load(path)
    try:
        weights, means, covariances = (
            np.asarray(content[name], np.float64) for name in ("weights", "means", "covars")
        )
        count = len(weights)
        if (weights.shape, means.shape, covariances.shape) != (
            (count,),
            (count, 69),
            (count, 69, 69),
        ):
            raise ValueError
        np.linalg.cholesky(covariances)
        return Mixture(weights, means, covariances)
    except (KeyError, TypeError, ValueError, IndexError, np.linalg.LinAlgError) as error:
        raise UserError(
            f"{path} is not a pose prior: expected SMPLify's mixture, `means` [M, 69], `covars` [M, 69, 69] and "
            "`weights` [M]."
        ) from error


def packed(covariances: np.ndarray) -> np.ndarray:
    """Symmetric [M, n, n] -> lower triangles [M, n (n + 1) / 2] float32."""
    rows, columns = np.tril_indices(covariances.shape[-1])
    return covariances[:, rows, columns].astype(np.float32)


def _unpacked(triangles: np.ndarray) -> np.ndarray:
    size = round((math.sqrt(8 * triangles.shape[1] + 1) - 1) / 2)
    rows, columns = np.tril_indices(size)
    full = np.zeros((len(triangles), size, size))
    full[:, rows, columns] = full[:, columns, rows] = triangles
    return full


@dataclass(frozen=True)
class PosePrior:
    """M components over the 57 numbers of BODY_JOINTS."""

    mean: Tensor  # [M, 57] radians
    factor: Tensor  # [M, 57, 57] L^T, upper triangular: residual = L^T (x - mean)
    precision: Tensor  # [M, 57, 57]
    constant: Tensor  # [M] c, -log of the weighted density at the mean
    # [24] m/s^2, standard deviation of each joint's acceleration along one axis, at 30 frames/s
    acceleration_std: Tensor
    angular_std: Tensor  # [57] rad/s^2, the same of the axis-angle numbers
    freedom: Tensor  # [] degrees of freedom of the components

    def energies(self, pose: Tensor) -> Tensor:
        """-log(weight_m density_m) of poses [T, 57] -> [T, M]."""
        away = torch.einsum("mij,tj->tmi", self.factor, pose)
        squared = (away - torch.einsum("mij,mj->mi", self.factor, self.mean)).square().sum(-1)
        return (self.freedom + pose.shape[-1]) / 2 * torch.log1p(
            squared / self.freedom
        ) + self.constant

    def pull(self, pose: Tensor, component: Tensor) -> Tensor:
        """2 e'(q), how much of given components' precision counts at poses [T, 57], [T]."""
        away = torch.einsum("tij,tj->ti", self.factor[component], pose - self.mean[component])
        squared = away.square().sum(-1)
        return (self.freedom + pose.shape[-1]) / (self.freedom + squared)

    def energy(self, pose: Tensor) -> tuple[Tensor, Tensor]:
        """-log p by the nearest component [T], and which one it is [T]."""
        return self.energies(pose).min(1)

    def log_likelihood(self, pose: Tensor) -> Tensor:
        """log p of the whole mixture, [T]."""
        return torch.logsumexp(-self.energies(pose), 1)

    def single_gaussian(self) -> "PosePrior":
        """One Gaussian with the whole mixture's mean and covariance."""
        share = (
            (-self.constant - self.precision.logdet() / 2).softmax(0).double()
        )  # the mixture's weights
        mean = share @ self.mean.double()
        away = self.mean.double() - mean
        wider = float(self.freedom / (self.freedom - 2))  # than the scale matrix
        covariance = wider * torch.einsum(
            "m,mij->ij", share, torch.linalg.inv(self.precision.double())
        )
        covariance += torch.einsum("m,mi,mj->ij", share, away, away)
        precision = torch.linalg.inv(covariance)
        lower = torch.linalg.cholesky(precision)
        constant = len(mean) / 2 * math.log(2 * math.pi) - lower.diagonal().log().sum()
        return replace(
            self,
            mean=mean[None].to(self.mean),
            factor=lower.T[None].to(self.mean),
            precision=precision[None].to(self.mean),
            constant=constant[None].to(self.mean),
            freedom=torch.tensor(GAUSSIAN),
        )

    def to(self, dtype: torch.dtype) -> "PosePrior":
        return PosePrior(**{name: value.to(dtype) for name, value in vars(self).items()})


def from_mixture(
    mixture: Mixture,
    acceleration_std: np.ndarray,
    angular_std: np.ndarray,
    joints: Sequence[int] = BODY_JOINTS,
) -> PosePrior:
    """The marginal over some joints, those with keypoints. acceleration_std and angular_std: as in
    `PosePrior`.
    """
    body = [3 * (joint - 1) + axis for joint in joints for axis in range(3)]
    covariance = mixture.covariances[:, body][:, :, body].astype(np.float64)
    precision = np.linalg.inv(covariance)
    lower = np.linalg.cholesky(precision)
    half_log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
    # Minus the log of the density of a standard t distribution at its mean.
    freedom = min(mixture.freedom, GAUSSIAN)
    half = freedom / 2
    size = len(body) / 2
    normaliser = math.lgamma(half) - math.lgamma(half + size) + size * math.log(2 * math.pi * half)
    constant = -np.log(mixture.weights) - half_log_det + normaliser

    def real(array: np.ndarray | float) -> Tensor:
        return torch.tensor(array, dtype=torch.float32)

    return PosePrior(
        real(mixture.means[:, body]),
        real(np.swapaxes(lower, 1, 2)),
        real(precision),
        real(constant),
        real(acceleration_std),
        real(angular_std),
        real(freedom),
    )


@lru_cache(maxsize=4)
def load_prior(path: str | Path | None = None) -> PosePrior:
    """The embedded prior, learned by `training/pose_prior.py`, or SMPLify's mixture
    (gmm_08.pkl).
    """
    mixture = read_mixture(path)
    with np.load(str(EMBEDDED)) as file:  # SMPLify's file has no accelerations
        smoothness = file["acceleration_sigma"], file["angular_sigma"]
    return from_mixture(mixture, *smoothness)


LIMIT_STD_RAD = 0.05  # so far beyond its range a number is one std off; not tuned
DISTANCE_STD_FACTOR = (
    5.0  # in doubt, on a guess of size and distance, which keypoints alone hardly tell apart
)
LEAN_SCALE = 3.0  # stds at which a lean counts half of its square: people do lie down. Not tuned


@dataclass(frozen=True)
class LikelyPose(Term):
    """The nearest component of the pose prior."""

    prior: PosePrior
    weight: float = 1.0  # less beside a guess that was made with such a prior itself

    def cost(self, posed: Posed) -> Tensor:
        return self.weight * self.prior.energy(posed.state.body_pose)[0]

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        pose = posed.state.body_pose
        _, nearest = self.prior.energy(pose)
        counts = self.weight * self.prior.pull(pose, nearest)
        precision = counts[:, None, None] * self.prior.precision[nearest]
        equations.add_block(
            POSE, torch.einsum("tij,tj->ti", precision, pose - self.prior.mean[nearest]), precision
        )

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

    def cost(self, posed: Posed) -> Tensor:
        return self.beyond(posed.state.body_pose).square().sum(-1) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        beyond = self.beyond(posed.state.body_pose)
        equations.add_diagonal(POSE, beyond / LIMIT_STD_RAD, (beyond != 0) / LIMIT_STD_RAD**2)


@dataclass(frozen=True)
class Upright(Term):
    """Bodies do not lean towards or away from the camera.

    Seen from the front, a body that leans towards or away from the camera looks like a slightly
    shorter one that does not, so noise alone would make everybody lean. The sine of the lean is the
    body's up axis along the direction away from the camera: the optical axis, or its horizontal
    part where gravity is known.
    """

    PER_FRAME = ("axis",)

    axis: Tensor  # [T, 3] unit, away from the camera, in each frame's camera
    std_rad: float

    def residual(self, root: Tensor) -> Tensor:
        """The lean of bodies turned by root [T, 3, 3], in stds [T]."""
        return (root[:, :, 1] * self.axis).sum(-1) / self.std_rad

    def cost(self, posed: Posed) -> Tensor:
        squared = self.residual(posed.state.root).square()
        return geman_mcclure(squared, LEAN_SCALE**2)[0] / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual = self.residual(posed.state.root)
        _, slope = geman_mcclure(residual.square(), LEAN_SCALE**2)
        up = posed.state.root[
            :, :, 1
        ]  # a turn w moves it by w x up, and axis . (w x up) = w . (up x axis)
        row = torch.linalg.cross(up, self.axis) / self.std_rad
        matrix = slope[:, None, None] * row[:, :, None] * row[:, None]
        equations.add_block(slice(3), (slope * residual)[:, None] * row, matrix)


def optical_axis(like: Tensor) -> Tensor:
    """[T, 3] away from the camera, for as many frames as `like` [T, ...] has."""
    return like.new_tensor([0.0, 0.0, 1.0]).expand(len(like), 3)


@dataclass(frozen=True)
class Guess(Term):
    """A guess of pose and place, and one standard deviation of each part."""

    PER_FRAME = ("root", "pose", "translation", "root_std_rad", "pose_std_rad", "translation_std_m")

    root: Tensor  # [T, 3, 3]
    pose: Tensor  # [T, 57] of BODY_JOINTS
    translation: Tensor  # [T, 3] metres
    root_std_rad: Tensor  # [T, 1]
    pose_std_rad: Tensor  # [T, 57]
    translation_std_m: Tensor  # [T, 1]

    @classmethod
    def at(cls, state: State, rotation_std_rad: Tensor, depth_std: Tensor) -> "Guess":
        """Deviations as `InitialGuess` has them: of 24 joints [T, 24], of the translation as a
        share of its length.
        """
        pose_std = rotation_std_rad[:, BODY_JOINTS].repeat_interleave(3, dim=1)
        far = state.translation.norm(dim=-1, keepdim=True)
        place = state.root, state.body_pose, state.translation
        return cls(*place, rotation_std_rad[:, :1], pose_std, depth_std[:, None] * far)

    def residuals(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Root [T, 3], pose [T, 57], translation [T, 3]."""
        root = matrix_to_axis_angle(state.root @ self.root.mT) / self.root_std_rad
        pose = (state.body_pose - self.pose) / self.pose_std_rad
        return root, pose, (state.translation - self.translation) / self.translation_std_m

    def cost(self, posed: Posed) -> Tensor:
        root, pose, translation = (part.square().sum(-1) for part in self.residuals(posed.state))
        return (root + pose + translation) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        root, pose, translation = self.residuals(posed.state)
        # root = log(R R_guess^T): its derivative by a turn of R is the inverse left Jacobian at
        # that vector.
        slope = (
            torch.linalg.inv(left_jacobian(root * self.root_std_rad)) / self.root_std_rad[..., None]
        )
        equations.add_block(slice(3), torch.einsum("tij,ti->tj", slope, root), slope.mT @ slope)
        equations.add_diagonal(POSE, pose / self.pose_std_rad, 1 / self.pose_std_rad**2)
        equations.add_diagonal(
            TRANSLATION, translation / self.translation_std_m, 1 / self.translation_std_m**2
        )

    def in_doubt(self) -> "Guess":
        return replace(self, translation_std_m=DISTANCE_STD_FACTOR * self.translation_std_m)


@dataclass(frozen=True)
class ShapeEvidence:
    """What is known of a shape besides its keypoints: cost = shape . precision shape / 2 -
    information . shape.
    """

    precision: Tensor  # [S, S]
    information: Tensor  # [S]
    masks: int = 0  # that it comes from


@dataclass(frozen=True)
class LikelyShape(Term):
    """The shape's prior, of standard deviation 1 in every direction, the guess of it, and other
    evidence.
    """

    weight: float  # so many frames a track is worth (`fitting.optimise`)
    guess: Tensor  # [S], or [T, S] where each frame has its own
    guess_std: float
    precision: Tensor  # [S, S] of other evidence; zeros: there is none
    information: Tensor  # [S]

    @classmethod
    def of(
        cls, weight: float, guess: Tensor, guess_std: float, known: ShapeEvidence | None
    ) -> "LikelyShape":
        size = guess.shape[-1]
        if (
            known is None or not size
        ):  # of a body whose shape is built in, nothing is left to be known
            known = ShapeEvidence(guess.new_zeros(size, size), guess.new_zeros(size))
        return cls(weight, guess, guess_std, known.precision, known.information)

    def cost(self, posed: Posed) -> Tensor:
        shape = posed.state.shape
        squares = shape.square() + ((shape - self.guess) / self.guess_std).square()
        return self.weight * (
            squares / 2 + shape * (shape @ self.precision / 2 - self.information)
        ).sum(-1)

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        shape = posed.state.shape
        per = 1 / self.guess_std**2
        gradient = shape + per * (shape - self.guess) + shape @ self.precision - self.information
        matrix = (1 + per) * torch.eye(shape.shape[-1], dtype=shape.dtype) + self.precision
        equations.shape_gradient.add_(
            self.weight * gradient
        )  # [S], or [T, S] where each frame has its own
        equations.corner.add_(self.weight * matrix)

    def frames(self, index: Tensor | slice) -> "LikelyShape":
        return self if self.guess.ndim == 1 else replace(self, guess=self.guess[index])

    def in_doubt(self) -> "LikelyShape":
        return replace(self, guess_std=DISTANCE_STD_FACTOR * self.guess_std)


# stds beyond which an acceleration counts by its size and no longer by its square. Not tuned
MOTION_SCALE = 2.0
REFERENCE_FPS = 30.0  # rate at which the prior states the acceleration's standard deviation
# In doubt, on the weight in the search: bridges frames that show nothing. bench/left_out.py
# --choose: left-out frames are predicted with -4.38, -3.05 and -2.08 nats at 0.003, 0.03 and 0.3.
MOTION_FACTOR = 0.3


def acceleration_factor(fps: float) -> float:
    """From a second difference to the rate-free acceleration residual."""
    return fps**2 * (REFERENCE_FPS / fps) ** 0.5


def second_difference(values: Tensor) -> Tensor:
    return values[2:] - 2 * values[1:-1] + values[:-2]


def acceleration(values: Tensor, fps: float, std: Tensor) -> Tensor:
    """Second difference over time of values [T, ...] -> [T - 2, ...], in stds per second^2."""
    return second_difference(values) * acceleration_factor(fps) / std


@dataclass(frozen=True)
class _Acceleration(Term):
    """Of n vectors, under a robust loss of their length."""

    std: Tensor
    weight: float

    def residual(self, posed: Posed, fps: float) -> Tensor:
        """[t - 2, n, 3]"""
        raise NotImplementedError

    def cost(self, posed: Posed) -> Tensor:
        if posed.fps is None:
            return self.std.new_zeros(())
        squared = self.residual(posed, posed.fps).square().sum(-1)
        return self.weight * (charbonnier(squared, MOTION_SCALE)[0] * posed.follows(2)).sum() / 2

    def weighted(self, posed: Posed, fps: float) -> tuple[Tensor, Tensor]:
        """Residuals as they count and the slopes of their loss for each number, [t - 2, 3 n] both."""
        residual = self.residual(posed, fps)
        _, slope = charbonnier(residual.square().sum(-1), MOTION_SCALE)
        slope = (slope * posed.follows(2)).repeat_interleave(3, dim=1)
        return self.weight**0.5 * residual.flatten(1), slope

    def in_doubt(self) -> "_Acceleration":
        return replace(self, weight=MOTION_FACTOR * self.weight)


@dataclass(frozen=True)
class JointAcceleration(_Acceleration):
    """Of the joints, in the shot's axes. std: [24] m/s^2 along one axis, of a body of mean size.

    Large bodies move in large arcs. Without this, a track would be smoother the smaller and closer
    the body is, and the image does not tell a small and close one from a large and far one.
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
    """Of the axis-angle numbers of BODY_JOINTS. std: [57] rad/s^2."""

    def residual(self, posed: Posed, fps: float) -> Tensor:
        return acceleration(posed.state.body_pose, fps, self.std).unflatten(1, (-1, 3))

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        if posed.fps is None:
            return
        angular, slope = self.weighted(posed, posed.fps)
        scale = acceleration_factor(posed.fps) * self.weight**0.5 / self.std
        equations.add_diagonal_difference(SECOND_DIFFERENCE, angular, slope, POSE, scale)
