"""What a detection says about whose next sighting it is, beside its box: its pose and its appearance.

Both are log-likelihood ratios (this track's person against anybody in the same place), so that they add up with each
other and with the likelihood of the box's motion (pose2d/tracking/kalman.py). The tracker adds them for the pairs that
the motion allows. A person half hidden gets the keypoints, and with them the colours, of the one in front; so both
cues count only as far as a detection's pose is its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pose2d.detect.detector import iou
from pose2d.oks import AREA_OF_BOX, sigma_px
from pose2d.skeletons import Skeleton
from pose2d.tracking.appearance import Appearances, describe, log_likelihood_ratio_of_pairs
from pose2d.tracking.pose_motion import PoseMotionOptions, PoseState

LEAST_SURE = 0.1  # a keypoint of less confidence is not seen


@dataclass(frozen=True)
class AssociationOptions:
    """Weights and limits of the cues. Chosen on the tuning seeds of bench/identity.py."""

    pose_weight: float = 1.0  # independent keypoints that a pose's keypoints together are worth
    appearance_weight: float = 1.0
    pose_range: tuple[float, float] = (-3.0, 4.0)  # limits of the log-likelihood ratio, so that no cue decides alone
    appearance_range: tuple[float, float] = (-8.0, 4.0)
    motion: PoseMotionOptions = field(default_factory=PoseMotionOptions)


@dataclass(frozen=True)
class Cues:
    """What the N detections of one frame say beside their boxes."""

    xy_px: np.ndarray  # [N, K, 2]
    sigma_px: np.ndarray  # [N, K] standard deviation on either axis; infinite: not seen
    looks: Appearances  # [N]
    skeleton: Skeleton

    def __len__(self) -> int:
        return len(self.xy_px)


def cues_of(rgb: np.ndarray, boxes_px: np.ndarray, xy_px: np.ndarray, sure: np.ndarray, skeleton: Skeleton) -> Cues:
    """From the keypoints [N, K, 2] of people in boxes [N, 4], `sure` [N, K] being confidence times presence."""
    sigma = keypoint_sigma(boxes_px, xy_px, sure, skeleton)
    return Cues(xy_px.astype(np.float64), sigma, describe(rgb, xy_px, sure, skeleton), skeleton)


def keypoint_sigma(boxes_px: np.ndarray, xy_px: np.ndarray, sure: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """The standard deviation on either axis that confidence stands for, [N, K] pixels; infinite: not seen."""
    seen = np.isfinite(xy_px).all(-1) & (sure >= LEAST_SURE)
    stated = sigma_px(np.clip(sure, LEAST_SURE, 0.999).astype(np.float64), keypoint_l2(boxes_px, skeleton))
    return np.where(seen, stated, np.inf)


def keypoint_l2(boxes_px: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """OKS's l^2 in pixels^2 of each keypoint of people in boxes [N, 4]: [N, K]."""
    sides = np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0)
    return AREA_OF_BOX * sides.prod(-1)[:, None] * skeleton.oks_variance


def cue_log_likelihood(
    pairs: tuple[np.ndarray, np.ndarray],
    poses: Sequence[PoseState],
    looks: Appearances,
    boxes_px: np.ndarray,
    cues: Cues,
    distinct: np.ndarray,
    options: AssociationOptions,
) -> np.ndarray:
    """What pose and appearance say for each of M pairs (numbers of tracks, of detections): log-likelihood ratios [M].

    poses, looks: of each track; boxes_px [D, 4], cues: of each detection; distinct [D]: how far its pose is its own,
    1 - the OKS with the most similar other.
    """
    track, box = pairs
    if not len(track):
        return np.zeros(0)
    pose = pose_log_likelihood_ratio(pairs, poses, boxes_px, cues, options)
    look = options.appearance_weight * log_likelihood_ratio_of_pairs(looks[track], cues.looks[box])
    return distinct[box] ** 2 * (pose + np.clip(look, *options.appearance_range))


