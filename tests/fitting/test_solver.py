"""The search goes downhill, to the truth where the truth is determined, and says why it ended."""

import pytest
import torch

import fitting.solver.levenberg_marquardt as solver
from fitting.solver.levenberg_marquardt import CONVERGED, LIMIT, solve_frames, solve_track
from fitting.solver.problem import costs, normal_equations
from fitting.solver.terms.term import NormalEquations
from fitting.solver.unknowns import State
from tests.fitting.solver_problems import some_problem, without_scene


def single(problem, state):
    return without_scene(problem).to(torch.float32), state.to(torch.float32)


@pytest.mark.parametrize("shared", [True, False])
def test_more_iterations_never_cost_more_and_the_start_is_the_worst(shared) -> None:
    problem, state = single(*some_problem(6, shared))
    each, total = costs(problem, state)
    solve = solve_track if shared else solve_frames
    previous = float(total)
    for iterations in (1, 2, 5, 20):
        found = solve(problem, state, iterations)
        assert float(found.cost.sum()) <= previous + 1e-3
        previous = float(found.cost.sum())
        if not shared:
            assert (found.cost <= each + 1e-3).all()
    assert previous < float(total) - 10


def test_the_gradient_vanishes_where_it_converged() -> None:
    problem, state = some_problem(5, True)
    problem = without_scene(problem)
    start = normal_equations(problem, state).gradient.norm()
    found = solve_track(problem, state, 300, tolerance=1e-5)
    assert found.stopped == (CONVERGED,)
    assert normal_equations(problem, found.state).gradient.norm() < 0.02 * start


def test_frames_solved_together_are_the_frames_solved_alone() -> None:
    problem, state = some_problem(4, False)
    together = solve_frames(problem, state, 30)
    for t in range(4):
        alone = solve_frames(problem.frames(slice(t, t + 1)), state.rows(slice(t, t + 1)), 30)
        torch.testing.assert_close(together.cost[t : t + 1], alone.cost, atol=1e-6, rtol=0)
        assert together.stopped[t] == alone.stopped[0]


def test_batches_do_not_change_the_answer(monkeypatch) -> None:
    problem, state = some_problem(5, False)
    whole = solve_frames(problem, state, 20)
    monkeypatch.setattr(solver, "BATCH", 2)
    parts = solve_frames(problem, state, 20)
    torch.testing.assert_close(parts.cost, whole.cost, atol=1e-6, rtol=0)
    assert parts.stopped == whole.stopped


def test_it_says_that_it_ran_out_of_iterations() -> None:
    problem, state = single(*some_problem(4, True))
    assert solve_track(problem, state, 1).stopped == (LIMIT,)
    assert solve_track(problem, state, 1).iterations == 1


def test_float64_takes_over_where_float32_cannot_factorise(monkeypatch) -> None:
    problem, state = single(*some_problem(4, True))
    tried = []

    def only_double(system: NormalEquations):
        tried.append(system.matrix.dtype)
        if system.matrix.dtype == torch.float32:
            raise solver.NotPositiveDefinite("made up")
        return step(system)

    step = solver.newton_step
    monkeypatch.setattr(solver, "newton_step", only_double)
    found = solve_track(problem, state, 5)
    assert torch.float64 in tried
    assert float(found.cost) < float(costs(problem, state)[1])
    assert found.state.theta.dtype == torch.float32


def test_a_matrix_that_nobody_can_factorise_leaves_the_start(monkeypatch) -> None:
    problem, state = single(*some_problem(4, True))

    def never(system: NormalEquations):
        raise solver.NotPositiveDefinite("made up")

    monkeypatch.setattr(solver, "newton_step", never)
    found = solve_track(problem, state, 50)
    torch.testing.assert_close(found.state.theta, state.theta)
    assert found.stopped != (CONVERGED,)


def test_a_step_through_the_camera_is_not_taken() -> None:
    problem, state = single(*some_problem(3, False))
    close = State(
        state.root, state.theta, state.translation * torch.tensor([1.0, 1.0, 0.3]), state.shape
    )
    found = solve_frames(problem, close, 20)
    points = problem.posed(found.state).keypoints
    assert (points[problem.keypoints.used][:, 2] > 0).all()
