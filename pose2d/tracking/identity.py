"""Who is who over a whole video, once all of it was seen: what the tracker made, looked at again.

In this order: a track ends at a cut, a track that jumps is split, people who met are told apart once more
by what they were like before and after (second_look.py), every keypoint gets one owner (`owners`), and
somebody whose keypoints are all somebody else's is not there. What a person should look at becomes an event.

Where two people of a frame claim the same keypoints, one of them is mistaken: a person half hidden gets the limbs of
the one in front. A limb belongs to the person whose track expected it there and who is in front; for the other its
presence falls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch

from pose2d.base.files import release_scratch, scratch_array
from pose2d.base.table import blocks, joined
from pose2d.events import Event
from pose2d.skeletons import Skeleton
from pose2d.tracking.appearance import (
    RELINK_RATIO,
    JumpOptions,
    body_sizes,
    inside_image,
    overall,
    relink,
    rows_of_frames,
    rows_of_tracks,
    splits,
    track_path,
)
from pose2d.tracking.second_look import SecondLookOptions, look_again
from pose2d.tracking.tracker import (
    PoseMotionOptions,
    PoseState,
    Tracker,
    first_pose,
    keypoint_l2,
    keypoint_std,
    pose_similarity,
    predict_pose,
    update_pose,
)
from pose2d.types import NOBODY, Appearance, Detections, Track

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
    xy_px: np.ndarray, boxes_px: np.ndarray, predicted: Sequence[PoseState | None], nearer: np.ndarray,
    options: OwnershipOptions, skeleton: Skeleton,
) -> np.ndarray:  # fmt: skip
    """By how much presence falls, as factors [N, K], where people of one frame claim the same evidence. Two people
    claim the same limb when both its ends, or their mirror images, coincide at the scale of OKS. It goes to the one
    whose track expected it there (`predicted`, None for a new track) and who is in front (`nearer`, log odds [N, N]);
    the decision is made for the body as a whole and corrected for each limb. Where nothing decides, both keep half."""
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
    """For every detection by how much the presence of its keypoints falls, [N, K]: see `owners`."""
    assert seen.keypoints is not None
    skeleton, xy_px, sure = seen.keypoints.skeleton, seen.xy_px, seen.sure
    factor = np.ones(xy_px.shape[:2], np.float32)
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
        self._xy, self._std = seen.xy_px, scratch_array(seen.xy_px.shape[:2], np.float64)
        for some in blocks(len(seen)):
            self._std[some] = keypoint_std(seen.rows(some))
            release_scratch()
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


@dataclass(frozen=True)
class IdentityOptions:
    """Chosen on the tuning seeds of bench/identity.py."""

    relink: bool = False  # join the same person across shots and long absences
    relink_ratio: float = RELINK_RATIO
    least_owned: float = 0.3  # share of a person's keypoints below which the person was not seen in that frame
    least_rows: int = 3  # what a split leaves over with fewer is dropped
    lost_s: float = 0.5  # a track that ends longer before its shot does was lost, unless it left the image
    jumps: JumpOptions = field(default_factory=JumpOptions)
    second_look: SecondLookOptions = field(default_factory=SecondLookOptions)
    owner: OwnershipOptions = field(default_factory=OwnershipOptions)


@dataclass(frozen=True)
class Settled:
    """Who is who."""

    identity: np.ndarray  # [N] of each detection, counted from 1 in the order of first detections; -1: dropped
    owner_presence: np.ndarray  # [N, K] factor on presence: 1 where the keypoint is the person's own
    same_as: Mapping[int, int]  # identity -> that of the earliest track of the same person
    events: list[Event]


@dataclass(frozen=True)
class People:
    """Everyone in a video."""

    detections: Detections  # person after person, frames rising; of keypoints that two claim, presence is the owner's
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F]
    detected: np.ndarray  # [F] bool: the detector looked at it
    shot_first_frame: np.ndarray  # [S] number of the first frame of each shot
    same_as: Mapping[int, int]  # identity -> the earliest identity of the same person; itself unless asked to relink
    events: list[Event]  # what a person should look at, in order of time

    @property
    def tracks(self) -> list[Track]:
        """Where each person was seen, in order of identity."""
        return self.detections.tracks()


def tracked(seen: Detections) -> Detections:
    """The rows that belong to somebody. One appearance for every row of a video is kept: in single precision."""
    rows = seen.rows(seen.identity != NOBODY)
    if rows.appearance is None:
        return rows
    colours, weight = rows.appearance.colours.astype(np.float32), rows.appearance.weight.astype(np.float32)
    return replace(rows, appearance=Appearance(colours, weight))


def people_of(
    rows: Sequence[Detections], tracker: Tracker, frames: np.ndarray, times: np.ndarray, shot_first_frame: np.ndarray,
    options: IdentityOptions,
) -> People:  # fmt: skip
    """The rows of confirmed tracks, after a second look at who is who. frames, times [F]: of all frames that were read;
    shot_first_frame [S]."""
    seen = joined(rows, sum(map(len, rows))) if rows else Detections.empty()
    if seen.time_s is None:
        seen = replace(seen, time_s=np.zeros(0))
    confirmed = np.isin(seen.identity, list(tracker.confirmed()))
    seen = replace(seen, identity=np.where(confirmed, seen.identity, NOBODY))
    ends = np.searchsorted(frames, [*shot_first_frame[1:], np.inf][: len(shot_first_frame)]) - 1
    keypoints = seen.keypoints
    looked_at = replace(seen, keypoints=keypoints and replace(keypoints, error=None, raw=None))  # half of the bytes
    settled = settle(looked_at, shot_first_frame, times[ends], tracker.image_wh, options)
    if keypoints is not None:
        presence = torch.from_numpy(np.asarray(keypoints.presence) * settled.owner_presence)
        keypoints = replace(keypoints, presence=presence)
    return People(
        detections=replace(seen, identity=settled.identity, keypoints=keypoints, appearance=None).by_person(),
        frames=frames, time_s=times, detected=np.zeros(len(frames), np.bool_), shot_first_frame=shot_first_frame,
        same_as=settled.same_as, events=settled.events,
    )  # fmt: skip


def settle(
    seen: Detections,
    shot_first_frame: np.ndarray,
    last_frame_s: np.ndarray,
    image_wh: tuple[int, int],
    options: IdentityOptions,
) -> Settled:
    """shot_first_frame [S]: where shots begin; last_frame_s [S]: the time of each shot's last frame."""
    notes: list[_Note] = []
    shot = np.searchsorted(shot_first_frame, seen.frame, side="right") - 1
    track = _renumbered(seen.identity, shot)
    owner = np.ones((len(seen), 0) if seen.keypoints is None else seen.xy_px.shape[:2], np.float32)
    if seen.keypoints is not None and seen.appearance is not None:
        track = _split_jumps(replace(seen, identity=track), image_wh, options, notes)
        track = _look_again(replace(seen, identity=track), shot, image_wh, options.second_look, notes)
        release_scratch()
        owner = owners(replace(seen, identity=track), options.owner)
        track = _drop_unowned(replace(seen, identity=track), owner, options, notes)
        release_scratch()
    seen = replace(seen, identity=track)
    _note_lost(seen, shot, last_frame_s, image_wh, options, notes)
    identities = _in_order_of_appearance(seen)
    identity = np.array([identities.get(number, -1) for number in track.tolist()], np.int64)
    events = [note.event(identities) for note in notes if note.concerns(identities)]
    same_as = {i: i for i in identities.values()}
    if options.relink:
        same_as = _same_people(replace(seen, identity=identity), options)
    owner[identity < 0] = 1.0
    return Settled(identity, owner, same_as, sorted(events, key=lambda event: (event.time_s, event.identity)))


