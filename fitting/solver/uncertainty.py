"""How far off each 3D joint may be: standard deviations from the Gauss-Newton matrix.

With keypoint weights that are true precisions, the matrix at the optimum is the posterior's precision (Laplace's
approximation), and its inverse a covariance C of all unknowns. A joint's position P moves with the frame's step by X
and with the shape by A, so

    cov(P) = X C_0 X^T + (A - X K) C_s (A - X K)^T,

where C_0 is the frame's covariance at fixed shape, K = H^-1 H_s the frame's response to a change of shape, and C_s the
covariance of the shape.

The matrix that the search uses is overconfident for three reasons: it has the nearest component of the pose prior only;
it describes one optimum, where a limb mirrored in depth would be another; and it takes the errors of neighbouring
frames for independent, as if a hundred frames were ten times more exact than one. So the covariance is taken with the
covariance of the whole mixture; acceleration, which couples frames, weighs less (MOTION_FACTOR); the shape's precision
is divided by the number of frames per independent one (`LikelyShape.weight`); and the variance of depth is inflated for
the other optimum (MIRROR_STD_FACTOR). Each term says how it counts here (`Term.in_doubt`). The constants were chosen on
training subjects (`bench/uncertainty.py --subjects training`); the same script checks the result on subjects nothing
was learned from.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.solver.arrow import NotPositiveDefinite, shape_factor
from fitting.solver.levenberg_marquardt import factorize
from fitting.solver.problem import CHUNK, NormalEquations, Problem, costs, normal_equations, seen_by_several
from fitting.solver.terms.priors import LikelyShape
from fitting.solver.unknowns import State

# Nobody has exactly the bones that a body model's few shape numbers allow, and size and distance look alike: this share
# of a joint's position in the camera frame is unknown, along the line of sight.
UNMODELLED_SIZE = 0.02
MIRROR_STD_FACTOR = 1.2  # on depth relative to the pelvis in a track, where a limb once mirrored in depth stays so


@dataclass(frozen=True)
class JointDeviations:
    """One standard deviation along the camera's axes."""

    camera_frame_m: Tensor  # [T, 24, 3] of a joint's position in the camera frame
    relative_m: Tensor  # [T, 24, 3] of its position relative to the pelvis


def in_doubt(problem: Problem) -> Problem:
    """Every term as it counts in the stated uncertainty."""
    return replace(problem, terms=tuple(term for each in problem.terms if (term := each.in_doubt()) is not None))


def log_evidence(problem: Problem, state: State) -> float:
    """log of the integral of exp(-cost) over all unknowns, by Laplace's approximation at an optimum:

        -cost - log det H / 2 + n log(2 pi) / 2,

    with H the Gauss-Newton matrix of all n unknowns, in float64. Costs leave out what does not depend on the unknowns
    (a residual's log std, a keypoint's likelihood at zero), so only hypotheses that have the same residuals, or whose
    difference in these is added by the caller, can be compared.
    """
    _, total = costs(problem, state)
    system = normal_equations(problem, state).double()
    factor = factorize(system)
    _, lower = shape_factor(factor, system.arrow, system.corner)
    log_det = factor.log_det() + 2 * float(lower.diagonal(dim1=-2, dim2=-1).log().sum())
    unknowns = system.gradient.numel() + system.shape_gradient.numel()
    return -float(total) - log_det / 2 + unknowns * math.log(2 * math.pi) / 2


def joint_deviations(problem: Problem, state: State) -> JointDeviations:
    """At an optimum. Float64 where float32 cannot factorise."""
    problem = in_doubt(problem)
    shape_weight = problem.term(LikelyShape).weight
    system = normal_equations(problem, state)
    try:
        own, response, shape_covariance = _covariances(system, shape_weight)
    except NotPositiveDefinite:
        try:
            parts = _covariances(system.double(), shape_weight)
        except NotPositiveDefinite:  # rounding has eaten what little the data say: nothing can be stated
            unknown = torch.full((len(state), 24, 3), torch.nan)
            return JointDeviations(unknown, unknown.clone())
        own, response, shape_covariance = (part.to(system.matrix.dtype) for part in parts)
    alone = ~seen_by_several(problem.views)[:, None, None]  # a second camera knows distances, and no limb mirrored
    camera_frame: list[Tensor] = []
    relative_to_pelvis: list[Tensor] = []
    for first in range(0, len(state), CHUNK):
        rows = slice(first, first + CHUNK)
        geometry = problem.jacobian.place(state.frames(rows))
        step_jacobian, shape_jacobian = (
            problem.jacobian.joint_step_jacobian(geometry),
            problem.jacobian.joint_shape_jacobian(geometry),
        )
        shape_part = shape_covariance if state.shared_shape else shape_covariance[rows]
        for relative, out in ((False, camera_frame), (True, relative_to_pelvis)):
            x = step_jacobian - step_jacobian[:, :1] if relative else step_jacobian
            a = shape_jacobian - shape_jacobian[:, :1] if relative else shape_jacobian
            a = a - torch.einsum("tjcd,tds->tjcs", x, response[rows])
            variance = torch.einsum("tjcd,tde,tjce->tjc", x, own[rows], x)
            spec = "tjcs,sr,tjcr->tjc" if state.shared_shape else "tjcs,tsr,tjcr->tjc"
            variance = variance + torch.einsum(spec, a, shape_part, a)
            if not relative:
                variance = variance + (alone[rows] * UNMODELLED_SIZE * geometry.joints).square()
            out.append(variance.clamp(min=0).sqrt())
    relative_m = torch.cat(relative_to_pelvis)
    if problem.fps is not None:
        relative_m[..., 2] *= torch.where(alone[:, 0], MIRROR_STD_FACTOR, 1.0)
    return JointDeviations(torch.cat(camera_frame), relative_m)


def _covariances(system: NormalEquations, shape_weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """C_0 [T, 63, 63], K [T, 63, S] and C_s [S, S] or [T, S, S]."""
    factor = factorize(system)
    response, lower = shape_factor(factor, system.arrow, system.corner, shape_weight)
    return factor.marginals(), response, torch.cholesky_inverse(lower)
