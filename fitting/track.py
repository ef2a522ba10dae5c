"""A person's keypoints over a video -> a body in every frame.

`prepare_track` lays the keypoints on an even grid of frames (`fitting.grid`) and splits it into
segments in which the person is present (`keypoints.split_into_segments`). In each segment, left and
right are put back where they flicker, and the initialiser makes a guess. `fit_prepared` solves all
segments with one shape and nothing else in common, so an absence costs nothing, however long. `run`
and `eval-3dpw` call the two through `fitting.shot`, which fits everyone twice; `fit_track` does
both for a caller with one track and no scene.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.body.reading import READINGS
from fitting.camera import Camera
from fitting.fits import (
    DEFAULTS,
    Fit,
    FitInput,
    FitOptions,
    InitialGuess,
    OtherView,
    TrackFit,
    with_default_errors,
)
from fitting.grid import Grid, interpolate_params, nearest
from fitting.keypoints.after_fit import update_confidence
from fitting.keypoints.hands import observe_hands
from fitting.keypoints.observed import mostly_believed, observed_joints
from fitting.keypoints.segments import ABSENT, split_into_segments
from fitting.keypoints.side_swap import find_side_order, reorder_keypoints
from fitting.keypoints.usable import check_body_keypoints, find_usable_frames
from fitting.keypoints.weights import Weighting, warn_of_uncalibrated_scores
from fitting.outlines import shape_from_outlines
from fitting.problem_setup import initial_guess
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import ShapeEvidence
from fitting.stated import calibrate, calibrate_several_cameras
from fitting.windows import fit_windows
from pose2d.base.columns import column, nested, shared
from pose2d.base.errors import UserError
from pose2d.base.scratch import release_scratch
from pose2d.base.table import Table, blocks, join_rows
from pose2d.base.threads import single_thread
from pose2d.skeletons import HALPE26
from pose2d.types import HandKeypoints, Keypoints, Outlines

_WRISTS = [HALPE26.keypoints.index(f"{side}_wrist") for side in ("left", "right")]


@dataclass(frozen=True)
class Track(Table):
    """One person's keypoints on the grid of frames, with all that fits of the person share."""

    grid: Grid = shared()
    detected: np.ndarray = column((), "b", "the frame has a row of keypoints")
    keypoints: Keypoints = nested(Keypoints, "Halpe's 26, finite; presence 0 where there is none")
    swapped: np.ndarray = column((26,), "b", "left and right were exchanged")
    guess: InitialGuess = nested(InitialGuess, "where fits start and what they stay close to")
    hands: HandKeypoints | None = nested(
        HandKeypoints, "of the person's left and right arm", optional=True
    )
    other_views: tuple[OtherView, ...] = ()  # [T] each: what other cameras see, on the same grid
    shape: ShapeEvidence | None = None  # what outlines and a known weight say of the shape


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

    The grid is frame[0], frame[0] + every, .. frame[-1], and fps its frames per second. A row whose
    pixels are all NaN counts as not seen. An init given as parameters has one row per grid frame,
    or one per row of keypoints; then gaps take the nearest. A scene has one row per grid frame.
    Raises UserError (TooFewKeypoints) when no frame shows enough.
    """
    warn_of_uncalibrated_scores(keypoints, weighting)
    body = body or load_body()
    track = prepare_track(keypoints, frame, camera, body, init, fps=fps, every=every)
    return fit_prepared(track, camera, body, FitOptions(weighting), scene=scene)


def prepare_track(
    keypoints: Keypoints,
    frame: np.ndarray,
    camera: Camera,
    body: Body,
    init: str | BodyParams | InitialGuess,
    *,
    fps: float,
    every: int = 1,
    reads: bool = False,
) -> Track:
    """Lay keypoints at frame numbers `frame` [N] on the grid, put flickering sides back, and make
    the guess that all fits of the track start from.

    reads: as in `FitOptions`.
    """
    frame = np.asarray(frame, np.int64)
    check_body_keypoints(keypoints.rows(slice(0, 1)))  # reports a wrong layout before the long work
    if frame.shape != (len(keypoints),):
        raise UserError(
            f"there are {len(keypoints)} rows of keypoints and {list(frame.shape)} frame numbers."
        )
    grid = Grid.over(frame, fps, every)
    grid_index = (frame - frame[0]) // every
    detected = np.zeros(len(grid), np.bool_)
    xy_px = keypoints.xy_px.detach().cpu()[:, :26]
    detected[grid_index] = torch.isfinite(xy_px).all(-1).any(-1).numpy()
    on_grid = _lay_out_on_grid(keypoints, grid_index, len(grid))
    # Segments do not depend on the weighting, so that fits with different ones can share a start.
    usable = find_usable_frames(on_grid, [camera], "ones")
    grid = replace(grid, segment=split_into_segments(on_grid, usable, fps))
    on_grid, swapped = _put_sides_back(on_grid, grid)
    if isinstance(init, str):
        reading = torch.zeros(READINGS) if reads else None
        guess = _guess_segments(init, on_grid, grid, camera, body, reading)
    else:
        guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
        if len(guess) == len(frame) != len(grid):
            guess = guess.rows(nearest(frame, grid.frame))
        guess = initial_guess(guess, on_grid, [camera], body, fps)
    return Track(grid, detected, on_grid, swapped, guess)


def _lay_out_on_grid(keypoints: Keypoints, grid_index: np.ndarray, length: int) -> Keypoints:
    """Return Halpe's 26 keypoints in `length` grid rows, presence 0 in rows without keypoints.

    grid_index [N]: the increasing grid rows of the N rows of keypoints.
    """

    def lay_out_block(block: slice) -> Keypoints:
        rows = slice(*np.searchsorted(grid_index, (block.start, block.stop)).tolist())
        index = grid_index[rows] - block.start
        return check_body_keypoints(keypoints.rows(rows).scatter(index, block.stop - block.start))

    return join_rows(map(lay_out_block, blocks(length)), length)


def _put_sides_back(keypoints: Keypoints, grid: Grid) -> tuple[Keypoints, np.ndarray]:
    """Return keypoints whose left and right no longer flicker, and which were exchanged [T, 26]."""
    order = np.tile(np.arange(HALPE26.size), (len(grid), 1))
    for rows in grid.segments():
        order[rows] = find_side_order(keypoints.rows(rows), grid.fps)
    swapped = order != np.arange(HALPE26.size)
    if swapped.any():
        reordered_blocks = (
            reorder_keypoints(keypoints.rows(block), order[block]) for block in blocks(len(grid))
        )
        keypoints = join_rows(reordered_blocks, len(grid))
    return keypoints, swapped


def _guess_segments(
    init: str,
    keypoints: Keypoints,
    grid: Grid,
    camera: Camera,
    body: Body,
    reading: Tensor | None = None,
) -> InitialGuess:
    """Return the guess of an initialiser for every grid row; absences take the nearest."""
    guesses = [
        initial_guess(init, keypoints.rows(rows), [camera], body, grid.fps, reading)
        for rows in grid.segments()
    ]
    return InitialGuess.concat(guesses).pick(nearest(grid.present, np.arange(len(grid))))


def guess_again(
    track: Track, init: str, reading: Tensor | None, camera: Camera, body: Body
) -> Track:
    """Return the track of one camera with the guess that an initialiser makes once a fit has shown
    where the person's keypoints are read.
    """
    if reading is None or track.other_views:
        return track
    guess = _guess_segments(init, track.keypoints, track.grid, camera, body, reading)
    return replace(track, guess=guess)


def with_hands(track: Track, hands: HandKeypoints, frame: np.ndarray, body: Body) -> Track:
    """Return the track with hands seen at these frame numbers, where the body has fingers."""
    if body.fingers is None:
        return track
    hands = hands.scatter(np.searchsorted(track.grid.frame, frame), len(track.grid))
    # Hands hang on arms; where an arm had the wrong side, so did the hand.
    arm_swapped = np.any(track.swapped[:, _WRISTS], axis=1)
    return replace(track, hands=hands.swap_sides(arm_swapped))


def with_outlines(
    track: Track,
    track_fit: TrackFit,
    outlines: Outlines,
    camera: Camera,
    body: Body,
    options: FitOptions,
) -> tuple[Track, TrackFit]:
    """Return the track with what outlines, whose rows are those of the grid, say of the shape, and
    the fit with that shape, as large in the image as before, for another fit to begin from.
    """
    if not len(outlines):
        return track, track_fit
    params = track_fit.fit.params
    rows = torch.from_numpy(outlines.row)
    fit_input = FitInput(track.keypoints, track.guess, start=params).rows(rows)
    xy_px = torch.from_numpy(outlines.xy_px)
    normal = torch.from_numpy(outlines.normal)
    answer = shape_from_outlines(fit_input, xy_px, normal, camera, body, options)
    if answer is None:
        return track, track_fit
    evidence, shape = answer
    ratio = body.height_m(shape) / body.height_m(params.shape)
    params = replace(params, shape=shape, translation=ratio * params.translation)
    track_fit = replace(track_fit, fit=replace(track_fit.fit, params=params))
    return replace(track, shape=evidence), track_fit


def fit_prepared(
    track: Track,
    camera: Camera,
    body: Body,
    options: FitOptions = DEFAULTS,
    *,
    scene: SceneTerms | None = None,
    start: BodyParams | None = None,
) -> TrackFit:
    """Fit a prepared track. scene, and start (where the search begins, if not at the guess): a row
    per grid frame.
    """
    grid = track.grid
    if track.other_views:  # `prepare_views` has checked that one of the cameras shows enough
        usable = torch.from_numpy(grid.segment >= 0)
    else:
        usable = find_usable_frames(track.keypoints, [camera], options.weighting, options.gate)
    solved_rows, fps = grid.solved(usable.numpy(), options.rough)
    solved = torch.from_numpy(solved_rows)
    segment = torch.from_numpy(grid.segment)
    if scene is not None and scene.contact is not None:
        scene = replace(scene, contact=_end_contacts_at_absences(scene.contact, segment, solved))
    hands = None if track.hands is None else observe_hands(track.hands, camera, body)
    fit_input = FitInput(
        track.keypoints, track.guess, scene, segment, start, hands, track.other_views, track.shape
    )
    release_scratch()
    solved_fit = fit_windows(fit_input, usable[solved], camera, body, fps, options, solved=solved)
    fit = join_rows(
        (_fill_grid(solved_fit, solved, grid, block) for block in blocks(len(grid))), len(grid)
    )
    observed = fit.observed[torch.from_numpy(grid.present)].numpy()
    observed_segments = grid.segment[grid.present][observed]
    present = np.isin(grid.segment, observed_segments)
    if not track.other_views:
        fit = _without_doubtful_frames(fit, track.keypoints)
    uses_gravity = scene is not None and scene.up is not None
    joint_fps = fps if len(solved) > 2 else 0.0  # one or two frames do not touch

    def finish_block(block: slice) -> TrackFit:
        part = _with_keypoints(track, fit, present, block, camera, body)
        if track.other_views:
            cameras = len(track.other_views) + int(track.detected.any())
            return calibrate_several_cameras(part, cameras)
        return calibrate(part, track.guess.rows(block), body, uses_gravity, joint_fps)

    return join_rows(map(finish_block, blocks(len(grid))), len(grid))


def _without_doubtful_frames(fit: Fit, keypoints: Keypoints) -> Fit:
    """Return the fit with frames as not observed whose keypoints are mostly not believed.

    Such keypoints pull as little as they deserve, so the body there follows its neighbours."""
    believed = torch.from_numpy(mostly_believed(keypoints))
    return replace(fit, observed=fit.observed & believed) if bool(believed.any()) else fit


def _end_contacts_at_absences(contact: Tensor, segment: Tensor, solved: Tensor) -> Tensor:
    """Return contacts [T, 4] that are 0 in the first solved row of each segment: no contact lasts
    across an absence.
    """
    begins = torch.diff(segment[solved], prepend=segment[solved[:1]] - 1) != 0
    return contact.index_fill(0, solved[begins], 0)


def _with_keypoints(
    track: Track, fit: Fit, present: np.ndarray, block: slice, camera: Camera, body: Body
) -> TrackFit:
    """Return rows of the fit together with the track's keypoints and the confidence that these have
    once the body is known.
    """
    part = track.rows(block)
    fit = fit.rows(block)
    absent = track.grid.segment[block] == ABSENT
    rows = torch.from_numpy(np.flatnonzero(~absent))
    projected_px = camera.project(body.at(fit.params.rows(rows)).keypoints)
    keypoints = update_confidence(part.keypoints.rows(rows), projected_px)
    observed = observed_joints(keypoints, camera.size)
    for view in track.other_views:
        other_keypoints = view.keypoints.rows(block).rows(rows)
        observed |= observed_joints(other_keypoints, view.camera.size)
    joint_observed = np.zeros((len(part), 24), np.bool_)
    joint_observed[~absent] = observed & fit.observed[rows].numpy()[:, None]
    keypoints = part.keypoints.put(rows, keypoints)
    undetected = ~torch.from_numpy(part.detected)
    return TrackFit(
        frame=track.grid.frame[block],
        present=present[block],
        detected=part.detected,
        keypoints=replace(
            keypoints,
            xy_px=keypoints.xy_px.masked_fill(undetected[:, None, None], torch.nan),
            confidence=keypoints.confidence.masked_fill(torch.from_numpy(absent)[:, None], 0),
        ),
        swapped=part.swapped,
        joint_observed=joint_observed,
        fit=fit,
    )


def _fill_grid(solved_fit: Fit, solved: Tensor, grid: Grid, block: slice) -> Fit:
    """Return the grid rows `block` of a fit of the grid rows `solved`.

    Bodies in between are interpolated. Where the person is present without being solved, the other
    values are those of the solved row before, and no keypoint counts as used.
    """
    if len(solved) == len(grid):
        return solved_fit.rows(block)
    rows = torch.arange(block.start, block.stop)
    present = torch.from_numpy(np.flatnonzero(grid.segment[block] != ABSENT))
    is_solved = torch.isin(rows, solved)
    previous = torch.searchsorted(solved, present + block.start, right=True) - 1
    filled = solved_fit.rows(previous).scatter(present, len(rows))
    return replace(
        filled,
        params=interpolate_params(solved_fit.params, solved, rows),
        used=filled.used & is_solved[:, None],
        reprojection_px=filled.reprojection_px.masked_fill(~is_solved[:, None], torch.nan),
    )
