"""A person's keypoints over a video -> a body in every frame. `run`, `eval-3dpw` and the benches all fit here.

The keypoints are laid on an even grid of frames and split into stretches where the person is there
(`keypoints.stretches`). In each, left and right are put back where they flicker, and the initialiser makes a guess. The
solver fits all stretches with one shape and nothing else in common, so an absence costs nothing, however long. What is
longer than PIECE frames is solved in overlapping pieces, so that memory does not grow with the track.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.load import load_body
from fitting.body.rotations import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.camera import Camera
from fitting.init.guess import InitialGuess, joined_guesses, nearest, with_default_errors
from fitting.keypoints.after_fit import confidence_after_fit
from fitting.keypoints.observed import body_keypoints, observed_joints, probability_observed, usable_frames
from fitting.keypoints.side_swap import repair_side_swaps as repaired_side_swaps
from fitting.keypoints.stretches import ABSENT, stretches
from fitting.keypoints.weights import GATE, Weighting
from fitting.optimise import Fit, FitInput, fit_input, initial_guess
from fitting.options import DEFAULTS, LEAN_RAD, FitOptions
from fitting.solver.prior import PosePrior
from fitting.solver.terms.reprojection import ROBUST_SCALE
from fitting.solver.terms.scene import SceneTerms
from pose2d.base.errors import UserError
from pose2d.base.threads import single_thread
from pose2d.types import Keypoints

PIECE = 600  # frames solved together: 20 s at 30 frames/s, about 60 MB
# A body's motion ends far below this. Above, the search takes every n-th frame and bodies in between are interpolated:
# acceleration grows with the square of the rate and its square in the normal equations with the fourth power, which at
# 480 frames/s exceeds what float32 holds beside a keypoint's pull.
FASTEST_FPS = 240.0
MOST_FRAMES = 10_000_000  # of one track: four days at 30 frames/s
OVERLAP = 30  # frames on each side of a seam that both pieces solve, and over which one fades into the other
_PER_FRAME = ("observed", "used", "joint_std_mm", "joint_std_relative_mm", "converged")


@dataclass(frozen=True)
class TrackFit:
    """A person's body over every frame of the grid from the first to the last one seen."""

    frame: np.ndarray  # [T] frame numbers on the even grid
    # [T] bool: the person is there, seen or filled in over a short gap. False: nobody knows where the person is; the
    # body only goes evenly from where it was to where it will be, for those who need a number in every frame
    present: np.ndarray
    detected: np.ndarray  # [T] bool: the frame has a row of keypoints
    # [T, 26, ...] Halpe's, after side-swap repair, with the confidence that they have once the body is known; presence
    # 0 and pixels NaN in gaps
    keypoints: Keypoints
    swapped: np.ndarray  # [T, 26] bool: left and right were exchanged
    joint_observed: np.ndarray  # [T, 24] bool: a keypoint that counts lies at the joint or farther out on its limb
    fit: Fit  # [T, ...]

    @property
    def keypoint_observed(self) -> np.ndarray:
        """[T, 26] probability that a keypoint is in the image and close to the truth (`probability_observed`)."""
        return probability_observed(self.keypoints).numpy()

    def rows(self, frame: np.ndarray) -> np.ndarray:
        """Indices into the T rows of these frame numbers."""
        index = np.searchsorted(self.frame, frame).clip(0, len(self.frame) - 1)
        if not np.array_equal(self.frame[index], frame):
            raise KeyError("a frame number that is not on the grid of this track")
        return index


