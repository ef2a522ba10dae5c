"""From keypoints and trust to a body: the front of the solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.init.guess import InitialGuess, with_default_errors
from fitting.init.lifter.lift import guess_from_keypoints
from fitting.init.torso import torso_starts
from fitting.keypoints.observed import body_keypoints, frames_with_enough, undistorted
from fitting.keypoints.weights import GATE, Weighting, keypoint_weights
from fitting.solver.jacobian import Mechanism
from fitting.solver.levenberg_marquardt import Solution, filled, solve_frames, solve_track
from fitting.solver.prior import PosePrior, load_prior
from fitting.solver.problem import NEAR_M, ROBUST_SCALE, Ground, Problem, anchor_at, project, robust_scale
from fitting.solver.uncertainty import joint_spread
from fitting.solver.unknowns import LEAF_JOINTS, SHAPE_SIZE, State, from_params, ranges, to_params
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread
from pose2d.types import ConfidenceSource, Keypoints

# Keypoints, one camera for all frames or one for each, body, frames per second (None: frames by themselves).
Initialiser = Callable[[Keypoints, Sequence[Camera], Body, float | None], InitialGuess]
INITIALISERS: dict[str, Initialiser] = {"lifter": guess_from_keypoints}  # "none" needs none

CALIBRATED: tuple[ConfidenceSource, ...] = ("closed-form", "ccnet", "oracle")
READINGS_PER_SECOND = 3.0  # a network's errors last: so many frames of a second tell something new
LASTING = 0.45  # share of a keypoint's squared error that stays the same over a track
MOTION_SHARE = 0.01  # joints accelerate together: of the 129 terms between two readings one or two are independent
LEAN_RAD = 0.25  # spread of the lean out of the image: pelvises tilt by 0.2, cameras are pitched as much
SCREENING, SINGLE, TRACK = 3, 40, 40  # most iterations: of each start, of a frame, of a track


@dataclass(frozen=True)
class Fit:
    """A person's body over T frames, in the camera frame, and how far to trust it."""

    params: BodyParams
    observed: Tensor  # [T] true where the frame itself was seen; false: filled from its neighbours
    used: Tensor  # [T, 17] keypoints that pulled
    reprojection_px: Tensor  # [T, 17] distance to the keypoint, NaN where it was not used
    joint_std_mm: Tensor | None  # [T, 24, 3] of joints in the camera frame along x, y, z; None: not known
    joint_std_relative_mm: Tensor | None  # [T, 24, 3] of joints relative to the pelvis
    stopped: str  # why the search ended
    converged: Tensor  # [T]
    iterations: int
    cost: float  # -log posterior, up to a constant
    weighting: Weighting
    source: ConfidenceSource  # where the confidence came from


@single_thread()
def fit(
    keypoints: Keypoints,
    camera: Camera,
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    weighting: Weighting = "precision",
    *,
    fps: float = 30.0,
    gate: float = GATE,
    prior: PosePrior | None = None,
    lean_rad: float | None = LEAN_RAD,
    robust_sigmas: float = ROBUST_SCALE,
    ground: Ground | None = None,
) -> Fit:
    """One person's track of T frames: a pose and a place per frame, one shape, smooth over time.

    init: "lifter" (a guess from the keypoints), "none" (a start from the torso), or a guess to stay close to.
    weighting: how confidence becomes weight, see `fitting.keypoints.weights`; gate is the threshold of `gate`.
    fps: frames per second of the track. ground: a floor, if one is known.
    lean_rad: how far people usually lean towards or away from the camera; None for a camera that looks steeply down.
    robust_sigmas: so many sigmas away a keypoint counts half of its square; large is least squares.
    """
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    body = body or load_body()
    problem, seen = frames_problem(keypoints, [camera], body, weighting, gate, prior, lean_rad, robust_sigmas)
    guess = initial_guess(init, keypoints, [camera], body, len(problem), fps)
    if guess is None:
        nearby = (seen.cumsum(0) - 1).clamp(min=0)  # frames that are not seen borrow until they are filled
        state = from_torso(problem.frames(seen)).frames(nearby)
        state = replace(state, shape=state.shape.mean(0))
    else:
        problem, state = _near(problem, guess, seen, shared_shape=True)
    state = filled(state, seen)
    if ground is not None:
        problem = replace(problem, ground=ground)
    problem = _as_track(problem, seen, fps)
    solution = solve_track(problem, state, TRACK)
    return _report(problem, solution, seen, weighting, keypoints.source, keep_leaves=guess is not None)


