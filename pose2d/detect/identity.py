"""Who is who, as pure functions: prices of giving a detection to a track, and rules about tracks that were made.

Three cues say whether a detection is a track's next sighting, each as a log-likelihood ratio or in the same unit, so
that they add up: motion of the box (pose2d/detect/kalman.py), the pose against the one expected (keypoint by keypoint,
at the scale of OKS), and appearance (pose2d/detect/appearance.py). The rules: a track that jumps is split, a short
gap is filled where both ends agree, and a keypoint that two people claim has one owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pose2d.detect.appearance import Appearances, log_likelihood_ratio
from pose2d.oks import AREA_OF_BOX
from pose2d.skeletons import COCO17, Skeleton


@dataclass(frozen=True)
class IdentityOptions:
    """Every choice that association and the rules leave open. bench/identity.py shows what they cost and give."""

    farthest: float = 13.3  # squared Mahalanobis distance of a box (99 %) beyond which it is somebody else
    pose_weight: float = 1.0  # independent keypoints that a pose's keypoints together are worth
    appearance_weight: float = 1.0
    pose_range: tuple[float, float] = (-3.0, 4.0)  # limits of the log-likelihood ratio, so that no cue decides alone
    appearance_range: tuple[float, float] = (-8.0, 4.0)
    pose_acceleration: float = 12.0  # of a keypoint, in body sizes (box diagonals) a second^2
    pose_memory_s: float = 0.3  # an unseen keypoint's velocity falls by 1/e in this time
    split_cost: float = 12.0  # a step of a track dearer than this (see step_cost) splits it
    gap_s: float = 0.5  # longer gaps stay gaps
    gap_cost: float = 5.0  # and gaps whose ends disagree more than this (see step_cost)
    relink_ratio: float = 4.0  # least log-likelihood ratio at which two tracks of different shots are one person
    claim_l: float = 0.7  # two keypoints this near, in OKS's l, are one piece of evidence
    depth_odds: float = 2.0  # most that depth order says, as log odds
    track_odds: float = 8.0  # most that the tracks' predictions say
    whole_weight: float = 3.0  # what the body as a whole says about a limb's owner, beside what the limb itself says


# --- The pose that is expected ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoseState:
    """A person's keypoints at one moment: a Kalman filter for each, alike on both axes."""

    xy_px: np.ndarray  # [K, 2]
    velocity_px: np.ndarray  # [K, 2] per second
    cov: np.ndarray  # [K, 2, 2] of (position, velocity), pixels and seconds

    @property
    def sigma_px(self) -> np.ndarray:
        """[K] standard deviation of the position on either axis."""
        return np.sqrt(self.cov[:, 0, 0])


def first_pose(xy_px: np.ndarray, sigma_px: np.ndarray, body_px: float) -> PoseState:
    """From the keypoints [K, 2] of one frame with standard deviations [K] (infinite: not seen), for a body of that
    size (its box's diagonal)."""
    sigma_px = np.minimum(np.where(np.isfinite(xy_px).all(-1), sigma_px, np.inf), 10 * body_px)
    cov = np.zeros((len(xy_px), 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = sigma_px**2, body_px**2
    return PoseState(np.nan_to_num(xy_px), np.zeros_like(xy_px), cov)


def predict_pose(state: PoseState, dt_s: float, body_px: float, options: IdentityOptions) -> PoseState:
    """The pose `dt_s` later, without having seen it."""
    kept = np.exp(-dt_s / options.pose_memory_s)
    reach_s = options.pose_memory_s * (1 - kept)
    step = np.array([[1.0, reach_s], [0.0, kept]])
    q = (options.pose_acceleration * body_px) ** 2
    spread = q * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])  # as pose2d/detect/kalman.py
    return PoseState(
        state.xy_px + reach_s * state.velocity_px,
        kept * state.velocity_px,
        step @ state.cov @ step.T + spread,
    )


