"""The focal length and how well it is known.

There is a prior, and estimates are combined by their uncertainty. A focal length acts by its ratio
(10 % longer puts people 10 % farther away), so it is Gaussian in log f.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from fitting.body import BodyParams
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices, shortest_turn
from pose2d.base.errors import UserError

# As shares of the image's diagonal. Phones: 26 mm equivalent is 0.60, EMDB's phone has 1435 px of
# 2400 (0.60), and video crops for stabilisation up to 0.75; 1680 px of 2203 (0.76) was measured on
# a camera of shared videos. Webcams with 65 to 78 degrees across the diagonal: 0.62 to 0.78. Action
# cameras in their linear mode: 19 to 27 mm, 0.44 to 0.62. Lenses for cinema and sports: 35 to 85
# mm, 0.8 to 2. The median lies among the phones and webcams, which make most videos; one deviation
# reaches 0.54 .. 0.96, two 0.41 .. 1.28.
PRIOR_SHARE = 0.72
PRIOR_LOG_SIGMA = 0.29
GIVEN_LOG_SIGMA = 0.01  # a focal length or field of view that the user states
SANE_SHARE = (0.2, 15.0)


@dataclass(frozen=True)
class FocalEstimate:
    """A focal length with its uncertainty."""

    focal_px: float  # median, pixels of the full frame
    log_sigma: float  # standard deviation of log f
    source: str  # "given", "metadata: ..", "people and floor", "prior", or several joined by " + "


def focal_prior(size_px: tuple[int, int]) -> FocalEstimate:
    """Return the prior of cameras in general, for an image of (width, height) pixels."""
    return FocalEstimate(PRIOR_SHARE * math.hypot(*size_px), PRIOR_LOG_SIGMA, "prior")


def focal_from_user(focal_px: float, size_px: tuple[int, int]) -> FocalEstimate:
    """Return the estimate for a focal length that the user states; raise UserError for impossible
    values.
    """
    share = focal_px / math.hypot(*size_px) if math.isfinite(focal_px) else math.nan
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        low, high = (math.hypot(*size_px) * s for s in SANE_SHARE)
        raise UserError(
            f"a focal length of {focal_px:g} pixels cannot belong to an image of "
            f"{size_px[0]}x{size_px[1]}: expected {low:.0f} to {high:.0f}. Give pixels of the full "
            "frame (f_mm / 43.27 * diagonal for a 35 mm equivalent), or leave it out to have it "
            "estimated."
        )
    return FocalEstimate(focal_px, GIVEN_LOG_SIGMA, "given")


def combine_focal_estimates(estimates: Iterable[FocalEstimate]) -> FocalEstimate:
    """Combine independent estimates: the product of Gaussians in log f.

    Estimates that contradict each other (chi^2 above their number) widen the answer by Birge's
    ratio sqrt(chi^2 / (n - 1)): their stated errors are then too small, and the mean of two
    contradictions is no better than either.
    """
    usable = [e for e in estimates if 0 < e.focal_px < math.inf and 0 < e.log_sigma < math.inf]
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
    return FocalEstimate(
        math.exp(mean), sigma, " + ".join(dict.fromkeys(e.source for e in weightiest_first))
    )


def refocus_params(
    params: BodyParams, rest_pelvis_m: torch.Tensor, focal_ratio: float
) -> BodyParams:
    """Place a fitted body as a focal length `focal_ratio` times as long would place it.

    Of the same size and with the same image it lies at z * ratio, x and y unchanged, and turns with
    its viewing ray. rest_pelvis_m [3]: the pelvis of this body's shape at rest.
    """
    if focal_ratio == 1.0:
        return params
    rest_pelvis = rest_pelvis_m.double()
    pose = params.pose.clone()
    root = rest_pelvis + params.translation.double()
    new_root = root * root.new_tensor([1.0, 1.0, focal_ratio])
    turn = shortest_turn(root, new_root)
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0].double())).to(pose)
    translation = (new_root - rest_pelvis).to(params.translation)
    return replace(params, pose=pose, translation=translation)
