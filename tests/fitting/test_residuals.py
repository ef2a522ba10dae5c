"""Residuals are zero where they should be, and count what they say they count."""

import pytest
import torch

import fitting
from fitting.body.rotations import rotation_matrices
from fitting.solver.jacobian import BodyJacobian, Posed
from fitting.solver.terms.acceleration import REFERENCE_FPS, acceleration
from fitting.solver.terms.contact import CONTACT_SPEED, FEET, Contact
from fitting.solver.terms.floor import BELOW_STD_M, Floor
from fitting.solver.terms.joint_limits import JointLimits
from fitting.solver.terms.reprojection import (
    ROBUST_SCALE,
    Reprojection,
    project,
    projection_rows,
    robust_scale,
)
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.term import charbonnier, geman_mcclure
from fitting.solver.terms.upright import Upright
from tests.fitting.solver_problems import some_state

DOUBLE = torch.float64


def points() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randn(4, 17, 3, generator=g, dtype=DOUBLE) * 0.5 + torch.tensor(
        [0.0, 0.0, 5.0], dtype=DOUBLE
    )


def posed(keypoints: torch.Tensor, world_rotation: torch.Tensor) -> Posed:
    """Frames whose keypoints are at given places."""
    state = some_state(len(keypoints), shared=True).to(torch.float32)
    jacobian = BodyJacobian(fitting.load_body(), 10)
    made = Posed(jacobian, state, 30.0, world_rotation=world_rotation)
    vars(made)["keypoints"] = keypoints
    return made


def per_frame(x: float, y: float) -> torch.Tensor:
    return torch.tensor([x, y], dtype=DOUBLE).expand(4, 2)


def test_projection_is_the_cameras() -> None:
    camera = fitting.Camera.from_focal((900.0, 1100.0), (640, 480), (300.0, 250.0))
    ours = project(points(), per_frame(900, 1100), per_frame(300, 250))
    torch.testing.assert_close(ours, camera.project(points()))


def test_projection_rows_are_its_derivative() -> None:
    exact = torch.autograd.functional.jacobian(
        lambda p: project(p, per_frame(900, 1100), per_frame(300, 250)), points()
    )
    own = torch.stack([torch.stack([exact[t, k, :, t, k] for k in range(17)]) for t in range(4)])
    torch.testing.assert_close(projection_rows(points(), per_frame(900, 1100)), own)


def test_a_keypoint_two_sigmas_off_has_a_residual_of_two() -> None:
    focal = per_frame(900, 900)
    center = per_frame(300, 250)
    sigma = torch.full((4, 17), 3.0, dtype=DOUBLE)
    xy = project(points(), focal, center) + torch.tensor([6.0, 0.0], dtype=DOUBLE)
    residual = Reprojection(focal, center, xy, sigma**-2, sigma).residual(points())
    torch.testing.assert_close(residual.norm(dim=-1), torch.full((4, 17), 2.0, dtype=DOUBLE))


@pytest.mark.parametrize("weight", [0.01, 4.0])
def test_the_robust_scale_is_counted_in_the_keypoints_own_sigmas(weight) -> None:
    """Whatever the weighting, an error of ROBUST_SCALE sigmas counts half of its square."""
    sigma = torch.tensor([[7.0]])
    w = torch.tensor([[weight]])
    squared = w * (ROBUST_SCALE * sigma) ** 2
    rho, _ = geman_mcclure(squared, robust_scale(w, sigma))
    torch.testing.assert_close(rho, squared / 2)


def test_geman_mcclure_states_its_own_slope_and_is_bounded() -> None:
    squared = torch.linspace(0, 500, 50, dtype=DOUBLE, requires_grad=True)
    scale = torch.full((50,), 25.0, dtype=DOUBLE)
    rho, slope = geman_mcclure(squared, scale)
    (exact,) = torch.autograd.grad(rho.sum(), squared)
    torch.testing.assert_close(slope, exact)
    assert rho.max() < 25


