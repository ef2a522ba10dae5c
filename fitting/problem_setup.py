"""Set up the least-squares problem of one person: the terms that pull on the body, and the state
that the search starts from.

`make_problem` turns a `FitInput` into a solver `Problem`; `terms_of` lists everything that pulls;
`initial_guess` makes or checks the guess. `fitting.optimise` solves the problem.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.camera import Camera
from fitting.fits import DEFAULTS, FitInput, FitOptions, InitialGuess, with_default_errors
from fitting.grid import interpolate_params
from fitting.init import REGRESSORS
from fitting.init.lifter import guess_from_keypoints
from fitting.keypoints.usable import (
    LEAST_KEYPOINTS,
    check_body_keypoints,
    count_confident_keypoints,
    require_usable_frames,
    undistort_keypoints,
)
from fitting.keypoints.weights import keypoint_weights
from fitting.solver.jacobian import BodyJacobian
from fitting.solver.problem import Problem, visible_to_several
from fitting.solver.terms.acceleration import AngularAcceleration, JointAcceleration
from fitting.solver.terms.guess import Guess
from fitting.solver.terms.joint_limits import JointLimits, joint_ranges
from fitting.solver.terms.palm import Palm
from fitting.solver.terms.pose_prior import LikelyPose, load_prior
from fitting.solver.terms.reprojection import Reprojection, robust_scale
from fitting.solver.terms.shape import LikelyShape
from fitting.solver.terms.term import FARTHEST, Term
from fitting.solver.terms.upright import Upright, optical_axis
from fitting.solver.unknowns import SHAPE_SIZE, State
from pose2d.base.errors import UserError
from pose2d.types import Keypoints

# A network's errors are correlated over time (bench/tuning/keypoint_noise.py measures them): so
# many frames of a second are independent observations, and this share of a keypoint's squared error
# is constant over a track.
INDEPENDENT_FRAMES_PER_SECOND = 3.0
CONSTANT_ERROR_SHARE = 0.45
# Joints accelerate together: of the 129 terms of a frame a few are independent. bench/left_out.py
# --choose: keypoints and frames that were left out are predicted with -2.66 nats at 0.03 and -3.03
# at 0.01; rendered people move as evenly as they did before annotators' scatter was taken out, at
# the same error.
MOTION_WEIGHT = 0.03
# A guess was made with a prior of its own, so the pose prior beside it weighs less. Left-out
# keypoints of real video hardly tell 0.25 from 0.5 (bench/left_out.py: -3.17 and -3.14 nats, arms
# better with less, legs with more).
PRIOR_BESIDE_GUESS = 0.35


def make_problem(
    fit_input: FitInput,
    cameras: Sequence[Camera],
    body: Body,
    options: FitOptions = DEFAULTS,
    fps: float | None = None,
) -> tuple[Problem, State, Tensor]:
    """Return the problem of a track with one shape, or (fps None) of independent frames with a
    shape each; its guess as a state; and which frames are usable [T].
    """
    frames = len(fit_input)
    if len(cameras) not in (1, frames):
        raise UserError(
            f"there are {len(cameras)} cameras for {frames} frames; give one, or one per frame."
        )
    view, counts = _reprojection(fit_input.keypoints, cameras, options)
    views = [view]
    for other_view in fit_input.other_views:
        view, other_counts = _reprojection(other_view.keypoints, [other_view.camera], options)
        view = replace(view, rotation=other_view.rotation, offset_m=other_view.offset_m)
        views.append(view)
        counts = torch.maximum(counts, other_counts)
    usable = require_usable_frames(counts)
    body = body.to(dtype=torch.float32)
    jacobian = BodyJacobian(body, min(SHAPE_SIZE, body.shape_size), options.reads)
    problem = Problem(jacobian, tuple(views))
    guess = jacobian.state(fit_input.guess.params)
    if fps is None:
        guess = replace(guess, shape=guess.shape.expand(frames, -1))
        weights = (1.0, 1.0)
    else:
        guess = _fill_unusable(_with_one_shape(guess, usable), problem, usable)
        weights = independence(int(usable.sum()), fps)
    terms = terms_of(views, jacobian, options, fit_input, guess, weights)
    scene = fit_input.scene
    world_rotation = None if scene is None else scene.world_rotation
    rate = fps if frames > FARTHEST else None  # one or two frames do not move
    problem = Problem(jacobian, terms, rate, fit_input.segment, world_rotation)
    return problem, guess, usable


def _with_one_shape(guess: State, usable: Tensor) -> State:
    """Return the guess with one shape: its own, or the mean of those of usable frames."""
    return guess if guess.shared_shape else replace(guess, shape=guess.shape[usable].mean(0))


def _fill_unusable(guess: State, problem: Problem, usable: Tensor) -> State:
    """Return the guess with bodies interpolated where a frame is unusable or the guess lies behind
    the camera.
    """
    reliable = usable & ~behind_camera(guess, problem, usable)
    if bool(reliable.all()):
        return guess
    rows = reliable.nonzero().squeeze(1)
    jacobian = problem.jacobian
    known = jacobian.params(guess).rows(rows)
    return jacobian.state(interpolate_params(known, rows, torch.arange(len(usable))))


def independence(frames: int, fps: float) -> tuple[float, float]:
    """Return the weights of shape and motion, which all of so many usable frames share.

    Errors of neighbouring frames are alike, and so are their poses: keypoints and pose prior both
    count as many times too often as there are frames per independent one, so acceleration gets that
    factor too. Part of the error never changes, and the shape, which all frames share, must not
    explain it: N independent frames whose errors have a constant share r of variance are worth 1 /
    (r + (1 - r) / N) frames.
    """
    frames_per_independent = max(1.0, fps / INDEPENDENT_FRAMES_PER_SECOND)
    independent = max(1.0, frames / frames_per_independent)
    share = CONSTANT_ERROR_SHARE
    return frames * (share + (1 - share) / independent), MOTION_WEIGHT * frames_per_independent


def terms_of(
    views: Sequence[Reprojection],
    jacobian: BodyJacobian,
    options: FitOptions,
    fit_input: FitInput,
    near: State,
    weights: tuple[float, float] = (1.0, 1.0),
) -> tuple[Term, ...]:
    """Return everything that pulls on a body: a new term is one line in this list.

    views: the keypoints of each camera. fit_input: what else is known. near: its guess as a state,
    to stay near. weights: of shape and motion (`independence`).
    """
    shape_weight, motion_weight = weights
    guess = fit_input.guess
    scene = fit_input.scene
    prior = options.prior or load_prior()
    terms = (
        *views,
        Palm.of(fit_input.hands, views[0], jacobian),
        LikelyPose(prior, PRIOR_BESIDE_GUESS),
        JointLimits(*joint_ranges()),
        _upright(views, fit_input, options.lean_rad),
        Guess.at(near, guess.rotation_std_rad, guess.depth_std),
        JointAcceleration(prior.acceleration_std, motion_weight),
        AngularAcceleration(prior.angular_std, motion_weight),
        *(scene.terms(jacobian.body) if scene else ()),
        LikelyShape.of(
            shape_weight, near.shape, guess.shape_std, fit_input.shape, jacobian.readings
        ),
    )
    return tuple(term for term in terms if term is not None)


def _upright(
    views: Sequence[Reprojection], fit_input: FitInput, lean_rad: float | None
) -> Upright | None:
    """Return the term that keeps people from leaning towards or away from the camera."""
    if lean_rad is None:
        return None
    scene = fit_input.scene
    weight = views[0].weight
    knows_gravity = scene is not None and scene.up is not None
    axis = scene.lean_axis(len(weight)) if scene and knows_gravity else optical_axis(weight)
    if len(views) > 1:  # a second camera sees how far the person leans
        axis = axis * ~visible_to_several(views)[:, None]
    return Upright(axis, lean_rad)


def _reprojection(
    keypoints: Keypoints, cameras: Sequence[Camera], options: FitOptions
) -> tuple[Reprojection, Tensor]:
    """Return the keypoint term of one camera, with weights of zero in frames where too few
    keypoints count, and how many count in each frame [T].
    """
    keypoints = undistort_keypoints(check_body_keypoints(keypoints), cameras)
    weights = keypoint_weights(keypoints, options.weighting, options.gate)
    counts = count_confident_keypoints(keypoints, weights.weight)
    weight = weights.weight * (counts >= LEAST_KEYPOINTS)[:, None]
    scale = robust_scale(weight, weights.sigma_px, options.robust_sigmas)

    def per_frame(values: Sequence[tuple[float, float]]) -> Tensor:
        return torch.tensor(values).expand(len(weight), 2)

    term = Reprojection(
        focal_px=per_frame([camera.focal_px for camera in cameras]),
        center_px=per_frame([camera.center_px for camera in cameras]),
        xy_px=keypoints.xy_px,
        weight=weight,
        # A keypoint that may not be in the image is an outlier sooner, as in a mixture of it and of
        # anything else.
        robust=scale * keypoints.presence.clamp(min=1e-3),
        mixture_weight=weights.mixture_weight,
        mixture_precision=weights.mixture_precision,
    )
    return term, counts


def initial_guess(
    init: str | BodyParams | InitialGuess,
    keypoints: Keypoints,
    cameras: Sequence[Camera],
    body: Body,
    fps: float | None,
    reading: Tensor | None = None,
) -> InitialGuess:
    """Return the guess that `init` stands for, a row per frame. fps None: independent frames.

    reading [R]: where the person's keypoints are read (`fitting.body.reading`); None: on the body.
    """
    if isinstance(init, str):
        if init in REGRESSORS:
            raise UserError(
                f"init={init!r} reads images, and a fit has keypoints only. "
                "Make the guess first and pass it as init: "
                f"network = fitting.init.regressors.load({init!r}, checkpoint); "
                "init = fitting.init.regressors.initialise_track(network, images, boxes_px, "
                "camera)."
            )
        if init != "lifter":
            raise UserError(f"unknown initialiser {init!r}: choose lifter, or pass a guess.")
        return guess_from_keypoints(keypoints, cameras, body, fps, reading)
    guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
    params = guess.params
    frames = len(keypoints.xy_px)
    if len(params.pose) != frames or tuple(params.translation.shape) != (frames, 3):
        raise UserError(
            f"the initial guess has {len(params.pose)} frames; the keypoints have {frames}."
        )
    values = (params.pose, params.shape, params.translation)
    if not all(torch.isfinite(value).all() for value in values):
        raise UserError("the initial guess has a number that is not finite (NaN or infinity).")
    return guess


def behind_camera(state: State, problem: Problem, usable: Tensor) -> Tensor:
    """Return the frames [T] in which a keypoint that counts would be behind a camera.

    Raises UserError where that holds for all usable frames.
    """
    points = problem.posed(state).keypoints
    behind = torch.stack([view.behind(points) for view in problem.views]).any(0)
    if bool((behind & usable).sum() == usable.sum()):
        raise UserError(
            "the initial guess puts the person behind the camera in every frame. Translations are "
            "metres in the camera frame: x right, y down, z forward, so z must be positive."
        )
    return behind
