"""Likely poses: a mixture over axis-angle numbers, and the term that pulls towards it.

Only the nearest component of the mixture counts, as in SMPLify:
-log p = min_m (e(|L_m^T (x - mu_m)|^2) + c_m), with P_m = L_m L_m^T. For Gaussians e(q) = q / 2.
The components of the embedded prior are Student t distributions with v degrees of freedom over d
numbers, e(q) = (v + d) / 2 log(1 + q / v), which pull less the farther a pose is from all of them.
Each solver step takes the component that is nearest now; it is an ordinary quadratic with the
precision 2 e'(q) P_m.
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

from fitting.solver.jacobian import Posed
from fitting.solver.terms.term import (
    NormalEquations,
    Term,
)
from fitting.solver.unknowns import BODY_JOINTS, POSE
from pose2d.base import unpickle
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError

GAUSSIAN = 1e9  # degrees of freedom with which a t distribution is a Gaussian, to rounding
EMBEDDED = Path(str(files("fitting") / "data" / "pose_prior.npz"))  # training/pose_prior.py


@dataclass(frozen=True)
class Mixture:
    """M components over the axis-angle numbers of joints 1 to 23."""

    weights: np.ndarray  # [M]
    means: np.ndarray  # [M, 69] radians
    # [M, 69, 69] symmetric and positive definite; for a t distribution its scale matrix
    covariances: np.ndarray
    freedom: float = GAUSSIAN  # degrees of freedom


def read_mixture(path: str | Path | None = None) -> Mixture:
    """Read the embedded mixture, or SMPLify's (gmm_08.pkl)."""
    if path is None:
        with np.load(check_embedded(EMBEDDED)) as file:
            return Mixture(
                file["weights"],
                file["means"],
                _unpack_covariances(file["covariances"]),
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
            f"{path} is not a pose prior: expected SMPLify's mixture, "
            "`means` [M, 69], `covars` [M, 69, 69] and `weights` [M].",
            file=path,
        ) from error


def pack_covariances(covariances: np.ndarray) -> np.ndarray:
    """Return the lower triangles [M, n (n + 1) / 2] float32 of symmetric matrices [M, n, n]."""
    rows, columns = np.tril_indices(covariances.shape[-1])
    return covariances[:, rows, columns].astype(np.float32)


def _unpack_covariances(triangles: np.ndarray) -> np.ndarray:
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
        """Return -log(weight_m density_m) of poses [T, 57], [T, M]."""
        away = torch.einsum("mij,tj->tmi", self.factor, pose)
        squared = (away - torch.einsum("mij,mj->mi", self.factor, self.mean)).square().sum(-1)
        return (self.freedom + pose.shape[-1]) / 2 * torch.log1p(
            squared / self.freedom
        ) + self.constant

    def pull(self, pose: Tensor, component: Tensor) -> Tensor:
        """Return 2 e'(q) [T]: how much of the precision of these components counts at poses [T,
        57].
        """
        away = torch.einsum("tij,tj->ti", self.factor[component], pose - self.mean[component])
        squared = away.square().sum(-1)
        return (self.freedom + pose.shape[-1]) / (self.freedom + squared)

    def energy(self, pose: Tensor) -> tuple[Tensor, Tensor]:
        """Return -log p by the nearest component [T], and the number of that component [T]."""
        return self.energies(pose).min(1)

    def log_likelihood(self, pose: Tensor) -> Tensor:
        """Return log p of the whole mixture, [T]."""
        return torch.logsumexp(-self.energies(pose), 1)

    def single_gaussian(self) -> "PosePrior":
        """Return one Gaussian with the mean and covariance of the whole mixture."""
        log_weight = -self.constant - self.precision.logdet() / 2
        share = log_weight.softmax(0).double()  # the mixture's weights
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


def prior_from_mixture(
    mixture: Mixture,
    acceleration_std: np.ndarray,
    angular_std: np.ndarray,
    joints: Sequence[int] = BODY_JOINTS,
) -> PosePrior:
    """Return the marginal of a mixture over these joints, those with keypoints.

    acceleration_std and angular_std are as in `PosePrior`.
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
    """Load the embedded prior, learned by `training/pose_prior.py`, or SMPLify's mixture
    (gmm_08.pkl).
    """
    mixture = read_mixture(path)
    with np.load(str(EMBEDDED)) as file:  # SMPLify's file has no accelerations
        smoothness = file["acceleration_sigma"], file["angular_sigma"]
    return prior_from_mixture(mixture, *smoothness)


@dataclass(frozen=True)
class LikelyPose(Term):
    """Pull poses towards the nearest component of the pose prior."""

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
        """Return the term with one Gaussian as wide as the whole mixture."""
        return replace(self, prior=self.prior.single_gaussian())
