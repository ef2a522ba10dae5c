"""The focal length and how well it is known: a prior, and estimates combined by their uncertainty.

A focal length acts by its ratio (10 % longer puts everybody 10 % farther away), so it is Gaussian in log f.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from fitting.body import BodyParams
from pose2d.base.errors import UserError

# As shares of the image's diagonal. Phones: 26 mm equivalent is 0.60, EMDB's phone has 1435 px of 2400 (0.60), and
# video crops for stabilisation up to 0.75; 1680 px of 2203 (0.76) was measured on a camera of shared videos. Webcams
# with 65 to 78 degrees across the diagonal: 0.62 to 0.78. Action cameras in their linear mode: 19 to 27 mm, 0.44 to
# 0.62. Lenses for cinema and sports: 35 to 85 mm, 0.8 to 2. The median lies among the phones and webcams, which make
# most videos; one deviation reaches 0.54 .. 0.96, two 0.41 .. 1.28.
PRIOR_SHARE = 0.72
PRIOR_LOG_SIGMA = 0.29
GIVEN_LOG_SIGMA = 0.01  # a focal length or field of view that the user states
SANE_SHARE = (0.2, 15.0)


@dataclass(frozen=True)
class FocalEstimate:
    """A focal length that may be wrong."""

    focal_px: float  # median, pixels of the full frame
    log_sigma: float  # standard deviation of log f
    source: str  # "given", "metadata: ..", "people and floor", "prior", or several joined by " + "

    def interval_px(self, sigmas: float = 1.0) -> tuple[float, float]:
        """From so many deviations below to so many above."""
        spread = math.exp(sigmas * self.log_sigma)
        return self.focal_px / spread, self.focal_px * spread


def focal_prior(size_px: tuple[int, int]) -> FocalEstimate:
    """What cameras have, for an image of (width, height) pixels."""
    return FocalEstimate(PRIOR_SHARE * math.hypot(*size_px), PRIOR_LOG_SIGMA, "prior")


def given_focal(focal_px: float, size_px: tuple[int, int]) -> FocalEstimate:
    """What the user states; impossible values are refused with a message."""
    share = focal_px / math.hypot(*size_px) if math.isfinite(focal_px) else math.nan
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        low, high = (math.hypot(*size_px) * s for s in SANE_SHARE)
        raise UserError(
            f"a focal length of {focal_px:g} pixels cannot belong to an image of {size_px[0]}x{size_px[1]}: "
            f"expected {low:.0f} to {high:.0f}. Give pixels of the full frame (f_mm / 43.27 * diagonal for a "
            "35 mm equivalent), or leave it out to have it estimated."
        )
    return FocalEstimate(focal_px, GIVEN_LOG_SIGMA, "given")


def combined(estimates: Iterable[FocalEstimate]) -> FocalEstimate:
    """The product of independent Gaussians in log f.

    Estimates that contradict each other (chi^2 above their number) widen the answer by Birge's ratio
    sqrt(chi^2 / (n - 1)): the figures are then wrong about themselves, and the mean of two contradictions is no better
    than either.
    """
    usable = [
        e for e in estimates if math.isfinite(e.focal_px) and e.focal_px > 0 and 0 < e.log_sigma < math.inf
    ]  # fmt: skip
    if not usable:
        raise ValueError("no finite estimate of the focal length to combine")
    log_f = np.log([e.focal_px for e in usable])
    precision = 1 / np.square([e.log_sigma for e in usable])
    mean = float(precision @ log_f / precision.sum())
    sigma = float(precision.sum() ** -0.5)
    if len(usable) > 1:
        chi2 = float(precision @ (log_f - mean) ** 2)
        sigma *= max(1.0, math.sqrt(chi2 / (len(usable) - 1)))
    weightiest_first = sorted(usable, key=lambda e: e.log_sigma)
    return FocalEstimate(math.exp(mean), sigma, " + ".join(dict.fromkeys(e.source for e in weightiest_first)))


def refocused(points_cam_m: np.ndarray, root_cam_m: np.ndarray, focal_ratio: float) -> np.ndarray:
    """Points [T, N, 3] of a body at root_cam_m [T, 3], fitted under one focal length, as another would place them.

    focal_ratio: new / old. A body of the same size and the same image lies at z * ratio, with x and y unchanged, and
    keeps its orientation towards its viewing ray, so that it turns with the ray.
    """
    new_root = root_cam_m * np.array([1.0, 1.0, focal_ratio])
    turn = _shortest_turn(root_cam_m, new_root)
    return new_root[:, None] + np.einsum("tij,tnj->tni", turn, points_cam_m - root_cam_m[:, None])


def refocused_params(params: BodyParams, rest_pelvis_m: torch.Tensor, focal_ratio: float) -> BodyParams:
    """The same for a body's parameters; rest_pelvis_m [3]: the pelvis of this body's shape at rest."""
    if focal_ratio == 1.0:
        return params
    rest = rest_pelvis_m.double().numpy()
    root = rest + params.translation.double().numpy()
    new_root = root * np.array([1.0, 1.0, focal_ratio])
    turn = Rotation.from_matrix(_shortest_turn(root, new_root))
    pose = params.pose.clone()
    pose[:, 0] = torch.from_numpy((turn * Rotation.from_rotvec(pose[:, 0].double().numpy())).as_rotvec()).to(pose)
    moved = torch.from_numpy(new_root - rest).to(params.translation)
    return BodyParams(pose, params.shape, moved, params.size)


def _shortest_turn(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[T, 3, 3] rotations that take directions [T, 3] to others, which must not be opposite."""
    a = source / np.linalg.norm(source, axis=-1, keepdims=True)
    b = target / np.linalg.norm(target, axis=-1, keepdims=True)
    axis, cosine = np.cross(a, b), np.sum(a * b, -1)
    skew = np.zeros((*axis.shape[:-1], 3, 3))
    skew[..., 0, 1], skew[..., 0, 2], skew[..., 1, 2] = -axis[..., 2], axis[..., 1], -axis[..., 0]
    skew -= skew.swapaxes(-1, -2)
    return np.eye(3) + skew + skew @ skew / (1 + cosine)[..., None, None]
