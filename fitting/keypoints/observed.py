"""What of the keypoints can be used in a fit, which joints they show, and when the person is there
(`segments`).

Frames that show too little are filled in from the frames around them, if there are few of them and
both sides agree: within LONGEST_GAP_S, the person reappears about where it was heading, in about
the same size and pose. Otherwise nobody knows what happened in between, and the person is absent
there.

Left and right of a limb that change places from one frame to the next are put back (`side_order`).
Seen from the side, a 2D network is sure where the legs are and unsure which is which: the labels
flicker, each time with full confidence. A body cannot do that. So for legs, arms and trunk each,
every frame is taken as labelled (0) or with sides exchanged (1), and the choice for the whole track
is the one with the least

    sum_t  |x_t - 2 x_{t-1} + x_{t-2}|^2 / (2 sigma_t^2)  +  LABEL_COST where exchanged,

each distance bounded, since a network may also be plainly wrong (Viterbi over pairs of frames).
Labels decide where motion cannot: at low frame rates, and after a gap.

`SeenHands` are hand keypoints as fits use them: pixels of a perfect lens with weights, and
landmarks as depths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import (
    PARENTS,
    matrix_to_axis_angle,
    nearest_rotation,
    rotation_matrices,
)
from fitting.camera import Camera
from fitting.keypoints.weights import GATE, Weighting, keypoint_area, keypoint_weights
from pose2d.base.columns import Column, column
from pose2d.base.errors import UserError
from pose2d.base.table import BLOCK, Table, blocks, join_rows
from pose2d.keypoint_layouts import HALPE26_IN, to_halpe26
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import MOST_LOG_RATIO, HandKeypoints, Keypoints, l_squared

FARTHEST_PX = 1e6  # from the image's corner
# A frame is fitted by itself when so many keypoints have at least this confidence times presence.
# Low on purpose: the weights already say how much a keypoint counts, and a frame that is left out
# is filled from its neighbours. Not tuned.
USABLE_CONFIDENCE, LEAST_KEYPOINTS = 0.2, 4


class TooFewKeypoints(UserError):
    """No frame of a track shows enough to be fitted."""


def body_keypoints(keypoints: Keypoints) -> Keypoints:
    """Halpe's 26 keypoints, checked, on the CPU in float32; what is not finite or not in the layout
    has presence 0.
    """
    k = keypoints
    if k.skeleton.keypoints[:17] != COCO17.keypoints:
        raise UserError(
            f"keypoints of {k.skeleton.name} cannot be fitted: expected COCO's 17 (or a set that begins with them)."
        )
    size = tuple(k.xy_px.shape)
    frames = size[0] if size else 0
    count = k.skeleton.size
    if size != (frames, count, 2) or k.confidence.shape != size[:2] or k.presence.shape != size[:2]:
        raise UserError(
            f"keypoints have sizes xy {list(size)}, confidence {list(k.confidence.shape)}, presence "
            f"{list(k.presence.shape)}; expected [T, {count}, 2], [T, {count}] and [T, {count}]."
        )
    if frames == 0:
        raise UserError("there are no frames to fit: the track is empty.")
    if k.area_px2 is not None and tuple(k.area_px2.shape) != (frames,):
        raise UserError(
            f"area_px2 has size {list(k.area_px2.shape)}; expected [{frames}], one area per frame."
        )
    layout = k.skeleton.name if k.skeleton.name in HALPE26_IN else COCO17.name
    k = k.along("keypoints", lambda value, stated: _as_halpe26(value, layout, stated.fill))
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
                f"{name} must lie between 0 and 1; got {float(inside.min()):.3g} .. {float(inside.max()):.3g}."
            )

    def cleaned(value: Tensor, stated: Column) -> Tensor:
        fill = torch.tensor(0.0 if math.isnan(stated.fill) else stated.fill)
        return torch.where(finite.reshape(*finite.shape, *(1,) * (value.ndim - 2)), value, fill)

    return replace(k.along("keypoints", cleaned), area_px2=area, skeleton=HALPE26)


def _as_halpe26(values: Tensor, layout: str, missing: float) -> Tensor:
    """[T, K, ...] of a skeleton that begins with COCO's 17 -> [T, 26, ...]; `missing` where it has
    no such keypoint.
    """
    return torch.from_numpy(to_halpe26(values.detach().cpu().float().numpy(), layout, missing))


def undistorted(keypoints: Keypoints, cameras: Sequence[Camera]) -> Keypoints:
    """Pixels as a perfect lens would show them; presence 0 where the lens sees nothing."""
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


def usable_frames(
    keypoints: Keypoints, cameras: Sequence[Camera], weighting: Weighting, gate: float = GATE
) -> Tensor:
    """Frames [T] of checked keypoints that show enough to be fitted; raises TooFewKeypoints if none
    does.
    """
    seen = undistorted(keypoints, cameras)
    weight = [
        keypoint_weights(seen.rows(some), weighting, gate).weight for some in blocks(len(seen))
    ]
    return enough(counting(seen, torch.cat(weight)))


def counting(keypoints: Keypoints, weight: Tensor) -> Tensor:
    """[T] how many undistorted keypoints of weights [T, K] are confident and count."""
    return ((keypoints.confidence * keypoints.presence >= USABLE_CONFIDENCE) & (weight > 0)).sum(1)


def enough(counts: Tensor) -> Tensor:
    """Frames [T] in which so many keypoints count that a body can be fitted; raises TooFewKeypoints
    if none does.
    """
    usable = counts >= LEAST_KEYPOINTS
    if not bool(usable.any()):
        raise TooFewKeypoints(
            f"no frame has {LEAST_KEYPOINTS} keypoints with a confidence of {USABLE_CONFIDENCE} or more (the best has "
            f"{int(counts.max())}): a body cannot be fitted. Check the detection, or choose a weighting without a gate."
        )
    return usable


# The joint at each keypoint.
JOINT_OF = {
    "nose": 15,
    "left_eye": 15,
    "right_eye": 15,
    "left_ear": 15,
    "right_ear": 15,
    "left_shoulder": 16,
    "right_shoulder": 17,
    "left_elbow": 18,
    "right_elbow": 19,
    "left_wrist": 20,
    "right_wrist": 21,
    "left_hip": 1,
    "right_hip": 2,
    "left_knee": 4,
    "right_knee": 5,
    "left_ankle": 7,
    "right_ankle": 8,
    "head_top": 15,
    "neck": 12,
    "pelvis": 0,
    "left_big_toe": 10,
    "right_big_toe": 11,
    "left_small_toe": 10,
    "right_small_toe": 11,
    "left_heel": 7,
    "right_heel": 8,
}
PELVIS = 0
HIPS = (1, 2)
FOLLOWED = {
    10: 7,
    11: 8,
    22: 20,
    23: 21,
}  # toes and hands: what is seen of ankle and wrist is seen of them


# A keypoint counts as seen when the probability that it is in the image and within NEAR sqrt(area)
# of the truth is at least OBSERVED_PROBABILITY. NEAR is 7 cm on an adult who stands, the same for
# all keypoints: a face whose eyes are off by a finger is seen. Both were chosen on a rendered
# validation set by the mean of what is right and not called seen, and wrong and called seen
# (bench/observed.py; bench/README.md has the figures on the test set). The second is below 1/2
# since the stated probability is too low there: 0.49 on average, where 0.65 of the keypoints are so
# close.
NEAR = 0.1
OBSERVED_PROBABILITY = 0.3
OBSERVED_SCORE = 0.25  # the same of a network's own score, which states no probability. Not tuned


def probability_observed(keypoints: Keypoints, near: float = NEAR) -> Tensor:
    """[T, K] that a keypoint is in the image and within `near` sqrt(area) of the truth, as far as
    its confidence tells.

    From the stated error distribution, or from the Gaussian of variance (1 - s) / s l^2 that an
    expected OKS s implies. A network's own score states no probability: OBSERVED_SCORE is taken for
    OBSERVED_PROBABILITY.
    """
    if len(keypoints) > BLOCK:
        return torch.cat(
            [probability_observed(keypoints.rows(some), near) for some in blocks(len(keypoints))]
        )
    presence = keypoints.presence
    squared = near**2 / l_squared(torch.ones(()), keypoints.skeleton)  # [K] in units of l^2
    if keypoints.source == "raw":
        return (keypoints.confidence * presence * OBSERVED_PROBABILITY / OBSERVED_SCORE).clamp(
            max=1
        )
    stated = keypoints.error
    if stated is not None:
        return presence * stated.cdf(squared)
    s = keypoints.confidence.clamp(max=1 - 1e-6)
    return presence * -torch.expm1(-squared / 2 * s / (1 - s))


def observed_joints(keypoints: Keypoints, size: tuple[int, int]) -> np.ndarray:
    """[T, 24]: a keypoint that counts as seen, inside the image of (width, height), lies at the
    joint or farther out.

    Everything hangs on the pelvis, so for the pelvis only the legs count; toes and hands follow
    ankle and wrist.
    """
    xy_px = keypoints.xy_px.numpy()
    inside = ((xy_px >= 0) & (xy_px <= np.array(size) - 1)).all(-1)
    seen = (probability_observed(keypoints) >= OBSERVED_PROBABILITY).numpy() & inside
    observed = np.zeros((len(seen), 24), np.bool_)
    for keypoint, name in enumerate(HALPE26.keypoints):
        observed[:, JOINT_OF[name]] |= seen[:, keypoint]
    for joint in range(23, 0, -1):  # children have higher numbers than their parents
        if joint not in FOLLOWED:
            observed[:, PARENTS[joint]] |= observed[:, joint]
    observed[:, PELVIS] = observed[:, HIPS].any(1)
    for leaf, followed in FOLLOWED.items():
        observed[:, leaf] = observed[:, followed]
    return observed


# A joint turns the bone that ends at the next joint, so the surface of a limb is seen where its far
# end is.
FAR_END = {1: 4, 2: 5, 4: 7, 5: 8, 16: 18, 17: 19, 18: 20, 19: 21}


def observed_bones(joint_observed: np.ndarray) -> np.ndarray:
    """Of joints [..., 24] -> of the surface that each of them moves [..., 24]: a thigh is seen
    where the knee is.
    """
    bones = joint_observed.copy()
    for joint, end in FAR_END.items():
        bones[..., joint] = joint_observed[..., end]
    return bones


LONGEST_GAP_S = 0.5
ABSENT = -1  # instead of the number of a segment

# What "agree" means, in units of the person's size in the image (the spread of the keypoints about
# their mean, about a third of a standing person's height). Wide on purpose: people do jump, and the
# tracker has already ended tracks that leap. Set by hand; tests/fitting/test_segments.py says what
# they must achieve.
PLACE, PLACE_PER_SECOND = 0.5, 2.0  # distance from the place that the motion on both sides predicts
SIZE = math.log(1.5)
POSE = 0.75  # mean distance of a keypoint, once place and size are taken away
VELOCITY_S = 0.15  # of the frames beside a gap tell how the person was moving


def segments(keypoints: Keypoints, shown: Tensor, fps: float) -> np.ndarray:
    """[T] the number of the segment that each frame belongs to, from 0, or ABSENT.

    keypoints: finite, on an even grid of frames; shown [T]: the frame shows enough to be fitted. A
    segment begins and ends with a frame that does.
    """
    number = np.full(len(shown), ABSENT, np.int64)
    rows = shown.numpy().nonzero()[0]
    if not len(rows):
        return number
    first = count = 0
    beside = 1 + max(1, round(VELOCITY_S * fps))  # rows on each side of a gap that matter
    for last in [*np.flatnonzero(np.diff(rows) > 1).tolist(), len(rows) - 1]:
        before = rows[max(first, last + 1 - beside) : last + 1][::-1]
        after = rows[last + 1 : last + 1 + beside]
        if not len(after) or not _bridged(keypoints, before, after, fps):
            number[rows[first] : rows[last] + 1] = count
            first = last + 1
            count = count + 1
    return number


def _bridged(keypoints: Keypoints, before: np.ndarray, after: np.ndarray, fps: float) -> bool:
    """Whether the gap between rows that show enough can be filled; both lead away from it."""
    a = int(before[0])
    b = int(after[0])
    if (b - a - 1) / fps > LONGEST_GAP_S:
        return False
    ends = keypoints.rows(np.array([a, b]))
    shared = (ends.confidence * ends.presence >= USABLE_CONFIDENCE).all(0).numpy()
    if shared.sum() < LEAST_KEYPOINTS:
        return False
    xy_px = ends.xy_px.double().numpy()[:, shared]  # [2, n, 2]
    place = xy_px.mean(1, keepdims=True)
    size = np.sqrt(np.square(xy_px - place).sum(-1).mean(1)).clip(1)
    pose, later = (xy_px - place) / size[:, None, None]
    seconds = (b - a) / fps
    velocity = np.mean(
        [_velocity(keypoints, rows, shared, fps) for rows in (before, after)], axis=0
    )
    away = np.linalg.norm(place[1, 0] - place[0, 0] - seconds * velocity) / math.sqrt(size.prod())
    # Sides are not repaired yet: each keypoint may be its counterpart of the other side, where that
    # is shared.
    on_all = np.full((len(shared), 2), np.nan)
    on_all[shared] = later
    other = on_all[list(keypoints.skeleton.flip_order)][shared]
    exchanged = np.where(np.isnan(other), later, other)
    apart = min(np.linalg.norm(pose - end, axis=-1).mean() for end in (later, exchanged))
    return bool(
        away <= PLACE + PLACE_PER_SECOND * seconds
        and abs(np.log(size[1] / size[0])) <= SIZE
        and apart <= POSE
    )


def _velocity(keypoints: Keypoints, rows: np.ndarray, shared: np.ndarray, fps: float) -> np.ndarray:
    """[2] px/s over `rows` [n], which lead away from the gap; zero where one frame stands alone."""
    together = rows[np.abs(rows - rows[0]) == np.arange(len(rows))]
    if len(together) < 2:
        return np.zeros(2)
    near, far = keypoints.xy_px[together[[0, -1]]].double().numpy()[:, shared]
    return (far - near).mean(0) * fps / float(together[-1] - together[0])


LIMBS = (("knee", "ankle"), ("elbow", "wrist"), ("shoulder", "hip"))
FEET = ("big_toe", "small_toe", "heel")  # go with the legs
# Set by hand, not tuned; tests/fitting/test_side_swap.py says what they must achieve.
# of sqrt(area), at 30 frames/s: the change of velocity from frame to frame, noise included
SIGMA = 0.05
BOUND = 3.0  # sigmas at which a distance stops counting more
LABEL_COST = 0.5  # for each exchanged pair


def reordered(keypoints: Keypoints, order: np.ndarray) -> Keypoints:
    """With the keypoints `order` [T, K] of each frame in the place of its own."""
    rows = np.arange(len(order))[:, None]
    picks = torch.from_numpy(order)
    return keypoints.along("keypoints", lambda value, _: value[rows, picks])


def side_order(keypoints: Keypoints, fps: float) -> np.ndarray:
    """[T, K] which of a frame's finite keypoints stands where, once sides are put back."""
    confidence = keypoints.confidence * keypoints.presence
    area_px2 = keypoint_area(keypoints, confidence > 0).double().numpy()
    sigma_px = SIGMA * np.sqrt(area_px2.clip(1)) * max(1.0, 30 / fps) ** 2
    size = keypoints.skeleton.size
    names_of = keypoints.skeleton.keypoints
    order = np.tile(np.arange(size), (len(confidence), 1))
    for names in LIMBS:
        pairs = _pairs(names, names_of)
        exchanged = _exchanged(
            keypoints.xy_px[:, pairs].double().numpy(),
            confidence[:, pairs].double().numpy(),
            sigma_px,
        )
        if "ankle" in names and f"left_{FEET[0]}" in names_of:
            pairs = np.concatenate([pairs, _pairs(FEET, names_of)])
        order[np.ix_(exchanged, pairs.ravel())] = pairs[:, ::-1].ravel()
    return order


