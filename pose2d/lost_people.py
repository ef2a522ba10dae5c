"""People whom the detector lost, read where their tracks expect them.

A detector misses people who are half hidden, and its suppression drops the second of two boxes. A
track knows where its person should be, and the calibrated confidence says whether a person with
these keypoints is there. bench/lost_people.py measures how many people are found this way."""

from dataclasses import replace

import numpy as np

from pose2d.tracking.appearance import describe
from pose2d.tracking.pose_duplicates import pose_similarity
from pose2d.types import Detections
from pose2d.video.frames import Frame

# A person who is lost for longer is not looked for. Not tuned.
LOST_S = 0.7
# Least mean confidence times presence of the keypoints of a person who is there, and OKS with the
# pose of another detection from which that person was read instead. With 0.4 for both, half as many
# people are found (bench/lost_people.py).
LEAST_SURE = 0.3
OTHER_POSE = 0.5
BESIDE_KEYPOINTS = 0.05  # margin of a box around keypoints, as a share of their extent


def expected_rows(frame: Frame, track: np.ndarray, boxes_px: np.ndarray) -> Detections:
    """Return rows without keypoints for tracks [N] that are expected in boxes [N, 4], cut at the
    image's edges; boxes of which less than half is in the image are left out.
    """
    size = np.array(frame.rgb.shape[1::-1] * 2) - 1
    cut_px = boxes_px.clip(0, size)
    area = (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    is_inside = (cut_px[:, 2:] - cut_px[:, :2]).prod(1) >= area / 2
    box_px = cut_px[is_inside]
    rows = Detections.in_frame(frame.index, float(frame.time_s), box_px, np.zeros(len(box_px)))
    return replace(rows, identity=track[is_inside])


def with_people_read(frame: Frame, seen: Detections, expected: Detections) -> Detections:
    """Return the detections of a frame and, after them, the expected people who are there: whose
    keypoints are believed and are not those of another detection.
    """
    score = expected.sure.mean(1)
    rows = replace(expected, score=score.astype(seen.score.dtype)).rows(score >= LEAST_SURE)
    if not len(rows):
        return seen
    appearance = describe(frame.rgb, rows.xy_px, rows.sure, rows.points.skeleton)
    rows = replace(rows, box_px=_boxes_around(rows.xy_px), appearance=appearance)
    everyone = Detections.concat([seen, rows])
    similarity = pose_similarity(
        everyone.xy_px.astype(np.float64), everyone.box_px, everyone.points.skeleton
    )
    is_seen = np.arange(len(everyone)) < len(seen)
    return everyone.rows(is_seen | (similarity.max(1, initial=0.0) < OTHER_POSE))


def _boxes_around(xy_px: np.ndarray) -> np.ndarray:
    """Return boxes [N, 4] around keypoints [N, K, 2], as a detector would draw them."""
    low = xy_px.min(1).astype(np.float64)
    high = xy_px.max(1).astype(np.float64)
    margin = BESIDE_KEYPOINTS * (high - low)
    return np.concatenate([low - margin, high + margin], 1)
