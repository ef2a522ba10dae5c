"""Small problems with every term in them, in float64."""

from dataclasses import replace

import torch

import fitting
from fitting.body.reading import READINGS
from fitting.body.rotations import rotation_matrices
from fitting.fits import FitInput, FitOptions, InitialGuess
from fitting.keypoints.hands import HandObservations
from fitting.problem_setup import terms_of
from fitting.solver.jacobian import BodyJacobian
from fitting.solver.problem import Problem
from fitting.solver.terms.contact import Contact
from fitting.solver.terms.floor import Floor
from fitting.solver.terms.pose_prior import LikelyPose
from fitting.solver.terms.reprojection import Reprojection, project
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import ShapeEvidence
from fitting.solver.terms.silhouette import Silhouette
from fitting.solver.terms.term import NormalEquations, Term
from fitting.solver.terms.upright import Upright, optical_axis
from fitting.solver.unknowns import STEP_SIZE, State, to_params

DOUBLE = torch.float64


def without_scene(problem: Problem) -> Problem:
    """Free of floor, contacts and gravity, in a camera that does not turn."""
    terms = tuple(term for term in problem.terms if not isinstance(term, Floor | Contact))
    lean = replace(problem.term(Upright), axis=optical_axis(problem.keypoints.weight))
    return having(replace(problem, terms=terms, world_rotation=None), lean)


def having(problem: Problem, changed: Term) -> Problem:
    """With a term instead of those of its kind."""
    terms = (changed if type(term) is type(changed) else term for term in problem.terms)
    return replace(problem, terms=tuple(terms))


def some_state(frames: int, shared: bool, seed: int = 0, readings: int = 0) -> State:
    g = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=g, dtype=DOUBLE)

    place = torch.tensor([0.0, 0.0, 4.0], dtype=DOUBLE) + 0.3 * normal(frames, 3)
    shape = normal(10 + readings) if shared else normal(frames, 10 + readings)
    return State(rotation_matrices(normal(frames, 3)), 0.4 * normal(frames, 24, 3), place, shape)


def some_scene(frames: int, generator: torch.Generator) -> SceneTerms:
    """A turning camera over a floor that feet are above and below, some of them at rest."""
    turn = rotation_matrices(0.2 * torch.randn(frames, 3, generator=generator, dtype=DOUBLE))
    contact, on_floor = (torch.rand(frames, 4, generator=generator, dtype=DOUBLE) for _ in range(2))
    up = torch.nn.functional.normalize(torch.tensor([0.1, -1.0, -0.2], dtype=DOUBLE), dim=0)
    carries = torch.rand(frames, 4, generator=generator, dtype=DOUBLE) / 4
    return SceneTerms(up, turn, -0.5, contact=contact, on_floor=on_floor, carries=carries)


def some_hands(frames: int, g: torch.Generator) -> HandObservations:
    def some(*sides: int) -> torch.Tensor:
        return torch.randn(frames, 2, *sides, generator=g, dtype=DOUBLE)

    line = torch.nn.functional.normalize(some(3) + torch.tensor([0.0, 0.0, 5.0]), dim=-1)
    return HandObservations(
        500 + 100 * some(21, 2),
        some(21).square() / 1000,
        0.1 * some(21),
        99 * some().square(),
        line,
        some(3),
    )


def some_outlines(
    seen: Reprojection, state: State, body: fitting.Body, g: torch.Generator
) -> Silhouette:
    """Points up to a few centimetres inside and outside of vertices."""
    mesh = body.at(to_params(state, READINGS), vertices=True).vertices
    assert mesh is not None
    vertex = torch.randint(mesh.shape[1], (len(mesh), 40), generator=g)
    at = project(torch.take_along_dim(mesh, vertex[..., None], 1), seen.focal_px, seen.center_px)
    normal = torch.nn.functional.normalize(torch.randn(at.shape, generator=g, dtype=DOUBLE), dim=-1)
    away = 8 * torch.randn(vertex.shape, generator=g, dtype=DOUBLE)[..., None]
    weight = torch.rand(vertex.shape, generator=g, dtype=DOUBLE)
    m_per_px = torch.full_like(weight, 0.004)
    clothes_m = torch.full_like(weight, 0.01)
    points = at + away * normal
    covered = torch.rand((*vertex.shape, 3), generator=g, dtype=DOUBLE)
    return Silhouette(
        seen.focal_px, seen.center_px, vertex, points, normal, m_per_px, covered, clothes_m, weight
    )


