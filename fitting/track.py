"""A person's keypoints over a video -> a body in every frame.

`prepare_track` lays the keypoints on an even grid of frames (`fitting.fits`) and splits it into segments where the
person is there (`keypoints.segments`); in each, left and right are put back where they flicker, and the initialiser
makes a guess. `fit_prepared` solves all segments with one shape and nothing else in common, so an absence costs
nothing, however long. `run` and `eval-3dpw` call the two through `fitting.shot`, which fits everyone twice; `fit_track`
is both for a caller with one track and no scene.

**The second mode** (`second_modes`): another body that explains a frame's keypoints about as well as the one that was
found. One image leaves signs of depth open: whether the torso is turned to one side or the other, whether it leans
towards the camera or away, whether thighs and upper arms come forward. No search gets from one to the other, so each is
a start of its own. They are solved frame by frame, a few frames a second, and the likeliest that ends elsewhere is kept
with how much more it costs. `fitting.stated` knows from held-out people what that says of its probability, and states
errors that cover both. A body that faces the other way, as if the network had exchanged all sides, is no such start: it
costs as little nearly always, and was nearer to the truth in 2 % of rendered frames.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import matrix_to_axis_angle, rotation_matrices, shortest_turn
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import (
    DEFAULTS,
    Fit,
    FitOptions,
    Grid,
    InitialGuess,
    SecondMode,
    TrackFit,
    interpolated,
    nearest,
    with_default_errors,
)
from fitting.keypoints.observed import (
    ABSENT,
    body_keypoints,
    observed_joints,
    reordered,
    seen_hands,
    segments,
    side_order,
    usable_frames,
)
from fitting.keypoints.weights import Weighting, confidence_after_fit, warn_of_scores
from fitting.optimise import (
    ROUGH_TOLERANCE,
    FitInput,
    OtherView,
    fit_windows,
    initial_guess,
    make_problem,
    shape_from_outlines,
    with_shape,
)
from fitting.solver.levenberg_marquardt import solve_frames
from fitting.solver.terms.priors import ShapeEvidence
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.unknowns import to_params
from fitting.stated import COUNTED, calibrated, calibrated_by_several
from pose2d.base.errors import UserError
from pose2d.base.files import release_scratch
from pose2d.base.table import Table, blocks, column, joined, nested, shared
from pose2d.base.threads import single_thread
from pose2d.skeletons import HALPE26
from pose2d.types import HandKeypoints, Keypoints, Outlines

_WRISTS = tuple(HALPE26.keypoints.index(f"{side}_wrist") for side in ("left", "right"))


@dataclass(frozen=True)
class PreparedTrack(Table):
    """Keypoints on the grid."""

    grid: Grid = shared()
    detected: np.ndarray = column((), "b", "the frame has a row of keypoints")
    keypoints: Keypoints = nested(Keypoints, "Halpe's 26, finite; presence 0 where there is none")
    swapped: np.ndarray = column((26,), "b", "left and right were exchanged")
    guess: InitialGuess = nested(InitialGuess, "where fits start and what they stay close to")
    hands: HandKeypoints | None = nested(HandKeypoints, "of the person's left and right arm", optional=True)
    others: tuple[OtherView, ...] = ()  # [T] each: what other cameras see, on the same grid
    shape: ShapeEvidence | None = None  # what outlines and a known weight say of it


@single_thread()
def fit_track(
    keypoints: Keypoints,
    frame: np.ndarray,
    camera: Camera,
    body: Body | None = None,
    init: str | BodyParams | InitialGuess = "lifter",
    weighting: Weighting = "likelihood",
    *,
    fps: float = 30.0,
    every: int = 1,
    scene: SceneTerms | None = None,
) -> TrackFit:
    """Fit N rows of keypoints at increasing frame numbers `frame` [N].

    The grid is frame[0], frame[0] + every, .. frame[-1], and fps its frames per second. A row whose pixels are all NaN
    counts as not seen. An init given as parameters has one row per grid frame, or one per row of keypoints; then gaps
    take the nearest. A scene has one row per grid frame.
    Raises UserError (TooFewKeypoints) when no frame shows enough.
    """
    warn_of_scores(keypoints, weighting)
    body = body or load_body()
    prepared = prepare_track(keypoints, frame, camera, body, init, fps=fps, every=every)
    return fit_prepared(prepared, camera, body, FitOptions(weighting), scene=scene)


def prepare_track(
    keypoints: Keypoints, frame: np.ndarray, camera: Camera, body: Body, init: str | BodyParams | InitialGuess,
    *, fps: float, every: int = 1,
) -> PreparedTrack:  # fmt: skip
    """Keypoints on the grid with the guess that their fits start from: what fits of one track share."""
    frame = np.asarray(frame, np.int64)
    body_keypoints(keypoints.rows(slice(0, 1)))  # says what is wrong before anything is laid out
    if frame.shape != (len(keypoints),):
        raise UserError(f"there are {len(keypoints)} rows of keypoints and {list(frame.shape)} frame numbers.")
    grid = Grid.over(frame, fps, every)
    index = (frame - frame[0]) // every
    detected = np.zeros(len(grid), np.bool_)
    detected[index] = torch.isfinite(keypoints.xy_px.detach().cpu()[:, :26]).all(-1).any(-1).numpy()

    def laid_out(some: slice) -> Keypoints:
        rows = slice(*np.searchsorted(index, (some.start, some.stop)).tolist())
        return body_keypoints(keypoints.rows(rows).scatter(index[rows] - some.start, some.stop - some.start))

    on = joined(map(laid_out, blocks(len(grid))), len(grid))
    # Whatever the weighting, so that fits with different ones can share a start.
    grid = replace(grid, segment=segments(on, usable_frames(on, [camera], "ones"), fps))
    order = np.tile(np.arange(HALPE26.size), (len(grid), 1))
    for rows in grid.segments():
        order[rows] = side_order(on.rows(rows), fps)
    swapped = order != np.arange(HALPE26.size)
    if swapped.any():
        on = joined((reordered(on.rows(some), order[some]) for some in blocks(len(grid))), len(grid))
    if isinstance(init, str):
        parts = [initial_guess(init, on.rows(rows), [camera], body, fps) for rows in grid.segments()]
        guess = InitialGuess.concat(parts).picked(nearest(grid.there, np.arange(len(grid))))  # in absences the nearest
    else:
        guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
        if len(guess) == len(frame) != len(grid):
            guess = guess.rows(nearest(frame, grid.frame))
        guess = initial_guess(guess, on, [camera], body, fps)
    return PreparedTrack(grid, detected, on, swapped, guess)


def with_hands(prepared: PreparedTrack, hands: HandKeypoints, frame: np.ndarray, body: Body) -> PreparedTrack:
    """With the hands that were seen in these frames, for a body that has fingers."""
    if body.fingers is None:
        return prepared
    hands = hands.scatter(np.searchsorted(prepared.grid.frame, frame), len(prepared.grid))
    wrong = np.any(prepared.swapped[:, list(_WRISTS)], axis=1)  # they hang on arms that had the wrong name
    return replace(prepared, hands=hands.exchanged(wrong))


def with_outlines(
    prepared: PreparedTrack, found: TrackFit, outlines: Outlines, camera: Camera, body: Body, options: FitOptions
) -> tuple[PreparedTrack, TrackFit]:
    """With what outlines, whose rows are those of the grid, say of the shape; and the fit `found` with that shape, as
    large in the image as before, for another one to begin from."""
    rows = torch.from_numpy(outlines.row)
    given = FitInput(prepared.keypoints, prepared.guess, start=found.fit.params).rows(rows)
    xy_px, normal = torch.from_numpy(outlines.xy_px), torch.from_numpy(outlines.normal)
    said = shape_from_outlines(given, xy_px, normal, camera, body, options) if len(rows) else None
    if said is None:
        return prepared, found
    ratio = body.height_m(said[1]) / body.height_m(found.fit.params.shape)
    params = replace(found.fit.params, shape=said[1], translation=ratio * found.fit.params.translation)
    return replace(prepared, shape=said[0]), replace(found, fit=replace(found.fit, params=params))


def fit_prepared(
    prepared: PreparedTrack,
    camera: Camera,
    body: Body,
    options: FitOptions = DEFAULTS,
    *,
    scene: SceneTerms | None = None,
    start: BodyParams | None = None,
) -> TrackFit:
    """Fit a prepared track. scene, and start (where the search begins, if not at the guess): a row per grid frame."""
    grid, keypoints = prepared.grid, prepared.keypoints
    if prepared.others:  # whether one shows enough was asked when it was prepared
        usable = torch.from_numpy(grid.segment >= 0)
    else:
        usable = usable_frames(keypoints, [camera], options.weighting, options.gate)
    rows, fps = grid.solved(usable.numpy(), options.rough)
    solved, segment = torch.from_numpy(rows), torch.from_numpy(grid.segment)
    if scene is not None and scene.contact is not None:  # no contact lasts across an absence
        begins = torch.diff(segment[solved], prepend=segment[solved[:1]] - 1) != 0
        scene = replace(scene, contact=scene.contact.index_fill(0, solved[begins], 0))
    hands = None if prepared.hands is None else seen_hands(prepared.hands, camera, body)
    given = FitInput(keypoints, prepared.guess, scene, segment, start, hands, prepared.others, prepared.shape)
    release_scratch()
    found = fit_windows(given, usable[solved], camera, body, fps, options, solved=solved)
    found = joined((_on_grid(found, solved, grid, some) for some in blocks(len(grid))), len(grid))
    known = grid.segment[grid.there][found.observed[torch.from_numpy(grid.there)].numpy()]

    def with_keypoints(some: slice) -> TrackFit:
        """Rows of the track."""
        part, fit = prepared.rows(some), found.rows(some)
        absent = grid.segment[some] == ABSENT
        there = torch.from_numpy(np.flatnonzero(~absent))
        after = part.keypoints.rows(there)
        after = confidence_after_fit(after, camera.project(body.at(fit.params.rows(there)).keypoints))
        joints = np.zeros((len(part), 24), np.bool_)
        seen = observed_joints(after, camera.size)
        for other in prepared.others:
            seen |= observed_joints(other.keypoints.rows(some).rows(there), other.camera.size)
        joints[~absent] = seen & fit.observed[there].numpy()[:, None]
        points, missing = part.keypoints.put(there, after), ~torch.from_numpy(part.detected)
        track = TrackFit(
            frame=grid.frame[some],
            present=np.isin(grid.segment[some], known),
            detected=part.detected,
            keypoints=replace(
                points,
                xy_px=points.xy_px.masked_fill(missing[:, None, None], torch.nan),
                confidence=points.confidence.masked_fill(torch.from_numpy(absent)[:, None], 0),
            ),
            swapped=part.swapped,
            joint_observed=joints,
            fit=fit,
        )
        if prepared.others:
            return calibrated_by_several(track)
        if fit.joint_std_mm is not None:
            track = replace(track, second=second_modes(given.rows(some), fit, fps, camera, body, options))
        together = fps if len(solved) > 2 else 0.0
        return calibrated(track, part.guess, body, scene is not None and scene.up is not None, together)

    return joined(map(with_keypoints, blocks(len(grid))), len(grid))


def _on_grid(found: Fit, solved: Tensor, grid: Grid, some: slice) -> Fit:
    """Rows `some` of the grid, of a fit of its rows `solved`: bodies in between are interpolated; where the person is
    there without being solved, the rest is that of the row before, and nothing pulled."""
    if len(solved) == len(grid):
        return found.rows(some)
    length = some.stop - some.start
    there = torch.from_numpy(np.flatnonzero(grid.segment[some] != ABSENT))
    pulled = torch.isin(torch.arange(some.start, some.stop), solved)
    before = torch.searchsorted(solved, there + some.start, right=True) - 1
    whole = found.rows(before).scatter(there, length)
    return replace(
        whole,
        params=interpolated(found.params, solved, torch.arange(some.start, some.stop)),
        used=whole.used & pulled[:, None],
        reprojection_px=whole.reprojection_px.masked_fill(~pulled[:, None], torch.nan),
    )


MODES_FPS = 3.0  # so many frames a second: closer ones err alike (`optimise.INDEPENDENT_FRAMES_PER_SECOND`)
SCREENED, SOLVED = 3, 12  # steps of every start, and of the likeliest
CLOSE = 25.0  # nats. Of rendered people with more, none was nearer to the second mode
APART_M = 0.1  # a mode has a joint so far from the first, relative to the pelvis
LEGS, ARMS = ((1, 4), (2, 5)), ((16, 18), (17, 19))  # hips and knees; shoulders and elbows


def _reflected(vector: Tensor, ray: Tensor) -> Tensor:
    """Vectors [T, 3] with the other sign along rays [T, 3]."""
    return vector - 2 * (vector * ray).sum(-1, keepdim=True) * ray


def mirrored_limbs(params: BodyParams, body: Body, limbs: tuple[tuple[int, int], ...] = LEGS) -> BodyParams:
    """Thighs (or upper arms) mirrored in depth at their joints; what hangs on them keeps its directions.

    In an image, a straight leg that leans away from the camera looks like a bent one whose knee comes forward: the
    thigh's depth has two signs, and between them lies a straight leg that fits worse, so no search gets from one to the
    other.
    """
    rotation = rotation_matrices(params.pose)
    shape = torch.nn.functional.pad(params.shape, (0, body.shape_size - params.shape.shape[-1]))
    placed = body.placement(rotation, shape)
    for joint, end in limbs:
        bone = placed.joints[:, end] - placed.joints[:, joint]
        ray = torch.nn.functional.normalize(placed.joints[:, joint] + params.translation, dim=-1)
        before = placed.rotation[:, joint]
        turned = shortest_turn(bone, _reflected(bone, ray)) @ before
        rotation[:, joint] = rotation[:, joint] @ before.mT @ turned
        rotation[:, end] = turned.mT @ placed.rotation[:, end]
    return replace(params, pose=matrix_to_axis_angle(rotation))


def mirrored_starts(params: BodyParams, body: Body) -> list[BodyParams]:
    """Of bodies [T]: turned, leaning, both; arms, legs."""
    root, ray = rotation_matrices(params.pose[:, 0]), torch.nn.functional.normalize(params.translation, dim=-1)
    found = []
    for turn, lean in ((True, False), (False, True), (True, True)):
        across, up = root[:, :, 0], root[:, :, 1]
        up = _reflected(up, ray) if lean else up
        across = _reflected(across, ray) if turn else across
        across = torch.nn.functional.normalize(across - (across * up).sum(-1, keepdim=True) * up, dim=-1)
        turned = matrix_to_axis_angle(torch.stack((across, up, torch.linalg.cross(across, up)), -1))
        found.append(replace(params, pose=torch.cat((turned[:, None], params.pose[:, 1:]), 1)))
    return found + [mirrored_limbs(params, body, limbs) for limbs in (ARMS, LEGS)]


def second_modes(
    given: FitInput, found: Fit, fps: float, camera: Camera, body: Body, options: FitOptions
) -> SecondMode:
    """Of the T frames that a fit was made from; fps: of those that it solved. In frames between those that are looked
    at, the second body differs from the first as it does in the nearest of them."""
    rows = np.flatnonzero(found.used.any(1).numpy())[:: max(1, round(fps / MODES_FPS))]
    modes = _of_frames(given.rows(torch.from_numpy(rows)), found.params.rows(rows), camera, body, options)
    if modes is None:
        return SecondMode.empty().scatter(slice(0), len(found))
    near = nearest(rows, np.arange(len(found)))
    there = np.flatnonzero(np.isfinite(modes.extra_cost[near]))
    near, first, key = near[there], found.params.rows(there), found.params.rows(rows[near[there]])
    turned = rotation_matrices(torch.from_numpy(modes.pose_rad[near])) @ rotation_matrices(key.pose).mT
    modes = replace(
        modes.rows(near), pose_rad=matrix_to_axis_angle(turned @ rotation_matrices(first.pose)).numpy(),
        translation_m=modes.translation_m[near] + (first.translation - key.translation).numpy(),
    )  # fmt: skip
    return modes.scatter(there, len(found))


def _of_frames(
    given: FitInput, first: BodyParams, camera: Camera, body: Body, options: FitOptions
) -> SecondMode | None:
    """Of T frames by themselves; None: none has any. first [T]: the bodies that were found, whose shape stays."""
    if not len(given):
        return None
    frames, fixed = len(given), with_shape(body, first.shape)
    first = replace(first, shape=first.shape[:0], hands=None)
    starts = [first, *mirrored_starts(first, fixed)]
    every, params = torch.arange(frames).repeat(len(starts)), BodyParams.concat(starts)
    keypoints = given.keypoints.rows(every)
    # Each stays as close to its start as the fit to its guess.
    guess = replace(given.guess.rows(every), params=params)
    scene = given.scene and replace(given.scene.frames(every), contact=None)
    problem, near, _ = make_problem(FitInput(keypoints, guess, scene), [camera], fixed, options)

    def apart(params: BodyParams, count: int) -> Tensor:
        """[count - 1, n] whether bodies are apart from the first n of count times n."""
        joints = fixed.at(params).joints
        joints = (joints[:, COUNTED] - joints[:, :1]).unflatten(0, (count, -1))
        return (joints[1:] - joints[:1]).norm(dim=-1).amax(-1) > APART_M

    rough = solve_frames(problem, near, SCREENED, ROUGH_TOLERANCE)
    cost = rough.cost.unflatten(0, (len(starts), frames))
    extra_cost, best = torch.where(apart(to_params(rough.state), len(starts)), cost[1:] - cost[0], torch.inf).min(0)
    close = (extra_cost < CLOSE).nonzero().flatten()
    if not len(close):
        return None
    index = torch.cat((close, (1 + best[close]) * frames + close))
    solved = solve_frames(problem.frames(index), rough.state.rows(index), SOLVED)
    params, cost = to_params(solved.state), solved.cost.unflatten(0, (2, len(close)))
    extra_cost = cost[1] - cost[0]
    kept = (apart(params, 2)[0] & (extra_cost < CLOSE)).nonzero().flatten()
    params = params.rows(len(close) + kept)
    modes = SecondMode(np.zeros(len(kept), np.float32), params.pose.numpy(), params.translation.numpy(),
                       extra_cost[kept].numpy())  # fmt: skip
    return modes.scatter(close[kept].numpy(), frames)