def _pairs(names: tuple[str, ...], names_of: tuple[str, ...]) -> np.ndarray:
    """Numbers of the left and the right keypoint of each name, [n, 2]."""
    return np.array(
        [[names_of.index(f"{side}_{name}") for side in ("left", "right")] for name in names]
    )


def _exchanged(xy_px: np.ndarray, confidence: np.ndarray, sigma_px: np.ndarray) -> np.ndarray:
    """Frames [T] whose sides are exchanged; xy_px [T, pairs, 2 sides, 2], confidence [T, pairs, 2]."""
    frames = len(xy_px)
    either = np.stack(
        [xy_px, xy_px[:, :, ::-1]], 1
    )  # [T, 0 as labelled or 1 exchanged, pairs, sides, 2]
    weight = confidence.min((1, 2))  # a frame counts as much as its least confident point
    label = LABEL_COST * xy_px.shape[1] * weight
    if frames < 3:
        return np.zeros(frames, np.bool_)
    together = np.minimum(np.minimum(weight[2:], weight[1:-1]), weight[:-2])
    cost = np.empty(
        (frames - 2, 2, 2, 2)
    )  # [t, a, b, c]: choices a, b, c in frames t - 2, t - 1, t
    for some in blocks(frames - 2):
        a, b, c = (either[some.start + late : some.stop + late] for late in range(3))
        second = c[:, None, None, :] - 2 * b[:, None, :, None] + a[:, :, None, None]
        size2 = np.square(second).sum(-1) / np.square(
            sigma_px[2:][some, None, None, None, None, None]
        )
        cost[some] = (
            np.minimum(size2, BOUND**2).sum((-1, -2)) / 2 * together[some, None, None, None]
        )
    best = (
        np.array([0, label[0]])[:, None] + np.array([0, label[1]])[None]
    )  # [choice in t - 1, choice in t]
    came_from = np.zeros((frames, 2, 2), np.int8)
    for t in range(2, frames):
        paths = best[:, :, None] + cost[t - 2] + np.array([0, label[t]])
        came_from[t] = paths.argmin(0)
        best = paths.min(0)
    before, now = np.unravel_index(best.argmin(), (2, 2))
    chosen = [int(now), int(before)]
    for t in range(frames - 1, 1, -1):
        chosen.append(int(came_from[t, chosen[-1], chosen[-2]]))
    return np.array(chosen[::-1], np.bool_)


