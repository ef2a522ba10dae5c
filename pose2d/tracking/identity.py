"""Who is who over a whole video, once all of it was seen: what the tracker made, looked at again.

In this order: a track ends at a cut, a track that jumps is split (jumps.py), people who met are told apart once more
by what they were like before and after (second_look.py), every keypoint gets one owner (ownership.py), and
somebody whose keypoints are all somebody else's is not there. What a person should look at becomes an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from pose2d.events import Event
from pose2d.skeletons import Skeleton
from pose2d.tracking.appearance import Appearances, stack
from pose2d.tracking.association import keypoint_sigma, pose_similarity
from pose2d.tracking.jumps import (
    JumpOptions,
    TrackPath,
    body_sizes,
    inside_image,
    mean_looks,
    path_of,
    splits,
)
from pose2d.tracking.ownership import OwnershipOptions, nearer_log_odds, ownership
from pose2d.tracking.pose_motion import PoseMotionOptions, PoseState, first_pose, predict_pose, update_pose
from pose2d.tracking.relink import RELINK_RATIO, relink
from pose2d.tracking.second_look import Boxes, SecondLookOptions, look_again, rows_of_frames, rows_of_tracks

RUN_GAP_S = 0.3  # two tracks that have one pose are undone run by run; a longer pause begins another


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
class Sightings:
    """N people, each in one frame."""

    track: np.ndarray  # [N] number of the track; -1: nobody
    frame: np.ndarray  # [N] frame number
    time_s: np.ndarray  # [N]
    boxes_px: np.ndarray  # [N, 4]
    xy_px: np.ndarray  # [N, K, 2]
    sure: np.ndarray  # [N, K] confidence times presence
    looks: Appearances  # [N]; unseen where the detector did not look

    def __len__(self) -> int:
        return len(self.track)

    def rows(self, index: np.ndarray) -> "Sightings":
        return Sightings(
            self.track[index], self.frame[index], self.time_s[index], self.boxes_px[index], self.xy_px[index],
            self.sure[index], self.looks[index],
        )  # fmt: skip


@dataclass(frozen=True)
class Settled:
    """Who is who."""

    identity: np.ndarray  # [N] of each sighting, counted from 1 in the order of first sightings; -1: dropped
    owner_presence: np.ndarray  # [N, K] factor on presence: 1 where the keypoint is the person's own
    same_as: Mapping[int, int]  # identity -> that of the earliest track of the same person
    events: list[Event]


def settle(
    seen: Sightings,
    shot_first_frame: np.ndarray,
    last_frame_s: np.ndarray,
    image_wh: tuple[int, int],
    skeleton: Skeleton | None,
    options: IdentityOptions,
) -> Settled:
    """shot_first_frame [S]: where shots begin; last_frame_s [S]: the time of each shot's last frame; skeleton: of the
    keypoints, None where there are none."""
    notes: list[_Note] = []
    shot = np.searchsorted(shot_first_frame, seen.frame, side="right") - 1
    track = _renumbered(seen.track, shot)
    owner = np.ones(seen.sure.shape, np.float32)
    if skeleton is not None:
        track = _split_jumps(replace(seen, track=track), image_wh, skeleton, options, notes)
        track = _look_again(replace(seen, track=track), shot, image_wh, options.second_look, notes)
        owner = owners(replace(seen, track=track), skeleton, options.owner)
        track = _drop_unowned(replace(seen, track=track), owner, options, notes)
    seen = replace(seen, track=track)
    _note_lost(seen, shot, last_frame_s, image_wh, options, notes)
    identities = _in_order_of_appearance(seen)
    identity = np.array([identities.get(number, -1) for number in track.tolist()], np.int64)
    events = [note.event(identities) for note in notes if note.concerns(identities)]
    same_as = {i: i for i in identities.values()}
    if options.relink:
        same_as = _same_people(replace(seen, track=identity), options)
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


def _rows_of_tracks(seen: Sightings) -> dict[int, np.ndarray]:
    return rows_of_tracks(seen.track, seen.frame)


def _split_jumps(
    seen: Sightings, image_wh: tuple[int, int], skeleton: Skeleton, options: IdentityOptions, notes: list[_Note]
) -> np.ndarray:
    """Track numbers [N] after tracks that jump were split; pieces too short to be somebody are dropped."""
    track = seen.track.copy()
    fresh = int(track.max(initial=-1)) + 1
    for number, rows in _rows_of_tracks(seen).items():
        starts = splits(_path(seen, rows, skeleton, image_wh), options.jumps)
        if not starts:
            continue
        pieces = [rows[a:b] for a, b in pairwise([0, *starts, len(rows)])]
        longest = max(map(len, pieces))
        last = number
        for n, piece in enumerate(pieces):
            name = number if n == 0 else fresh
            fresh += n > 0
            if len(piece) < min(options.least_rows, longest):
                track[piece] = -1
                continue
            track[piece] = name
            if n > 0:
                notes.append(_Note(float(seen.time_s[piece[0]]), name, "split", "{0} begins where {1} jumped", (last,)))
            last = name
    return track


def _path(seen: Sightings, rows: np.ndarray, skeleton: Skeleton, image_wh: tuple[int, int]) -> TrackPath:
    part = seen.rows(rows)
    return path_of(part.time_s, part.boxes_px, part.xy_px, part.sure, part.looks, skeleton, image_wh)


def _look_again(
    seen: Sightings, shot: np.ndarray, image_wh: tuple[int, int], options: SecondLookOptions, notes: list[_Note]
) -> np.ndarray:
    """Track numbers [N] after people who met, or were hidden, were told apart by what they were before and after."""
    track = np.full(len(seen), -1, np.int64)
    for number in np.unique(shot[seen.track >= 0]):
        rows = np.flatnonzero((shot == number) & (seen.track >= 0))
        part = seen.rows(rows)
        found, doubts = look_again(
            Boxes(part.track, part.frame, part.time_s, part.boxes_px, part.looks), image_wh, options
        )
        fresh = int(track.max(initial=-1)) + 1
        track[rows] = np.where(found < 0, -1, fresh + found)
        for doubt in doubts:
            one, other = (fresh + n for n in doubt.tracks)
            notes.append(_Note(doubt.time_s, one, "swap", "{0} and {1} may have been exchanged here", (other,)))
    return _once_a_frame(replace(seen, track=track))


def _once_a_frame(seen: Sightings) -> np.ndarray:
    """Track numbers [N]: where a track has two sightings in one frame, the surer one stays."""
    order = np.lexsort((-seen.sure.sum(1), seen.frame, seen.track))
    again = (np.diff(seen.track[order]) == 0) & (np.diff(seen.frame[order]) == 0)
    track = seen.track.copy()
    track[order[1:][again]] = -1
    return track


def owners(seen: Sightings, skeleton: Skeleton, options: OwnershipOptions) -> np.ndarray:
    """For every sighting by how much the presence of its keypoints falls, [N, K]: see `ownership`."""
    factor = np.ones(seen.sure.shape, np.float32)
    one_pose: dict[tuple[int, int], list[tuple[int, int]]] = {}  # rows of two tracks with the same pose
    tracks = _rows_of_tracks(seen)
    body = np.ones(len(seen))
    for rows in tracks.values():
        body[rows] = body_sizes(seen.time_s[rows], seen.boxes_px[rows])
    crowded, needed = _crowded_frames(seen, tracks)
    ankles = [skeleton.keypoints.index(f"{side}_ankle") for side in ("left", "right")]
    feet = np.where(seen.sure[:, ankles] >= 0.3, seen.xy_px[:, ankles, 1], -np.inf).max(1)
    feet[~np.isfinite(feet)] = np.nan
    motion, state = PoseMotionOptions(), _Expected(seen, skeleton, body)
    for rows in crowded:
        here = rows[needed[rows]]
        if not len(here):
            continue
        if len(here) > 1:
            predicted = [state.at(row, motion) for row in here]
            nearer = nearer_log_odds(body[here], feet[here], options)
            factor[here] = ownership(seen.xy_px[here], seen.boxes_px[here], predicted, nearer, options, skeleton)
            alike = pose_similarity(seen.xy_px[here], seen.boxes_px[here], skeleton)
            for i, j in np.argwhere(np.triu(alike >= options.same_pose)):
                pair = int(seen.track[here[i]]), int(seen.track[here[j]])
                one_pose.setdefault(pair, []).append((int(here[i]), int(here[j])))
        for row in here:
            state.update(row, factor[row], motion)
    lengths = {number: len(rows) for number, rows in tracks.items()}
    for pair, both in one_pose.items():
        _decide_runs(seen, factor, np.array(both), lengths[pair[0]] >= lengths[pair[1]])
    return factor


def _decide_runs(seen: Sightings, factor: np.ndarray, rows: np.ndarray, first_is_longer: bool) -> None:
    """Two tracks have one pose in these sightings, rows [M, 2]: every run of them is given to one of the two as a
    whole, by what each frame says about the owner, and where that is a draw to the track that is longer."""
    starts = np.flatnonzero(np.diff(seen.time_s[rows[:, 0]]) > RUN_GAP_S) + 1
    for run in np.split(rows, starts):
        if len(run) < 3:
            continue
        more = float(factor[run[:, 0]].mean() - factor[run[:, 1]].mean())
        first_owns = more > 0.1 or (more >= -0.1 and first_is_longer)
        factor[run[:, 0]], factor[run[:, 1]] = (1.0, 0.0) if first_owns else (0.0, 1.0)


def _crowded_frames(seen: Sightings, tracks: Mapping[int, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of each frame in order of time, and which rows [N] matter: those of people whose boxes overlap another's in
    that frame or within the second after it."""
    close = np.zeros(len(seen), bool)
    rows_of_frame = rows_of_frames(seen.track, seen.frame)
    for rows in rows_of_frame:
        if len(rows) > 1:
            boxes = seen.boxes_px[rows]
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

    def __init__(self, seen: Sightings, skeleton: Skeleton, body_px: np.ndarray) -> None:
        self._seen, self._body = seen, body_px
        self._sigma = keypoint_sigma(seen.boxes_px, seen.xy_px, seen.sure, skeleton)
        self._states: dict[int, tuple[float, PoseState]] = {}

    def at(self, row: int, options: PoseMotionOptions) -> PoseState | None:
        last = self._states.get(int(self._seen.track[row]))
        if last is None:
            return None
        return predict_pose(last[1], float(self._seen.time_s[row]) - last[0], float(self._body[row]), options)

    def update(self, row: int, owned: np.ndarray, options: PoseMotionOptions) -> None:
        """After a sighting, of which only the keypoints count that are the person's own."""
        expected = self.at(row, options)
        sigma = np.where(owned >= 0.5, self._sigma[row], np.inf)
        xy = self._seen.xy_px[row].astype(np.float64)
        state = update_pose(expected, xy, sigma) if expected else first_pose(xy, sigma, float(self._body[row]))
        self._states[int(self._seen.track[row])] = (float(self._seen.time_s[row]), state)


