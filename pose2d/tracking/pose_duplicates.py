"""Find boxes that hold the same pose: a person detected twice, or a hidden person whose keypoints
are those of the person in front.
"""

import numpy as np

from pose2d.detect.boxes import iou
from pose2d.skeletons import Skeleton
from pose2d.types import AREA_OF_BOX, l_squared


def best_of_each_pose(
    scores: np.ndarray,
    boxes_px: np.ndarray,
    xy_px: np.ndarray,
    similarity: np.ndarray,
    limit: float,
) -> np.ndarray:
    """Return the rows [M] of D detections, rising, that are the best ones of their pose.

    A person who was detected twice, and a hidden person whose keypoints are those of the person in
    front, have the pose of another box: `similarity` [D, D] (`pose_similarity`) reaches `limit`.
    The best box scores high and is filled by its keypoints [D, K, 2]."""
    if not (similarity >= limit).any():
        return np.arange(len(scores))
    keypoint_boxes_px = np.concatenate([np.nanmin(xy_px, 1), np.nanmax(xy_px, 1)], 1)
    filled = np.diag(iou(boxes_px, keypoint_boxes_px))
    best: list[int] = []
    for box in np.argsort(-scores * filled, kind="stable").tolist():
        if not best or similarity[box, best].max() < limit:
            best.append(box)
    return np.array(sorted(best), np.int64)


def pose_similarity(xy_px: np.ndarray, boxes_px: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """Return the OKS [D, D] between the poses [D, K, 2] of people in boxes [D, 4], at the scale of
    the smaller of two; 0 with oneself and where boxes do not overlap.
    """
    count = len(xy_px)
    similarity = np.zeros((count, count))
    if count < 2:
        return similarity
    first = boxes_px[:, None, :2]
    last = boxes_px[:, None, 2:]
    overlap = ((first < boxes_px[:, 2:]) & (last > boxes_px[:, :2])).all(-1)
    i, j = np.nonzero(np.triu(overlap, 1))
    box_area = np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0).prod(-1)
    l2 = l_squared(AREA_OF_BOX * box_area, skeleton)
    d2 = np.nan_to_num(((xy_px[i] - xy_px[j]) ** 2).sum(-1), nan=np.inf)
    oks = np.exp(-d2 / (2 * np.minimum(l2[i], l2[j]))).mean(-1)
    similarity[i, j] = oks
    similarity[j, i] = oks
    return similarity
