"""One fitting problem, solved by Levenberg-Marquardt over a track or many independent frames at
once.

`Problem` says whose body, in which frames, and which terms pull on it.

No accepted step raises the cost, so a fit is never worse than its start. Work is in float32; a
factorisation that fails there is repeated in float64.

**Normal equations** (`solve_arrow`): frames in a band, the shape across all of them. Acceleration
couples a frame with the two before it, so a block Cholesky factorisation

    L_t L_t^T = H'_tt,    X_t = L_t^{-1} [H'_t,t+1  H_t,t+2]

takes time and memory linear in the number of frames; H' is what is left of H when the frames before
are eliminated, each of which takes X^T X from the two after it. Unknowns that touch every frame are
the arrow; they are solved by their Schur complement.

**Standard deviations** of every 3D joint from the Gauss-Newton matrix (`joint_deviations`). With
keypoint weights that are true precisions, the matrix at the optimum is the posterior's precision
(Laplace's approximation), and its inverse a covariance C of all unknowns. A joint's position P
moves with the frame's step by X and with the shape by A, so

    cov(P) = X C_0 X^T + (A - X K) C_s (A - X K)^T,

where C_0 is the frame's covariance at fixed shape, K = H^-1 H_s the frame's response to a change of
shape, and C_s the covariance of the shape.

The matrix that the search uses is overconfident for three reasons: it has the nearest component of
the pose prior only; it describes one optimum, where a limb mirrored in depth would be another; and
it takes the errors of neighbouring frames for independent, as if a hundred frames were ten times
more exact than one. So the covariance is taken with the covariance of the whole mixture;
acceleration, which couples frames, weighs less (MOTION_FACTOR); the shape's precision is divided by
the number of frames per independent one (`LikelyShape.weight`); and the variance of depth is
inflated for the other optimum (MIRROR_STD_FACTOR). Each term says how it counts here
(`Term.in_doubt`). The constants were chosen on training subjects (`bench/uncertainty.py --subjects
training`); the same script checks the result on subjects nothing was learned from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_COUNT
from fitting.keypoints.observed import LEAST_KEYPOINTS
from fitting.solver.terms.priors import LikelyShape
from fitting.solver.terms.reprojection import Reprojection
from fitting.solver.terms.term import NormalEquations, Term
from fitting.solver.unknowns import MOVED_JOINTS, POSE, BodyJacobian, Posed, State

Kind = TypeVar("Kind", bound=Term)


@dataclass(frozen=True)
class Problem:
    """T frames of one person, or T people in a frame each."""

    jacobian: BodyJacobian
    terms: tuple[Term, ...]  # everything that pulls; the keypoints among them
    fps: float | None = (
        None  # frames per second of a track of more than FARTHEST frames; None: they do not touch
    )
    segment: Tensor | None = (
        None  # [T] frames with the same number follow each other; None: all frames do
    )
    world_rotation: Tensor | None = (
        None  # [T, 3, 3] from each frame's camera to axes that do not turn; None: the same
    )

    def __len__(self) -> int:
        return len(self.seen.weight)

    @property
    def seen(self) -> Reprojection:
        """The keypoints, of the camera in whose frame the body is."""
        return self.term(Reprojection)

    @property
    def views(self) -> list[Reprojection]:
        """The keypoints of every camera."""
        return [term for term in self.terms if isinstance(term, Reprojection)]

    @property
    def without_tails(self) -> "Problem":
        """With one Gaussian for every keypoint (`Reprojection.without_tails`)."""
        return replace(
            self,
            terms=tuple(t.without_tails if isinstance(t, Reprojection) else t for t in self.terms),
        )

    def term(self, kind: type[Kind]) -> Kind:
        """The first term of this kind."""
        return next(term for term in self.terms if isinstance(term, kind))

    def frames(self, index: Tensor | slice) -> "Problem":
        """The problem of some frames alone."""
        return replace(
            self,
            terms=tuple(term.frames(index) for term in self.terms),
            segment=None if self.segment is None else self.segment[index],
            world_rotation=None if self.world_rotation is None else self.world_rotation[index],
        )

    def to(self, dtype: torch.dtype) -> "Problem":
        jacobian = BodyJacobian(self.jacobian.body.to(dtype=dtype), self.jacobian.shape_size)
        turn = None if self.world_rotation is None else self.world_rotation.to(dtype)
        return replace(
            self,
            jacobian=jacobian,
            terms=tuple(term.to(dtype) for term in self.terms),
            world_rotation=turn,
        )

    def posed(self, state: State) -> Posed:
        """These frames as terms see them."""
        return Posed(self.jacobian, state, self.fps, self.segment, self.world_rotation)


def seen_by_several(views: Sequence[Reprojection]) -> Tensor:
    """[T] whether more than one camera shows enough of the body to be fitted to it."""
    return torch.stack([view.used.sum(-1) >= LEAST_KEYPOINTS for view in views]).sum(0) > 1


def costs(problem: Problem, state: State) -> tuple[Tensor, Tensor]:
    """-log posterior up to a constant: each frame's own [T], infinite for a body behind the camera;
    and in total [].
    """
    posed = problem.posed(state)
    each = state.theta.new_zeros(len(state))
    together = each.new_zeros((), dtype=torch.float64)
    for term in problem.terms:
        cost = term.cost(posed)
        if cost.ndim:
            each = each + cost
        else:
            together = together + cost.double()
    each = torch.where(torch.isfinite(each), each, torch.inf)
    return each, each.double().sum() + together


def normal_equations(problem: Problem, state: State) -> NormalEquations:
    """The Gauss-Newton system at a state."""
    posed = problem.posed(state)
    equations = NormalEquations.zeros(posed)
    for term in problem.terms:
        term.add(posed, equations)
    return equations


class NotPositiveDefinite(ArithmeticError):
    """A factorisation failed: the matrix is singular to working precision."""


class BandFactor:
    """The Cholesky factor of a block-pentadiagonal matrix over frames, one frame a block: L_t and
    X_t.
    """

    def __init__(self, diagonal: Tensor, first_off: Tensor, second_off: Tensor) -> None:
        """Blocks H[t, t] [T, d, d], H[t, t+1] [T-1, d, d], H[t, t+2] [T-2, d, d]."""
        from scipy.linalg import blas, lapack  # a quarter of a second, needed only here

        frames, d = diagonal.shape[:2]
        double = diagonal.dtype == torch.float64
        self._trsm, potrf = (blas.dtrsm, lapack.dpotrf) if double else (blas.strsm, lapack.spotrf)
        beside = diagonal.new_zeros(frames, d, 2 * d)  # what follows a frame
        beside[:-1, :, :d], beside[:-2, :, d:] = first_off, second_off
        self._lower = []
        self._beside = []
        taken = np.zeros(
            (2 * d, 2 * d), beside.numpy().dtype
        )  # by frames before, from this one and the next
        for t, (block, after) in enumerate(zip(diagonal.numpy(), beside.numpy(), strict=True)):
            lower, failed = potrf(block - taken[:d, :d], lower=1)
            if failed:
                raise NotPositiveDefinite(f"the matrix is not positive definite at frame {t}")
            after[:, :d] -= taken[:d, d:]
            x = self._trsm(1.0, lower, after, lower=1)
            now = x.T @ x
            now[:d, :d] += taken[d:, d:]
            taken = now
            self._lower.append(lower)
            self._beside.append(x)

    def solve(self, right: Tensor) -> Tensor:
        """H^-1 times right sides [T, d, r]."""
        solved = right.clone().numpy()
        d = right.shape[1]
        taken = np.zeros((2 * d, right.shape[2]), solved.dtype)
        for t, (lower, x) in enumerate(zip(self._lower, self._beside, strict=True)):
            solved[t] = self._trsm(1.0, lower, solved[t] - taken[:d], lower=1)
            now = x.T @ solved[t]
            now[:d] += taken[d:]
            taken = now
        after = np.zeros_like(taken)
        for t in range(len(solved) - 1, -1, -1):
            solved[t] = self._trsm(
                1.0, self._lower[t], solved[t] - self._beside[t] @ after, lower=1, trans_a=1
            )
            after = np.concatenate((solved[t], after[:d]))
        return torch.from_numpy(solved)

    def marginals(self) -> Tensor:
        """The diagonal blocks of H^-1, [T, d, d]: each frame's covariance with all others free,
        from the last frame to the first; C_t = L_t^-T (I + X_t C X_t^T) L_t^-1, with C the
        covariance of the two frames after it."""
        d = len(self._lower[0])
        out = np.empty((len(self._lower), d, d), self._lower[0].dtype)
        after = np.zeros((2 * d, 2 * d), out.dtype)
        for t in range(len(out) - 1, -1, -1):
            half = self._trsm(
                1.0, self._lower[t], np.eye(d, dtype=out.dtype), lower=1, trans_a=1
            )  # L^-T
            response = half @ self._beside[t]
            cross = -response @ after
            own = half @ half.T - cross @ response.T
            out[t] = (own + own.T) / 2
            after = np.block([[out[t], cross[:, :d]], [cross[:, :d].T, after[:d, :d]]])
        return torch.from_numpy(out)


class FrameFactor:
    """The Cholesky factors of frames that do not touch each other."""

    def __init__(self, diagonal: Tensor) -> None:
        self._lower, failed = torch.linalg.cholesky_ex(diagonal)
        if failed.any():
            raise NotPositiveDefinite(
                f"the matrix is not positive definite at frame {int(failed.nonzero()[0])}"
            )

    def solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right, self._lower)

    def marginals(self) -> Tensor:
        return torch.cholesky_inverse(self._lower)


Factor = BandFactor | FrameFactor


def corner_factor(arrow: Tensor, corner: Tensor, response: Tensor, divisor: float = 1.0) -> Tensor:
    """The Cholesky factor of what is left of the corner, (C - A^T K) / divisor, for the response K
    = H^-1 A.
    """
    down = "tds,tdr->tsr" if corner.ndim == 3 else "tds,tdr->sr"
    lower, failed = torch.linalg.cholesky_ex(
        (corner - torch.einsum(down, arrow, response)) / divisor
    )
    if failed.any():
        raise NotPositiveDefinite("the shape is not determined")
    return lower


def solve_arrow(
    factor: Factor, arrow: Tensor, corner: Tensor, right: Tensor, right_corner: Tensor
) -> tuple[Tensor, Tensor]:
    """[[H, A], [A^T, C]] [x, y] = [b, c] for frames [T, d] and what they share. arrow [T, d, S];
    with corner [S, S] the shared part is one for all frames, with [T, S, S] each frame has its own.
    Returns x [T, d] and y [S] or [T, S]."""
    solved = factor.solve(torch.cat((right.unsqueeze(-1), arrow), -1))
    plain = solved[..., 0]
    through = solved[..., 1:]
    own = corner.ndim == 3
    lower = corner_factor(arrow, corner, through)
    rest = right_corner - torch.einsum("tds,td->ts" if own else "tds,td->s", arrow, plain)
    y = torch.cholesky_solve(rest.unsqueeze(-1), lower).squeeze(-1)
    x = plain - torch.einsum("tds,ts->td" if own else "tds,s->td", through, y)
    return x, y


CONVERGED = "converged"
STUCK = "no downhill step left"
LIMIT = "iteration limit"
TOLERANCE = (
    0.02  # a step that gains less than this log-likelihood per frame ends the search. Not tuned
)
# these and the next: customary, not tuned
FIRST_DAMPING = 1e-2
LEAST_DAMPING = 1e-6
MOST_DAMPING = 1e6
DAMPING_DECREASE, DAMPING_INCREASE = 0.2, 6.0  # factors after a step that was accepted, or was not
BATCH = 1024  # independent frames solved side by side: bounds memory


@dataclass(frozen=True)
class Solution:
    """The end of the search."""

    state: State
    cost: Tensor  # -log posterior, [1] of a track, [T] of independent frames
    stopped: tuple[str, ...]  # why: one reason for a track, one per frame for independent frames
    iterations: int


def factorize(system: NormalEquations) -> Factor:
    return (
        BandFactor(system.matrix, *system.off_diagonals)
        if system.off_diagonals
        else FrameFactor(system.matrix)
    )


def newton_step(system: NormalEquations) -> tuple[Tensor, Tensor]:
    """The step [T, 63] and change of shape that minimise the quadratic model."""
    return solve_arrow(
        factorize(system), system.arrow, system.corner, -system.gradient, -system.shape_gradient
    )


def _careful_step(system: NormalEquations, damping: Tensor) -> tuple[Tensor, Tensor]:
    """A damped step, in float64 if float32 fails."""
    try:
        return newton_step(system.damped(damping))
    except NotPositiveDefinite:
        step, shape_step = newton_step(system.double().damped(damping.double()))
        return step.to(damping), shape_step.to(damping)


def solve_track(
    problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE
) -> Solution:
    """All frames together: one shape, and acceleration if the problem has a frame rate. tolerance:
    a step that gains less log-likelihood per frame ends the search."""
    return _search(problem, state, iterations, tolerance * len(state), together=True)


def solve_frames(
    problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE
) -> Solution:
    """Every frame for itself, with a shape and a damping of its own; a bounded number of frames at
    a time.
    """
    rows = [slice(first, first + BATCH) for first in range(0, len(state), BATCH)]
    parts = [
        _search(problem.frames(some), state.rows(some), iterations, tolerance, together=False)
        for some in rows
    ]
    return Solution(
        State.concat([part.state for part in parts]),
        torch.cat([part.cost for part in parts]),
        tuple(reason for part in parts for reason in part.stopped),
        max(part.iterations for part in parts),
    )


def _search(
    problem: Problem, state: State, iterations: int, tolerance: float, together: bool
) -> Solution:
    """A step is taken by all frames together, or by each for itself; frames that are done leave."""

    def cost_at(part: Problem, state: State) -> Tensor:
        each, total = costs(part, state)
        return total[None] if together else each

    cost = cost_at(problem, state)
    damping = state.root.new_full(cost.shape, FIRST_DAMPING)
    best = state
    best_cost = cost
    system = None
    stopped = [LIMIT] * len(cost)
    index = torch.arange(len(cost))
    done = 0
    while done < iterations and len(index):
        done += 1
        system = system or normal_equations(problem, state)
        try:
            moved = state.moved(*_careful_step(system, damping[0] if together else damping))
        except NotPositiveDefinite:
            damping = damping * DAMPING_INCREASE
            continue
        new_cost = cost_at(problem, moved)
        better = new_cost < cost
        damping = torch.where(
            better,
            (damping * DAMPING_DECREASE).clamp(min=LEAST_DAMPING),
            damping * DAMPING_INCREASE,
        )
        leaves = torch.where(better, cost - new_cost < tolerance, damping > MOST_DAMPING)
        state = moved.where(better, state)
        cost = torch.where(better, new_cost, cost)
        best = state if together else best.put(index, state)
        best_cost = best_cost.index_copy(0, index, cost)
        system = None if better.any() else system
        for number, converged in zip(index[leaves].tolist(), better[leaves], strict=True):
            stopped[number] = CONVERGED if converged else STUCK
        if leaves.any():
            stay = ~leaves
            system = None
            if not together:
                problem = problem.frames(stay)
                state = state.rows(stay)
            index = index[stay]
            cost = cost[stay]
            damping = damping[stay]
    return Solution(best, best_cost, tuple(stopped), done)


# Nobody has exactly the bones that a body model's few shape numbers allow, and size and distance
# look alike: this share of a joint's position in the camera frame is unknown, along the line of
# sight.
UNMODELLED_SIZE = 0.02
MIRROR_STD_FACTOR = (
    1.2  # on depth relative to the pelvis in a track, where a limb once mirrored in depth stays so
)


class JointDeviations(NamedTuple):
    """One standard deviation along the camera's axes."""

    camera_frame_m: Tensor  # [T, 24, 3] of a joint's position in the camera frame
    relative_m: Tensor  # [T, 24, 3] of its position relative to the pelvis
    # [T, 24] of a joint's rotation, the length over its axes; NaN: of leaves nothing is measured
    rotation_rad: Tensor
    shape_covariance: Tensor  # [S, S], or [T, S, S] where each frame has a shape of its own