def _drop_unowned(seen: Sightings, owner: np.ndarray, options: IdentityOptions, notes: list[_Note]) -> np.ndarray:
    """Track numbers [N] without the sightings that show somebody else: of a person hidden, or found twice."""
    weight = np.where(seen.sure > 0.1, seen.sure, 0.0)
    owned = (weight * owner).sum(1) / np.maximum(weight.sum(1), 1e-9)
    ghost = (owned < options.least_owned) & (weight.sum(1) > 0) & (seen.track >= 0)
    track = seen.track.copy()
    for number, rows in _rows_of_tracks(seen).items():
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


def _in_front(seen: Sightings, rows: np.ndarray) -> int:
    """The track whose boxes overlap those of these rows, all of one track, the most."""
    votes: dict[int, float] = {}
    for row in rows:
        others = np.flatnonzero((seen.frame == seen.frame[row]) & (seen.track >= 0) & (seen.track != seen.track[row]))
        both = np.minimum(seen.boxes_px[others, 2:], seen.boxes_px[row, 2:]) - np.maximum(
            seen.boxes_px[others, :2], seen.boxes_px[row, :2]
        )
        for other, area in zip(seen.track[others].tolist(), both.clip(0).prod(1).tolist(), strict=True):
            votes[other] = votes.get(other, 0.0) + area
    return max(votes, key=lambda track: votes[track], default=-1)