def update_pose(state: PoseState, xy_px: np.ndarray, sigma_px: np.ndarray) -> PoseState:
    """The pose after seeing keypoints [K, 2] with standard deviations [K] (infinite: not seen)."""
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    noise2 = np.where(seen, np.minimum(sigma_px, 1e6) ** 2, 1e12)
    gain = state.cov[:, :, 0] / (state.cov[:, 0, 0] + noise2)[:, None]  # [K, (position, velocity)]
    innovation = np.where(seen[:, None], np.nan_to_num(xy_px) - state.xy_px, 0.0)
    return PoseState(
        state.xy_px + gain[:, :1] * innovation,
        state.velocity_px + gain[:, 1:] * innovation,
        state.cov - np.einsum("ki,kj->kij", gain, state.cov[:, 0]),
    )


# --- Prices and assignment -------------------------------------------------------------------------------------------


def pose_log_likelihood_ratio(
    predicted: Sequence[PoseState],
    xy_px: np.ndarray,
    sigma_px: np.ndarray,
    boxes_px: np.ndarray,
    options: IdentityOptions,
    skeleton: Skeleton = COCO17,
) -> np.ndarray:
    """How much likelier each pose [D, K, 2] with standard deviations [D, K] is the one expected of each track than
    that of anybody in the same place: log, [T, D].

    Same person: a keypoint is off by what the prediction, the detection and the body's softness (a third of OKS's l)
    leave open. Another person: off by another sixth of the body's size on either axis. A sum over keypoints would
    count the same movement K times, so the mean counts `pose_weight` times.
    """
    ratio = np.zeros((len(predicted), len(xy_px)))
    if not ratio.size:
        return ratio
    sides = np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0)
    body2 = (sides**2).sum(-1)[:, None]  # [D, 1] pixels^2
    soft2 = AREA_OF_BOX * sides.prod(-1)[:, None] * skeleton.oks_variance / 9  # [D, K]
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    sigma2 = np.where(seen, np.minimum(sigma_px, 1e6), 1e6) ** 2
    for row, state in enumerate(predicted):
        same2 = state.cov[:, 0, 0] + sigma2 + soft2
        other2 = same2 + body2 / 36
        d2 = ((np.nan_to_num(xy_px) - state.xy_px) ** 2).sum(-1)
        # Two axes of one variance: log N is -d^2 / 2 s^2 - log s^2. Half an OKS of tail: d^2 counts up to 5 sigma.
        each = np.log(other2 / same2) - np.minimum(d2 / same2, 25) / 2 + np.minimum(d2 / other2, 25) / 2
        weight = np.where(seen, body2 / 36 / other2, 0.0)  # 0 where prediction or detection says nothing
        ratio[row] = (weight * each).sum(-1) / np.maximum(weight.sum(-1), 1.0)
    return np.clip(options.pose_weight * ratio, *options.pose_range)


def distinctness(xy_px: np.ndarray, boxes_px: np.ndarray, skeleton: Skeleton = COCO17) -> np.ndarray:
    """How far the pose of each detection [D, K, 2] is its own, [D] in 0..1: 1 - the OKS with the most similar other.

    A person half hidden gets the keypoints, and with them the colours, of the one in front. Then pose and appearance
    of both say nothing about who is who, and only the boxes do.
    """
    count = len(xy_px)
    if count < 2:
        return np.ones(count)
    sides = np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0)
    l2 = AREA_OF_BOX * sides.prod(-1)[:, None] * skeleton.oks_variance  # [D, K]
    d2 = ((xy_px[:, None] - xy_px) ** 2).sum(-1)  # [D, D, K]
    alike = np.exp(-np.nan_to_num(d2, nan=np.inf) / (2 * np.minimum(l2[:, None], l2))).mean(-1)
    np.fill_diagonal(alike, 0.0)
    return 1 - alike.max(1)


