"""Split a track into segments in which the person is present.

Frames that show too little are filled in from the frames around them, if there are few of them and
both sides agree: within LONGEST_GAP_S, the person reappears about where the motion led, in about
the same size and pose. Otherwise it is unknown what happened in between, and the person is absent
there.
"""

import math

import numpy as np
from torch import Tensor

from fitting.keypoints.usable import LEAST_KEYPOINTS, USABLE_CONFIDENCE
from pose2d.types import Keypoints

LONGEST_GAP_S = 0.5
ABSENT = -1  # instead of the number of a segment

# What "agree" means, in units of the person's size in the image (the spread of the keypoints about
# their mean, about a third of a standing person's height). Wide on purpose: people do jump, and the
# tracker has already ended tracks that leap. Set by hand; tests/fitting/test_segments.py says what
# they must achieve.
# distance from the place that the motion on both sides predicts
PLACE = 0.5
PLACE_PER_SECOND = 2.0
SIZE = math.log(1.5)
POSE = 0.75  # mean distance of a keypoint, once place and size are taken away
VELOCITY_S = 0.15  # of the frames beside a gap tell how the person was moving


def split_into_segments(keypoints: Keypoints, usable: Tensor, fps: float) -> np.ndarray:
    """Return the number of the segment that each frame belongs to, [T] from 0, or ABSENT.

    keypoints: finite, on an even grid of frames; usable [T]: the frame shows enough to be fitted. A
    segment begins and ends with such a frame.
    """
    number = np.full(len(usable), ABSENT, np.int64)
    rows = usable.numpy().nonzero()[0]
    if not len(rows):
        return number
    first = count = 0
    beside = 1 + max(1, round(VELOCITY_S * fps))  # rows on each side of a gap that matter
    for last in [*np.flatnonzero(np.diff(rows) > 1).tolist(), len(rows) - 1]:
        before = rows[max(first, last + 1 - beside) : last + 1][::-1]
        after = rows[last + 1 : last + 1 + beside]
        if not len(after) or not _can_bridge(keypoints, before, after, fps):
            number[rows[first] : rows[last] + 1] = count
            first = last + 1
            count = count + 1
    return number


def _can_bridge(keypoints: Keypoints, before: np.ndarray, after: np.ndarray, fps: float) -> bool:
    """Return whether the gap between usable rows can be filled; both row lists lead away
    from it.
    """
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
    place_distance = np.linalg.norm(place[1, 0] - place[0, 0] - seconds * velocity) / math.sqrt(
        size.prod()
    )
    # Sides are not repaired yet: each keypoint may be its counterpart of the other side, where that
    # is shared.
    on_all = np.full((len(shared), 2), np.nan)
    on_all[shared] = later
    mirrored = on_all[list(keypoints.skeleton.flip_order)][shared]
    exchanged = np.where(np.isnan(mirrored), later, mirrored)
    pose_distance = min(np.linalg.norm(pose - end, axis=-1).mean() for end in (later, exchanged))
    return bool(
        place_distance <= PLACE + PLACE_PER_SECOND * seconds
        and abs(np.log(size[1] / size[0])) <= SIZE
        and pose_distance <= POSE
    )


def _velocity(keypoints: Keypoints, rows: np.ndarray, shared: np.ndarray, fps: float) -> np.ndarray:
    """Return the velocity [2] in px/s over `rows` [n], which lead away from the gap; zero for a
    single frame.
    """
    together = rows[np.abs(rows - rows[0]) == np.arange(len(rows))]
    if len(together) < 2:
        return np.zeros(2)
    near, far = keypoints.xy_px[together[[0, -1]]].double().numpy()[:, shared]
    return (far - near).mean(0) * fps / float(together[-1] - together[0])
