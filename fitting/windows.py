"""A fit of a track of any length: what is longer than WINDOW frames is solved in overlapping windows with one shape."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import pairwise

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.camera import Camera
from fitting.fits import Fit
from fitting.grid import between, mixed
from fitting.optimise import FitInput, fit_input
from fitting.options import DEFAULTS, FitOptions
from pose2d.base.table import joined

WINDOW = 600  # frames solved together: 20 s at 30 frames/s, about 60 MB
OVERLAP = 30  # frames on each side of a seam that both windows solve, and over which one fades into the other


def fit_windows(
    given: FitInput,
    usable: Tensor,
    camera: Camera,
    body: Body,
    fps: float,
    options: FitOptions = DEFAULTS,
    *,
    solved: Tensor | None = None,
    window: int = WINDOW,
    overlap: int = OVERLAP,
) -> Fit:
    """As `fit`, for a track of any length, of its rows `solved` [T] (all of them where None is given); usable [T] says
    which of these show enough (`usable_frames`).

    Beyond `window` frames, the shape comes from frames spread over the whole track.
    """
    frames = len(usable)
    solved = torch.arange(frames) if solved is None else solved

    def solve(rows: Tensor | slice, body: Body, fps: float) -> Fit:
        return fit_input(given.rows(solved[rows]), camera, body, fps, options)

    if frames <= window:
        return solve(slice(None), body, fps)
    stride = -(-frames // window)
    sample = usable.nonzero().squeeze(1)[::stride].contiguous()
    free = solve(sample, body, fps / stride)
    shape, fixed_body = free.params.shape, _with_shape(body, free.params.shape)
    # Windows take the shape for exact. The variance this leaves out is the difference of both fits of the sample.
    fixed = None if free.joint_std_mm is None else solve(sample, fixed_body, fps / stride)
    parts: list[Fit] = []  # without their rows

    def windows() -> Iterator[tuple[slice, Fit]]:
        for core in _windows(usable, window):
            rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
            part = solve(rows, fixed_body, fps)
            parts.append(part.rows(slice(0)))
            yield rows, part

    def pieces() -> Iterator[Fit]:
        for rows, part in _faded(windows()):
            params = replace(part.params, shape=shape)
            at_px = given.keypoints.xy_px[solved[rows]]
            distance = (camera.project(body.at(params).keypoints) - at_px).norm(dim=-1)
            part = replace(part, params=params, reprojection_px=torch.where(part.used, distance, torch.nan))
            yield part if fixed is None else _with_variance(part, free, fixed, sample, rows)

    found = joined(pieces(), frames)
    return replace(
        found,
        stopped=", ".join(sorted({part.stopped for part in parts})),
        iterations=max(part.iterations for part in parts),
        cost=sum(part.cost for part in parts),
    )


def _with_shape(body: Body, shape: Tensor) -> Body:
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
    """Rows of a track with the variance that its frames `at` [N] have more when free than when fixed, in between as
    well."""
    before, after, share = between(at, torch.arange(rows.start, rows.stop))

    def wider(name: str) -> Tensor:
        std, more_free, more_fixed = (getattr(fit, name) for fit in (part, free, fixed))
        more = (more_free.square() - more_fixed.square()).clamp(min=0)
        return (std.square() + torch.lerp(more[before], more[after], share[:, None, None])).sqrt()

    return replace(part, joint_std_mm=wider("joint_std_mm"), joint_std_relative_mm=wider("joint_std_relative_mm"))


def _faded(parts: Iterable[tuple[slice, Fit]]) -> Iterator[tuple[slice, Fit]]:
    """Windows without their overlaps, one after the other: where two overlap, the first fades into the second."""
    parts = iter(parts)
    rows, part = next(parts)
    first = rows.start
    for next_rows, following in parts:
        begin, both = next_rows.start - rows.start, rows.stop - next_rows.start  # of the frames that both have
        share = torch.linspace(0, 1, both + 2)[1:-1]
        faded = mixed(part.params.rows(slice(begin, None)), following.params.rows(slice(both)), share)
        part = replace(part, params=BodyParams.concat([part.params.rows(slice(begin)), faded]))
        following = replace(following, params=BodyParams.concat([faded, following.params.rows(slice(both, None))]))
        end = next_rows.start + both // 2
        yield slice(first, end), part.rows(slice(first - rows.start, end - rows.start))
        first, rows, part = end, next_rows, following
    yield slice(first, rows.stop), part.rows(slice(first - rows.start, None))
