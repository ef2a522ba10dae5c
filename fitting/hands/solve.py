"""Solve the angles of one hand over T frames by Levenberg-Marquardt."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from fitting.hands.pose import Hand, PosedHand, pose_hand
from fitting.hands.prior import LIMIT_STD_DEG, RIGID, HandPrior, make_prior
from fitting.keypoints.hands import UNMODELLED_M
from fitting.solver.arrow import BandFactor, solve_coupled_frames
from fitting.solver.terms.reprojection import project, projection_rows
from fitting.solver.terms.term import geman_mcclure

ROBUST = 3.0  # stds at which a keypoint counts half of its square
FIRST_DEPTH = 50.0  # on the weight of landmarks, where a search begins
# Errors of neighbouring frames are correlated: stated deviations take so many frames a second for
# independent.
INDEPENDENT_FRAMES_PER_SECOND = 3.0
_ITERATIONS = 20
_CONVERGED = 1e-3  # decrease of the cost per frame
_FIRST_DAMPING = 1e-2
_LARGEST_DAMPING = 1e4


class SolvedHand(NamedTuple):
    """The pose of one hand in T frames, and its uncertainty."""

    angles: Tensor  # [T, 5, 5] radians
    palm: Tensor  # [T, 3, 3] the palm's rotation
    variance: Tensor  # [T, 5, 5] of the angles, rad^2
    point_std_m: Tensor  # [T, 21] of keypoints relative to the wrist


def solve_hand(hand: Hand, fps: float) -> SolvedHand:
    """Solve a hand from the palm that the 3D landmarks show, where it is seen, and relaxed
    fingers.
    """
    prior = make_prior(hand.wrist[:, 2], fps)
    unknowns = prior.mean.expand(len(hand.wrist), -1).clone()
    from_body_palm = matrix_to_axis_angle(rotation_matrices(hand.palm_rad) @ hand.rotation.mT)
    unknowns[:, :3] = from_body_palm * (hand.depth_weight > 0)[:, None]
    # At first landmarks count as if they were exact to a few millimetres: a finger that points at
    # the camera and one that is bent look alike, and no search gets from the one to the other.
    exact_landmarks = hand._replace(depth_weight=FIRST_DEPTH * hand.depth_weight)
    if bool((hand.depth_weight > 0).any()):  # a hand that is never seen stays relaxed
        unknowns = _search(exact_landmarks, prior, unknowns, robust=False)
        unknowns = _search(hand, prior, unknowns, robust=True)
    posed = pose_hand(hand, unknowns)
    covariance = _covariance(hand, prior, unknowns, posed, fps)
    relative = posed.jacobian - posed.jacobian[:, :1]
    point_variance = torch.einsum("tkcd,tde,tkce->tk", relative, covariance, relative)
    own_variance = covariance.diagonal(dim1=-2, dim2=-1)
    return SolvedHand(
        angles=unknowns[:, RIGID:].unflatten(1, (5, 5)),
        palm=posed.rotation,
        variance=own_variance[:, RIGID:].unflatten(1, (5, 5)),
        point_std_m=(point_variance + 3 * UNMODELLED_M**2).sqrt(),
    )


def _covariance(
    hand: Hand, prior: HandPrior, unknowns: Tensor, posed: PosedHand, fps: float
) -> Tensor:
    """Return the covariance [T, 31, 31] of each frame's unknowns, with neighbouring frames taken
    for less independent than in the search.
    """
    share = min(1.0, INDEPENDENT_FRAMES_PER_SECOND / fps)
    loose_prior = prior._replace(step_precision=prior.step_precision * share)
    matrix, _ = _normal_equations(hand, loose_prior, unknowns, posed, robust=True)
    frames, size = unknowns.shape
    off_diagonal = -torch.diag(loose_prior.step_precision).expand(max(frames - 1, 0), size, size)
    second_off_diagonal = unknowns.new_zeros(max(frames - 2, 0), size, size)
    return BandFactor(matrix, off_diagonal, second_off_diagonal).marginals()


class _Residuals(NamedTuple):
    """Whitened differences between a posed hand and what was seen."""

    pixels: Tensor  # [T, 21, 2]
    depth: Tensor  # [T, 20] of keypoints but the wrist
    loss: Tensor  # [T, 21] of the pixels
    slope: Tensor  # [T, 21] of that loss


def _residuals(hand: Hand, posed: PosedHand, *, robust: bool) -> _Residuals:
    """Compare a posed hand with what was seen; without `robust`, keypoints count squared."""
    projected_px = project(posed.points, hand.focal_px, hand.center_px)
    pixels = hand.weight.sqrt().unsqueeze(-1) * (projected_px - hand.xy_px)
    from_wrist = posed.points - posed.points[:, :1]
    depth_error_m = torch.einsum("tkc,tc->tk", from_wrist, hand.line) - hand.depth_m
    depth = hand.depth_weight.sqrt()[:, None] * depth_error_m[:, 1:]
    square = pixels.square().sum(-1)
    if robust:
        loss, slope = geman_mcclure(square, ROBUST**2)
    else:
        loss = square
        slope = torch.ones_like(square)
    return _Residuals(pixels, depth, loss, slope)


def _cost(
    hand: Hand, prior: HandPrior, unknowns: Tensor, posed: PosedHand, *, robust: bool
) -> Tensor:
    """Return half the sum of all squared or robust residuals."""
    residuals = _residuals(hand, posed, robust=robust)
    from_mean = unknowns - prior.mean
    beyond_limits = prior.beyond_limits(unknowns) / np.radians(LIMIT_STD_DEG)
    steps = prior.step_precision.sqrt() * unknowns.diff(dim=0)
    pose_cost = torch.einsum("td,tde,te->", from_mean, prior.precision, from_mean)
    seen_cost = residuals.loss.sum() + residuals.depth.square().sum()
    return (seen_cost + pose_cost + beyond_limits.square().sum() + steps.square().sum()) / 2


def _normal_equations(
    hand: Hand,
    prior: HandPrior,
    unknowns: Tensor,
    posed: PosedHand,
    *,
    robust: bool,
) -> tuple[Tensor, Tensor]:
    """Return the blocks [T, 31, 31] on the diagonal of the Gauss-Newton matrix, and the gradient
    [T, 31]. Beside the diagonal, an unknown touches only itself in the next frame, by minus its
    `step_precision`.
    """
    residuals = _residuals(hand, posed, robust=robust)
    root = (hand.weight * residuals.slope).sqrt()
    rows = projection_rows(posed.points, hand.focal_px) * root[..., None, None]
    by_pixel = (rows @ posed.jacobian).flatten(1, 2)
    relative = (posed.jacobian - posed.jacobian[:, :1])[:, 1:]
    along_line = torch.einsum("tkcd,tc->tkd", relative, hand.line)
    by_depth = hand.depth_weight.sqrt()[:, None, None] * along_line
    jacobian = torch.cat((by_pixel, by_depth), 1)
    pixels = residuals.pixels * residuals.slope.sqrt().unsqueeze(-1)
    residual = torch.cat((pixels.flatten(1), residuals.depth), 1)
    beyond_limits = prior.beyond_limits(unknowns)
    steps = prior.step_precision * unknowns.diff(dim=0)
    gradient = torch.einsum("tnd,tn->td", jacobian, residual)
    gradient = gradient + torch.einsum("tde,te->td", prior.precision, unknowns - prior.mean)
    gradient[:, RIGID:] += beyond_limits / np.radians(LIMIT_STD_DEG) ** 2
    gradient[:-1] -= steps
    gradient[1:] += steps
    matrix = jacobian.mT @ jacobian + prior.precision
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    diagonal[:, RIGID:] += (beyond_limits != 0) / np.radians(LIMIT_STD_DEG) ** 2
    diagonal[:-1] += prior.step_precision
    diagonal[1:] += prior.step_precision
    return matrix, gradient


def _search(hand: Hand, prior: HandPrior, unknowns: Tensor, *, robust: bool) -> Tensor:
    """Return the unknowns [T, 31] where the cost is lowest, from these on."""
    posed = pose_hand(hand, unknowns)
    cost = float(_cost(hand, prior, unknowns, posed, robust=robust))
    damping = _FIRST_DAMPING
    system = None
    for _ in range(_ITERATIONS):
        system = system or _normal_equations(hand, prior, unknowns, posed, robust=robust)
        matrix, gradient = system
        damped = matrix.clone()
        damped.diagonal(dim1=-2, dim2=-1).mul_(1 + damping)
        trial = unknowns - solve_coupled_frames(damped, -prior.step_precision, gradient)
        trial_posed = pose_hand(hand, trial)
        trial_cost = float(_cost(hand, prior, trial, trial_posed, robust=robust))
        if trial_cost >= cost:
            damping *= 10
            if damping > _LARGEST_DAMPING:
                break
            continue
        decrease = cost - trial_cost
        cost = trial_cost
        unknowns = trial
        posed = trial_posed
        system = None
        damping = damping / 5
        if decrease < _CONVERGED * len(unknowns):
            break
    return unknowns
