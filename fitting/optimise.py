"""From the keypoints of T frames to a body: sets the problem up, starts it, solves it and reports.

`fitting.track` prepares a person's keypoints. `fit_windows`: what is longer than WINDOW frames is
solved in overlapping windows with one shape.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import (
    DEFAULTS,
    LEAN_RAD,
    Fit,
    FitOptions,
    InitialGuess,
    between,
    interpolated,
    mixed,
    with_default_errors,
)
from fitting.init import REGRESSORS
from fitting.init.lifter import guess_from_keypoints
from fitting.keypoints.observed import (
    LEAST_KEYPOINTS,
    SeenHands,
    body_keypoints,
    counting,
    enough,
    undistorted,
    usable_frames,
)
from fitting.keypoints.weights import CALIBRATED, GATE, Weighting, keypoint_weights, warn_of_scores
from fitting.solver.arrow import corner_factor, factorize
from fitting.solver.jacobian import BodyJacobian
from fitting.solver.levenberg_marquardt import TOLERANCE, Solution, solve_frames, solve_track
from fitting.solver.problem import Problem, normal_equations, seen_by_several
from fitting.solver.terms.acceleration import AngularAcceleration, JointAcceleration
from fitting.solver.terms.guess import Guess
from fitting.solver.terms.joint_limits import JointLimits, joint_ranges
from fitting.solver.terms.palm import Palm
from fitting.solver.terms.pose_prior import LikelyPose, PosePrior, load_prior
from fitting.solver.terms.reprojection import ROBUST_SCALE, Reprojection, robust_scale
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import LikelyShape, ShapeEvidence
from fitting.solver.terms.silhouette import GARMENTS, Silhouette
from fitting.solver.terms.term import FARTHEST, Term
from fitting.solver.terms.upright import Upright, optical_axis
from fitting.solver.uncertainty import joint_deviations
from fitting.solver.unknowns import SHAPE_SIZE, State, from_params, to_params
from pose2d.base.columns import nested, shared
from pose2d.base.errors import UserError
from pose2d.base.table import Table, join_rows
from pose2d.base.threads import single_thread
from pose2d.types import Keypoints

# A network's errors are correlated over time (bench/tuning/keypoint_noise.py measures them): so many
# frames of a second are independent observations, and this share of a keypoint's squared error is
# constant over a track.
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
ITERATIONS = 40  # at most
ROUGH_TOLERANCE = 0.2  # log-likelihood per frame of a fit that another one begins from
OUTLINE_ROUNDS, OUTLINE_ITERATIONS = (
    3,
    6,
)  # in which points find their vertices anew; steps of each, at most


@dataclass(frozen=True)
class OtherView(Table):
    """What another camera sees of a person in the same frames: x_camera = rotation x + offset."""

    keypoints: Keypoints = nested(Keypoints, "what it sees")  # [T]
    camera: Camera = shared()
    rotation: Tensor = shared()  # [3, 3] from the camera in whose frame the body is
    offset_m: Tensor = shared()  # [3]


@dataclass(frozen=True)
class FitInput:
    """What a fit of T frames is made from, row by row; `rows` cuts all of it alike."""

    keypoints: Keypoints  # [T]
    guess: InitialGuess  # [T] where the fit starts and what it stays close to
    scene: SceneTerms | None = (
        None  # [T] gravity, floor, contacts and the camera's rotation, where known
    )
    segment: Tensor | None = (
        None  # [T] frames with the same number follow each other; None: all frames do
    )
    start: BodyParams | None = None  # [T] where the search begins, if not at the guess
    hands: SeenHands | None = None  # [T] where anybody looked for them
    others: tuple[OtherView, ...] = ()  # [T] what other cameras see
    shape: ShapeEvidence | None = None  # what outlines and a known weight say of it

    def __len__(self) -> int:
        return len(self.keypoints.xy_px)

    def rows(self, index: slice | Tensor) -> "FitInput":
        """Some of the frames."""
        return FitInput(
            self.keypoints.rows(index),
            self.guess.rows(index),
            self.scene and self.scene.frames(index),
            None if self.segment is None else self.segment[index],
            self.start and self.start.rows(index),
            self.hands and self.hands.rows(index),
            tuple(other.rows(index) for other in self.others),
            self.shape,
        )


def fit(
    keypoints: Keypoints,
    camera: Camera,
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    weighting: Weighting = "likelihood",
    *,
    fps: float = 30.0,
    gate: float = GATE,
    prior: PosePrior | None = None,
    lean_rad: float | None = LEAN_RAD,
    robust_sigmas: float = ROBUST_SCALE,
    scene: SceneTerms | None = None,
) -> Fit:
    """One person's track of T frames: a pose and a translation per frame, one shape, smooth over
    time.

    init: "lifter" (a guess from the keypoints), or a guess to stay close to. fps: frames per second
    of the track. scene: gravity, floor, contacts and the camera's rotation, where known. The others
    are those of `fitting.fits.FitOptions`.
    """
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    warn_of_scores(keypoints, weighting)
    body = body or load_body()
    keypoints = body_keypoints(keypoints)
    options = FitOptions(weighting, gate, prior, lean_rad, robust_sigmas)
    with single_thread():
        guess = initial_guess(init, keypoints, [camera], body, fps)
        usable = usable_frames(keypoints, [camera], weighting, gate)
        return fit_windows(FitInput(keypoints, guess, scene), usable, camera, body, fps, options)


@single_thread()
def fit_input(given: FitInput, camera: Camera, body: Body, fps: float, options: FitOptions) -> Fit:
    """`fit` of what was prepared: keypoints that were checked, and a guess that was made."""
    problem, state, usable = make_problem(given, [camera], body, options, fps)
    if given.start is not None:
        state = from_params(given.start, problem.jacobian.shape_size)
    elif problem.seen.mixture_weight is not None:
        state = solve_track(problem.without_tails, state, ITERATIONS, ROUGH_TOLERANCE).state
    solution = solve_track(
        problem, state, ITERATIONS, ROUGH_TOLERANCE if options.rough else TOLERANCE
    )
    return _report(problem, solution, usable, given, options)


@single_thread()
def shape_from_outlines(
    given: FitInput, xy_px: Tensor, normal: Tensor, camera: Camera, body: Body, options: FitOptions
) -> tuple[ShapeEvidence, Tensor] | None:
    """What outlines [T, N, 2] of some frames of a track say of its shape, and the shape [S] of
    these frames; `given` is of the same frames, with a start. None: they say nothing.

    Pose and shape are searched for together, keypoints and outlines pulling, while each point of an
    outline finds its vertex anew in every round. What the outlines add is the difference of the
    equations with and without them at the end, after all but the shape is eliminated (Schur
    complement): precision P = S - S0, and the gradient g - g0.

    A garment is as thick in every frame, and nobody knows how thick: where V = P U are the changes
    of the gradient with each garment thicker by its deviation, P becomes (P^-1 + U U^T)^-1.
    """
    assert given.start is not None
    plain, _, usable = make_problem(
        FitInput(given.keypoints, given.guess), [camera], body, options, 1.0
    )
    if not plain.jacobian.shape_size:
        return None
    plain, shape_weight = (
        replace(plain, fps=None),
        plain.term(LikelyShape).weight,
    )  # a few frames, far apart
    state = from_params(given.start, plain.jacobian.shape_size)
    xy_px = camera.undistort(xy_px).masked_fill(~usable[:, None, None], torch.nan)
    seen = plain.seen
    body = plain.jacobian.body
    for _ in range(OUTLINE_ROUNDS):
        mesh = body.at(to_params(state), vertices=True).vertices
        assert mesh is not None
        outlines = Silhouette.matched(seen, xy_px, normal, mesh, body)
        if not bool((outlines.weight > 0).any()):
            return None
        both = replace(plain, terms=(*plain.terms, outlines))
        state = solve_track(both, state, OUTLINE_ITERATIONS, ROUGH_TOLERANCE).state
    precisions = []
    gradients = []
    for silhouette in (
        (),
        (outlines,),
        *((outlines.thicker(garment),) for garment in range(len(GARMENTS))),
    ):
        system = normal_equations(replace(plain, terms=(*plain.terms, *silhouette)), state).double()
        response = factorize(system).solve(system.arrow)
        lower = corner_factor(system.arrow, system.corner, response, shape_weight)
        precisions.append(lower @ lower.mT)
        rest = torch.einsum("tds,td->s", response, system.gradient)
        gradients.append((system.shape_gradient - rest) / shape_weight)
    values, vectors = torch.linalg.eigh(
        precisions[1] - precisions[0]
    )  # rounding may leave a direction below zero
    values, vectors = values[values > 0], vectors[:, values > 0]
    best = vectors.mT @ state.shape.double() - vectors.mT @ (gradients[1] - gradients[0]) / values
    change = vectors.mT @ (torch.stack(gradients[2:], 1) - gradients[1][:, None])
    inner = torch.eye(len(GARMENTS), dtype=change.dtype) + change.mT @ (change / values[:, None])
    left = torch.diag(values) - change @ torch.linalg.solve(inner, change.mT)
    precision = vectors @ left @ vectors.mT
    information = vectors @ left @ best
    return ShapeEvidence(precision.float(), information.float(), int(usable.sum())), state.shape


def independence(frames: int, fps: float) -> tuple[float, float]:
    """Weights of shape and motion, which all of so many usable frames share.

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
    body: Body,
    options: FitOptions,
    given: FitInput,
    near: State,
    weights: tuple[float, float] = (1.0, 1.0),
) -> tuple[Term, ...]:
    """Everything that pulls on a body: a new term is one line in this list.

    views: the keypoints of each camera. given: what else is known. near: its guess as a state, to
    stay near. weights: of shape and motion (`independence`).
    """
    shape_weight, motion_weight = weights
    guess = given.guess
    scene = given.scene
    prior = options.prior or load_prior()
    axis = (
        scene.lean_axis(len(views[0].weight))
        if scene and scene.up is not None
        else optical_axis(views[0].weight)
    )
    if len(views) > 1:  # a second camera sees how far somebody leans
        axis = axis * ~seen_by_several(views)[:, None]
    terms = (
        *views,
        Palm.of(given.hands, views[0], body, min(SHAPE_SIZE, body.shape_size)),
        LikelyPose(prior, PRIOR_BESIDE_GUESS),
        JointLimits(*joint_ranges()),
        Upright(axis, options.lean_rad) if options.lean_rad is not None else None,
        Guess.at(near, guess.rotation_std_rad, guess.depth_std),
        JointAcceleration(prior.acceleration_std, motion_weight),
        AngularAcceleration(prior.angular_std, motion_weight),
        *(scene.terms(body) if scene else ()),
        LikelyShape.of(shape_weight, near.shape, guess.shape_std, given.shape),
    )
    return tuple(term for term in terms if term is not None)


