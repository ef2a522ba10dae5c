"""Fit tracks of any length: beyond a window of frames, a track is solved in overlapping windows
with one shape, which comes from frames spread over the whole track.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import DEFAULTS, LEAN_RAD, Fit, FitInput, FitOptions, InitialGuess
from fitting.grid import blend_params, find_neighbours
from fitting.keypoints.usable import check_body_keypoints, find_usable_frames
from fitting.keypoints.weights import GATE, Weighting, warn_of_uncalibrated_scores
from fitting.optimise import fit_jointly
from fitting.problem_setup import initial_guess
from fitting.solver.terms.pose_prior import PosePrior
from fitting.solver.terms.reprojection import ROBUST_SCALE
from fitting.solver.terms.scene import SceneTerms
from pose2d.base.errors import UserError
from pose2d.base.table import join_rows
from pose2d.base.threads import single_thread
from pose2d.types import Keypoints

WINDOW = 600  # frames solved together: 20 s at 30 frames/s, about 60 MB
# Frames on each side of a seam that both windows solve, and over which one fades into the other.
OVERLAP = 30


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
    """Fit one person's track of T frames: a pose and a translation per frame, one shape, smooth
    over time.

    init: "lifter" (a guess from the keypoints), or a guess to stay close to. fps: frames per second
    of the track. scene: gravity, floor, contacts and the camera's rotation, where known. The others
    are those of `fitting.fits.FitOptions`.
    """
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    warn_of_uncalibrated_scores(keypoints, weighting)
    body = body or load_body()
    keypoints = check_body_keypoints(keypoints)
    options = FitOptions(weighting, gate, prior, lean_rad, robust_sigmas)
    with single_thread():
        guess = initial_guess(init, keypoints, [camera], body, fps)
        usable = find_usable_frames(keypoints, [camera], weighting, gate)
        return fit_windows(FitInput(keypoints, guess, scene), usable, camera, body, fps, options)


def fit_windows(
    fit_input: FitInput,
    usable: Tensor,
    camera: Camera,
    body: Body,
    fps: float,
    options: FitOptions = DEFAULTS,
    *,
    solved: Tensor | None = None,
    sizes: tuple[int, int] = (WINDOW, OVERLAP),
) -> Fit:
    """Fit the rows `solved` [T] of a track of any length (all of them where None is given).

    usable [T] says which of these rows show enough (`find_usable_frames`); sizes: frames of a
    window and of an overlap.
    """
    window = sizes[0]
    frames = len(usable)
    solved = torch.arange(frames) if solved is None else solved

    def solve(rows: Tensor | slice, body: Body, fps: float) -> Fit:
        return fit_jointly(fit_input.rows(solved[rows]), camera, body, fps, options)

    if frames <= window:
        return solve(slice(None), body, fps)
    shape_fit = _fit_shape(solve, usable, window, body, fps)
    reasons: set[str] = set()

    def finished_windows() -> Iterator[Fit]:
        pieces = _blend_windows(solve, usable, sizes, shape_fit, fps)
        for rows, piece in pieces:
            keypoints_px = camera.project(body.at(piece.params).keypoints)
            distance_px = (keypoints_px - fit_input.keypoints.xy_px[solved[rows]]).norm(dim=-1)
            reasons.add(piece.stopped)
            piece = replace(piece, reprojection_px=torch.where(piece.used, distance_px, torch.nan))
            yield shape_fit.add_variance(piece, rows)

    track = join_rows(finished_windows(), frames)
    stopped = ", ".join(sorted(reasons))
    return replace(track, shape_covariance=shape_fit.free.shape_covariance, stopped=stopped)


@dataclass(frozen=True)
class _ShapeFit:
    """A fit of frames spread over a track, from which its windows take the shape."""

    rows: Tensor  # [N] the rows of these frames
    free: Fit  # [N] with the shape unknown
    fixed: Fit | None  # [N] with the shape fixed at that of `free`; None: no deviations are stated
    body: Body  # with the shape built in

    def add_variance(self, piece: Fit, rows: slice) -> Fit:
        """Return rows of the track with the variance that windows leave out.

        Windows take the shape for exact. The variance missing is that which the frames of this fit
        have more when the shape is free than when it is fixed, interpolated in between.
        """
        fixed = self.fixed
        if fixed is None:
            return piece
        before, after, share = find_neighbours(self.rows, torch.arange(rows.start, rows.stop))

        def widen(name: str) -> Tensor:
            std, free_std, fixed_std = (getattr(fit, name) for fit in (piece, self.free, fixed))
            variance = (free_std.square() - fixed_std.square()).clamp(min=0)
            missing = torch.lerp(variance[before], variance[after], share[:, None, None])
            return (std.square() + missing).sqrt()

        return replace(
            piece,
            joint_std_mm=widen("joint_std_mm"),
            joint_std_relative_mm=widen("joint_std_relative_mm"),
        )


_Solve = Callable[[Tensor | slice, Body, float], Fit]


def _fit_shape(solve: _Solve, usable: Tensor, window: int, body: Body, fps: float) -> _ShapeFit:
    """Fit one window's number of usable frames, spread over the track."""
    stride = -(-len(usable) // window)
    rows = usable.nonzero().squeeze(1)[::stride].contiguous()
    free = solve(rows, body, fps / stride)
    fixed_body = with_shape(body, free.params.shape, free.params.reading)
    fixed = None if free.joint_std_mm is None else solve(rows, fixed_body, fps / stride)
    return _ShapeFit(rows, free, fixed, fixed_body)


def _blend_windows(
    solve: _Solve, usable: Tensor, sizes: tuple[int, int], shape_fit: _ShapeFit, fps: float
) -> Iterator[tuple[slice, Fit]]:
    """Yield the windows one after the other with the rows that each of them covers; where two
    overlap, the first fades into the second.
    """
    window, overlap = sizes
    frames = len(usable)
    shape = shape_fit.free.params.shape
    reading = shape_fit.free.params.reading
    previous_tail = shape_fit.free.params.rows(slice(0))  # of the window before, in the overlap
    for core in _split_windows(usable, window):
        rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
        part = solve(rows, shape_fit.body, fps)
        params = replace(part.params, shape=shape, reading=reading)
        head = slice(len(previous_tail))
        share = torch.linspace(0, 1, len(previous_tail) + 2)[1:-1]
        params = params.put(head, blend_params(previous_tail, params.rows(head), share))
        own_length = len(part) if rows.stop == frames else len(part) - 2 * overlap
        own = slice(own_length)
        previous_tail = params.rows(slice(own_length, None))
        covered = slice(rows.start, rows.start + own_length)
        yield covered, replace(part.rows(own), params=params.rows(own))


def _split_windows(usable: Tensor, window: int) -> list[slice]:
    """Split the frames into parts of about equal length; one without a usable frame joins its
    neighbour.
    """
    count = -(-len(usable) // window)
    cuts = [round(len(usable) * number / count) for number in range(count + 1)]
    edges = [0]
    for cut in cuts[1:-1]:
        if bool(usable[edges[-1] : cut].any()) and bool(usable[cut:].any()):
            edges.append(cut)
    edges.append(len(usable))
    return [slice(a, b) for a, b in pairwise(edges)]


def with_shape(body: Body, shape: Tensor, reading: Tensor | None = None) -> Body:
    """Return the same body with the shape built in and no shape directions, and with keypoints
    where they are read, if a reading is given.
    """
    values = {entry.name: getattr(body, entry.name) for entry in fields(body) if entry.init}
    offsets = body.shapedirs[..., : len(shape)] @ shape.to(body.dtype)
    values["v_template"] = body.v_template + offsets
    values["shapedirs"] = body.shapedirs[..., :0]
    if reading is not None:
        terms = body.reading_terms
        offset = terms.moments(reading.to(body.dtype), None)
        no_directions = terms.offset_shapedirs[..., :0]
        values["given_reading"] = replace(terms, offset=offset, offset_shapedirs=no_directions)
    return Body(**values)