@dataclass(frozen=True)
class PreparedTrack:
    """Keypoints on the grid."""

    frame: np.ndarray  # [T]
    detected: np.ndarray  # [T] bool
    keypoints: Keypoints  # [T, 26, ...] finite; presence 0 where there is none
    swapped: np.ndarray  # [T, 26] bool
    stretch: np.ndarray  # [T] number of the stretch in which the person is there, or ABSENT
    fps: float  # frames per second of the grid
    guess: InitialGuess | None = None  # [T] where fits start and what they stay close to; None: from the torso

    @property
    def rows(self) -> np.ndarray:
        """[M] indices of the frames in which the person is there."""
        return np.flatnonzero(self.stretch != ABSENT)


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
    gate: float = GATE,
    robust_sigmas: float = ROBUST_SCALE,
    prior: PosePrior | None = None,
    lean_rad: float | None = LEAN_RAD,
    scene: SceneTerms | None = None,
    repair_side_swaps: bool = True,
) -> TrackFit:
    """Fit N rows of keypoints at increasing frame numbers `frame` [N].

    The grid is frame[0], frame[0] + every, .. frame[-1], and fps its frames per second. A row whose pixels are all NaN
    counts as not seen. An init given as parameters has one row per grid frame, or one per row of keypoints; then gaps
    take the nearest. A scene has one row per grid frame. The other options are those of `fitting.fit`.
    Raises UserError (TooFewKeypoints) when no frame shows enough.
    """
    body = body or load_body()
    options = FitOptions(weighting, gate, prior, lean_rad, robust_sigmas)
    prepared = prepare_track(keypoints, frame, camera, body, init, fps=fps, every=every, repair=repair_side_swaps)
    return fit_prepared(prepared, camera, body, options, scene=scene)


def prepare_track(
    keypoints: Keypoints, frame: np.ndarray, camera: Camera, body: Body, init: str | BodyParams | InitialGuess,
    *, fps: float, every: int = 1, repair: bool = True,
) -> PreparedTrack:  # fmt: skip
    """Keypoints on the grid with the guess that their fits start from: what fits of one track share."""
    prepared = _prepare(keypoints, frame, camera, fps, every, repair)
    return replace(prepared, guess=_guess(init, prepared, frame, camera, body, fps))


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
    rows = prepared.rows
    segment = torch.from_numpy(prepared.stretch)
    given = FitInput(prepared.keypoints, prepared.guess, scene, segment, start).rows(torch.from_numpy(rows))
    there, stretch, around = given.keypoints, segment[rows], given.scene
    usable = usable_frames(there, [camera], options.weighting, options.gate)
    if around is not None and around.contact is not None:  # no contact lasts across an absence
        begins = torch.diff(stretch, prepend=stretch[:1] - 1) != 0
        given = replace(given, scene=replace(around, contact=around.contact.masked_fill(begins[:, None], 0)))
    stride = max(1, math.ceil(prepared.fps / FASTEST_FPS))
    at = _thinned(rows, prepared.stretch[rows], usable, stride)
    found = fit_pieces(given.rows(at), usable[at], camera, body, prepared.fps / stride, options)
    if stride > 1:
        found = _between(found, at, len(rows))
    after = confidence_after_fit(there, camera.project(body.at(found.params).keypoints))
    present = np.isin(prepared.stretch, stretch[found.observed].numpy())
    return _with_absences(found, after, observed_joints(after, camera.size), prepared, present)


def _thinned(rows: np.ndarray, stretch: np.ndarray, usable: Tensor, stride: int) -> Tensor:
    """Indices of every stride-th row of each stretch; where none of them shows enough, also of one that does."""
    first = np.array([rows[np.argmax(stretch == number)] for number in range(int(stretch.max()) + 1)])
    keep = (rows - first[stretch]) % stride == 0
    if not bool(usable[torch.from_numpy(keep)].any()):
        keep[int(usable.nonzero()[0])] = True
    return torch.from_numpy(np.flatnonzero(keep))


def _between(found: Fit, at: Tensor, frames: int) -> Fit:
    """A fit of some rows `at` -> of all: bodies evenly in between, the rest as in the row before; only `at` pulled."""
    solved = torch.zeros(frames, dtype=torch.bool)
    solved[at] = True
    before = (torch.searchsorted(at, torch.arange(frames), right=True) - 1).clamp(min=0)
    std, relative = found.joint_std_mm, found.joint_std_relative_mm
    return replace(
        found,
        params=_bridged(found.params, at.numpy(), frames),
        observed=found.observed[before],
        used=found.used[before] & solved[:, None],
        reprojection_px=torch.where(solved[:, None], found.reprojection_px[before], torch.nan),
        joint_std_mm=None if std is None else std[before],
        joint_std_relative_mm=None if relative is None else relative[before],
        converged=found.converged[before],
    )


