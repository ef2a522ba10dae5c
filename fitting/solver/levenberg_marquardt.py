"""Levenberg-Marquardt over a track, or over many independent frames at once.

No accepted step raises the cost, so a fit is never worse than its start. Work is in float32; a factorisation that
fails there is repeated in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle
from fitting.solver.arrow import BandFactor, Factor, FrameFactor, NotPositiveDefinite, solve_arrow
from fitting.solver.problem import NormalEquations, Problem, costs, normal_equations
from fitting.solver.unknowns import State, join, orthonormal

CONVERGED, STUCK, LIMIT = "converged", "no downhill step left", "iteration limit"
TOLERANCE = 0.02  # a step that gains less than this log-likelihood per frame ends the search. Not tuned
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-6, 1e6  # these and the next: customary, not tuned
DAMPING_DECREASE, DAMPING_INCREASE = 0.2, 6.0  # factors after a step that was accepted, or was not
BATCH = 1024  # independent frames solved side by side: bounds memory


@dataclass(frozen=True)
class Solution:
    """The end of the search."""

    state: State
    cost: Tensor  # [T] each frame's own cost, its share of -log posterior without the motion's
    total: float  # of everything
    stopped: tuple[str, ...]  # why: one reason for a track, one per frame for independent frames
    iterations: int


def factorize(system: NormalEquations) -> Factor:
    return BandFactor(system.matrix, *system.off_diagonals) if system.off_diagonals else FrameFactor(system.matrix)


def newton_step(system: NormalEquations) -> tuple[Tensor, Tensor]:
    """The step [T, 63] and change of shape that minimise the quadratic model."""
    return solve_arrow(factorize(system), system.arrow, system.corner, -system.gradient, -system.shape_gradient)


def _careful_step(system: NormalEquations, damping: Tensor) -> tuple[Tensor, Tensor]:
    """A damped step, in float64 if float32 fails."""
    try:
        return newton_step(system.damped(damping))
    except NotPositiveDefinite:
        step, shape_step = newton_step(system.double().damped(damping.double()))
        return step.to(damping.dtype), shape_step.to(damping.dtype)


def solve_track(problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE) -> Solution:
    """All frames together: one shape, and acceleration if the problem has a frame rate.

    tolerance: a step that gains less log-likelihood per frame ends the search.
    """
    damping = torch.tensor(FIRST_DAMPING, dtype=state.root.dtype)
    each, total = costs(problem, state)
    stopped, done = LIMIT, 0
    system: NormalEquations | None = None
    while done < iterations:
        done += 1
        system = system or normal_equations(problem, state)
        try:
            step, shape_step = _careful_step(system, damping)
            moved = state.moved(step, shape_step)
            new_each, new_total = costs(problem, moved)
        except NotPositiveDefinite:
            new_total = torch.tensor(torch.inf)
        if new_total < total:
            gained = float(total - new_total)
            state, each, total, system = moved, new_each, new_total, None
            damping = (damping * DAMPING_DECREASE).clamp(min=LEAST_DAMPING)
            if gained < tolerance * len(state):
                stopped = CONVERGED
                break
        else:
            damping = damping * DAMPING_INCREASE
            if damping > MOST_DAMPING:
                stopped = STUCK
                break
    return Solution(orthonormal(state), each, float(total), (stopped,), done)


def solve_frames(problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE) -> Solution:
    """Every frame for itself, with a shape and a damping of its own; a bounded number of frames at a time."""
    parts = [
        _solve_batch(problem.frames(rows), state.frames(rows), iterations, tolerance)
        for rows in (slice(first, first + BATCH) for first in range(0, len(state), BATCH))
    ]
    cost = torch.cat([part.cost for part in parts])
    return Solution(
        join([part.state for part in parts]),
        cost,
        float(cost.double().sum()),
        tuple(reason for part in parts for reason in part.stopped),
        max(part.iterations for part in parts),
    )


def _solve_batch(problem: Problem, state: State, iterations: int, tolerance: float) -> Solution:
    """Frames side by side; those that are done leave the batch."""
    count = len(state)
    damping = torch.full((count,), FIRST_DAMPING, dtype=state.root.dtype)
    cost, _ = costs(problem, state)
    reason = [LIMIT] * count
    best, best_cost = state, cost.clone()
    index = torch.arange(count)
    part, done = problem, 0
    for done in range(1, iterations + 1):
        system = normal_equations(part, state)
        try:
            step, shape_step = _careful_step(system, damping)
        except NotPositiveDefinite:
            damping = damping * DAMPING_INCREASE
            continue
        moved = state.moved(step, shape_step)
        new_cost, _ = costs(part, moved)
        better = new_cost < cost
        gained = cost - new_cost
        state = moved.where(better, state)
        cost = torch.where(better, new_cost, cost)
        damping = torch.where(better, (damping * DAMPING_DECREASE).clamp(min=LEAST_DAMPING), damping * DAMPING_INCREASE)
        converged = better & (gained < tolerance)
        stuck = ~better & (damping > MOST_DAMPING)
        leaves = converged | stuck
        if done == iterations:
            leaves = torch.ones_like(leaves)
        if leaves.any():
            best = best.put(index[leaves], state.frames(leaves))
            best_cost = best_cost.index_copy(0, index[leaves], cost[leaves])
            for number, ok, bad in zip(index[leaves].tolist(), converged[leaves], stuck[leaves], strict=True):
                reason[number] = CONVERGED if ok else STUCK if bad else LIMIT
            stay = ~leaves
            index, state, cost, damping = index[stay], state.frames(stay), cost[stay], damping[stay]
            if not len(index):
                break
            part = part.frames(stay)
    return Solution(orthonormal(best), best_cost, float(best_cost.double().sum()), tuple(reason), done)


def fill_gaps(state: State, valid: Tensor) -> State:
    """Interpolate the frames that are not valid [T] between their nearest valid neighbours; before the first and after
    the last they are equal to it. At least one frame must be valid."""
    if bool(valid.all()):
        return state
    index = valid.nonzero().squeeze(1)
    frame = torch.arange(len(state))
    after = torch.searchsorted(index, frame).clamp(max=len(index) - 1)
    before = (torch.searchsorted(index, frame, right=True) - 1).clamp(min=0)
    low, high = index[before], index[after]
    share = ((frame - low) / (high - low).clamp(min=1)).clamp(0, 1).to(state.theta.dtype)

    def between(values: Tensor) -> Tensor:
        part = share.view(-1, *[1] * (values.ndim - 1))
        return torch.lerp(values[low], values[high], part)

    turn = matrix_to_axis_angle(state.root[high] @ state.root[low].mT)
    root = rotation_matrices(turn * share[:, None]) @ state.root[low]
    return State(
        root,
        between(state.theta),
        between(state.translation),
        state.shape if state.shared_shape else between(state.shape),
    )
