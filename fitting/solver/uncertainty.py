"""Standard deviations of every 3D joint, from the Gauss-Newton matrix at the optimum.

With keypoint weights that are true precisions, the matrix at the optimum is the precision of the
posterior (Laplace's approximation), and its inverse a covariance C of all unknowns. A joint's
position P moves with the frame's step by X and with the shape by A, so

    cov(P) = X C_0 X^T + (A - X K) C_s (A - X K)^T,

where C_0 is the frame's covariance at fixed shape, K = H^-1 H_s the frame's response to a change of
shape, and C_s the covariance of the shape.

The matrix that the search uses is overconfident for three reasons: it has only the nearest
component of the pose prior; it describes one optimum, although a limb mirrored in depth may be
another; and it treats the errors of neighbouring frames as independent, as if a hundred frames were
ten times more exact than one. So the covariance is taken with the covariance of the whole mixture;
acceleration, which couples frames, weighs less (MOTION_FACTOR); the precision of the shape is
divided by the number of frames per independent one (`LikelyShape.weight`); and the variance of
depth is inflated for the other optimum (MIRROR_STD_FACTOR). Each term says how it counts here
(`Term.in_doubt`). The constants were chosen on training subjects (`bench/uncertainty.py --subjects
training`); the same script checks the result on subjects that nothing was learned from.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_COUNT
from fitting.solver.arrow import NotPositiveDefinite, corner_factor, factorize
from fitting.solver.levenberg_marquardt import BATCH
from fitting.solver.problem import Problem, normal_equations, visible_to_several
from fitting.solver.terms.shape import LikelyShape
from fitting.solver.unknowns import MOVED_JOINTS, POSE, State

# The few shape numbers of a body model never match a person's bones exactly, and size and distance
# look alike: this share of a joint's position in the camera frame is unknown, along the line of
# sight.
UNMODELLED_SIZE = 0.02
# on depth relative to the pelvis in a track, where a limb once mirrored in depth stays so
MIRROR_STD_FACTOR = 1.2


class JointDeviations(NamedTuple):
    """One standard deviation along the camera's axes."""

    camera_frame_m: Tensor  # [T, 24, 3] of a joint's position in the camera frame
    relative_m: Tensor  # [T, 24, 3] of its position relative to the pelvis
    # [T, 24] of a joint's rotation, the length over its axes; NaN: of leaves nothing is measured
    rotation_rad: Tensor
    shape_covariance: Tensor  # [S, S], or [T, S, S] where each frame has a shape of its own


def joint_deviations(problem: Problem, state: State) -> JointDeviations:
    """Return the standard deviations of joints at an optimum.

    Float64 is used where float32 cannot factorise: at hundreds of frames per second, acceleration
    rounds away what the keypoints say, already in the equations.
    """
    if problem.fps is None and len(state) > BATCH:
        parts = [slice(first, first + BATCH) for first in range(0, len(state), BATCH)]
        of_parts = (joint_deviations(problem.frames(rows), state.rows(rows)) for rows in parts)
        return JointDeviations(*map(torch.cat, zip(*of_parts, strict=True)))
    doubted = (term.in_doubt() for term in problem.terms)
    problem = replace(problem, terms=tuple(term for term in doubted if term is not None))
    try:
        own, response, shape_covariance = _covariances(problem, state)
    except NotPositiveDefinite:
        try:
            in_float64 = _covariances(problem.to(torch.float64), state.to(torch.float64))
        except NotPositiveDefinite:  # rounding has removed the little information there was
            unknown = torch.full((len(state), 24, 3), torch.nan)
            shape = state.shape[..., : problem.jacobian.body_directions]
            return JointDeviations(
                unknown,
                unknown,
                unknown[..., 0],
                (shape[..., None] * shape[..., None, :]) * torch.nan,
            )
        own, response, shape_covariance = (part.to(state.root) for part in in_float64)
    # a second camera measures distances and rules out mirrored limbs
    alone = ~visible_to_several(problem.views)[:, None, None]
    posed = problem.posed(state)
    by_step = posed.joint_step_jacobian
    by_shape = posed.joint_shape_jacobian
    shape_covariances = shape_covariance.expand(len(state), -1, -1)

    def variance_of(x: Tensor, a: Tensor) -> Tensor:
        """Return the variance [T, 24, 3] of points that move by x with the step and by a with the
        shape.
        """
        a = a - torch.einsum("tjcd,tds->tjcs", x, response)
        return torch.einsum("tjcd,tde,tjce->tjc", x, own, x) + torch.einsum(
            "tjcs,tsr,tjcr->tjc", a, shape_covariances, a
        )

    camera_frame = (
        variance_of(by_step, by_shape) + (alone * UNMODELLED_SIZE * posed.joints).square()
    )
    relative_m = variance_of(by_step - by_step[:, :1], by_shape - by_shape[:, :1])
    relative_m = relative_m.clamp(min=0).sqrt()
    if problem.fps is not None:
        relative_m[..., 2] *= torch.where(alone[:, 0], MIRROR_STD_FACTOR, 1.0)
    through_shape = torch.einsum("tds,tsr,tdr->td", response, shape_covariances, response)
    variance = own.diagonal(dim1=-2, dim2=-1) + through_shape
    rotation = variance.new_full((len(state), JOINT_COUNT), torch.nan)
    rotation[:, MOVED_JOINTS] = (
        variance[:, : POSE.stop].unflatten(1, (-1, 3)).sum(-1).clamp(min=0).sqrt()
    )
    directions = problem.jacobian.body_directions
    of_shape = shape_covariance[..., :directions, :directions]
    return JointDeviations(camera_frame.clamp(min=0).sqrt(), relative_m, rotation, of_shape)


def _covariances(problem: Problem, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Return C_0 [T, 63, 63], K [T, 63, S] and C_s [S, S] or [T, S, S]."""
    system = normal_equations(problem, state)
    factor = factorize(system)
    response = factor.solve(system.arrow)
    lower = corner_factor(system.arrow, system.corner, response, problem.term(LikelyShape).weight)
    return factor.marginals(), response, torch.cholesky_inverse(lower)