def _as_track(problem: Problem, seen: Tensor, fps: float) -> Problem:
    """Couple the frames, as much as they deserve.

    Errors of neighbouring frames are alike, and so are their poses: readings and pose prior lose worth at the same
    rate, and acceleration gains beside both. Some of the error never changes. The shape, which all frames share, must
    not be bent to explain it: N readings with a lasting share r of variance are worth 1 / (r + (1 - r) / N) of one.
    """
    frames = int(seen.sum())
    per_reading = max(1.0, fps / READINGS_PER_SECOND)
    readings = max(1.0, frames / per_reading)
    problem = replace(problem, shape_share=frames * (LASTING + (1 - LASTING) / readings))
    return replace(problem, fps=fps, motion_share=MOTION_SHARE * per_reading) if len(problem) >= 3 else problem


def fit_frames(
    keypoints: Keypoints,
    camera: Camera | Sequence[Camera],
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    weighting: Weighting = "precision",
    *,
    gate: float = GATE,
    prior: PosePrior | None = None,
    lean_rad: float | None = LEAN_RAD,
    robust_sigmas: float = ROBUST_SCALE,
) -> Fit:
    """T frames that have nothing to do with each other, solved together: each has a shape of its own, [T, S].

    camera: one for all, or one per frame. A frame that shows too little stays at its start and is not `observed`.
    """
    body = body or load_body()
    cameras = [camera] if isinstance(camera, Camera) else list(camera)
    problem, seen = frames_problem(keypoints, cameras, body, weighting, gate, prior, lean_rad, robust_sigmas)
    guess = initial_guess(init, keypoints, cameras, body, len(problem), None)
    if guess is None:
        start = torso_starts(problem)[0].frames(slice(0, len(problem)))
        shown, first = problem.frames(seen), from_torso(problem.frames(seen))
    else:
        problem, start = _near(problem, guess, seen, shared_shape=False)
        shown, first = problem.frames(seen), start.frames(seen)
    solved = solve_frames(shown, first, SINGLE)
    found = _report(shown, solved, seen[seen], weighting, keypoints.source, keep_leaves=guess is not None)
    return found if bool(seen.all()) else _with_unseen(found, to_params(start), seen)


def _with_unseen(found: Fit, start: BodyParams, seen: Tensor) -> Fit:
    """Put the frames that were not solved back in, at their start, with nothing known of them."""

    def among(values: Tensor, others: Tensor) -> Tensor:
        whole = others.to(values.dtype).expand(len(seen), *values.shape[1:]).clone()
        whole[seen] = values
        return whole

    nothing, no = torch.tensor(torch.nan), torch.tensor(False)
    params = BodyParams(
        among(found.params.pose, start.pose),
        among(found.params.shape, start.shape),
        among(found.params.translation, start.translation),
    )
    return replace(
        found,
        params=params,
        observed=seen,
        used=among(found.used, no),
        reprojection_px=among(found.reprojection_px, nothing),
        joint_std_mm=None if found.joint_std_mm is None else among(found.joint_std_mm, nothing),
        joint_std_relative_mm=(
            None if found.joint_std_relative_mm is None else among(found.joint_std_relative_mm, nothing)
        ),
        converged=among(found.converged, no),
    )


def frames_problem(
    keypoints: Keypoints,
    cameras: Sequence[Camera],
    body: Body,
    weighting: Weighting = "precision",
    gate: float = GATE,
    prior: PosePrior | None = None,
    lean_rad: float | None = LEAN_RAD,
    robust_sigmas: float = ROBUST_SCALE,
) -> tuple[Problem, Tensor]:
    """The problem of frames by themselves, and which of them are seen [T]; for optimisers of any kind."""
    known = body_keypoints(keypoints)
    frames = len(known.xy_px)
    if len(cameras) not in (1, frames):
        raise UserError(f"there are {len(cameras)} cameras for {frames} frames; give one, or one per frame.")
    known = undistorted(known, cameras)
    weights = keypoint_weights(known, weighting, gate)
    seen = frames_with_enough(known, weights.weight)
    weight = weights.weight * seen[:, None]

    def per_frame(values: Sequence[tuple[float, float]]) -> Tensor:
        return torch.tensor(values).expand(frames, 2)

    low, high = ranges()
    problem = Problem(
        mechanism=Mechanism(body.to(dtype=torch.float32), min(SHAPE_SIZE, body.shape_size)),
        prior=prior or load_prior(),
        limit_low=low,
        limit_high=high,
        focal_px=per_frame([camera.focal_px for camera in cameras]),
        center_px=per_frame([camera.center_px for camera in cameras]),
        xy_px=known.xy_px,
        weight=weight,
        # A keypoint that may not be there at all is doubted sooner, as in a mixture of it and of anything else.
        robust=robust_scale(weight, weights.sigma_px, robust_sigmas) * known.presence.clamp(min=1e-3),
        lean_rad=lean_rad,
    )
    return problem, seen


