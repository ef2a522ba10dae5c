"""Closed-form derivatives against autograd, in float64."""

from dataclasses import replace

import pytest
import torch

import fitting
from fitting.body.rotations import rotation_matrices
from fitting.solver.jacobian import BodyJacobian, Posed, left_jacobian
from fitting.solver.problem import costs, normal_equations
from fitting.solver.terms.pose_prior import LikelyPose
from fitting.solver.unknowns import BODY_JOINTS, POSE, STEP_SIZE, State
from tests.fitting.solver_problems import having, some_problem, some_state

DOUBLE = torch.float64


@pytest.fixture(scope="module")
def jacobian() -> BodyJacobian:
    return BodyJacobian(fitting.load_body().to(dtype=DOUBLE), 10)


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.05, 0.15, 1.0, 3.0])
def test_the_left_jacobian_is_that_of_the_exponential(size) -> None:
    theta = torch.randn(3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    theta = theta / theta.norm() * size

    def turned(d: torch.Tensor) -> torch.Tensor:
        return rotation_matrices(theta + d) @ rotation_matrices(theta).T

    slope = torch.autograd.functional.jacobian(turned, torch.zeros(3, dtype=DOUBLE))
    found = torch.stack((slope[2, 1], slope[0, 2], slope[1, 0]))  # the vector of a skew matrix
    torch.testing.assert_close(left_jacobian(theta), found, atol=1e-7, rtol=0)


def test_keypoints_and_joints_move_as_autograd_says(jacobian) -> None:
    state = some_state(3, shared=False)
    posed = Posed(jacobian, state)
    ours = (
        posed.point_jacobians_shot(tuple(range(26))),
        (posed.joint_step_jacobian, posed.joint_shape_jacobian),
    )

    def placed(step: torch.Tensor, shape: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = Posed(jacobian, state.moved(step, shape))
        return found.keypoints, found.joints

    zero = torch.zeros(3, STEP_SIZE, dtype=DOUBLE), torch.zeros(3, 10, dtype=DOUBLE)
    exact = torch.autograd.functional.jacobian(placed, zero)
    for mine, theirs in zip(ours, exact, strict=True):
        for derivative, reference in zip(mine, theirs, strict=True):
            own = torch.stack([reference[t, :, :, t] for t in range(3)])
            torch.testing.assert_close(derivative, own, atol=1e-12, rtol=0)


def test_derivatives_of_some_keypoints_are_those_among_all(jacobian) -> None:
    posed = Posed(jacobian, some_state(3, shared=True))
    some = (24, 20, 9, 19)
    rows = torch.randn(3, 26, 2, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    step, shape = posed.point_jacobians_shot(some)
    of_all = jacobian.keypoints.step_jacobian(posed, posed.carried, rows)
    torch.testing.assert_close(rows[:, some] @ step, of_all[:, some])
    torch.testing.assert_close(shape, jacobian.keypoints.shape_jacobian(posed)[:, some])


def test_pose_correctives_are_in_the_place_and_nearly_in_the_derivative() -> None:
    body = fitting.load_body().to(dtype=DOUBLE)
    generator = torch.Generator().manual_seed(0)
    posedirs = 2e-3 * torch.randn(len(body.v_template), 3, 207, dtype=DOUBLE, generator=generator)
    corrected = fitting.Body(
        **{
            name: getattr(body, name)
            for name, entry in fitting.Body.__dataclass_fields__.items()
            if entry.init and name != "posedirs"
        },
        posedirs=posedirs,
    )
    state = some_state(2, shared=True)
    placed = Posed(BodyJacobian(corrected, 10), state)
    reference = corrected(
        state.rotation, torch.cat((state.shape, torch.zeros(6, dtype=DOUBLE))), state.translation
    )
    torch.testing.assert_close(placed.keypoints, reference.keypoints)
    plain = Posed(BodyJacobian(body, 10), state)
    assert 1e-4 < (placed.keypoints - plain.keypoints).abs().max() < 0.1


@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_is_that_of_the_cost(shared) -> None:
    problem, state = some_problem(6, shared)
    step = torch.zeros(6, STEP_SIZE, dtype=DOUBLE, requires_grad=True)
    shape = torch.zeros_like(state.shape, requires_grad=True)
    _, total = costs(problem, state.moved(step, shape))
    step_jacobian, shape_jacobian = torch.autograd.grad(total, (step, shape))
    system = normal_equations(problem, state)
    torch.testing.assert_close(
        system.gradient, step_jacobian, atol=5e-8 * float(step_jacobian.abs().max()), rtol=0
    )
    torch.testing.assert_close(
        system.shape_gradient, shape_jacobian, atol=1e-8 * float(shape_jacobian.abs().max()), rtol=0
    )


def test_the_matrix_is_the_hessian_where_the_cost_is_quadratic() -> None:
    """Acceleration of rotations, a Gaussian prior's component and the guess's pose are quadratic in
    the pose.
    """
    problem, state = some_problem(5, True, keypoints=False)
    likely = problem.term(LikelyPose)
    gaussian = replace(likely.prior, freedom=torch.tensor(1e9))
    problem = having(problem, replace(likely, prior=gaussian))
    system = normal_equations(problem, state)

    def total(pose: torch.Tensor) -> torch.Tensor:
        theta = state.theta.clone()
        theta[:, BODY_JOINTS] += pose.unflatten(1, (-1, 3))
        return costs(problem, State(state.root, theta, state.translation, state.shape))[1]

    exact = torch.autograd.functional.hessian(total, torch.zeros(5, 57, dtype=DOUBLE))
    # Joints' accelerations are not quadratic: their spread is made huge in this problem.
    first_off, second_off = system.off_diagonals
    for t in range(5):
        torch.testing.assert_close(
            system.matrix[t, POSE, POSE], exact[t, :, t], atol=1e-4, rtol=1e-5
        )
    torch.testing.assert_close(first_off[1, POSE, POSE], exact[1, :, 2], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(second_off[2, POSE, POSE], exact[2, :, 4], atol=1e-4, rtol=1e-5)