def association_cost(
    distance2: np.ndarray,
    motion: np.ndarray,
    pose_ratio: np.ndarray,
    appearance_ratio: np.ndarray,
    distinct: np.ndarray,
    options: IdentityOptions,
) -> np.ndarray:
    """The price [T, D] of giving detections to tracks, in -2 log likelihood: infinite where the box is too far away.

    `distance2` and `motion` are what kalman gives for the boxes (squared Mahalanobis distance, -2 log likelihood); the
    others are log-likelihood ratios, which count by how `distinct` [D] a detection's pose is. Where neither pose nor
    appearance say anything, the price is that of motion.
    """
    looks = np.clip(options.appearance_weight * appearance_ratio, *options.appearance_range)
    return np.where(distance2 < options.farthest, motion - 2 * distinct**2 * (pose_ratio + looks), np.inf)


# --- Rules about one track -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sightings:
    """One track: T sightings of what is taken for one person."""

    time_s: np.ndarray  # [T] strictly increasing
    centre_px: np.ndarray  # [T, 2] of the torso, or of the box where that was not seen
    body_px: np.ndarray  # [T] the body's size: a box's diagonal
    from_torso: np.ndarray  # [T] bool: which of the two `centre_px` is
    appearance: Appearances  # [T]

    def __len__(self) -> int:
        return len(self.time_s)


def sightings(
    time_s: np.ndarray,
    boxes_px: np.ndarray,
    xy_px: np.ndarray,
    confidence: np.ndarray,
    appearance: Appearances,
    skeleton: Skeleton = COCO17,
    least: float = 0.3,
) -> Sightings:
    """From the boxes [T, 4] and keypoints [T, K, 2] of a track. A box shrinks and moves when something hides the legs;
    the torso does not: its centre and length are used in every frame in which all its keypoints reach `least`."""
    shoulders, hips = (
        [skeleton.keypoints.index(f"{side}_{joint}") for side in ("left", "right")] for joint in ("shoulder", "hip")
    )
    torso = shoulders + hips
    seen = (confidence[:, torso] >= least).all(1) & np.isfinite(xy_px[:, torso]).all((1, 2))
    middle = np.where(seen[:, None], np.nan_to_num(xy_px[:, torso]).mean(1), (boxes_px[:, :2] + boxes_px[:, 2:]) / 2)
    diagonal = np.linalg.norm(boxes_px[:, 2:] - boxes_px[:, :2], axis=-1)
    # The largest within half a second either way: half a person's box is not a smaller person.
    near = np.abs(time_s[:, None] - time_s) <= 0.5
    body = np.where(near, diagonal, 0).max(1)
    return Sightings(time_s, middle, np.maximum(body, 1.0), seen, appearance)


def step_cost(track: Sightings, options: IdentityOptions, window_s: float = 0.5) -> np.ndarray:
    """How implausible each step from a sighting to the next is, [T - 1], as minus a log-likelihood ratio: place and
    size against constant velocity, appearance before against appearance after. 0 is as usual, 12 is another person.

    Velocity and appearance come from up to `window_s` on either side, so that one bad frame is no evidence.
    """
    count = len(track)
    cost = np.zeros(max(count - 1, 0))
    for i in range(count - 1):
        dt = track.time_s[i + 1] - track.time_s[i]
        before = np.flatnonzero((track.time_s <= track.time_s[i]) & (track.time_s > track.time_s[i] - window_s))
        after = np.flatnonzero((track.time_s > track.time_s[i]) & (track.time_s <= track.time_s[i + 1] + window_s))
        body = float(np.sqrt(track.body_px[i] * track.body_px[i + 1]))
        moved = (track.centre_px[i + 1] - track.centre_px[i]) / body
        velocity = [_velocity(track, rows) / body for rows in (before, after)]
        rates = [v for v in velocity if np.isfinite(v).all()]
        expected = np.mean(rates, 0) * dt if rates else np.zeros(2)
        unsteady = float(np.linalg.norm(velocity[0] - velocity[1])) if len(rates) == 2 else 1.0
        sigma = 0.05 + (0.0 if track.from_torso[[i, i + 1]].all() else 0.15) + (0.3 + 0.5 * min(unsteady, 2.0)) * dt
        place2 = float(((moved - expected) ** 2).sum()) / sigma**2
        size2 = float(np.log(track.body_px[i + 1] / track.body_px[i])) ** 2 / (0.12**2 + 0.4**2 * dt)
        looks = log_likelihood_ratio(*(mean_appearance(track.appearance[rows]) for rows in (before, after)))[0, 0]
        cost[i] = (place2 + size2) / 2 - np.clip(looks, *options.appearance_range)
    return cost


