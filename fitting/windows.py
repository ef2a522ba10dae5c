"""A fit of a track of any length: what is longer than WINDOW frames is solved in overlapping windows with one shape."""

from collections.abc import Sequence
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
from pose2d.types import Keypoints

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
    window: int = WINDOW,
    overlap: int = OVERLAP,
) -> Fit:
    """As `fit`, for a track of any length; usable [T] says which frames show enough (`usable_frames`).

    Beyond `window` frames, the shape comes from frames spread over the whole track.
    """

    def solve(rows: Tensor | slice, body: Body, fps: float) -> Fit:
        return fit_input(given.rows(rows), camera, body, fps, options)

    frames = len(usable)
    if frames <= window:
        return solve(slice(None), body, fps)
    stride = -(-frames // window)
    sample = usable.nonzero().squeeze(1)[::stride].contiguous()
    free = solve(sample, body, fps / stride)
    fixed_body = _with_shape(body, free.params.shape)
    parts: list[tuple[slice, Fit]] = []
    for core in _windows(usable, window):
        rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
        parts.append((rows, solve(rows, fixed_body, fps)))
    found = _joined(parts, free.params.shape, given.keypoints, camera, body)
    if found.joint_std_mm is None:
        return found
    # The windows took the shape for exact. The variance this leaves out is the difference of both fits of the sample.
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


def _with_variance(std: Tensor | None, free: Tensor | None, fixed: Tensor | None, at: Tensor) -> Tensor:
    """std [T, 24, 3] and the variance that frames `at` [N] have more when free than when fixed, in between as well."""
    assert std is not None
    assert free is not None
    assert fixed is not None
    more = (free.square() - fixed.square()).clamp(min=0)
    before, after, share = between(at, len(std))
    return (std.square() + torch.lerp(more[before], more[after], share[:, None, None])).sqrt()


def _joined(parts: Sequence[tuple[slice, Fit]], shape: Tensor, keypoints: Keypoints, camera: Camera, body: Body) -> Fit:
    """The windows one after the other; where two overlap, the first fades into the second."""
    whole = parts[0][1]
    for rows, part in parts[1:]:
        both = len(whole) - rows.start  # frames that both have
        share = torch.linspace(0, 1, both + 2)[1:-1]
        faded = mixed(whole.params.rows(slice(rows.start, None)), part.params.rows(slice(both)), share)
        params = BodyParams.concat([whole.params.rows(slice(rows.start)), faded, part.params.rows(slice(both, None))])
        keep = rows.start + both // 2
        whole = Fit.concat([whole.rows(slice(keep)), part.rows(slice(keep - rows.start, None))])
        whole = replace(whole, params=params)
    params = replace(whole.params, shape=shape)
    distance = (camera.project(body.at(params).keypoints) - keypoints.xy_px).norm(dim=-1)
    return replace(
        whole,
        params=params,
        reprojection_px=torch.where(whole.used, distance, torch.nan),
        stopped=", ".join(sorted({part.stopped for _, part in parts})),
        iterations=max(part.iterations for _, part in parts),
        cost=sum(part.cost for _, part in parts),
    )
