"""What people's outlines in a few frames say of the shape of their body."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body
from fitting.camera import Camera
from fitting.fits import FitInput, FitOptions
from fitting.optimise import ROUGH_TOLERANCE
from fitting.problem_setup import make_problem
from fitting.solver.arrow import corner_factor, factorize
from fitting.solver.levenberg_marquardt import solve_track
from fitting.solver.problem import Problem, normal_equations
from fitting.solver.terms.shape import LikelyShape, ShapeEvidence
from fitting.solver.terms.silhouette import GARMENTS, Silhouette
from fitting.solver.terms.term import Term
from fitting.solver.unknowns import State
from pose2d.base.threads import single_thread

ROUNDS = 3  # in which the points of an outline find their vertices anew
ITERATIONS = 6  # of the solver in each round, at most


@single_thread()
def shape_from_outlines(
    fit_input: FitInput,
    xy_px: Tensor,
    normal: Tensor,
    camera: Camera,
    body: Body,
    options: FitOptions,
) -> tuple[ShapeEvidence, Tensor] | None:
    """Return what outlines [T, N, 2] of some frames of a track say of its shape, and the shape [S]
    of these frames; `fit_input` is of the same frames, with a start. None: they say nothing.

    Pose and shape are searched for together, keypoints and outlines pulling, while each point of an
    outline finds its vertex anew in every round. What the outlines add is the difference of the
    equations with and without them at the end, after all but the shape is eliminated (Schur
    complement): precision P = S - S0, and the gradient g - g0.
    """
    assert fit_input.start is not None
    plain_input = FitInput(fit_input.keypoints, fit_input.guess)
    problem, _, usable = make_problem(plain_input, [camera], body, options, 1.0)
    directions = problem.jacobian.body_directions
    if not directions:
        return None
    problem = replace(problem, fps=None)  # a few frames, far apart
    state = problem.jacobian.state(fit_input.start)
    xy_px = camera.undistort(xy_px).masked_fill(~usable[:, None, None], torch.nan)
    matched = _match_outlines(problem, state, xy_px, normal)
    if matched is None:
        return None
    outlines, state = matched
    without = _reduce_to_shape(problem, state)
    with_outlines = _reduce_to_shape(problem, state, outlines)
    thicker = [
        _reduce_to_shape(problem, state, outlines.with_thicker_garment(garment))
        for garment in range(len(GARMENTS))
    ]
    shape = state.shape[:directions]
    evidence = _compare_equations(without, with_outlines, thicker, shape, int(usable.sum()))
    return evidence, shape


def _match_outlines(
    problem: Problem, state: State, xy_px: Tensor, normal: Tensor
) -> tuple[Silhouette, State] | None:
    """Return the outlines matched to vertices, and the state that explains both keypoints and
    outlines. None: no point of an outline counts.
    """
    body = problem.jacobian.body
    for _ in range(ROUNDS):
        mesh = body.at(problem.jacobian.params(state), vertices=True).vertices
        assert mesh is not None
        outlines = Silhouette.matched(problem.keypoints, xy_px, normal, mesh, body)
        if not bool((outlines.weight > 0).any()):
            return None
        with_outlines = replace(problem, terms=(*problem.terms, outlines))
        state = solve_track(with_outlines, state, ITERATIONS, ROUGH_TOLERANCE).state
    return outlines, state


@dataclass(frozen=True)
class _ShapeEquations:
    """The normal equations of the shape alone, in float64."""

    precision: Tensor  # [S, S]
    gradient: Tensor  # [S]


def _reduce_to_shape(problem: Problem, state: State, *extra_terms: Term) -> _ShapeEquations:
    """Return the equations of the shape, all else eliminated; `extra_terms` are besides the
    problem's.
    """
    shape_weight = problem.term(LikelyShape).weight
    problem = replace(problem, terms=(*problem.terms, *extra_terms))
    system = normal_equations(problem, state).double()
    response = factorize(system).solve(system.arrow)
    lower = corner_factor(system.arrow, system.corner, response, shape_weight)
    eliminated = torch.einsum("tds,td->s", response, system.gradient)
    gradient = (system.shape_gradient - eliminated) / shape_weight
    return _eliminate_readings(lower @ lower.mT, gradient, problem.jacobian.body_directions)


def _eliminate_readings(precision: Tensor, gradient: Tensor, directions: int) -> _ShapeEquations:
    """Return the equations of the shape from those of shape and readings."""
    own, other = slice(directions), slice(directions, None)
    response = torch.linalg.solve(precision[other, other], precision[other, own])
    return _ShapeEquations(
        precision[own, own] - precision[own, other] @ response,
        gradient[own] - response.mT @ gradient[other],
    )


def _compare_equations(
    without: _ShapeEquations,
    with_outlines: _ShapeEquations,
    thicker: list[_ShapeEquations],
    shape: Tensor,
    frames: int,
) -> ShapeEvidence:
    """Return what the outlines of so many frames add.

    A garment is as thick in every frame, and its thickness is unknown: where V = P U are the
    changes of the gradient with each garment thicker by its deviation, P becomes
    (P^-1 + U U^T)^-1.
    """
    values, vectors = torch.linalg.eigh(with_outlines.precision - without.precision)
    is_positive = values > 0  # rounding may leave a direction below zero
    values = values[is_positive]
    vectors = vectors[:, is_positive]
    gradient = vectors.mT @ (with_outlines.gradient - without.gradient)
    best = vectors.mT @ shape.double() - gradient / values
    thicker_gradients = torch.stack([equations.gradient for equations in thicker], 1)
    change = vectors.mT @ (thicker_gradients - with_outlines.gradient[:, None])
    inner = torch.eye(len(GARMENTS), dtype=change.dtype) + change.mT @ (change / values[:, None])
    left = torch.diag(values) - change @ torch.linalg.solve(inner, change.mT)
    precision = vectors @ left @ vectors.mT
    information = vectors @ left @ best
    return ShapeEvidence(precision.float(), information.float(), frames)
