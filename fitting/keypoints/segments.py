"""When a person is there: uninterrupted segments of a track, and the absences between them.

Frames that show too little are filled in from the frames around them, if there are few of them and both sides agree:
within LONGEST_GAP_S, the person reappears about where it was heading, in about the same size and pose. Otherwise nobody
knows what happened in between, and the person is absent there.
"""

import math

import numpy as np
from torch import Tensor

from fitting.thresholds import LEAST_KEYPOINTS, USABLE_CONFIDENCE
from pose2d.types import Keypoints

LONGEST_GAP_S = 0.5
ABSENT = -1  # instead of the number of a segment

# What "agree" means, in units of the person's size in the image (the spread of the keypoints about their mean, about a
# third of a standing person's height). Wide on purpose: people do jump, and the tracker has already ended tracks that
# leap. Set by hand; tests/fitting/test_segments.py says what they must achieve.
PLACE, PLACE_PER_SECOND = 0.5, 2.0  # distance from the place that the motion on both sides predicts
SIZE = math.log(1.5)
POSE = 0.75  # mean distance of a keypoint, once place and size are taken away
VELOCITY_S = 0.15  # of the frames beside a gap tell how the person was moving


def segments(keypoints: Keypoints, shown: Tensor, fps: float) -> np.ndarray:
    """[T] the number of the segment that each frame belongs to, from 0, or ABSENT.

    keypoints: finite, on an even grid of frames; shown [T]: the frame shows enough to be fitted. A segment begins and
    ends with a frame that does.
    """
    number = np.full(len(shown), ABSENT, np.int64)
    rows = shown.numpy().nonzero()[0]
    if not len(rows):
        return number
    first = count = 0
    beside = 1 + max(1, round(VELOCITY_S * fps))  # rows on each side of a gap that matter
    for last in [*np.flatnonzero(np.diff(rows) > 1).tolist(), len(rows) - 1]:
        before, after = rows[max(first, last + 1 - beside) : last + 1][::-1], rows[last + 1 : last + 1 + beside]
        if not len(after) or not _bridged(keypoints, before, after, fps):
            number[rows[first] : rows[last] + 1] = count
            first, count = last + 1, count + 1
    return number


def _bridged(keypoints: Keypoints, before: np.ndarray, after: np.ndarray, fps: float) -> bool:
    """Whether the gap between rows that show enough can be filled; both lead away from it."""
    a, b = int(before[0]), int(after[0])
    if (b - a - 1) / fps > LONGEST_GAP_S:
        return False
    ends = keypoints.rows(np.array([a, b]))
    shared = (ends.confidence * ends.presence >= USABLE_CONFIDENCE).all(0).numpy()
    if shared.sum() < LEAST_KEYPOINTS:
        return False
    (place_a, size_a, pose_a), (place_b, size_b, pose_b) = map(_normalised, ends.xy_px.double().numpy()[:, shared])
    seconds, size = (b - a) / fps, math.sqrt(size_a * size_b)
    velocity = np.mean([_velocity(keypoints, rows, shared, fps) for rows in (before, after)], axis=0)
    away = np.linalg.norm(place_b - place_a - seconds * velocity) / size
    order = _other_side(keypoints, shared)
    pose = min(_distance(pose_a, pose_b), _distance(pose_a, pose_b[order]))  # sides are not repaired yet
    return bool(away <= PLACE + PLACE_PER_SECOND * seconds and abs(math.log(size_b / size_a)) <= SIZE and pose <= POSE)


def _normalised(xy_px: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Mean [2], spread, and the keypoints [n, 2] without both."""
    place = xy_px.mean(0)
    size = max(float(np.sqrt(np.square(xy_px - place).sum(-1).mean())), 1.0)
    return place, size, (xy_px - place) / size


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b, axis=-1).mean())


def _other_side(keypoints: Keypoints, shared: np.ndarray) -> np.ndarray:
    """For each shared keypoint, where its counterpart of the other side stands among them; itself where not shared."""
    position = {keypoint: place for place, keypoint in enumerate(np.flatnonzero(shared).tolist())}
    flip = keypoints.skeleton.flip_order
    return np.array([position.get(int(flip[keypoint]), place) for keypoint, place in position.items()])


def _velocity(keypoints: Keypoints, rows: np.ndarray, shared: np.ndarray, fps: float) -> np.ndarray:
    """[2] px/s over `rows` [n], which lead away from the gap; zero where one frame stands alone."""
    together = rows[np.abs(rows - rows[0]) == np.arange(len(rows))]
    if len(together) < 2:
        return np.zeros(2)
    near, far = keypoints.xy_px[together[[0, -1]]].double().numpy()[:, shared]
    return (far - near).mean(0) * fps / float(together[-1] - together[0])
