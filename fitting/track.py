"""A person's keypoints over a video -> a body in every frame.

`prepare_track` lays the keypoints on an even grid of frames (`fitting.fits`) and splits it into
segments where the person is there (`keypoints.segments`); in each, left and right are put back
where they flicker, and the initialiser makes a guess. `fit_prepared` solves all segments with one
shape and nothing else in common, so an absence costs nothing, however long. `run` and `eval-3dpw`
call the two through `fitting.shot`, which fits everyone twice; `fit_track` is both for a caller
with one track and no scene."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import (
    DEFAULTS,
    Fit,
    FitOptions,
    Grid,
    InitialGuess,
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
from fitting.optimise import FitInput, OtherView, fit_windows, initial_guess, shape_from_outlines
from fitting.solver.terms.scene import SceneTerms
from fitting.solver.terms.shape import ShapeEvidence
from fitting.stated import calibrated, calibrated_by_several
from pose2d.base.columns import column, nested, shared
from pose2d.base.errors import UserError
from pose2d.base.scratch import release_scratch
from pose2d.base.table import Table, blocks, join_rows
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
    hands: HandKeypoints | None = nested(
        HandKeypoints, "of the person's left and right arm", optional=True
    )
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

    The grid is frame[0], frame[0] + every, .. frame[-1], and fps its frames per second. A row whose
    pixels are all NaN counts as not seen. An init given as parameters has one row per grid frame,
    or one per row of keypoints; then gaps take the nearest. A scene has one row per grid frame.
    Raises UserError (TooFewKeypoints) when no frame shows enough.
    """
    warn_of_scores(keypoints, weighting)
    body = body or load_body()
    prepared = prepare_track(keypoints, frame, camera, body, init, fps=fps, every=every)
    return fit_prepared(prepared, camera, body, FitOptions(weighting), scene=scene)


def prepare_track(
    keypoints: Keypoints,
    frame: np.ndarray,
    camera: Camera,
    body: Body,
    init: str | BodyParams | InitialGuess,
    *,
    fps: float,
    every: int = 1,
) -> PreparedTrack:
    """Keypoints on the grid with the guess that their fits start from: what fits of one track
    share.
    """
    frame = np.asarray(frame, np.int64)
    body_keypoints(keypoints.rows(slice(0, 1)))  # says what is wrong before anything is laid out
    if frame.shape != (len(keypoints),):
        raise UserError(
            f"there are {len(keypoints)} rows of keypoints and {list(frame.shape)} frame numbers."
        )
    grid = Grid.over(frame, fps, every)
    index = (frame - frame[0]) // every
    detected = np.zeros(len(grid), np.bool_)
    detected[index] = torch.isfinite(keypoints.xy_px.detach().cpu()[:, :26]).all(-1).any(-1).numpy()

    def laid_out(some: slice) -> Keypoints:
        rows = slice(*np.searchsorted(index, (some.start, some.stop)).tolist())
        return body_keypoints(
            keypoints.rows(rows).scatter(index[rows] - some.start, some.stop - some.start)
        )

    on = join_rows(map(laid_out, blocks(len(grid))), len(grid))
    # Whatever the weighting, so that fits with different ones can share a start.
    grid = replace(grid, segment=segments(on, usable_frames(on, [camera], "ones"), fps))
    order = np.tile(np.arange(HALPE26.size), (len(grid), 1))
    for rows in grid.segments():
        order[rows] = side_order(on.rows(rows), fps)
    swapped = order != np.arange(HALPE26.size)
    if swapped.any():
        on = join_rows(
            (reordered(on.rows(some), order[some]) for some in blocks(len(grid))), len(grid)
        )
    if isinstance(init, str):
        parts = [
            initial_guess(init, on.rows(rows), [camera], body, fps) for rows in grid.segments()
        ]
        guess = InitialGuess.concat(parts).pick(
            nearest(grid.there, np.arange(len(grid)))
        )  # in absences the nearest
    else:
        guess = init if isinstance(init, InitialGuess) else with_default_errors(init)
        if len(guess) == len(frame) != len(grid):
            guess = guess.rows(nearest(frame, grid.frame))
        guess = initial_guess(guess, on, [camera], body, fps)
    return PreparedTrack(grid, detected, on, swapped, guess)