def fit_frames(
    keypoints: Keypoints,
    camera: Camera | Sequence[Camera],
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    options: FitOptions = DEFAULTS,
) -> Fit:
    """T independent frames, solved side by side: each has a shape of its own, [T, S].

    camera: one for all, or one per frame. A frame that shows too little, or whose guess is behind
    the camera, stays at its start and is not `observed`.
    """
    warn_of_scores(keypoints, options.weighting)
    body = body or load_body()
    keypoints = body_keypoints(keypoints)
    cameras = [camera] if isinstance(camera, Camera) else list(camera)
    given = FitInput(keypoints, initial_guess(init, keypoints, cameras, body, None))
    problem, start, usable = make_problem(given, cameras, body, options)
    usable = usable & ~_behind_camera(start, problem, usable)
    problem = problem.frames(usable)
    state = start.rows(usable)
    if problem.seen.mixture_weight is not None:
        state = solve_frames(problem.without_tails, state, ITERATIONS, ROUGH_TOLERANCE).state
    solved = _report(
        problem, solve_frames(problem, state, ITERATIONS), usable[usable], given, options
    )
    whole = solved.scatter(usable, len(usable))
    return replace(whole, params=to_params(start).put(usable, solved.params))


def make_problem(
    given: FitInput,
    cameras: Sequence[Camera],
    body: Body,
    options: FitOptions = DEFAULTS,
    fps: float | None = None,
) -> tuple[Problem, State, Tensor]:
    """The problem of a track with one shape, or (fps None) of independent frames with a shape each;
    its guess as a state; and which frames are usable [T]."""
    frames = len(given)
    if len(cameras) not in (1, frames):
        raise UserError(
            f"there are {len(cameras)} cameras for {frames} frames; give one, or one per frame."
        )
    view, count = _reprojection(given.keypoints, cameras, options)
    views = [view]
    for other in given.others:
        view, also = _reprojection(other.keypoints, [other.camera], options)
        views.append(replace(view, rotation=other.rotation, offset_m=other.offset_m))
        count = torch.maximum(count, also)
    usable = enough(count)
    body = body.to(dtype=torch.float32)
    problem = Problem(BodyJacobian(body, min(SHAPE_SIZE, body.shape_size)), tuple(views))
    near = from_params(given.guess.params, problem.jacobian.shape_size)
    weights = (1.0, 1.0)
    if fps is None:
        near = replace(near, shape=near.shape.expand(frames, -1))
    else:
        near = replace(near, shape=near.shape if near.shared_shape else near.shape[usable].mean(0))
        there = usable & ~_behind_camera(near, problem, usable)
        if not bool(there.all()):
            at = there.nonzero().squeeze(1)
            filled = interpolated(to_params(near).rows(at), at, torch.arange(frames))
            near = from_params(filled, problem.jacobian.shape_size)
        weights = independence(int(usable.sum()), fps)
    terms = terms_of(views, body, options, given, near, weights)
    scene = given.scene
    world = None if scene is None else scene.world_rotation
    rate = fps if frames > FARTHEST else None  # one or two frames do not move
    return Problem(problem.jacobian, terms, rate, given.segment, world), near, usable