KNUCKLES = (5, 9, 13, 17)  # of the fingers, among the 21 keypoints
PALM = (1, *KNUCKLES)  # hangs on the wrist without bending; the thumb's base, too
LEAST_PRESENCE = 0.5  # of a hand that pulls
# std along each axis of a keypoint of a person's hand from the model's: proportions differ
UNMODELLED_M = 0.004
# Of the landmarks' depth relative to the wrist, as a share of the palm's length; they err together,
# so that each counts as a fraction of an observation. Measured by bench/fingers.py.
DEPTH_STD, DEPTH_SHARE = 0.35, 0.3


@dataclass(frozen=True)
class SeenHands(Table):
    """Both hands in T frames, for a body of the mean shape."""

    TENSORS = True
    xy_px: Tensor = column((2, 21, 2), "f", "pixels of a perfect lens", unit="px")  # [T, 2, 21, 2]
    weight: Tensor = column(
        (2, 21), "f", "presence over the variance along each axis; 0: not seen"
    )  # [T, 2, 21]
    # [T, 2, 21] along the line of sight, from the wrist, for the mean palm
    depth_m: Tensor = column((2, 21), "f", "depths by the network's landmarks", unit="m")
    depth_weight: Tensor = column((2,), "f", "1 over their variance; 0: not seen")  # [T, 2]
    line: Tensor = column(
        (2, 3), "f", "unit vectors of the line of sight to the wrist"
    )  # [T, 2, 3]
    # [T, 2, 3] axis-angle of the palm by wrist and knuckles of the landmarks: where a search begins
    palm_rad: Tensor = column(
        (2, 3), "f", "the palm's rotation from the T-pose to the camera frame", unit="rad"
    )

    @property
    def seen(self) -> Tensor:
        """[T, 2]"""
        return self.depth_weight > 0


