"""Levenberg-Marquardt over a track, or over many independent frames at once.

No accepted step raises the cost, so a fit is never worse than its start. Work is in float32; a
factorisation that fails there is repeated in float64.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.arrow import NotPositiveDefinite, factorize, solve_arrow
from fitting.solver.problem import Problem, costs, normal_equations
from fitting.solver.terms.term import NormalEquations
from fitting.solver.unknowns import State

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
    """The result of a search."""

    state: State
    cost: Tensor  # -log posterior, [1] of a track, [T] of independent frames
    stopped: tuple[str, ...]  # why: one reason for a track, one per frame for independent frames
    iterations: int


def newton_step(system: NormalEquations) -> tuple[Tensor, Tensor]:
    """Return the step [T, 63] and the change of shape that minimise the quadratic model."""
    return solve_arrow(
        factorize(system), system.arrow, system.corner, -system.gradient, -system.shape_gradient
    )


def _careful_step(system: NormalEquations, damping: Tensor) -> tuple[Tensor, Tensor]:
    """Return a damped step, computed in float64 if float32 fails."""
    try:
        return newton_step(system.damped(damping))
    except NotPositiveDefinite:
        step, shape_step = newton_step(system.double().damped(damping.double()))
        return step.to(damping), shape_step.to(damping)


def solve_track(
    problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE
) -> Solution:
    """Solve all frames together, with one shape, and with acceleration if the problem has a frame
    rate.

    A step that gains less log-likelihood per frame than `tolerance` ends the search.
    """
    return _search(problem, state, iterations, tolerance * len(state), together=True)


def solve_frames(
    problem: Problem, state: State, iterations: int = 40, tolerance: float = TOLERANCE
) -> Solution:
    """Solve every frame on its own, with its own shape and damping, a bounded number of frames at a
    time.
    """
    rows = [slice(first, first + BATCH) for first in range(0, len(state), BATCH)]
    parts = [
        _search(problem.frames(batch), state.rows(batch), iterations, tolerance, together=False)
        for batch in rows
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
    """Take damped steps, by all frames together or by each frame on its own, until they
    converge.
    """

    def cost_at(part: Problem, state: State) -> Tensor:
        per_frame, total = costs(part, state)
        return total[None] if together else per_frame

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