def joint_deviations(problem: Problem, state: State) -> JointDeviations:
    """At an optimum. Float64 where float32 cannot factorise: at hundreds of frames a second
    acceleration rounds away what keypoints say, already in the equations."""
    if problem.fps is None and len(state) > BATCH:
        parts = [slice(first, first + BATCH) for first in range(0, len(state), BATCH)]
        of_parts = (joint_deviations(problem.frames(rows), state.rows(rows)) for rows in parts)
        return JointDeviations(*map(torch.cat, zip(*of_parts, strict=True)))
    problem = replace(
        problem,
        terms=tuple(term for each in problem.terms if (term := each.in_doubt()) is not None),
    )
    try:
        own, response, shape_covariance = _covariances(problem, state)
    except NotPositiveDefinite:
        try:
            wide = _covariances(problem.to(torch.float64), state.to(torch.float64))
        except (
            NotPositiveDefinite
        ):  # rounding has eaten what little the data say: nothing can be stated
            unknown = torch.full((len(state), 24, 3), torch.nan)
            shape = state.shape
            return JointDeviations(
                unknown,
                unknown,
                unknown[..., 0],
                (shape[..., None] * shape[..., None, :]) * torch.nan,
            )
        own, response, shape_covariance = (part.to(state.root) for part in wide)
    alone = ~seen_by_several(problem.views)[
        :, None, None
    ]  # a second camera knows distances, and no limb mirrored
    posed = problem.posed(state)
    by_step = posed.joint_step_jacobian
    by_shape = posed.joint_shape_jacobian
    every = shape_covariance.expand(len(state), -1, -1)

    def variance_of(x: Tensor, a: Tensor) -> Tensor:
        """[T, 24, 3] of points that move by x with the step and by a with the shape."""
        a = a - torch.einsum("tjcd,tds->tjcs", x, response)
        return torch.einsum("tjcd,tde,tjce->tjc", x, own, x) + torch.einsum(
            "tjcs,tsr,tjcr->tjc", a, every, a
        )

    camera_frame = (
        variance_of(by_step, by_shape) + (alone * UNMODELLED_SIZE * posed.joints).square()
    )
    relative_m = variance_of(by_step - by_step[:, :1], by_shape - by_shape[:, :1])
    relative_m = relative_m.clamp(min=0).sqrt()
    if problem.fps is not None:
        relative_m[..., 2] *= torch.where(alone[:, 0], MIRROR_STD_FACTOR, 1.0)
    through_shape = torch.einsum("tds,tsr,tdr->td", response, every, response)
    variance = own.diagonal(dim1=-2, dim2=-1) + through_shape
    rotation = variance.new_full((len(state), JOINT_COUNT), torch.nan)
    rotation[:, MOVED_JOINTS] = (
        variance[:, : POSE.stop].unflatten(1, (-1, 3)).sum(-1).clamp(min=0).sqrt()
    )
    return JointDeviations(camera_frame.clamp(min=0).sqrt(), relative_m, rotation, shape_covariance)


def _covariances(problem: Problem, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """C_0 [T, 63, 63], K [T, 63, S] and C_s [S, S] or [T, S, S]."""
    system = normal_equations(problem, state)
    factor = factorize(system)
    response = factor.solve(system.arrow)
    lower = corner_factor(system.arrow, system.corner, response, problem.term(LikelyShape).weight)
    return factor.marginals(), response, torch.cholesky_inverse(lower)