def initial_guess(
    init: str | BodyParams | InitialGuess,
    keypoints: Keypoints,
    cameras: Sequence[Camera],
    body: Body,
    frames: int,
    fps: float | None,
) -> InitialGuess | None:
    """The guess that `init` stands for, of `frames` frames; None for "none". fps None: frames by themselves."""
    if isinstance(init, str):
        if init == "none":
            return None
        if init not in INITIALISERS:
            raise UserError(_not_by_name(init))
        return INITIALISERS[init](keypoints, cameras, body, fps)
    guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
    params = guess.params
    if len(params.pose) != frames or tuple(params.translation.shape) != (frames, 3):
        raise UserError(f"the initial guess has {len(params.pose)} frames; the keypoints have {frames}.")
    if not all(torch.isfinite(value).all() for value in (params.pose, params.shape, params.translation)):
        raise UserError("the initial guess has a number that is not finite (NaN or infinity).")
    return guess


def _not_by_name(init: str) -> str:
    from fitting.init.regressors import NAMES  # only for the message: it imports two large networks

    if init in NAMES:
        return (
            f"init={init!r} reads images, and a fit has keypoints only. Make the guess first and pass it as init: "
            f"network = fitting.init.regressors.load({init!r}, checkpoint); "
            "init = fitting.init.regressors.initialise_track(network, images, boxes_px, camera)."
        )
    return f"unknown initialiser {init!r}: choose {', '.join(['none', *INITIALISERS])}."


def from_torso(problem: Problem) -> State:
    """The best of several starts of each frame, each improved for a few steps.

    The shape comes later, and so does the choice of the prior's component: made too early, it is never unmade.
    """
    mean_body = replace(problem, mechanism=Mechanism(problem.mechanism.body, 0), prior=problem.prior.as_one())
    starts, frame = torso_starts(mean_body)
    screened = solve_frames(mean_body.frames(frame), starts, SCREENING)
    order = torch.argsort(screened.cost, descending=True)  # the last one written to a frame is its best
    best = torch.empty(len(problem), dtype=torch.long)
    for start in order.tolist():
        best[frame[start]] = start
    state = screened.state.frames(best)
    return replace(state, shape=state.shape.new_zeros(len(problem), problem.mechanism.shape_size))


def _near(problem: Problem, guess: InitialGuess, seen: Tensor, shared_shape: bool) -> tuple[Problem, State]:
    """Start from a guess and stay close to it; frames whose guess is behind the camera start from the torso."""
    state = from_params(guess.params, problem.mechanism.shape_size)
    if not shared_shape:
        state = replace(state, shape=state.shape.expand(len(problem), -1))
    elif not state.shared_shape:
        state = replace(state, shape=state.shape[seen].mean(0))
    points = problem.mechanism.place(state, derivatives=False).keypoints
    behind = ((points[..., 2] < NEAR_M) & (problem.weight > 0)).any(1)
    if bool((behind & seen).sum() == seen.sum()):
        raise UserError(
            "the initial guess puts the person behind the camera in every frame. Translations are metres in the camera "
            "frame: x right, y down, z forward, so z must be positive."
        )
    usable = seen & ~behind
    state = filled(state, usable) if shared_shape else state
    if not shared_shape and bool(behind.any()):
        state = state.where(~behind, torso_starts(problem)[0].frames(slice(0, len(problem))))
    return replace(problem, anchor=anchor_at(state, guess.rotation_std_rad, guess.depth_std, guess.shape_std)), state


def _report(
    problem: Problem,
    solution: Solution,
    seen: Tensor,
    weighting: Weighting,
    source: ConfidenceSource,
    keep_leaves: bool,
) -> Fit:
    state = solution.state
    points = problem.mechanism.place(state, derivatives=False).keypoints
    used = problem.weight > 0
    distance = (project(points, problem.focal_px, problem.center_px) - problem.xy_px).norm(dim=-1)
    spread = joint_spread(problem, state) if weighting == "precision" and source in CALIBRATED else None
    if not keep_leaves:
        theta = state.theta.clone()
        theta[:, LEAF_JOINTS] = problem.prior.leaves(state.body_pose)
        state = replace(state, theta=theta)
    reasons = solution.stopped
    one_word = len(reasons) == 1 or len(set(reasons)) == 1
    return Fit(
        params=to_params(state),
        observed=seen,
        used=used,
        reprojection_px=torch.where(used, distance, torch.nan),
        joint_std_mm=None if spread is None else 1000 * spread.place_m,
        joint_std_relative_mm=None if spread is None else 1000 * spread.pose_m,
        stopped=reasons[0] if one_word else ", ".join(f"{r}: {reasons.count(r)}" for r in sorted(set(reasons))),
        converged=torch.tensor([reason == "converged" for reason in reasons]).expand(len(problem)),
        iterations=solution.iterations,
        cost=solution.total,
        weighting=weighting,
        source=source,
    )
