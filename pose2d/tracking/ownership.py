"""One owner for a keypoint: where two people of a frame claim the same evidence, one of them is mistaken.

A person half hidden gets the limbs of the one in front. A limb belongs to the person whose track expected it there and
who is in front; for the other its presence falls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pose2d.base import scratch
from pose2d.base.table import blocks
from pose2d.skeletons import Skeleton
from pose2d.tracking.kalman import PoseMotionOptions, PoseState, first_pose, predict_pose, update_pose
from pose2d.tracking.paths import body_sizes, rows_of_frames, rows_of_tracks
from pose2d.tracking.tracker import keypoint_l2, keypoint_std, pose_similarity
from pose2d.types import Detections

RUN_GAP_S = 0.3  # two tracks that have one pose are undone run by run; a longer pause begins another
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


def owners(seen: Detections, options: OwnershipOptions) -> np.ndarray:
    """For every detection by how much the presence of its keypoints falls, [N, K]: see `ownership`."""
    assert seen.keypoints is not None
    skeleton, xy_px, sure = seen.keypoints.skeleton, seen.xy_px, seen.sure
    factor = np.ones(sure.shape, np.float32)
    one_pose: dict[tuple[int, int], list[tuple[int, int]]] = {}  # rows of two tracks with the same pose
    tracks = rows_of_tracks(seen)
    body = np.ones(len(seen))
    for rows in tracks.values():
        body[rows] = body_sizes(seen.time_s[rows], seen.box_px[rows])
    crowded, needed = _crowded_frames(seen, tracks)
    ankles = [skeleton.keypoints.index(f"{side}_ankle") for side in ("left", "right")]
    feet = np.where(sure[:, ankles] >= 0.3, xy_px[:, ankles, 1], -np.inf).max(1)
    feet[~np.isfinite(feet)] = np.nan
    motion, state = PoseMotionOptions(), _Expected(seen, body)
    for rows in crowded:
        here = rows[needed[rows]]
        if not len(here):
            continue
        if len(here) > 1:
            predicted = [state.at(row, motion) for row in here]
            nearer = nearer_log_odds(body[here], feet[here], options)
            factor[here] = ownership(xy_px[here], seen.box_px[here], predicted, nearer, options, skeleton)
            alike = pose_similarity(xy_px[here], seen.box_px[here], skeleton)
            for i, j in np.argwhere(np.triu(alike >= options.same_pose)):
                pair = int(seen.identity[here[i]]), int(seen.identity[here[j]])
                one_pose.setdefault(pair, []).append((int(here[i]), int(here[j])))
        for row in here:
            state.update(row, factor[row], motion)
    lengths = {number: len(rows) for number, rows in tracks.items()}
    for pair, both in one_pose.items():
        _decide_runs(seen, factor, np.array(both), lengths[pair[0]] >= lengths[pair[1]])
    return factor


def _decide_runs(seen: Detections, factor: np.ndarray, rows: np.ndarray, first_is_longer: bool) -> None:
    """Two tracks have one pose in these detections, rows [M, 2]: every run of them is given to one of the two as a
    whole, by what each frame says about the owner, and where that is a draw to the track that is longer."""
    starts = np.flatnonzero(np.diff(seen.time_s[rows[:, 0]]) > RUN_GAP_S) + 1
    for run in np.split(rows, starts):
        if len(run) < 3:
            continue
        more = float(factor[run[:, 0]].mean() - factor[run[:, 1]].mean())
        first_owns = more > 0.1 or (more >= -0.1 and first_is_longer)
        factor[run[:, 0]], factor[run[:, 1]] = (1.0, 0.0) if first_owns else (0.0, 1.0)


def _crowded_frames(seen: Detections, tracks: Mapping[int, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of each frame in order of time, and which rows [N] matter: those of people whose boxes overlap another's in
    that frame or within the second after it."""
    close = np.zeros(len(seen), bool)
    rows_of_frame = rows_of_frames(seen)
    for rows in rows_of_frame:
        if len(rows) > 1:
            boxes = seen.box_px[rows]
            both = np.minimum(boxes[:, None, 2:], boxes[:, 2:]) - np.maximum(boxes[:, None, :2], boxes[:, :2])
            overlap = (both > 0).all(-1)
            np.fill_diagonal(overlap, False)
            close[rows] = overlap.any(1)
    needed = np.zeros(len(seen), bool)
    for rows in tracks.values():
        times, close_s = seen.time_s[rows], seen.time_s[rows][close[rows]]
        if len(close_s):
            following = np.searchsorted(close_s, times)
            needed[rows] = (following < len(close_s)) & (close_s[following.clip(max=len(close_s) - 1)] - times <= 1.0)
    return rows_of_frame, needed


class _Expected:
    """The pose that each track is expected to have."""

    def __init__(self, seen: Detections, body_px: np.ndarray) -> None:
        self._seen, self._body = seen, body_px
        self._xy, self._std = seen.xy_px, scratch.empty(seen.xy_px.shape[:2], np.dtype(np.float64))
        for some in blocks(len(seen)):
            self._std[some] = keypoint_std(seen.rows(some))
        self._states: dict[int, tuple[float, PoseState]] = {}

    def at(self, row: int, options: PoseMotionOptions) -> PoseState | None:
        last = self._states.get(int(self._seen.identity[row]))
        if last is None:
            return None
        return predict_pose(last[1], float(self._seen.time_s[row]) - last[0], float(self._body[row]), options)

    def update(self, row: int, owned: np.ndarray, options: PoseMotionOptions) -> None:
        """After a detection, of which only the keypoints count that are the person's own."""
        expected = self.at(row, options)
        std = np.where(owned >= 0.5, self._std[row], np.inf)
        xy = self._xy[row].astype(np.float64)
        state = update_pose(expected, xy, std) if expected else first_pose(xy, std, float(self._body[row]))
        self._states[int(self._seen.identity[row])] = (float(self._seen.time_s[row]), state)
