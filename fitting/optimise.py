"""Solve the problem of one person's keypoints in T frames, and report the body with its deviations.

`fit_jointly` solves frames of a track together, with one shape; `fit_frames` solves independent
frames side by side. `fitting.windows` cuts tracks of any length into pieces for `fit_jointly`.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.body.reading import READINGS
from fitting.camera import Camera
from fitting.fits import DEFAULTS, Fit, FitInput, FitOptions, InitialGuess
from fitting.keypoints.usable import check_body_keypoints
from fitting.keypoints.weights import CALIBRATED, warn_of_uncalibrated_scores
from fitting.problem_setup import behind_camera, initial_guess, make_problem
from fitting.solver.levenberg_marquardt import TOLERANCE, Solution, solve_frames, solve_track
from fitting.solver.problem import Problem
from fitting.solver.uncertainty import joint_deviations
from pose2d.base.threads import single_thread
from pose2d.types import Keypoints

ITERATIONS = 40  # at most
ROUGH_TOLERANCE = 0.2  # log-likelihood per frame of a fit that another one begins from


@single_thread()
def fit_jointly(
    fit_input: FitInput, camera: Camera, body: Body, fps: float, options: FitOptions
) -> Fit:
    """Fit all frames together, with one shape. The keypoints were checked and the guess was made
    (`fitting.track.prepare_track`).
    """
    problem, state, usable = make_problem(fit_input, [camera], body, options, fps)
    if fit_input.start is not None:
        state = problem.jacobian.state(fit_input.start)
    elif problem.keypoints.mixture_weight is not None:
        state = solve_track(problem.without_tails, state, ITERATIONS, ROUGH_TOLERANCE).state
    tolerance = ROUGH_TOLERANCE if options.rough else TOLERANCE
    solution = solve_track(problem, state, ITERATIONS, tolerance)
    return _report(problem, solution, usable, fit_input, options)


def fit_frames(
    keypoints: Keypoints,
    camera: Camera | Sequence[Camera],
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    options: FitOptions = DEFAULTS,
) -> Fit:
    """Fit T independent frames, solved side by side: each has a shape of its own, [T, S].

    camera: one for all, or one per frame. A frame that shows too little, or whose guess is behind
    the camera, stays at its start and is not `observed`.
    """
    warn_of_uncalibrated_scores(keypoints, options.weighting)
    body = body or load_body()
    keypoints = check_body_keypoints(keypoints)
    cameras = [camera] if isinstance(camera, Camera) else list(camera)
    reading = torch.zeros(READINGS) if options.reads else None
    guess = initial_guess(init, keypoints, cameras, body, None, reading)
    fit_input = FitInput(keypoints, guess)
    problem, start, usable = make_problem(fit_input, cameras, body, options)
    usable = usable & ~behind_camera(start, problem, usable)
    problem = problem.frames(usable)
    state = start.rows(usable)
    if problem.keypoints.mixture_weight is not None:
        state = solve_frames(problem.without_tails, state, ITERATIONS, ROUGH_TOLERANCE).state
    solution = solve_frames(problem, state, ITERATIONS)
    usable_fit = _report(problem, solution, usable[usable], fit_input, options)
    all_frames = usable_fit.scatter(usable, len(usable))
    return replace(all_frames, params=problem.jacobian.params(start).put(usable, usable_fit.params))


def _report(
    problem: Problem, solution: Solution, usable: Tensor, fit_input: FitInput, options: FitOptions
) -> Fit:
    """Return the solution as a fit, with deviations where the confidence is calibrated."""
    state = solution.state
    used = problem.keypoints.used
    distance_px = problem.keypoints.distance_px(problem.posed(state).keypoints)
    source = fit_input.keypoints.source
    weighting = options.weighting
    is_calibrated = weighting in ("precision", "likelihood") and source in CALIBRATED
    std = joint_deviations(problem, state) if is_calibrated and not options.rough else None
    reasons = solution.stopped
    return Fit(
        params=problem.jacobian.params(state),
        observed=usable,
        used=used,
        reprojection_px=torch.where(used, distance_px, torch.nan),
        joint_std_mm=None if std is None else 1000 * std.camera_frame_m,
        joint_std_relative_mm=None if std is None else 1000 * std.relative_m,
        rotation_std_deg=None if std is None else std.rotation_rad.rad2deg(),
        shape_covariance=None if std is None else std.shape_covariance,
        stopped=_summarise(reasons),
        converged=torch.tensor([reason == "converged" for reason in reasons]).expand(len(problem)),
        weighting=weighting,
        source=source,
    )


def _summarise(reasons: Sequence[str]) -> str:
    """Return why the solver stopped; where frames differ, how many stopped for which reason."""
    distinct = sorted(set(reasons))
    if len(distinct) == 1:
        return reasons[0]
    return ", ".join(f"{reason}: {reasons.count(reason)}" for reason in distinct)
