"""What poses are likely: a mixture over axis-angle, in least-squares form.

Of the mixture only the nearest component counts, as in SMPLify: -log p = min_m (e(|L_m^T (x - mu_m)|^2) + c_m), with
P_m = L_m L_m^T. For Gaussians e(q) = q / 2. The embedded prior's components are Student t distributions of v degrees of
freedom over d numbers, e(q) = (v + d) / 2 log(1 + q / v), which pull less the farther a pose is from any of them. Each
solver step takes the component that is nearest now, and is an ordinary quadratic with the precision 2 e'(q) P_m.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.solver.unknowns import BODY_JOINTS, LEAF_JOINTS
from pose2d.base import unpickle
from pose2d.base.errors import UserError

EMBEDDED = files("fitting") / "data" / "pose_prior.npz"  # written by `fitting/training/pose_prior.py`


@dataclass(frozen=True)
class Mixture:
    """M components over the axis-angle numbers of joints 1 to 23."""

    weights: np.ndarray  # [M]
    means: np.ndarray  # [M, 69] radians
    covariances: np.ndarray  # [M, 69, 69], symmetric and positive definite; of a t distribution its scale matrix
    freedom: float = math.inf  # degrees of freedom; inf for Gaussians


def read_mixture(path: str | Path | None = None) -> Mixture:
    """The embedded mixture, or SMPLify's (gmm_08.pkl)."""
    if path is None:
        with np.load(str(EMBEDDED)) as file:
            freedom = float(file["freedom"]) if "freedom" in file else math.inf
            return Mixture(file["weights"], file["means"], _unpacked(file["covariances"]), freedom)
    content = unpickle.load(path)
    try:
        weights, means, covariances = (np.asarray(content[name], np.float64) for name in ("weights", "means", "covars"))
        count = len(weights)
        if (weights.shape, means.shape, covariances.shape) != ((count,), (count, 69), (count, 69, 69)):
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
    leaf_mean: Tensor  # [M, 12] the LEAF_JOINTS' mean
    leaf_gain: Tensor  # [M, 12, 57] their regression on the rest: leaf = leaf_mean + gain (x - mean)
    acceleration_std: (
        Tensor  # [24] m/s^2, standard deviation of each joint's acceleration along one axis, at 30 frames/s
    )
    angular_std: Tensor  # [57] rad/s^2, the same of the axis-angle numbers
    freedom: Tensor  # [] degrees of freedom of the components; inf for Gaussians

    def energies(self, pose: Tensor) -> Tensor:
        """-log(weight_m density_m) of poses [T, 57] -> [T, M]."""
        away = torch.einsum("mij,tj->tmi", self.factor, pose)
        squared = (away - torch.einsum("mij,mj->mi", self.factor, self.mean)).square().sum(-1)
        if bool(self.freedom.isinf()):
            return squared / 2 + self.constant
        return (self.freedom + pose.shape[-1]) / 2 * torch.log1p(squared / self.freedom) + self.constant

    def pull(self, pose: Tensor, component: Tensor) -> Tensor:
        """2 e'(q), how much of given components' precision counts at poses [T, 57], [T]."""
        if bool(self.freedom.isinf()):
            return torch.ones_like(pose[:, 0])
        away = torch.einsum("tij,tj->ti", self.factor[component], pose - self.mean[component])
        squared = away.square().sum(-1)
        return (self.freedom + pose.shape[-1]) / (self.freedom + squared)

    def energy(self, pose: Tensor) -> tuple[Tensor, Tensor]:
        """-log p by the nearest component [T], and which one it is [T]."""
        return self.energies(pose).min(1)

    def log_likelihood(self, pose: Tensor) -> Tensor:
        """log p of the whole mixture, [T]."""
        return torch.logsumexp(-self.energies(pose), 1)

    def leaves(self, pose: Tensor) -> Tensor:
        """Toes and hands expected with poses [T, 57], [T, 4, 3]."""
        _, nearest = self.energy(pose)
        away = pose - self.mean[nearest]
        return (self.leaf_mean[nearest] + torch.einsum("tij,tj->ti", self.leaf_gain[nearest], away)).unflatten(
            1, (4, 3)
        )

    def shares(self) -> Tensor:
        """The mixture's weights, [M]."""
        return (-self.constant - self.precision.logdet() / 2).softmax(0)

    def average(self) -> Tensor:
        """The mixture's mean, [57]."""
        return self.shares() @ self.mean

    def single_gaussian(self) -> "PosePrior":
        """One Gaussian with the whole mixture's mean and covariance."""
        share, mean = self.shares().double(), self.average().double()
        away = self.mean.double() - mean
        wider = 1.0 if bool(self.freedom.isinf()) else float(self.freedom / (self.freedom - 2))  # than the scale matrix
        covariance = wider * torch.einsum("m,mij->ij", share, torch.linalg.inv(self.precision.double()))
        covariance += torch.einsum("m,mi,mj->ij", share, away, away)
        precision = torch.linalg.inv(covariance)
        lower = torch.linalg.cholesky(precision)
        constant = len(mean) / 2 * math.log(2 * math.pi) - lower.diagonal().log().sum()
        leaf_mean = self.shares() @ self.leaf_mean
        return replace(
            self,
            mean=mean[None].to(self.mean),
            factor=lower.T[None].to(self.mean),
            precision=precision[None].to(self.mean),
            constant=constant[None].to(self.mean),
            leaf_mean=leaf_mean[None],
            leaf_gain=torch.zeros_like(self.leaf_gain[:1]),
            freedom=torch.tensor(math.inf),
        )

    def to(self, dtype: torch.dtype) -> "PosePrior":
        return PosePrior(**{name: value.to(dtype) for name, value in vars(self).items()})