def some_problem(frames: int, shared: bool, keypoints: bool = True) -> tuple[Problem, State]:
    """With a frame rate where the shape is shared. Without keypoints: only what is quadratic in the
    pose.
    """
    g = torch.Generator().manual_seed(1)
    prior = fitting.load_prior().to(DOUBLE)
    body = fitting.load_body().to(dtype=DOUBLE)
    weight = torch.rand(frames, 26, generator=g, dtype=DOUBLE) / 100 * keypoints
    seen = Reprojection(
        torch.full((frames, 2), 1000.0, dtype=DOUBLE),
        torch.full((frames, 2), 500.0, dtype=DOUBLE),
        500 + 100 * torch.randn(frames, 26, 2, generator=g, dtype=DOUBLE),
        weight,
        (25 * weight).clamp(min=1e-9),
    )
    jacobian = BodyJacobian(body, 10, reads=True)
    near = some_state(frames, shared, seed=2, readings=READINGS)
    rotation_std = torch.linspace(0.3, 1.2, 24 * frames, dtype=DOUBLE).view(frames, 24)
    guess = InitialGuess(
        to_params(near, READINGS), rotation_std, torch.linspace(0.2, 0.5, frames, dtype=DOUBLE), 1.5
    )
    scene = some_scene(frames, g) if keypoints else None
    weights = (3.0, 0.2)  # of shape and motion
    if not keypoints:
        huge = torch.full_like(prior.acceleration_std, 1e18)
        # Accelerations far inside the robust scale are quadratic; the share makes up for their
        # smallness.
        prior = replace(prior, acceleration_std=huge, angular_std=1e9 * prior.angular_std)
        weights = (3.0, 0.2e18)
    hands = some_hands(frames, g) if keypoints else None
    some = torch.randn(10, 11, generator=g, dtype=DOUBLE)
    known = None
    if keypoints:
        known = ShapeEvidence(some[:, 1:] @ some[:, 1:].mT, some[:, 0])
    given = FitInput(None, guess, scene, hands=hands, shape=known)  # keypoints are in `seen`
    terms = terms_of([seen], jacobian, FitOptions(prior=prior, lean_rad=0.3), given, near, weights)
    terms = tuple(
        replace(term, weight=1.0) if isinstance(term, LikelyPose) else term.to(DOUBLE)
        for term in terms
    )
    turn = None if scene is None else scene.world_rotation
    state = some_state(frames, shared, readings=READINGS)
    if keypoints:
        terms = (*terms, some_outlines(seen, state, body, g))
    return Problem(jacobian, terms, 25.0 if shared else None, None, turn), state


def dense(system: NormalEquations) -> torch.Tensor:
    """The whole matrix of a track."""
    frames = len(system.gradient)
    size = system.corner.shape[-1]
    blocks = torch.zeros(frames, STEP_SIZE, frames, STEP_SIZE, dtype=DOUBLE)
    for lag, off in enumerate((system.matrix, *(system.off_diagonals or ()))):
        for t in range(len(off)):
            blocks[t, :, t + lag] = off[t]
            blocks[t + lag, :, t] = off[t].T
    whole = torch.zeros(frames * STEP_SIZE + size, frames * STEP_SIZE + size, dtype=DOUBLE)
    whole[:-size, :-size] = blocks.reshape(frames * STEP_SIZE, frames * STEP_SIZE)
    whole[:-size, -size:] = system.arrow.reshape(-1, size)
    whole[-size:, :-size] = whole[:-size, -size:].T
    whole[-size:, -size:] = system.corner
    return whole
