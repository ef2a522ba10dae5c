"""Repair exchanges of left and right from one frame to the next.

Seen from the side, a 2D network is sure where the legs are and unsure which is which: the labels
flicker, each time with full confidence. A body cannot do that. So for legs, arms and trunk each,
every frame is taken as labelled (0) or with sides exchanged (1), and the choice for the whole track
is the one with the least

    sum_t  |x_t - 2 x_{t-1} + x_{t-2}|^2 / (2 sigma_t^2)  +  LABEL_COST where exchanged,

each distance bounded, since a network may also be plainly wrong (Viterbi over pairs of frames).
Labels decide where motion cannot: at low frame rates, and after a gap.
"""

import numpy as np
import torch

from fitting.keypoints.weights import keypoint_area
from pose2d.base.table import blocks
from pose2d.types import Keypoints

LIMBS = (("knee", "ankle"), ("elbow", "wrist"), ("shoulder", "hip"))
FEET = ("big_toe", "small_toe", "heel")  # go with the legs
# Set by hand, not tuned; tests/fitting/test_side_swap.py says what they must achieve.
# of sqrt(area), at 30 frames/s: the change of velocity from frame to frame, noise included
SIGMA = 0.05
BOUND = 3.0  # sigmas at which a distance stops counting more
LABEL_COST = 0.5  # for each exchanged pair


def reorder_keypoints(keypoints: Keypoints, order: np.ndarray) -> Keypoints:
    """Return keypoints in which each frame's keypoints are replaced by those of the numbers `order`
    [T, K].
    """
    rows = np.arange(len(order))[:, None]
    picks = torch.from_numpy(order)
    return keypoints.along("keypoints", lambda value, _: value[rows, picks])


def find_side_order(keypoints: Keypoints, fps: float) -> np.ndarray:
    """Return which of a frame's finite keypoints belongs at each place once sides are repaired, [T,
    K].
    """
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
    """Return the numbers of the left and the right keypoint of each name, [n, 2]."""
    return np.array(
        [[names_of.index(f"{side}_{name}") for side in ("left", "right")] for name in names]
    )


def _exchanged(xy_px: np.ndarray, confidence: np.ndarray, sigma_px: np.ndarray) -> np.ndarray:
    """Return the frames [T] whose sides are exchanged, for xy_px [T, pairs, 2 sides, 2] and
    confidence [T, pairs, 2].
    """
    frames = len(xy_px)
    # [T, 0 as labelled or 1 exchanged, pairs, sides, 2]
    either = np.stack([xy_px, xy_px[:, :, ::-1]], 1)
    weight = confidence.min((1, 2))  # a frame counts as much as its least confident point
    label = LABEL_COST * xy_px.shape[1] * weight
    if frames < 3:
        return np.zeros(frames, np.bool_)
    together = np.minimum(np.minimum(weight[2:], weight[1:-1]), weight[:-2])
    # [t, a, b, c]: choices a, b, c in frames t - 2, t - 1, t
    cost = np.empty((frames - 2, 2, 2, 2))
    for block in blocks(frames - 2):
        a, b, c = (either[block.start + late : block.stop + late] for late in range(3))
        second = c[:, None, None, :] - 2 * b[:, None, :, None] + a[:, :, None, None]
        size2 = np.square(second).sum(-1) / np.square(
            sigma_px[2:][block, None, None, None, None, None]
        )
        cost[block] = (
            np.minimum(size2, BOUND**2).sum((-1, -2)) / 2 * together[block, None, None, None]
        )
    # [choice in t - 1, choice in t]
    best = np.array([0, label[0]])[:, None] + np.array([0, label[1]])[None]
    came_from = np.zeros((frames, 2, 2), np.int8)
    for t in range(2, frames):
        paths = best[:, :, None] + cost[t - 2] + np.array([0, label[t]])
        came_from[t] = paths.argmin(0)
        best = paths.min(0)
    previous_choice, last_choice = np.unravel_index(best.argmin(), (2, 2))
    chosen = [int(last_choice), int(previous_choice)]
    for t in range(frames - 1, 1, -1):
        chosen.append(int(came_from[t, chosen[-1], chosen[-2]]))
    return np.array(chosen[::-1], np.bool_)
