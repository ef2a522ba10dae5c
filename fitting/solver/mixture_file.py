"""Mixtures of Gaussians over poses, as files hold them: the embedded one, and SMPLify's."""

import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from pose2d.base import unpickle
from pose2d.base.errors import UserError

EMBEDDED = files("fitting") / "data" / "pose_prior.npz"  # written by `tools/fit_pose_prior.py`


@dataclass(frozen=True)
class Mixture:
    """M Gaussians over the axis-angle numbers of joints 1 to 23."""

    weights: np.ndarray  # [M]
    means: np.ndarray  # [M, 69] radians
    covariances: np.ndarray  # [M, 69, 69], symmetric and positive definite


def read_mixture(path: str | Path | None = None) -> Mixture:
    """The embedded mixture, or SMPLify's (gmm_08.pkl)."""
    if path is None:
        with np.load(str(EMBEDDED)) as file:
            return Mixture(file["weights"], file["means"], _unpacked(file["covariances"]))
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