def _reprojection(
    keypoints: Keypoints, cameras: Sequence[Camera], options: FitOptions
) -> tuple[Reprojection, Tensor]:
    """The keypoints of one camera, where enough of them count, and how many do in each frame [T]."""
    keypoints = undistorted(body_keypoints(keypoints), cameras)
    weights = keypoint_weights(keypoints, options.weighting, options.gate)
    counts = counting(keypoints, weights.weight)
    weight = weights.weight * (counts >= LEAST_KEYPOINTS)[:, None]

    def per_frame(values: Sequence[tuple[float, float]]) -> Tensor:
        return torch.tensor(values).expand(len(weight), 2)

    seen = Reprojection(
        focal_px=per_frame([camera.focal_px for camera in cameras]),
        center_px=per_frame([camera.center_px for camera in cameras]),
        xy_px=keypoints.xy_px,
        weight=weight,
        # A keypoint that may not be in the image is an outlier sooner, as in a mixture of it and of
        # anything else.
        robust=robust_scale(weight, weights.sigma_px, options.robust_sigmas)
        * keypoints.presence.clamp(min=1e-3),
        mixture_weight=weights.mixture_weight,
        mixture_precision=weights.mixture_precision,
    )
    return seen, counts


def initial_guess(
    init: str | BodyParams | InitialGuess,
    keypoints: Keypoints,
    cameras: Sequence[Camera],
    body: Body,
    fps: float | None,
) -> InitialGuess:
    """The guess that `init` stands for, a row per frame. fps None: frames by themselves."""
    if isinstance(init, str):
        if init in REGRESSORS:
            raise UserError(
                f"init={init!r} reads images, and a fit has keypoints only. Make the guess first and pass it as init: "
                f"network = fitting.init.regressors.load({init!r}, checkpoint); "
                "init = fitting.init.regressors.initialise_track(network, images, boxes_px, camera)."
            )
        if init != "lifter":
            raise UserError(f"unknown initialiser {init!r}: choose lifter, or pass a guess.")
        return guess_from_keypoints(keypoints, cameras, body, fps)
    guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
    params = guess.params
    frames = len(keypoints.xy_px)
    if len(params.pose) != frames or tuple(params.translation.shape) != (frames, 3):
        raise UserError(
            f"the initial guess has {len(params.pose)} frames; the keypoints have {frames}."
        )
    if not all(
        torch.isfinite(value).all() for value in (params.pose, params.shape, params.translation)
    ):
        raise UserError("the initial guess has a number that is not finite (NaN or infinity).")
    return guess