def splits(track: Sightings, options: IdentityOptions) -> list[int]:
    """The sightings at which somebody else begins: a track that jumps in place, size or appearance."""
    cost = step_cost(track, options)
    found: list[int] = []
    for step in np.flatnonzero(cost > options.split_cost):
        # Appearance windows blur a change over its neighbours: the dearest step nearby is the place.
        near = np.flatnonzero(np.abs(track.time_s[1:] - track.time_s[step + 1]) <= 0.5)
        if cost[step] == cost[near].max() and (not found or step + 1 - found[-1] > 1):
            found.append(int(step) + 1)
    return found


def filled_gaps(track: Sightings, frame_s: float, options: IdentityOptions) -> list[int]:
    """The sightings i whose gap to sighting i + 1 may be filled: short, and both ends agree. In every other gap (a
    step longer than 1.5 frames of `frame_s`) the person is absent."""
    dt = np.diff(track.time_s)
    short = (dt > 1.5 * frame_s) & (dt <= options.gap_s)
    if not short.any():
        return []
    return np.flatnonzero(short & (step_cost(track, options) <= options.gap_cost)).tolist()


def _velocity(track: Sightings, rows: np.ndarray) -> np.ndarray:
    """Pixels a second over these sightings [2]; NaN of fewer than three."""
    if len(rows) < 3:
        return np.full(2, np.nan)
    time_s = track.time_s[rows] - track.time_s[rows].mean()
    return (time_s[:, None] * track.centre_px[rows]).sum(0) / max(float((time_s**2).sum()), 1e-9)


def mean_appearance(rows: Appearances) -> Appearances:
    """One appearance for several sightings: the weighted median of each colour."""
    weight = rows.weight.sum(0)
    order = rows.colours.argsort(0)
    ordered = np.take_along_axis(rows.colours, order, 0)
    share = np.take_along_axis(np.broadcast_to(rows.weight[..., None], rows.colours.shape), order, 0).cumsum(0)
    middle = (share >= share[-1:] / 2 - 1e-12).argmax(0)
    return Appearances(np.take_along_axis(ordered, middle[None], 0), (weight / max(len(rows), 1))[None])


# --- The same person in another shot ---------------------------------------------------------------------------------


def relink(looks: Appearances, first_s: np.ndarray, last_s: np.ndarray, options: IdentityOptions) -> np.ndarray:
    """One number for each person, [N], from the appearances of N tracks and the times they begin and end.

    Tracks that are seen at the same time are different people. Of the others, the two groups most alike are joined
    first, by the mean ratio between their members, as long as that stays above `relink_ratio`.
    """
    count = len(looks)
    person = np.arange(count)
    if count < 2:
        return person
    ratio = log_likelihood_ratio(looks, looks)
    apart = (first_s[:, None] <= last_s) & (first_s <= last_s[:, None])
    np.fill_diagonal(apart, False)
    size = np.ones(count)
    alive = np.ones(count, bool)
    np.fill_diagonal(ratio, -np.inf)
    ratio[apart] = -np.inf
    while True:
        a, b = np.unravel_index(int(ratio.argmax()), ratio.shape)
        if ratio[a, b] < options.relink_ratio:
            break
        merged = (size[a] * ratio[a] + size[b] * ratio[b]) / (size[a] + size[b])
        merged[apart[a] | apart[b]] = -np.inf
        merged[~alive] = merged[a] = merged[b] = -np.inf
        apart[a] |= apart[b]
        apart[:, a] |= apart[:, b]
        ratio[a], ratio[:, a] = merged, merged
        ratio[b], ratio[:, b] = -np.inf, -np.inf
        size[a] += size[b]
        alive[b] = False
        person[person == b] = a
    return np.unique(person, return_inverse=True)[1]