@dataclass(frozen=True)
class _Note:
    """An event before tracks have their final numbers; `{0}`, `{1}` in the text stand for people."""

    time_s: float
    track: int
    kind: str
    text: str
    others: tuple[int, ...] = ()

    def concerns(self, identities: Mapping[int, int]) -> bool:
        """Whether those it is about are still there; an exchange needs both."""
        return self.track in identities and (self.kind != "swap" or all(other in identities for other in self.others))

    def event(self, identities: Mapping[int, int]) -> Event:
        names = [f"person {identities[t]}" if t in identities else "somebody" for t in (self.track, *self.others)]
        return Event(self.time_s, identities[self.track], self.kind, self.text.format(*names))  # type: ignore[arg-type]


def _renumbered(track: np.ndarray, shot: np.ndarray) -> np.ndarray:
    """Track numbers such that none lies in two shots; -1 stays."""
    numbers = np.unique(np.stack([track, shot], 1), axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(track < 0, -1, numbers)


def _split_jumps(
    seen: Detections, image_wh: tuple[int, int], options: IdentityOptions, notes: list[_Note]
) -> np.ndarray:
    """Track numbers [N] after tracks that jump were split; segments too short to be somebody are dropped."""
    track = seen.identity.copy()
    fresh = int(track.max(initial=-1)) + 1
    for number, rows in rows_of_tracks(seen).items():
        starts = splits(track_path(seen, rows, image_wh), options.jumps)
        if not starts:
            continue
        segments = [rows[a:b] for a, b in pairwise([0, *starts, len(rows)])]
        longest = max(map(len, segments))
        last = number
        for n, segment in enumerate(segments):
            name = number if n == 0 else fresh
            fresh += n > 0
            if len(segment) < min(options.least_rows, longest):
                track[segment] = -1
                continue
            track[segment] = name
            if n > 0:
                notes.append(
                    _Note(float(seen.time_s[segment[0]]), name, "split", "{0} begins where {1} jumped", (last,))
                )
            last = name
    return track


def _look_again(
    seen: Detections, shot: np.ndarray, image_wh: tuple[int, int], options: SecondLookOptions, notes: list[_Note]
) -> np.ndarray:
    """Track numbers [N] after people who met, or were hidden, were told apart by what they were before and after."""
    track = np.full(len(seen), -1, np.int64)
    for number in np.unique(shot[seen.identity >= 0]):
        rows = np.flatnonzero((shot == number) & (seen.identity >= 0))
        part = seen.picked(rows)
        again, candidates = look_again(part, image_wh, options)
        fresh = int(track.max(initial=-1)) + 1
        track[rows] = np.where(again < 0, -1, fresh + again)
        for candidate in candidates:
            one, other = (fresh + n for n in candidate.tracks)
            notes.append(_Note(candidate.time_s, one, "swap", "{0} and {1} may have been exchanged here", (other,)))
    return _once_a_frame(replace(seen, identity=track))


def _once_a_frame(seen: Detections) -> np.ndarray:
    """Track numbers [N]: where a track has two detections in one frame, the surer one stays."""
    order = np.lexsort((-seen.sure.sum(1), seen.frame, seen.identity))
    again = (np.diff(seen.identity[order]) == 0) & (np.diff(seen.frame[order]) == 0)
    track = seen.identity.copy()
    track[order[1:][again]] = -1
    return track


def _drop_unowned(seen: Detections, owner: np.ndarray, options: IdentityOptions, notes: list[_Note]) -> np.ndarray:
    """Track numbers [N] without the detections that show somebody else: of a person hidden, or found twice."""
    ghost = seen.identity >= 0
    for some in blocks(len(seen)):
        sure = seen.rows(some).sure
        weight = np.where(sure > 0.1, sure, 0.0)
        owned = (weight * owner[some]).sum(1) / np.maximum(weight.sum(1), 1e-9)
        ghost[some] &= (owned < options.least_owned) & (weight.sum(1) > 0)
    track = seen.identity.copy()
    for number, rows in rows_of_tracks(seen).items():
        if not ghost[rows].any():
            continue
        if ghost[rows].mean() > 0.5:  # mostly somebody else: never a person of its own
            track[rows] = -1
            front = _in_front(seen, rows[ghost[rows]])
            text = "a second track on {0} was dropped"
            notes.append(_Note(float(seen.time_s[rows[0]]), front, "merged", text))
            continue
        track[rows[ghost[rows]]] = -1
        for a, b in _runs(ghost[rows]):
            if seen.time_s[rows[b - 1]] - seen.time_s[rows[a]] >= options.lost_s:
                text = f"{{0}} cannot be told from {{1}} until {seen.time_s[rows[b - 1]]:.2f} s"
                front = _in_front(seen, rows[a:b])
                notes.append(_Note(float(seen.time_s[rows[a]]), number, "merged", text, (front,)))
    return track


def _in_front(seen: Detections, rows: np.ndarray) -> int:
    """The track whose boxes overlap those of these rows, all of one track, the most."""
    votes: dict[int, float] = {}
    for row in rows:
        others = np.flatnonzero(
            (seen.frame == seen.frame[row]) & (seen.identity >= 0) & (seen.identity != seen.identity[row])
        )
        both = np.minimum(seen.box_px[others, 2:], seen.box_px[row, 2:]) - np.maximum(
            seen.box_px[others, :2], seen.box_px[row, :2]
        )
        for other, area in zip(seen.identity[others].tolist(), both.clip(0).prod(1).tolist(), strict=True):
            votes[other] = votes.get(other, 0.0) + area
    return max(votes, key=lambda track: votes[track], default=-1)


def _runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """First and end of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _note_lost(
    seen: Detections, shot: np.ndarray, last_frame_s: np.ndarray, image_wh: tuple[int, int], options: IdentityOptions,
    notes: list[_Note],
) -> None:  # fmt: skip
    inside = inside_image(seen.box_px, image_wh)
    for number, rows in rows_of_tracks(seen).items():
        last = rows[-1]
        if inside[last] and last_frame_s[shot[last]] - seen.time_s[last] > options.lost_s:
            notes.append(_Note(float(seen.time_s[last]), number, "lost", "{0} is not seen again after this"))


def _in_order_of_appearance(seen: Detections) -> dict[int, int]:
    """Track numbers -> identities, counted from 1 by first detection."""
    first = {number: (int(seen.frame[rows[0]]), number) for number, rows in rows_of_tracks(seen).items()}
    return {number: place for place, number in enumerate(sorted(first, key=lambda n: first[n]), start=1)}


def _same_people(seen: Detections, options: IdentityOptions) -> dict[int, int]:
    """Identity -> the earliest identity of the same person, by appearance over the whole track."""
    tracks = rows_of_tracks(seen)
    if not tracks or seen.appearance is None:
        return {identity: identity for identity in tracks}
    appearance = Appearance.concat([overall(seen.appearance.rows(rows)) for rows in tracks.values()])
    first, last = (np.array([seen.time_s[rows[end]] for rows in tracks.values()]) for end in (0, -1))
    person = relink(appearance, first, last, options.relink_ratio)
    earliest: dict[int, int] = {}
    for identity, group in zip(tracks, person.tolist(), strict=True):  # identities are in order of appearance
        earliest.setdefault(group, identity)
    return {identity: earliest[group] for identity, group in zip(tracks, person.tolist(), strict=True)}