def with_hands(
    prepared: PreparedTrack, hands: HandKeypoints, frame: np.ndarray, body: Body
) -> PreparedTrack:
    """With the hands that were seen in these frames, for a body that has fingers."""
    if body.fingers is None:
        return prepared
    hands = hands.scatter(np.searchsorted(prepared.grid.frame, frame), len(prepared.grid))
    wrong = np.any(
        prepared.swapped[:, list(_WRISTS)], axis=1
    )  # they hang on arms that had the wrong name
    return replace(prepared, hands=hands.exchanged(wrong))


def with_outlines(
    prepared: PreparedTrack,
    found: TrackFit,
    outlines: Outlines,
    camera: Camera,
    body: Body,
    options: FitOptions,
) -> tuple[PreparedTrack, TrackFit]:
    """With what outlines, whose rows are those of the grid, say of the shape; and the fit `found`
    with that shape, as large in the image as before, for another one to begin from."""
    rows = torch.from_numpy(outlines.row)
    given = FitInput(prepared.keypoints, prepared.guess, start=found.fit.params).rows(rows)
    xy_px = torch.from_numpy(outlines.xy_px)
    normal = torch.from_numpy(outlines.normal)
    said = shape_from_outlines(given, xy_px, normal, camera, body, options) if len(rows) else None
    if said is None:
        return prepared, found
    ratio = body.height_m(said[1]) / body.height_m(found.fit.params.shape)
    params = replace(
        found.fit.params, shape=said[1], translation=ratio * found.fit.params.translation
    )
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
    """Fit a prepared track. scene, and start (where the search begins, if not at the guess): a row
    per grid frame.
    """
    grid = prepared.grid
    keypoints = prepared.keypoints
    if prepared.others:  # whether one shows enough was asked when it was prepared
        usable = torch.from_numpy(grid.segment >= 0)
    else:
        usable = usable_frames(keypoints, [camera], options.weighting, options.gate)
    rows, fps = grid.solved(usable.numpy(), options.rough)
    solved = torch.from_numpy(rows)
    segment = torch.from_numpy(grid.segment)
    if scene is not None and scene.contact is not None:  # no contact lasts across an absence
        begins = torch.diff(segment[solved], prepend=segment[solved[:1]] - 1) != 0
        scene = replace(scene, contact=scene.contact.index_fill(0, solved[begins], 0))
    hands = None if prepared.hands is None else seen_hands(prepared.hands, camera, body)
    given = FitInput(
        keypoints, prepared.guess, scene, segment, start, hands, prepared.others, prepared.shape
    )
    release_scratch()
    found = fit_windows(given, usable[solved], camera, body, fps, options, solved=solved)
    found = join_rows(
        (_on_grid(found, solved, grid, some) for some in blocks(len(grid))), len(grid)
    )
    known = grid.segment[grid.there][found.observed[torch.from_numpy(grid.there)].numpy()]

    def with_keypoints(some: slice) -> TrackFit:
        """Rows of the track."""
        part = prepared.rows(some)
        fit = found.rows(some)
        absent = grid.segment[some] == ABSENT
        there = torch.from_numpy(np.flatnonzero(~absent))
        after = part.keypoints.rows(there)
        after = confidence_after_fit(
            after, camera.project(body.at(fit.params.rows(there)).keypoints)
        )
        joints = np.zeros((len(part), 24), np.bool_)
        seen = observed_joints(after, camera.size)
        for other in prepared.others:
            seen |= observed_joints(other.keypoints.rows(some).rows(there), other.camera.size)
        joints[~absent] = seen & fit.observed[there].numpy()[:, None]
        points = part.keypoints.put(there, after)
        missing = ~torch.from_numpy(part.detected)
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
        together = fps if len(solved) > 2 else 0.0
        return calibrated(
            track, part.guess, body, scene is not None and scene.up is not None, together
        )

    return join_rows(map(with_keypoints, blocks(len(grid))), len(grid))


def _on_grid(found: Fit, solved: Tensor, grid: Grid, some: slice) -> Fit:
    """Rows `some` of the grid, of a fit of its rows `solved`: bodies in between are interpolated;
    where the person is there without being solved, the rest is that of the row before, and nothing
    pulled."""
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
