"""Small problems with every term in them, in float64."""

from dataclasses import replace

import torch

import fitting
from fitting.body.kinematics import rotation_matrices
from fitting.solver.jacobian import BodyJacobian
from fitting.solver.problem import Problem, anchor_at
from fitting.solver.scene_terms import SceneTerms
from fitting.solver.unknowns import State, ranges

DOUBLE = torch.float64


def some_state(frames: int, shared: bool, seed: int = 0) -> State:
    g = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=g, dtype=DOUBLE)

    place = torch.tensor([0.0, 0.0, 4.0], dtype=DOUBLE) + 0.3 * normal(frames, 3)
    shape = normal(10) if shared else normal(frames, 10)
    return State(rotation_matrices(normal(frames, 3)), 0.4 * normal(frames, 24, 3), place, shape)


def some_scene(frames: int, generator: torch.Generator) -> SceneTerms:
    """A turning camera over a floor that feet are above and below, some of them at rest."""
    turn = rotation_matrices(0.2 * torch.randn(frames, 3, generator=generator, dtype=DOUBLE))
    rest, on_floor = (torch.rand(frames, 9, generator=generator, dtype=DOUBLE) for _ in range(2))
    up = torch.nn.functional.normalize(torch.tensor([0.1, -1.0, -0.2], dtype=DOUBLE), dim=0)
    return SceneTerms(up, turn, -0.5, rest=rest, on_floor=on_floor)


def some_problem(frames: int, shared: bool, keypoints: bool = True) -> tuple[Problem, State]:
    """With a frame rate where the shape is shared. Without keypoints: only what is quadratic in the pose."""
    g = torch.Generator().manual_seed(1)
    low, high = ranges(DOUBLE)
    prior = fitting.load_prior().to(DOUBLE)
    weight = torch.rand(frames, 26, generator=g, dtype=DOUBLE) / 100 * keypoints
    problem = Problem(
        BodyJacobian(fitting.load_body().to(dtype=DOUBLE), 10), prior, low, high,
        torch.full((frames, 2), 1000.0, dtype=DOUBLE), torch.full((frames, 2), 500.0, dtype=DOUBLE),
        500 + 100 * torch.randn(frames, 26, 2, generator=g, dtype=DOUBLE), weight, (25 * weight).clamp(min=1e-9),
        anchor=anchor_at(
            some_state(frames, shared, seed=2),
            torch.linspace(0.3, 1.2, 24 * frames, dtype=DOUBLE).view(frames, 24),
            torch.linspace(0.2, 0.5, frames, dtype=DOUBLE),
            1.5,
        ),
        fps=25.0 if shared else None,
        scene=some_scene(frames, g),
        lean_rad=0.3,
        shape_weight=3.0,
        motion_weight=0.2,
    )  # fmt: skip
    if not keypoints:
        huge = torch.full_like(prior.acceleration_sigma, 1e18)
        still = replace(prior, acceleration_sigma=huge, angular_sigma=1e9 * prior.angular_sigma)
        # Accelerations far inside the robust scale are quadratic; the share makes up for their smallness.
        problem = replace(problem, prior=still, scene=None, motion_weight=0.2e18)
    return problem, some_state(frames, shared)