def test_charbonnier_states_its_own_slope_and_is_square_near_zero_and_a_cone_far_out() -> None:
    squared = torch.tensor([1e-9, 1.0, 1e4, 1e8], dtype=DOUBLE, requires_grad=True)
    rho, slope = charbonnier(squared, 2.0)
    (exact,) = torch.autograd.grad(rho.sum(), squared)
    torch.testing.assert_close(slope, exact)
    rho = rho.detach()
    assert float(rho[0]) == pytest.approx(1e-9, rel=1e-6)
    assert float(rho[3]) == pytest.approx(2 * 2 * 1e4, rel=1e-3)  # 2 c |residual|


def test_limits_are_free_inside_and_grow_outside() -> None:
    low = torch.tensor([-0.1, -1.0])
    high = torch.tensor([2.0, 1.0])
    theta = torch.tensor([[0.5, 0.0], [-0.3, 1.2]])
    expected = torch.tensor([[0.0, 0.0], [-4.0, 4.0]])
    torch.testing.assert_close(JointLimits(low, high).beyond(theta), expected)


def test_acceleration_is_that_of_a_falling_body_at_any_frame_rate() -> None:
    sigma = torch.tensor(1.0, dtype=DOUBLE)
    integrals = []
    for fps in (15.0, REFERENCE_FPS, 120.0):
        t = torch.arange(int(4 * fps) + 2, dtype=DOUBLE) / fps
        residual = acceleration(0.5 * 9.81 * t**2, fps, sigma)
        if fps == REFERENCE_FPS:
            torch.testing.assert_close(residual, torch.full_like(residual, 9.81))
        integrals.append(float(residual.square().sum()))
    assert max(integrals) / min(integrals) == pytest.approx(1, abs=1e-6)


def test_steady_motion_costs_nothing() -> None:
    t = torch.arange(6, dtype=DOUBLE)[:, None]
    assert acceleration(3 * t + 1, 30.0, torch.ones(1, dtype=DOUBLE)).abs().max() < 1e-9


def test_feet_below_the_floor_cost_and_above_it_only_in_contact() -> None:
    # y = 1 is the floor, y is down; only the left heel stands
    standing = torch.nn.functional.one_hot(torch.tensor([0]), 4).float()
    lift = torch.full((4,), 0.05)
    floor = Floor(torch.tensor([0.0, -1.0, 0.0]), -1.0, lift, standing, std_m=0.1)
    points = torch.tensor([0.0, 0.75, 3.0]).expand(1, 4, 3)
    torch.testing.assert_close(floor.residuals(points)[0], 2.0 * standing)
    below, _ = floor.residuals(points + torch.tensor([0.0, 0.3, 0.0]))
    torch.testing.assert_close(below, torch.full((1, 4), -0.1 / BELOW_STD_M))


def test_a_point_in_contact_costs_by_its_speed_in_the_world() -> None:
    turn = rotation_matrices(torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.2, 0.0]]))
    term = Contact(torch.ones(3, 4))
    still = torch.tensor([0.3, 1.0, 4.0])
    seen = torch.einsum("tji,j->ti", turn, still)[:, None].expand(3, 26, 3)
    in_shot = posed(seen, turn).points_shot(FEET)
    assert term.residual(in_shot, 30.0).abs().max() < 1e-3
    moved = in_shot + torch.tensor([CONTACT_SPEED / 30, 0, 0]) * torch.arange(3)[:, None, None]
    torch.testing.assert_close(
        term.residual(moved, 30.0)[..., 0], torch.ones(2, 4), atol=2e-3, rtol=0
    )


def test_people_are_upright_where_gravity_is_known() -> None:
    up = torch.tensor([0.0, -0.9, -0.4358899])
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))
    pitched = (
        rotation_matrices(torch.tensor([[0.451026, 0.0, 0.0]])) @ flip
    )  # the body's y axis along up
    axis = SceneTerms(up=up).lean_axis(1)
    assert Upright(axis, 0.25).residual(pitched).abs().max() < 1e-4
    assert Upright(axis, 0.25).residual(flip[None]).abs().max() > 1