# --- One owner for a keypoint ----------------------------------------------------------------------------------------


def nearer_log_odds(body_px: np.ndarray, feet_px: np.ndarray, options: IdentityOptions) -> np.ndarray:
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
    options: IdentityOptions,
    skeleton: Skeleton = COCO17,
) -> np.ndarray:
    """By how much presence falls, as factors [N, K], where people of one frame claim the same evidence.

    Two people claim the same limb when both its ends, or their mirror images, coincide at the scale of OKS. It goes to
    the one whose track expected it there (`predicted`, None for a new track) and who is in front (`nearer`, log odds
    [N, N]); the decision is made for the body as a whole and corrected for each limb. Where nothing decides, both keep
    half.
    """
    count, keypoints = xy_px.shape[:2]
    factor = np.ones((count, keypoints))
    sides = np.maximum(boxes_px[:, 2:] - boxes_px[:, :2], 1.0)
    l2 = AREA_OF_BOX * sides.prod(-1)[:, None] * skeleton.oks_variance * options.claim_l**2  # [N, K]
    misfit = np.stack([_misfit(state, xy, scale2) for state, xy, scale2 in zip(predicted, xy_px, l2, strict=True)])
    for i in range(count):
        for j in range(i + 1, count):
            if (boxes_px[i, :2] > boxes_px[j, 2:]).any() or (boxes_px[j, :2] > boxes_px[i, 2:]).any():
                continue
            scale2 = np.minimum(l2[i], l2[j])
            for mirrored in (False, True):
                order = np.array(skeleton.flip_order if mirrored else range(keypoints))
                d2 = ((xy_px[i] - xy_px[j][order]) ** 2).sum(-1)
                alike = np.exp(-np.nan_to_num(d2, nan=np.inf) / (2 * scale2))  # [K] of i
                claimed = _claimed(alike, skeleton)
                if claimed.max(initial=0.0) < 0.05:
                    continue
                # Positive: i explains the evidence better. The body as a whole, then each limb.
                each = misfit[j][order] - misfit[i]
                body = float((claimed * each).sum() / claimed.sum())
                odds = np.clip(options.whole_weight * body + each, -options.track_odds, options.track_odds)
                odds = odds + nearer[i, j]
                share_i = 1 / (1 + np.exp(-odds))
                factor[i] = np.minimum(factor[i], 1 - claimed * (1 - share_i))
                factor[j][order] = np.minimum(factor[j][order], 1 - claimed * share_i)
    return factor


def _misfit(state: PoseState | None, xy_px: np.ndarray, scale2: np.ndarray) -> np.ndarray:
    """How badly a track explains keypoints [K, 2], as minus log likelihood, [K]; of a new track nothing is known."""
    if state is None:
        return np.zeros(len(xy_px))
    variance = state.cov[:, 0, 0] + scale2
    d2 = np.nan_to_num(((xy_px - state.xy_px) ** 2).sum(-1))
    return np.minimum(d2 / variance, 16) / 2 + np.log(variance / scale2)


def _claimed(alike: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """How surely each keypoint is one piece of evidence for two people, [K]: near each other (`alike`, in 0..1) and so
    is the other end of one of its limbs. Single keypoints come near each other whenever people pass."""
    limb = np.zeros_like(alike)
    for a, b in skeleton.edges:
        both = np.sqrt(alike[a] * alike[b])
        limb[a], limb[b] = max(limb[a], both), max(limb[b], both)
    return np.minimum(limb, np.sqrt(alike))
