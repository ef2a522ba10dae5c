"""Check keypoints, undistort them, and decide which frames show enough to be fitted."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fitting.camera import Camera
from fitting.keypoints.weights import GATE, Weighting, keypoint_weights
from pose2d.base.columns import Column
from pose2d.base.errors import UserError
from pose2d.base.table import blocks
from pose2d.keypoint_layouts import HALPE26_IN, to_halpe26
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import MOST_LOG_RATIO, Keypoints

FARTHEST_PX = 1e6  # from the image's corner
# A frame is fitted by itself when so many keypoints have at least this confidence times presence.
# Low on purpose: the weights already say how much a keypoint counts, and a frame that is left out
# is filled from its neighbours. Not tuned.
USABLE_CONFIDENCE = 0.2
LEAST_KEYPOINTS = 4


class TooFewKeypoints(UserError):
    """No frame of a track shows enough to be fitted."""


def check_body_keypoints(keypoints: Keypoints) -> Keypoints:
    """Return Halpe's 26 keypoints, checked, on the CPU in float32; keypoints that are not finite or
    not in the layout have presence 0.
    """
    k = keypoints
    if k.skeleton.keypoints[:17] != COCO17.keypoints:
        raise UserError(
            f"keypoints of {k.skeleton.name} cannot be fitted: "
            "expected COCO's 17, or a layout that begins with them."
        )
    size = tuple(k.xy_px.shape)
    frames = size[0] if size else 0
    count = k.skeleton.size
    if size != (frames, count, 2) or k.confidence.shape != size[:2] or k.presence.shape != size[:2]:
        raise UserError(
            f"keypoints have sizes xy {list(size)}, confidence {list(k.confidence.shape)}, "
            f"presence {list(k.presence.shape)}; "
            f"expected [T, {count}, 2], [T, {count}] and [T, {count}]."
        )
    if frames == 0:
        raise UserError("there are no frames to fit: the track is empty.")
    if k.area_px2 is not None and tuple(k.area_px2.shape) != (frames,):
        raise UserError(
            f"area_px2 has size {list(k.area_px2.shape)}; expected [{frames}], one area per frame."
        )
    layout = k.skeleton.name if k.skeleton.name in HALPE26_IN else COCO17.name
    k = k.along("keypoints", lambda value, declared: _as_halpe26(value, layout, declared.fill))
    area = None if k.area_px2 is None else k.area_px2.detach().cpu().float()
    # A keypoint a million pixels away is a mistake of its source, and its square would drown
    # everything else.
    finite = (
        (k.xy_px.abs() <= FARTHEST_PX).all(-1)
        & torch.isfinite(k.confidence)
        & torch.isfinite(k.presence)
    )
    if k.error is not None:
        weight = k.error.weight
        sigma = k.error.sigma
        ratio = k.error.log_ratio
        finite &= (torch.isfinite(weight) & (weight >= 0)).all(-1) & (
            (sigma > 0) & (sigma < FARTHEST_PX)
        ).all(-1)
        if ratio is not None:
            finite &= ratio.abs() <= MOST_LOG_RATIO
    if area is not None:
        finite &= ((area > 0) & (area < FARTHEST_PX**2))[:, None]
        area = torch.where(finite.any(1), area, torch.ones_like(area))
    for name, value in (("confidence", k.confidence), ("presence", k.presence)):
        inside = value[finite]
        if ((inside < 0) | (inside > 1)).any():
            raise UserError(
                f"{name} must lie between 0 and 1; "
                f"got {float(inside.min()):.3g} .. {float(inside.max()):.3g}."
            )

    def cleaned(value: Tensor, declared: Column) -> Tensor:
        fill = torch.tensor(0.0 if math.isnan(declared.fill) else declared.fill)
        return torch.where(finite.reshape(*finite.shape, *(1,) * (value.ndim - 2)), value, fill)

    return replace(k.along("keypoints", cleaned), area_px2=area, skeleton=HALPE26)


def _as_halpe26(values: Tensor, layout: str, missing: float) -> Tensor:
    """Convert [T, K, ...] of a skeleton that begins with COCO's 17 to [T, 26, ...], with `missing`
    where it has no such keypoint.
    """
    return torch.from_numpy(to_halpe26(values.detach().cpu().float().numpy(), layout, missing))


def undistort_keypoints(keypoints: Keypoints, cameras: Sequence[Camera]) -> Keypoints:
    """Return keypoints as a perfect lens would show them; presence 0 where the lens sees
    nothing.
    """
    if not any(camera.distortion for camera in cameras):
        return keypoints
    if len(cameras) == 1:
        xy = cameras[0].undistort(keypoints.xy_px)
    else:
        xy = torch.stack(
            [
                camera.undistort(points)
                for camera, points in zip(cameras, keypoints.xy_px, strict=True)
            ]
        )
    finite = torch.isfinite(xy).all(-1)
    return replace(
        keypoints,
        xy_px=torch.where(finite[..., None], xy, torch.zeros(())),
        presence=keypoints.presence * finite,
    )


def find_usable_frames(
    keypoints: Keypoints, cameras: Sequence[Camera], weighting: Weighting, gate: float = GATE
) -> Tensor:
    """Return the frames [T] of checked keypoints that show enough to be fitted; raise
    TooFewKeypoints if none does.
    """
    undistorted = undistort_keypoints(keypoints, cameras)
    weight = [
        keypoint_weights(undistorted.rows(block), weighting, gate).weight
        for block in blocks(len(undistorted))
    ]
    return require_usable_frames(count_confident_keypoints(undistorted, torch.cat(weight)))


def count_confident_keypoints(keypoints: Keypoints, weight: Tensor) -> Tensor:
    """Return how many undistorted keypoints of weights [T, K] are confident and count, [T]."""
    return ((keypoints.confidence * keypoints.presence >= USABLE_CONFIDENCE) & (weight > 0)).sum(1)


def require_usable_frames(counts: Tensor) -> Tensor:
    """Return the frames [T] with enough keypoints for a fit; raise TooFewKeypoints if there is
    none.
    """
    usable = counts >= LEAST_KEYPOINTS
    if not bool(usable.any()):
        raise TooFewKeypoints(
            f"no frame has {LEAST_KEYPOINTS} keypoints with a confidence of {USABLE_CONFIDENCE} or "
            f"more (the best has {int(counts.max())}): a body cannot be fitted. "
            "Check the detection, or choose a weighting without a gate."
        )
    return usable