def _behind_camera(state: State, problem: Problem, usable: Tensor) -> Tensor:
    """[T] frames in which a keypoint that counts would be behind a camera; UserError where all
    usable ones are.
    """
    points = problem.posed(state).keypoints
    behind = torch.stack([view.behind(points) for view in problem.views]).any(0)
    if bool((behind & usable).sum() == usable.sum()):
        raise UserError(
            "the initial guess puts the person behind the camera in every frame. Translations are metres in the camera "
            "frame: x right, y down, z forward, so z must be positive."
        )
    return behind


def _report(
    problem: Problem, solution: Solution, usable: Tensor, given: FitInput, options: FitOptions
) -> Fit:
    state = solution.state
    points = problem.posed(state).keypoints
    used = problem.seen.used
    distance = problem.seen.distance_px(points)
    source = given.keypoints.source
    weighting = options.weighting
    stated = not options.rough and weighting in ("precision", "likelihood") and source in CALIBRATED
    std = joint_deviations(problem, state) if stated else None
    reasons = solution.stopped
    same = len(set(reasons)) == 1
    return Fit(
        params=to_params(state),
        observed=usable,
        used=used,
        reprojection_px=torch.where(used, distance, torch.nan),
        joint_std_mm=None if std is None else 1000 * std.camera_frame_m,
        joint_std_relative_mm=None if std is None else 1000 * std.relative_m,
        rotation_std_deg=None if std is None else std.rotation_rad.rad2deg(),
        shape_covariance=None if std is None else std.shape_covariance,
        stopped=reasons[0]
        if same
        else ", ".join(f"{r}: {reasons.count(r)}" for r in sorted(set(reasons))),
        converged=torch.tensor([reason == "converged" for reason in reasons]).expand(len(problem)),
        weighting=weighting,
        source=source,
    )


