"""One owner for a keypoint: where two people of a frame claim the same evidence, one of them is mistaken.

A person half hidden gets the limbs of the one in front. A limb belongs to the person whose track expected it there and
who is in front; for the other its presence falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pose2d.skeletons import Skeleton
from pose2d.tracking.association import keypoint_l2
from pose2d.tracking.pose_motion import PoseState

NEW_TRACK = 3.0  # minus log likelihood of any keypoint under a new track: a deviation of some four times OKS's l


@dataclass(frozen=True)
class OwnershipOptions:
    """Chosen by hand; bench/identity.py counts the frames with a wrong owner."""

    claim_l: float = 0.7  # two keypoints this near, in OKS's l, are one piece of evidence
    depth_odds: float = 2.0  # most that depth order says, as log odds
    track_odds: float = 8.0  # most that the tracks' predictions say
    same_pose: float = 0.6  # two poses of at least this OKS in one frame are one person's
    whole_weight: float = 3.0  # what the body as a whole says about a limb's owner, beside what the limb itself says


def nearer_log_odds(body_px: np.ndarray, feet_px: np.ndarray, options: OwnershipOptions) -> np.ndarray:
    """Log odds [N, N] that each person is in front of each other, from the sizes [N] of their bodies and the height
    [N] of their feet in the image (y down; NaN: not seen). On one floor who is nearer stands lower."""
    size = np.log(body_px[:, None] / body_px) / 0.25
    feet = (feet_px[:, None] - feet_px) / (0.1 * (body_px[:, None] + body_px) / 2)
    both = np.where(np.isfinite(feet), (size + np.nan_to_num(feet)) / 2, size / 2)
    return np.clip(both, -options.depth_odds, options.depth_odds)


def ownership(
    xy_px: np.ndarray,
    boxes_px: np.ndarray,
    predicted: Sequence[PoseState | None],
    nearer: np.ndarray,
    options: OwnershipOptions,
    skeleton: Skeleton,
) -> np.ndarray:
    """By how much presence falls, as factors [N, K], where people of one frame claim the same evidence.

    Two people claim the same limb when both its ends, or their mirror images, coincide at the scale of OKS. It goes to
    the one whose track expected it there (`predicted`, None for a new track) and who is in front (`nearer`, log odds
    [N, N]); the decision is made for the body as a whole and corrected for each limb. Where nothing decides, both keep
    half.
    """
    count, keypoints = xy_px.shape[:2]
    factor = np.ones((count, keypoints))
    l2 = keypoint_l2(boxes_px, skeleton) * options.claim_l**2  # [N, K]
    misfit = np.stack([_misfit(state, xy, scale2) for state, xy, scale2 in zip(predicted, xy_px, l2, strict=True)])
    overlap = ((boxes_px[:, None, :2] < boxes_px[:, 2:]) & (boxes_px[:, None, 2:] > boxes_px[:, :2])).all(-1)
    first, second = np.nonzero(np.triu(overlap, 1))
    for order in (np.arange(keypoints), np.array(skeleton.flip_order)):
        d2 = ((xy_px[first] - xy_px[second][:, order]) ** 2).sum(-1)
        alike = np.exp(-np.nan_to_num(d2, nan=np.inf) / (2 * np.minimum(l2[first], l2[second])))
        claims = _claimed(alike, skeleton)  # [pairs, K] of the first
        for pair in np.flatnonzero(claims.max(1, initial=0.0) >= 0.05):
            i, j, claimed = first[pair], second[pair], claims[pair]
            # Positive: i explains the evidence better. The body as a whole, then each limb.
            each = misfit[j][order] - misfit[i]
            body = float((claimed * each).sum() / claimed.sum())
            odds = np.clip(options.whole_weight * body + each, -options.track_odds, options.track_odds)
            share_i = 1 / (1 + np.exp(-(odds + nearer[i, j])))
            factor[i] = np.minimum(factor[i], 1 - claimed * (1 - share_i))
            factor[j][order] = np.minimum(factor[j][order], 1 - claimed * share_i)
    return factor


def _misfit(state: PoseState | None, xy_px: np.ndarray, scale2: np.ndarray) -> np.ndarray:
    """How badly a track explains keypoints [K, 2], as minus log likelihood, [K]. A new track expected nothing anywhere,
    which is worse than a track that expected them there and better than one that did not."""
    if state is None:
        return np.full(len(xy_px), NEW_TRACK)
    variance = state.cov[:, 0, 0] + scale2
    d2 = np.nan_to_num(((xy_px - state.xy_px) ** 2).sum(-1))
    return np.minimum(d2 / variance, 16) / 2 + np.log(variance / scale2)


def _claimed(alike: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """How surely each keypoint is one piece of evidence for two people, [M, K] of M pairs: near each other (`alike`
    [M, K], in 0..1) and so is the other end of one of its limbs. Single keypoints come near whenever people pass."""
    limb = np.zeros_like(alike)
    for a, b in skeleton.edges:
        both = np.sqrt(alike[:, a] * alike[:, b])
        limb[:, a], limb[:, b] = np.maximum(limb[:, a], both), np.maximum(limb[:, b], both)
    return np.minimum(limb, np.sqrt(alike))