def seen_hands(hands: HandKeypoints, camera: Camera, body: Body) -> SeenHands:
    """What a camera shows of hands, for a body with fingers."""
    fingers = body.with_fingers()
    rest = fingers.flat_points(body.rest_joints) + fingers.offsets
    rest = rest - rest[:, :1]  # landmarks are relative to the wrist as the network shows it
    spans = torch.cat(
        [_spans(_shown(hands.rows(some), camera)[2]) for some in blocks(len(hands))]
    )  # [T, 2]
    typical = torch.stack(
        [
            part[part > 0].median() if bool((part > 0).any()) else torch.tensor(1.0)
            for part in spans.T
        ]
    )
    return join_rows(
        (_seen(hands.rows(some), camera, rest, typical) for some in blocks(len(hands))), len(hands)
    )


def _spans(landmarks: Tensor) -> Tensor:
    """[n, 2] how long palms are by the landmarks; 0: not seen."""
    return landmarks[:, :, KNUCKLES].norm(dim=-1).mean(-1)


def _real(values: np.ndarray, shown: Tensor) -> Tensor:
    return torch.from_numpy(np.nan_to_num(values)).float() * shown.reshape(
        *shown.shape, *[1] * (values.ndim - 2)
    )


def _shown(hands: HandKeypoints, camera: Camera) -> tuple[Tensor, Tensor, Tensor]:
    """[n, 2] which hands are seen, their pixels and landmarks; zero where they are not."""
    shown = torch.from_numpy(
        (hands.presence >= LEAST_PRESENCE) & np.isfinite(hands.xy_px).all((-1, -2))
    )
    xy = camera.undistort(_real(hands.xy_px, shown))
    shown = shown & torch.isfinite(xy).all(-1).all(-1)  # behind what the lens sees
    return shown, _real(xy.numpy(), shown), _real(hands.landmarks_m, shown)