def from_mixture(mixture: Mixture, acceleration_std: np.ndarray, angular_std: np.ndarray) -> PosePrior:
    """Split off the joints without keypoints: the marginal over the rest, and a regression of them on it.

    acceleration_std: [24] and angular_std: [57], as in `PosePrior`.
    """
    body = [3 * (joint - 1) + axis for joint in BODY_JOINTS for axis in range(3)]
    leaf = [3 * (joint - 1) + axis for joint in LEAF_JOINTS for axis in range(3)]
    covariance = mixture.covariances[:, body][:, :, body].astype(np.float64)
    precision = np.linalg.inv(covariance)
    lower = np.linalg.cholesky(precision)
    half_log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
    constant = -np.log(mixture.weights) - half_log_det + _log_normaliser(len(body), mixture.freedom)
    gain = mixture.covariances[:, leaf][:, :, body] @ precision

    def real(array: np.ndarray | float) -> Tensor:
        return torch.tensor(array, dtype=torch.float32)

    return PosePrior(
        real(mixture.means[:, body]), real(np.swapaxes(lower, 1, 2)), real(precision), real(constant),
        real(mixture.means[:, leaf]), real(gain), real(acceleration_std), real(angular_std), real(mixture.freedom),
    )  # fmt: skip


def _log_normaliser(size: int, freedom: float) -> float:
    """Of a standard Gaussian or Student t over so many numbers: minus the log of its density at the mean."""
    if math.isinf(freedom):
        return size / 2 * math.log(2 * math.pi)
    return math.lgamma(freedom / 2) - math.lgamma((freedom + size) / 2) + size / 2 * math.log(math.pi * freedom)


@lru_cache(maxsize=4)
def load_prior(path: str | Path | None = None) -> PosePrior:
    """The embedded prior, learned by `fitting/training/pose_prior.py`, or SMPLify's mixture (gmm_08.pkl)."""
    mixture = read_mixture(path)
    with np.load(str(EMBEDDED)) as file:  # SMPLify's file has no accelerations
        smoothness = file["acceleration_sigma"], file["angular_sigma"]
    return from_mixture(mixture, *smoothness)