def _with_absences(
    found: Fit, after: Keypoints, observed: np.ndarray, prepared: PreparedTrack, present: np.ndarray
) -> TrackFit:
    """The fit of the rows where the person is there, on the whole grid."""
    frames, rows = len(prepared.frame), torch.from_numpy(prepared.rows)
    nothing, no = torch.tensor(torch.nan), torch.tensor(False)

    def spread(values: Tensor, elsewhere: Tensor) -> Tensor:
        return elsewhere.to(values.dtype).expand(frames, *values.shape[1:]).clone().index_copy_(0, rows, values)

    detected = torch.from_numpy(prepared.detected)[:, None, None]
    keypoints = prepared.keypoints.put(rows, after)
    keypoints = replace(keypoints, confidence=spread(after.confidence, torch.tensor(0.0)))
    whole = (
        found
        if len(rows) == frames
        else replace(
            found,
            params=_bridged(found.params, prepared.rows, frames),
            observed=spread(found.observed, no),
            used=spread(found.used, no),
            reprojection_px=spread(found.reprojection_px, nothing),
            joint_std_mm=None if found.joint_std_mm is None else spread(found.joint_std_mm, nothing),
            joint_std_relative_mm=None
            if found.joint_std_relative_mm is None
            else spread(found.joint_std_relative_mm, nothing),
            converged=spread(found.converged, no),
        )
    )
    joints = np.zeros((frames, observed.shape[1]), np.bool_)
    joints[prepared.rows] = observed & found.observed.numpy()[:, None]
    return TrackFit(
        frame=prepared.frame,
        present=present,
        detected=prepared.detected,
        keypoints=replace(keypoints, xy_px=torch.where(detected, keypoints.xy_px, nothing)),
        swapped=prepared.swapped,
        joint_observed=joints,
        fit=whole,
    )


def _bridged(params: BodyParams, rows: np.ndarray, frames: int) -> BodyParams:
    """Of some rows of the grid -> of all: in between evenly, before the first and after the last the same."""
    frame, at = torch.arange(frames), torch.from_numpy(rows)
    after = torch.searchsorted(at, frame).clamp(max=len(at) - 1)
    before = (torch.searchsorted(at, frame, right=True) - 1).clamp(min=0)
    share = ((frame - at[before]) / (at[after] - at[before]).clamp(min=1)).clamp(0, 1)
    return _mixed(params.rows(before), params.rows(after), share)


@single_thread()
def start_track(
    keypoints: Keypoints,
    frame: np.ndarray,
    camera: Camera,
    body: Body | None = None,
    init: str = "lifter",
    *,
    fps: float = 30.0,
    every: int = 1,
    repair_side_swaps: bool = True,
) -> InitialGuess:
    """The guess that `fit_track` starts from, one row per grid frame; for fits that share it."""
    prepared = _prepare(keypoints, frame, camera, fps, every, repair_side_swaps)
    guess = _guess(init, prepared, frame, camera, body or load_body(), fps)
    if guess is None:
        raise UserError('init="none" makes no guess before the fit: choose an initialiser, such as "lifter".')
    return guess


