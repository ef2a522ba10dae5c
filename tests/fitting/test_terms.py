"""Every term's derivatives are those of its cost, and a term is one class and one line."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fitting.body.rotations import rotation_matrices
from fitting.solver.jacobian import Posed
from fitting.solver.levenberg_marquardt import solve_track
from fitting.solver.problem import Problem, costs, normal_equations
from fitting.solver.terms.reprojection import Reprojection
from fitting.solver.terms.term import NormalEquations, Term
from fitting.solver.unknowns import STEP_SIZE, State
from tests.fitting.solver_problems import DOUBLE, dense, some_problem

FRAMES = 6


def concrete(kind: type[Term] = Term) -> set[type[Term]]:
    """The terms of the product."""
    below = {one for sub in kind.__subclasses__() for one in concrete(sub)}
    return below or ({kind} if kind.__module__.startswith("fitting.") else set())


def only(problem: Problem, term: Term) -> Problem:
    """A problem of one term; keypoints that do not count say how many frames there are."""
    if isinstance(term, Reprojection):
        return replace(problem, terms=(term,))
    return replace(
        problem,
        terms=(replace(problem.keypoints, weight=torch.zeros_like(problem.keypoints.weight)), term),
    )


def slopes(problem: Problem, state: State, step: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Central differences of the total cost along some directions of step and shape, and those
    directions' slopes by the equations."""
    generator = torch.Generator().manual_seed(3)
    system = normal_equations(problem, state)
    exact = []
    stated = []
    for _ in range(12):
        along = torch.randn(len(state), STEP_SIZE, generator=generator, dtype=DOUBLE)
        shape = torch.randn(state.shape.shape, generator=generator, dtype=DOUBLE)
        high, low = (
            costs(problem, state.moved(sign * step * along, sign * step * shape))[1]
            for sign in (1, -1)
        )
        exact.append((high - low) / (2 * step))
        stated.append((system.gradient * along).sum() + (system.shape_gradient * shape).sum())
    return torch.stack(exact), torch.stack(stated)


def test_every_term_of_the_product_is_checked_here() -> None:
    assert {type(term) for term in some_problem(FRAMES, True)[0].terms} == concrete()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("number", range(len(concrete())))
def test_a_terms_gradient_is_the_difference_of_its_costs(number: int, shared: bool) -> None:
    problem, state = some_problem(FRAMES, shared)
    term = problem.terms[number]
    exact, stated = slopes(only(problem, term), state)
    torch.testing.assert_close(
        stated, exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()) + 1e-9
    )


def test_the_gradient_of_another_cameras_keypoints_is_the_difference_of_its_costs() -> None:
    problem, state = some_problem(FRAMES, True)
    turn = rotation_matrices(torch.tensor([[0.1, 0.9, -0.2]], dtype=DOUBLE))[0]
    placed = replace(
        problem.keypoints, rotation=turn, offset_m=torch.tensor([-3.0, 0.2, 2.0], dtype=DOUBLE)
    )
    exact, stated = slopes(only(problem, placed), state)
    torch.testing.assert_close(stated, exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("number", range(len(concrete())))
def test_a_terms_matrix_has_no_negative_direction_and_goes_with_its_gradient(number: int) -> None:
    """H = J^T W J and g = J^T W r: positive semidefinite, and the gradient lies in the space that
    the rows span.
    """
    problem, state = some_problem(FRAMES, True)
    system = normal_equations(only(problem, problem.terms[number]), state)
    whole = dense(system)
    values, vectors = torch.linalg.eigh(whole)
    assert values[0] >= -1e-8 * values[-1]
    gradient = torch.cat((system.gradient.flatten(), system.shape_gradient))
    along = vectors.T @ gradient
    nothing = values < 1e-11 * values[-1]
    assert along[nothing].norm() <= 1e-4 * gradient.norm() + 1e-9


@dataclass(frozen=True)
class HandsTogether(Term):
    """A toy: both wrists at the same place, which moves slowly, and a shape of a given size."""

    std_m: float = 0.05
    points: tuple[int, ...] = (9, 10)

    def cost(self, posed: Posed) -> Tensor:
        left, right = posed.points_shot(self.points).unbind(1)
        apart = ((left - right) / self.std_m).square().sum() / 2
        return (
            apart
            if posed.fps is None
            else apart + (torch.diff(left, dim=0) / self.std_m).square().sum() / 2
        )

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        left, right = posed.points_shot(self.points).unbind(1)
        (left_step, right_step), (left_shape, right_shape) = (
            part.unbind(1) for part in posed.point_jacobians_shot(self.points)
        )
        per = 1 / self.std_m
        equations.add_rows(
            per * (left - right), per * (left_step - right_step), per * (left_shape - right_shape)
        )
        if posed.fps is not None:
            moved = torch.diff(left, dim=0)
            weight = torch.full_like(moved, per**2)
            equations.add_difference(
                (-1.0, 1.0), moved, weight, left_step, torch.diff(left_shape, dim=0)
            )


@pytest.mark.parametrize("shared", [True, False])
def test_a_new_term_is_one_class_in_the_list(shared: bool) -> None:
    problem, state = some_problem(FRAMES, shared)
    exact, stated = slopes(only(problem, HandsTogether()), state)
    torch.testing.assert_close(stated, exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))
    if shared:
        together = solve_track(
            replace(problem, terms=(*problem.terms, HandsTogether(0.001))), state, 60
        )
        left, right = problem.posed(together.state).keypoints[:, [9, 10]].unbind(1)
        assert (left - right).norm(dim=-1).max() < 0.02