def pose_log_likelihood_ratio(
    pairs: tuple[np.ndarray, np.ndarray],
    predicted: Sequence[PoseState],
    boxes_px: np.ndarray,
    cues: Cues,
    options: AssociationOptions,
) -> np.ndarray:
    """How much likelier the pose of each pair's detection is the one expected of its track than that of anybody in the
    same place: log, [M].

    Same person: a keypoint is off by what the prediction, the detection and the body's softness (a third of OKS's l)
    leave open. Another person: off by another sixth of the body's size on either axis. A sum over keypoints would
    count the same movement K times, so the mean counts `pose_weight` times.
    """
    track, box = pairs
    if not len(track):
        return np.zeros(0)
    body2 = (np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0) ** 2).sum(-1)[box, None]  # [M, 1] pixels^2
    soft2 = keypoint_l2(boxes_px, cues.skeleton)[box] / 9  # [M, K]
    xy, sigma = cues.xy_px[box], cues.sigma_px[box]
    seen = np.isfinite(xy).all(-1) & np.isfinite(sigma)
    expected_xy = np.stack([state.xy_px for state in predicted])[track]
    expected_var = np.stack([state.cov[:, 0, 0] for state in predicted])[track]
    same2 = expected_var + np.where(seen, np.minimum(sigma, 1e6), 1e6) ** 2 + soft2
    other2 = same2 + body2 / 36
    d2 = ((np.nan_to_num(xy) - expected_xy) ** 2).sum(-1)
    # Two axes of one variance: log N is -d^2 / 2 s^2 - log s^2. A heavy tail: d^2 counts up to 5 sigma.
    each = np.log(other2 / same2) - np.minimum(d2 / same2, 25) / 2 + np.minimum(d2 / other2, 25) / 2
    weight = np.where(seen, body2 / 36 / other2, 0.0)  # 0 where prediction or detection says nothing
    ratio = (weight * each).sum(-1) / np.maximum(weight.sum(-1), 1.0)
    return np.clip(options.pose_weight * ratio, *options.pose_range)


def best_of_each_pose(
    scores: np.ndarray, boxes_px: np.ndarray, xy_px: np.ndarray, alike: np.ndarray, limit: float
) -> np.ndarray:
    """Which of D detections, in order, are the best ones of their pose: [M] numbers.

    alike [D, D]: OKS between their poses (`pose_similarity`). A person found twice, and somebody hidden whose keypoints
    are those of the person in front, have the pose of another box; best is the one that scores high and that its
    keypoints [D, K, 2] fill.
    """
    if not (alike >= limit).any():
        return np.arange(len(scores))
    filled = np.diag(iou(boxes_px, np.concatenate([np.nanmin(xy_px, 1), np.nanmax(xy_px, 1)], 1)))
    kept: list[int] = []
    for box in np.argsort(-scores * filled, kind="stable").tolist():
        if not kept or alike[box, kept].max() < limit:
            kept.append(box)
    return np.array(sorted(kept), np.int64)


def pose_similarity(xy_px: np.ndarray, boxes_px: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """OKS [D, D] between the poses [D, K, 2] of people in boxes [D, 4], at the scale of the smaller of two; 0 with
    oneself and with whom a box does not overlap."""
    count = len(xy_px)
    alike = np.zeros((count, count))
    if count < 2:
        return alike
    first, last = boxes_px[:, None, :2], boxes_px[:, None, 2:]
    overlap = ((first < boxes_px[:, 2:]) & (last > boxes_px[:, :2])).all(-1)
    i, j = np.nonzero(np.triu(overlap, 1))
    l2 = keypoint_l2(boxes_px, skeleton)
    d2 = np.nan_to_num(((xy_px[i] - xy_px[j]) ** 2).sum(-1), nan=np.inf)
    alike[i, j] = alike[j, i] = np.exp(-d2 / (2 * np.minimum(l2[i], l2[j]))).mean(-1)
    return alike
