"""How far off each 3D joint may be: standard deviations from the Gauss-Newton matrix.

With keypoint weights that are true precisions, the matrix at the optimum is the posterior's precision (Laplace's
approximation), and its inverse a covariance C of all unknowns. A joint's position P moves with the frame's step by X
and with the shape by A, so

    cov(P) = X C_0 X^T + (A - X K) C_s (A - X K)^T,

where C_0 is the frame's covariance at fixed shape, K = H^-1 H_s how the frame answers a change of shape, and C_s the
covariance of the shape.

The matrix that the search uses is too sure of itself, in ways that can be named: it knows the nearest component of the
pose prior only; it sees one optimum, where a limb mirrored in depth would be another; and it takes the errors of
neighbouring frames for independent, so that a hundred frames seem to know ten times more than one. So the covariance
is taken with the whole mixture's width; smoothness, which lets frames speak for each other, counts less
(MOTION_SHARE); of what frames say of the shape only that part counts which is new (`Problem.shape_share`); and depth is
widened for the other optimum (MIRRORED). The constants were chosen on training subjects
(`bench/uncertainty.py --subjects training`); the same script checks the result on subjects nothing was learned from.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.solver.arrow import NotPositiveDefinite
from fitting.solver.levenberg_marquardt import factorised
from fitting.solver.normal_equations import NormalEquations, normal_equations
from fitting.solver.problem import CHUNK, Problem
from fitting.solver.unknowns import State

MOTION_SHARE = 0.003  # of what acceleration counts in the search: bridges frames that show nothing
GUESS_DOUBT = 1.5  # on the spreads of an initial guess: it may have been made from the very keypoints counted beside it
PLACE_DOUBT = 5.0  # the same for size and distance, which keypoints alone hardly tell apart
MIRRORED = 1.2  # widens depth relative to the pelvis in a track, where a limb once mirrored in depth stays so


@dataclass(frozen=True)
class JointSpread:
    """One standard deviation along the camera's axes."""

    place_m: Tensor  # [T, 24, 3] of a joint's position in the camera frame
    pose_m: Tensor  # [T, 24, 3] of its position relative to the pelvis


def joint_spread(problem: Problem, state: State) -> JointSpread:
    """At an optimum. Float64 where float32 cannot factorise."""
    problem = replace(
        problem,
        prior=problem.prior.as_one(),
        motion_share=MOTION_SHARE * problem.motion_share,
        anchor=problem.anchor and problem.anchor.widened(GUESS_DOUBT, PLACE_DOUBT),
    )
    system = normal_equations(problem, state)
    try:
        own, answer, shape_covariance = _covariances(system, problem.shape_share)
    except NotPositiveDefinite:
        parts = _covariances(system.double(), problem.shape_share)
        own, answer, shape_covariance = (part.to(system.matrix.dtype) for part in parts)
    place: list[Tensor] = []
    pose: list[Tensor] = []
    for first in range(0, len(state), CHUNK):
        rows = slice(first, first + CHUNK)
        geometry = problem.mechanism.place(state.frames(rows))
        by_step, by_shape = problem.mechanism.joints_by_step(geometry), problem.mechanism.joints_by_shape(geometry)
        shape_part = shape_covariance if state.shared_shape else shape_covariance[rows]
        for relative, out in ((False, place), (True, pose)):
            x = by_step - by_step[:, :1] if relative else by_step
            a = by_shape - by_shape[:, :1] if relative else by_shape
            a = a - torch.einsum("tjcd,tds->tjcs", x, answer[rows])
            variance = torch.einsum("tjcd,tde,tjce->tjc", x, own[rows], x)
            spec = "tjcs,sr,tjcr->tjc" if state.shared_shape else "tjcs,tsr,tjcr->tjc"
            variance = variance + torch.einsum(spec, a, shape_part, a)
            out.append(variance.clamp(min=0).sqrt())
    relative_m = torch.cat(pose)
    if problem.fps is not None:
        relative_m[..., 2] *= MIRRORED
    return JointSpread(torch.cat(place), relative_m)


def _covariances(system: NormalEquations, shape_share: float) -> tuple[Tensor, Tensor, Tensor]:
    """C_0 [T, 63, 63], K [T, 63, S] and C_s [S, S] or [T, S, S]."""
    factor = factorised(system)
    answer = factor.solve(system.arrow)
    down = "tds,tdr->tsr" if system.corner.ndim == 3 else "tds,tdr->sr"
    known = (system.corner - torch.einsum(down, system.arrow, answer)) / shape_share
    lower, failed = torch.linalg.cholesky_ex(known)
    if failed.any():
        raise NotPositiveDefinite("the shape is not determined")
    return factor.marginals(), answer, torch.cholesky_inverse(lower)
