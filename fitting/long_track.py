"""A fit whose memory does not grow with the track: long tracks are solved in overlapping pieces with one shape."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise

import roma
import torch
from torch import Tensor

import fitting
from fitting.body import Body, BodyParams
from fitting.fit import Fit
from fitting.keypoints.observed import LEAST_KEYPOINTS
from fitting.keypoints.observed import TRUSTED as BARELY_TRUSTED
from fitting.keypoints.weights import Weighting, keypoint_weights
from pose2d.types import Keypoints

PIECE = 600  # frames solved together: 20 s at 30 frames/s, about 60 MB
OVERLAP = 30  # frames on each side of a seam that both pieces solve, and over which one fades into the other


def seen_frames(known: Keypoints, weighting: Weighting) -> Tensor:
    """[T] bool: frames that show enough to be fitted."""
    trusted = known.confidence * known.presence >= BARELY_TRUSTED
    return (trusted & (keypoint_weights(known, weighting).weight > 0)).sum(1) >= LEAST_KEYPOINTS


def fit_track(
    known: Keypoints,
    camera: fitting.Camera,
    body: Body,
    init: str | BodyParams,
    weighting: Weighting,
    fps: float,
    piece: int = PIECE,
    overlap: int = OVERLAP,
) -> Fit:
    """As `fitting.fit`. Beyond `piece` frames, the shape comes from frames spread over the whole track."""
    frames = len(known.xy_px)
    if frames <= piece:
        return fitting.fit(known, camera, body, init, weighting, fps=fps)
    seen = seen_frames(known, weighting)
    stride = -(-frames // piece)
    sample = seen.nonzero().squeeze(1)[::stride].contiguous()
    spread_out = (_frames(known, sample), camera)
    free = fitting.fit(*spread_out, body, _guess(init, sample), weighting, fps=fps / stride)
    shape = free.params.shape
    rigid = _with_shape(body, shape)
    parts: list[tuple[slice, Fit]] = []
    for core in _pieces(seen, piece):
        rows = slice(max(0, core.start - overlap), min(frames, core.stop + overlap))
        part = fitting.fit(_frames(known, rows), camera, rigid, _guess(init, rows), weighting, fps=fps)
        parts.append((rows, part))
    found = _joined(parts, shape, known, camera, body)
    if found.joint_std_mm is None:
        return found
    # The pieces took the shape for granted. What is not known of it shows where the sample was solved both ways.
    fixed = fitting.fit(*spread_out, rigid, _guess(init, sample), weighting, fps=fps / stride)
    return replace(
        found,
        joint_std_mm=_with_variance(found.joint_std_mm, free.joint_std_mm, fixed.joint_std_mm, sample),
        joint_std_relative_mm=_with_variance(
            found.joint_std_relative_mm, free.joint_std_relative_mm, fixed.joint_std_relative_mm, sample
        ),
    )


def _frames(known: Keypoints, rows: Tensor | slice) -> Keypoints:
    area = None if known.area_px2 is None else known.area_px2[rows]
    return replace(
        known,
        xy_px=known.xy_px[rows],
        confidence=known.confidence[rows],
        presence=known.presence[rows],
        area_px2=area,
    )


def _guess(init: str | BodyParams, rows: Tensor | slice) -> str | BodyParams:
    if isinstance(init, str):
        return init
    shape = init.shape if init.shape.ndim == 1 else init.shape[rows]
    return BodyParams(init.pose[rows], shape, init.translation[rows])


def _with_shape(body: Body, shape: Tensor) -> Body:
    """The same body grown into a shape, with no other shape to take."""
    given = {entry.name: getattr(body, entry.name) for entry in fields(body) if entry.init}
    given["v_template"] = body.v_template + body.shapedirs[..., : len(shape)] @ shape.to(body.dtype)
    given["shapedirs"] = body.shapedirs[..., :0]
    return Body(**given)


def _pieces(seen: Tensor, piece: int) -> list[slice]:
    """Stretches of about equal length; one without a frame to fit joins its neighbour."""
    count = -(-len(seen) // piece)
    cuts = [round(len(seen) * number / count) for number in range(count + 1)]
    kept = [0]
    for cut in cuts[1:-1]:
        if bool(seen[kept[-1] : cut].any()) and bool(seen[cut:].any()):
            kept.append(cut)
    kept.append(len(seen))
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


def _joined(
    parts: Sequence[tuple[slice, Fit]], shape: Tensor, known: Keypoints, camera: fitting.Camera, body: Body
) -> Fit:
    """The pieces one after the other; where two overlap, the first fades into the second."""
    first = parts[0][1]
    pose, translation = first.params.pose, first.params.translation
    rest = {name: getattr(first, name) for name in _PER_FRAME}
    for rows, part in parts[1:]:
        shared = len(pose) - rows.start  # frames that both have
        share = torch.linspace(0, 1, shared + 2)[1:-1]
        a = roma.rotvec_to_unitquat(pose[rows.start :])
        b = roma.rotvec_to_unitquat(part.params.pose[:shared])
        b = torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b)
        mixed = torch.nn.functional.normalize(torch.lerp(a, b, share[:, None, None]), dim=-1)
        between = torch.lerp(translation[rows.start :], part.params.translation[:shared], share[:, None])
        pose = torch.cat((pose[: rows.start], roma.unitquat_to_rotvec(mixed), part.params.pose[shared:]))
        translation = torch.cat((translation[: rows.start], between, part.params.translation[shared:]))
        keep = rows.start + shared // 2
        for name, values in rest.items():
            other = getattr(part, name)
            rest[name] = None if values is None else torch.cat((values[:keep], other[keep - rows.start :]))
    params = BodyParams(pose, shape, translation)
    distance = (camera.project(body.at(params).keypoints) - known.xy_px).norm(dim=-1)
    reasons = [part.stopped for _, part in parts]
    return replace(
        first,
        **rest,
        params=params,
        reprojection_px=torch.where(rest["used"], distance, torch.nan),
        stopped=", ".join(sorted(set(reasons))),
        iterations=max(part.iterations for _, part in parts),
        cost=sum(part.cost for _, part in parts),
    )


_PER_FRAME = ("observed", "used", "joint_std_mm", "joint_std_relative_mm", "converged")