def _seen(hands: HandKeypoints, camera: Camera, rest: Tensor, typical: Tensor) -> SeenHands:
    """Of some frames. rest [2, 21, 3]: the mean body's hands; typical [2]: the palms' usual span of
    all frames.
    """
    shown, xy, landmarks = _shown(hands, camera)
    known = _spans(landmarks) > 0
    palms_m = rest[:, KNUCKLES].norm(dim=-1).mean(-1)
    landmarks = landmarks * (palms_m / typical)[:, None, None]
    # Pixels a metre, as if from far away: how far keypoints spread in the image and landmarks
    # across the line of sight.
    spread = [
        (part - part.mean(2, keepdim=True)).square().sum((-1, -2)).sqrt()
        for part in (xy, landmarks[..., :2])
    ]
    px_per_m = torch.where(known, spread[0] / spread[1].clamp(min=1e-3), spread[0] / (5 * palms_m))
    variance = (
        _real(hands.std_px, shown).clamp(min=0.3).square()
        + (px_per_m.unsqueeze(-1) * UNMODELLED_M).square()
    )
    ray = torch.cat(
        (
            (xy[:, :, 0] - xy.new_tensor(camera.center_px)) / xy.new_tensor(camera.focal_px),
            torch.ones(*shown.shape, 1),
        ),
        -1,
    )
    line = torch.nn.functional.normalize(ray, dim=-1)
    # The network looks along the line of sight: its axes are the camera's, turned from the optical
    # axis to that.
    axis = torch.tensor([0.0, 0.0, 1.0]).expand_as(line)
    off = torch.linalg.cross(axis, line)
    turn = rotation_matrices(
        off
        * (torch.asin(off.norm(dim=-1).clamp(max=1)) / off.norm(dim=-1).clamp(min=1e-9))[..., None]
    )
    cross = torch.einsum("thki,hkj->thij", landmarks[:, :, PALM], rest[:, PALM])
    presence = _real(hands.presence, shown)
    return SeenHands(
        xy,
        presence.unsqueeze(-1) / variance,
        landmarks[..., 2],
        known * presence * DEPTH_SHARE / (DEPTH_STD * palms_m) ** 2,
        line,
        matrix_to_axis_angle(turn @ nearest_rotation(cross)),
    )
