"""What SMPLify makes small, in SPIN's form: pure functions, one number per person or per point."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.solver.mixture_file import read_mixture
from fitting.solver.residuals import geman_mcclure
from pose2d.base.errors import UserError

# Numbers of the 69 that bend elbows and knees, and the sign in which they bend backwards.
_HINGES, _BACKWARDS = (52, 55, 9, 12), (1.0, -1.0, -1.0, -1.0)


@dataclass(frozen=True)
class SmplifySettings:
    """SPIN's numbers. Weights are squared before use, as there."""

    iterations: int = 100  # of each of the two stages
    step: float = 1e-2  # Adam's learning rate
    conf_power: float = 2.0  # an error counts confidence ** conf_power: 2 as in SPIN, 1 by the confidence itself
    robust_px: float = 100.0  # error at which a keypoint counts half of its square, pixels of a 224-pixel crop
    pose_weight: float = 4.78
    bend_weight: float = 15.2
    shape_weight: float = 5.0
    depth_weight: float = 100.0  # first stage: holds the distance, per metre
    batch: int = 64  # frames that are fitted together; they do not influence each other

    def __post_init__(self) -> None:
        if self.iterations < 0 or self.batch < 1 or not self.step > 0 or not self.conf_power >= 0:
            raise UserError(
                "SMPLify needs iterations >= 0, batch >= 1, step > 0 and conf_power >= 0, got "
                f"{self.iterations}, {self.batch}, {self.step}, {self.conf_power}."
            )


def reprojection(
    projected_px: Tensor,  # [N, K, 2]
    xy_px: Tensor,  # [N, K, 2]
    weight: Tensor,  # [N, K] confidence ** conf_power
    pixel_scale: Tensor,  # [N] crop pixels per image pixel
    robust_px: float,
) -> Tensor:
    """weight * sum over x and y of rho(d), [N, K], with rho the Geman-McClure function of crop pixels."""
    squared = ((projected_px - xy_px) * pixel_scale[:, None, None]).square()
    return weight * geman_mcclure(squared, squared.new_tensor(robust_px**2))[0].sum(-1)


def torso_reprojection(
    projected_px: Tensor, xy_px: Tensor, confidence: Tensor, pixel_scale: Tensor, torsos: tuple[tuple[int, ...], ...]
) -> Tensor:
    """Squared crop pixels of hips and shoulders, not weighted, [N]: of the first torso seen whole, else the last.

    Of the last, points with confidence 0 are left out: they have no position.
    """
    squared = ((projected_px - xy_px) * pixel_scale[:, None, None]).square().sum(-1)
    *preferred, last = (list(torso) for torso in torsos)
    loss = (squared[:, last] * (confidence[:, last] > 0)).sum(1)
    for torso in reversed(preferred):
        whole = (confidence[:, torso] > 0).all(1)
        loss = torch.where(whole, squared[:, torso].sum(1), loss)
    return loss


def bend(body_pose: Tensor) -> Tensor:
    """exp(angle)^2 of elbows and knees bent backwards, [N, 69] -> [N, 4]."""
    return (body_pose[:, list(_HINGES)] * body_pose.new_tensor(_BACKWARDS)).exp().square()


@dataclass(frozen=True)
class MaxMixture:
    """SMPLify's pose prior: of M Gaussians over joints 1 to 23, the nearest counts."""

    mean: Tensor  # [M, 69]
    precision: Tensor  # [M, 69, 69]
    constant: Tensor  # [M] -log of the weighted density at the mean, up to one number for all

    def energy(self, body_pose: Tensor) -> Tensor:
        """min over m of d' P_m d / 2 + c_m, [N, 69] -> [N]."""
        away = body_pose[:, None] - self.mean
        squared = (torch.einsum("mij,nmj->nmi", self.precision, away) * away).sum(-1)
        return (squared / 2 + self.constant).amin(1)


def max_mixture(weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> MaxMixture:
    """The prior of a mixture: weights [M], means [M, 69], covariances [M, 69, 69].

    c_m = -log(w_m / ((2 pi)^(69/2) sqrt(det_m) / min sqrt(det))), as SMPLify scales it.
    """
    covariances = covariances.astype(np.float64)
    half_log_det = np.linalg.slogdet(covariances)[1] / 2
    constant = means.shape[1] / 2 * math.log(2 * math.pi) + half_log_det - half_log_det.min() - np.log(weights)

    def real(array: np.ndarray) -> Tensor:
        return torch.tensor(array, dtype=torch.float32)

    return MaxMixture(real(means), real(np.linalg.inv(covariances)), real(constant))


@lru_cache(maxsize=4)
def load_max_mixture(path: str | Path | None = None) -> MaxMixture:
    """SMPLify's own mixture (gmm_08.pkl), or the embedded one in the same form."""
    mixture = read_mixture(path)
    return max_mixture(mixture.weights, mixture.means, mixture.covariances)