def _prepare(
    keypoints: Keypoints, frame: np.ndarray, camera: Camera, fps: float, every: int, repair: bool
) -> PreparedTrack:
    if not 0 < fps < float("inf"):
        raise UserError(f"fps must be a positive number of frames per second, got {fps}.")
    given = body_keypoints(keypoints)
    frame = np.asarray(frame, np.int64)
    if frame.shape != (len(given.xy_px),):
        raise UserError(f"there are {len(given.xy_px)} rows of keypoints and {list(frame.shape)} frame numbers.")
    steps = np.diff(frame)
    if every < 1 or (steps <= 0).any() or (steps % every).any():
        raise UserError(f"frame numbers must increase by multiples of every = {every}.")
    if (frame[-1] - frame[0]) // every >= MOST_FRAMES:
        raise UserError(f"frames {frame[0]} to {frame[-1]} are too many for one track; at most {MOST_FRAMES}.")
    grid = np.arange(frame[0], frame[-1] + 1, every)
    index = torch.from_numpy((frame - frame[0]) // every)

    seen = torch.isfinite(keypoints.xy_px.detach().cpu()[:, : given.skeleton.size]).all(-1).any(-1)
    detected = np.zeros(len(grid), np.bool_)
    detected[index] = seen.numpy()
    on = body_keypoints(given.scatter(index, len(grid)))
    # Whatever the weighting, so that fits with different ones can share a start.
    stretch = stretches(on, usable_frames(on, [camera], "ones"), fps)
    swapped = np.zeros((len(grid), given.skeleton.size), np.bool_)
    if repair:
        on, swapped = _repaired(on, stretch, fps)
    return PreparedTrack(grid, detected, on, swapped, stretch, fps)


def _repaired(keypoints: Keypoints, stretch: np.ndarray, fps: float) -> tuple[Keypoints, np.ndarray]:
    """Side swaps repaired in each stretch by itself."""
    swapped = np.zeros(tuple(keypoints.confidence.shape), np.bool_)
    for rows in _runs(stretch):
        part, swapped[rows] = repaired_side_swaps(keypoints.rows(rows), fps)
        keypoints = keypoints.put(rows, part)
    return keypoints, swapped


def _runs(stretch: np.ndarray) -> list[slice]:
    """The rows of each stretch."""
    edges = np.searchsorted(stretch[stretch != ABSENT], np.arange(stretch.max() + 2))
    rows = np.flatnonzero(stretch != ABSENT)
    return [slice(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(edges.tolist())]


def _guess(
    init: str | BodyParams | InitialGuess,
    prepared: PreparedTrack,
    frame: np.ndarray,
    camera: Camera,
    body: Body,
    fps: float,
) -> InitialGuess | None:
    """The guess for every frame of the grid, in absences that of the nearest frame; None for "none"."""
    count = len(prepared.frame)
    if not isinstance(init, str):
        init = init if isinstance(init, InitialGuess) else with_default_errors(init)
        if len(init) == len(frame) != count:
            init = init.rows(nearest(np.asarray(frame), prepared.frame))
        return initial_guess(init, prepared.keypoints, [camera], body, fps)
    parts = [
        initial_guess(init, prepared.keypoints.rows(rows), [camera], body, fps) for rows in _runs(prepared.stretch)
    ]
    known = [part for part in parts if part is not None]
    return joined_guesses(known).rows(nearest(prepared.rows, np.arange(count))) if known else None


def fit_pieces(
    given: FitInput,
    usable: Tensor,
    camera: Camera,
    body: Body,
    fps: float,
    options: FitOptions = DEFAULTS,
    *,
    piece: int = PIECE,
    overlap: int = OVERLAP,
) -> Fit:
    """As `fit`, for a track of any length; usable [T] says which frames show enough (`usable_frames`).

    Beyond `piece` frames, the shape comes from frames spread over the whole track.
    """

    def solve(rows: Tensor | slice, body: Body, fps: float) -> Fit:
        return fit_input(given.rows(rows), camera, body, fps, options)

    frames = len(usable)
    if frames <= piece:
        return solve(slice(None), body, fps)
    stride = -(-frames // piece)
    sample = usable.nonzero().squeeze(1)[::stride].contiguous()
    free = solve(sample, body, fps / stride)
    fixed_body = _with_shape(body, free.params.shape)
    parts: list[tuple[slice, Fit]] = []
    for core in _pieces(usable, piece):
        rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
        parts.append((rows, solve(rows, fixed_body, fps)))
    found = _joined(parts, free.params.shape, given.keypoints, camera, body)
    if found.joint_std_mm is None:
        return found
    # The pieces took the shape for exact. The variance this leaves out is the difference of the two fits of the sample.
    fixed = solve(sample, fixed_body, fps / stride)
    return replace(
        found,
        joint_std_mm=_with_variance(found.joint_std_mm, free.joint_std_mm, fixed.joint_std_mm, sample),
        joint_std_relative_mm=_with_variance(
            found.joint_std_relative_mm, free.joint_std_relative_mm, fixed.joint_std_relative_mm, sample
        ),
    )


def _with_shape(body: Body, shape: Tensor) -> Body:
    """The same body with the shape built in, and no shape directions."""
    given = {entry.name: getattr(body, entry.name) for entry in fields(body) if entry.init}
    given["v_template"] = body.v_template + body.shapedirs[..., : len(shape)] @ shape.to(body.dtype)
    given["shapedirs"] = body.shapedirs[..., :0]
    return Body(**given)


def _pieces(usable: Tensor, piece: int) -> list[slice]:
    """Stretches of about equal length; one without a usable frame joins its neighbour."""
    count = -(-len(usable) // piece)
    cuts = [round(len(usable) * number / count) for number in range(count + 1)]
    kept = [0]
    for cut in cuts[1:-1]:
        if bool(usable[kept[-1] : cut].any()) and bool(usable[cut:].any()):
            kept.append(cut)
    kept.append(len(usable))
    return [slice(a, b) for a, b in pairwise(kept)]


def _with_variance(std: Tensor | None, free: Tensor | None, fixed: Tensor | None, at: Tensor) -> Tensor:
    """std [T, 24, 3] and the variance that frames `at` [N] have more when free than when fixed, in between as well."""
    assert std is not None
    assert free is not None
    assert fixed is not None
    more = (free.square() - fixed.square()).clamp(min=0)
    frame = torch.arange(len(std))
    after = torch.searchsorted(at, frame).clamp(max=len(at) - 1)
    before = (after - 1).clamp(min=0)
    share = ((frame - at[before]) / (at[after] - at[before]).clamp(min=1)).clamp(0, 1)
    return (std.square() + torch.lerp(more[before], more[after], share[:, None, None])).sqrt()


def _joined(parts: Sequence[tuple[slice, Fit]], shape: Tensor, keypoints: Keypoints, camera: Camera, body: Body) -> Fit:
    """The pieces one after the other; where two overlap, the first fades into the second."""
    first = parts[0][1]
    params = first.params
    rest = {name: getattr(first, name) for name in _PER_FRAME}
    for rows, part in parts[1:]:
        shared = len(params) - rows.start  # frames that both have
        share = torch.linspace(0, 1, shared + 2)[1:-1]
        mixed = _mixed(params.rows(slice(rows.start, None)), part.params.rows(slice(shared)), share)
        pose, translation = (
            torch.cat((getattr(params, name)[: rows.start], getattr(mixed, name), getattr(part.params, name)[shared:]))
            for name in ("pose", "translation")
        )
        params = replace(params, pose=pose, translation=translation)
        keep = rows.start + shared // 2
        for name, values in rest.items():
            other = getattr(part, name)
            rest[name] = None if values is None else torch.cat((values[:keep], other[keep - rows.start :]))
    params = replace(params, shape=shape)
    distance = (camera.project(body.at(params).keypoints) - keypoints.xy_px).norm(dim=-1)
    return replace(
        first,
        **rest,
        params=params,
        reprojection_px=torch.where(rest["used"], distance, torch.nan),
        stopped=", ".join(sorted({part.stopped for _, part in parts})),
        iterations=max(part.iterations for _, part in parts),
        cost=sum(part.cost for _, part in parts),
    )


def _mixed(a: BodyParams, b: BodyParams, share: Tensor) -> BodyParams:
    """From a (share 0) to b (share 1), in each of T frames; the shape is a's."""
    first, second = axis_angle_to_quaternion(a.pose), axis_angle_to_quaternion(b.pose)
    second = torch.where((first * second).sum(-1, keepdim=True) < 0, -second, second)
    between = torch.nn.functional.normalize(torch.lerp(first, second, share[:, None, None]), dim=-1)
    translation = torch.lerp(a.translation, b.translation, share[:, None])
    return replace(a, pose=quaternion_to_axis_angle(between), translation=translation)