WINDOW = 600  # frames solved together: 20 s at 30 frames/s, about 60 MB
# frames on each side of a seam that both windows solve, and over which one fades into the other
OVERLAP = 30


def fit_windows(
    given: FitInput,
    usable: Tensor,
    camera: Camera,
    body: Body,
    fps: float,
    options: FitOptions = DEFAULTS,
    *,
    solved: Tensor | None = None,
    sizes: tuple[int, int] = (WINDOW, OVERLAP),
) -> Fit:
    """As `fit`, for a track of any length, of its rows `solved` [T] (all of them where None is
    given); usable [T] says which of these show enough (`usable_frames`).

    Beyond a window of frames, the shape comes from frames spread over the whole track.
    """
    window, overlap = sizes
    frames = len(usable)
    solved = torch.arange(frames) if solved is None else solved

    def solve(rows: Tensor | slice, body: Body, fps: float) -> Fit:
        return fit_input(given.rows(solved[rows]), camera, body, fps, options)

    if frames <= window:
        return solve(slice(None), body, fps)
    stride = -(-frames // window)
    sample = usable.nonzero().squeeze(1)[::stride].contiguous()
    free = solve(sample, body, fps / stride)
    shape = free.params.shape
    fixed_body = with_shape(body, free.params.shape)
    # Windows take the shape for exact. The variance this leaves out is the difference of both fits
    # of the sample.
    fixed = None if free.joint_std_mm is None else solve(sample, fixed_body, fps / stride)
    stopped: set[str] = set()

    def pieces() -> Iterator[Fit]:
        """Windows one after the other: where two overlap, the first fades into the second."""
        tail = free.params.rows(slice(0))  # of the window before, where the next one has begun
        for core in _windows(usable, window):
            rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
            part = solve(rows, fixed_body, fps)
            head = slice(len(tail))
            params = replace(part.params, shape=shape)
            share = torch.linspace(0, 1, len(tail) + 2)[1:-1]
            params = params.put(head, mixed(tail, params.rows(head), share))
            own = slice(len(part) if rows.stop == frames else len(part) - 2 * overlap)
            tail = params.rows(slice(own.stop, None))
            part = part.rows(own)
            params = params.rows(own)
            rows = slice(rows.start, rows.start + own.stop)
            away = (
                camera.project(body.at(params).keypoints) - given.keypoints.xy_px[solved[rows]]
            ).norm(dim=-1)
            part = replace(
                part, params=params, reprojection_px=torch.where(part.used, away, torch.nan)
            )
            stopped.add(part.stopped)
            yield part if fixed is None else _with_variance(part, free, fixed, sample, rows)

    whole = join_rows(pieces(), frames)
    return replace(
        whole, shape_covariance=free.shape_covariance, stopped=", ".join(sorted(stopped))
    )


def with_shape(body: Body, shape: Tensor) -> Body:
    """The same body with the shape built in, and no shape directions."""
    given = {entry.name: getattr(body, entry.name) for entry in fields(body) if entry.init}
    given["v_template"] = body.v_template + body.shapedirs[..., : len(shape)] @ shape.to(body.dtype)
    given["shapedirs"] = body.shapedirs[..., :0]
    return Body(**given)


def _windows(usable: Tensor, window: int) -> list[slice]:
    """Parts of about equal length; one without a usable frame joins its neighbour."""
    count = -(-len(usable) // window)
    cuts = [round(len(usable) * number / count) for number in range(count + 1)]
    kept = [0]
    for cut in cuts[1:-1]:
        if bool(usable[kept[-1] : cut].any()) and bool(usable[cut:].any()):
            kept.append(cut)
    kept.append(len(usable))
    return [slice(a, b) for a, b in pairwise(kept)]


def _with_variance(part: Fit, free: Fit, fixed: Fit, at: Tensor, rows: slice) -> Fit:
    """Rows of a track with the variance that its frames `at` [N] have more when free than when
    fixed, in between as well."""
    before, after, share = between(at, torch.arange(rows.start, rows.stop))

    def wider(name: str) -> Tensor:
        std, more_free, more_fixed = (getattr(fit, name) for fit in (part, free, fixed))
        more = (more_free.square() - more_fixed.square()).clamp(min=0)
        return (std.square() + torch.lerp(more[before], more[after], share[:, None, None])).sqrt()

    return replace(
        part,
        joint_std_mm=wider("joint_std_mm"),
        joint_std_relative_mm=wider("joint_std_relative_mm"),
    )