def _runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """First and end of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _note_lost(
    seen: Sightings,
    shot: np.ndarray,
    last_frame_s: np.ndarray,
    image_wh: tuple[int, int],
    options: IdentityOptions,
    notes: list[_Note],
) -> None:
    inside = inside_image(seen.boxes_px, image_wh)
    for number, rows in _rows_of_tracks(seen).items():
        last = rows[-1]
        if inside[last] and last_frame_s[shot[last]] - seen.time_s[last] > options.lost_s:
            notes.append(_Note(float(seen.time_s[last]), number, "lost", "{0} is not seen again after this"))


def _in_order_of_appearance(seen: Sightings) -> dict[int, int]:
    """Track numbers -> identities, counted from 1 by first sighting."""
    first = {number: (int(seen.frame[rows[0]]), number) for number, rows in _rows_of_tracks(seen).items()}
    return {number: place for place, number in enumerate(sorted(first, key=lambda n: first[n]), start=1)}


def _same_people(seen: Sightings, options: IdentityOptions) -> dict[int, int]:
    """Identity -> the earliest identity of the same person, by appearance over the whole track."""
    tracks = _rows_of_tracks(seen)
    looks = stack([mean_looks(seen.looks[rows], np.array([0]), np.array([len(rows)])) for rows in tracks.values()])
    first, last = (np.array([seen.time_s[rows[end]] for rows in tracks.values()]) for end in (0, -1))
    person = relink(looks, first, last, options.relink_ratio)
    earliest: dict[int, int] = {}
    for identity, group in zip(tracks, person.tolist(), strict=True):  # identities are in order of appearance
        earliest.setdefault(group, identity)
    return {identity: earliest[group] for identity, group in zip(tracks, person.tolist(), strict=True)}
