"""Who is who over a whole video, once all of it was seen: what the tracker made, looked at again.

A track ends at a cut, and people who met or were hidden are told apart once more by what they were
like before and after (second_look.py). What a person should look at becomes an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pose2d.base.scratch import release_scratch
from pose2d.base.table import joined
from pose2d.events import Event
from pose2d.tracking.appearance import RELINK_RATIO, inside_image, overall, relink, rows_of_tracks
from pose2d.tracking.second_look import SecondLookOptions, Switch, look_again
from pose2d.tracking.tracker import Tracker
from pose2d.types import NOBODY, Appearance, Detections


@dataclass(frozen=True)
class IdentityOptions:
    """Chosen on the tuning seeds of bench/identity.py."""

    relink: bool = False  # join the same person across shots and long absences
    relink_ratio: float = RELINK_RATIO
    lost_s: float = (
        0.5  # a track that ends longer before its shot does was lost, unless it left the image
    )
    second_look: SecondLookOptions = field(default_factory=SecondLookOptions)


@dataclass(frozen=True)
class Settled:
    """Who is who."""

    identity: (
        np.ndarray
    )  # [N] of each detection, counted from 1 in the order of first detections; -1: dropped
    same_as: Mapping[int, int]  # identity -> that of the earliest track of the same person
    events: list[Event]


@dataclass(frozen=True)
class People:
    """Everyone in a video."""

    detections: Detections  # person after person, frames rising
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F]
    detected: np.ndarray  # [F] bool: the detector looked at it
    shot_first_frame: np.ndarray  # [S] number of the first frame of each shot
    same_as: Mapping[
        int, int
    ]  # identity -> the earliest identity of the same person; itself unless asked to relink
    events: list[Event]  # what a person should look at, in order of time


def tracked(seen: Detections) -> Detections:
    """The rows that belong to somebody. One appearance for every row of a video is kept: in single
    precision.
    """
    rows = seen.rows(seen.identity != NOBODY)
    if rows.appearance is None:
        return rows
    colours = rows.appearance.colours.astype(np.float32)
    weight = rows.appearance.weight.astype(np.float32)
    return replace(rows, appearance=Appearance(colours, weight))


def people_of(
    rows: Sequence[Detections],
    tracker: Tracker,
    frames: np.ndarray,
    times: np.ndarray,
    shot_first_frame: np.ndarray,
    options: IdentityOptions,
) -> People:
    """The rows of confirmed tracks, after a second look at who is who. frames, times [F]: of all
    frames that were read; shot_first_frame [S]."""
    seen = joined(rows, sum(map(len, rows))) if rows else Detections.empty()
    if seen.time_s is None:
        seen = replace(seen, time_s=np.zeros(0))
    confirmed = np.isin(seen.identity, list(tracker.confirmed()))
    seen = replace(seen, identity=np.where(confirmed, seen.identity, NOBODY))
    ends = np.searchsorted(frames, [*shot_first_frame[1:], np.inf][: len(shot_first_frame)]) - 1
    keypoints = seen.keypoints
    looked_at = replace(
        seen, keypoints=keypoints and replace(keypoints, error=None, raw=None)
    )  # half of the bytes
    settled = settle(looked_at, shot_first_frame, times[ends], tracker.image_wh, options)
    return People(
        detections=replace(seen, identity=settled.identity, appearance=None).by_person(),
        frames=frames,
        time_s=times,
        detected=np.zeros(len(frames), np.bool_),
        shot_first_frame=shot_first_frame,
        same_as=settled.same_as,
        events=settled.events,
    )


def settle(
    seen: Detections,
    shot_first_frame: np.ndarray,
    last_frame_s: np.ndarray,
    image_wh: tuple[int, int],
    options: IdentityOptions,
) -> Settled:
    """shot_first_frame [S]: where shots begin; last_frame_s [S]: the time of each shot's last
    frame.
    """
    shot = np.searchsorted(shot_first_frame, seen.frame, side="right") - 1
    track = _renumbered(seen.identity, shot)
    switches: list[Switch] = []
    if seen.keypoints is not None and seen.appearance is not None:
        track, switches = _look_again(
            replace(seen, identity=track), shot, image_wh, options.second_look
        )
        release_scratch()
    seen = replace(seen, identity=track)
    identities = _in_order_of_appearance(seen)
    identity = np.array([identities.get(number, -1) for number in track.tolist()], np.int64)
    events = [
        Event(when, a, "swap", f"person {a} and person {b} may have been exchanged here")
        for when, *tracks in switches
        if set(tracks) <= identities.keys()
        for a, b in [[identities[number] for number in tracks]]
    ]
    inside = inside_image(seen.box_px, image_wh)
    for number, rows in rows_of_tracks(seen).items():
        last = rows[-1]
        if inside[last] and last_frame_s[shot[last]] - seen.time_s[last] > options.lost_s:
            who = identities[number]
            events.append(
                Event(
                    float(seen.time_s[last]),
                    who,
                    "lost",
                    f"person {who} is not seen again after this",
                )
            )
    same_as = {i: i for i in identities.values()}
    if options.relink:
        same_as = _same_people(replace(seen, identity=identity), options)
    return Settled(
        identity, same_as, sorted(events, key=lambda event: (event.time_s, event.identity))
    )


def _renumbered(track: np.ndarray, shot: np.ndarray) -> np.ndarray:
    """Track numbers such that none lies in two shots; -1 stays."""
    numbers = np.unique(np.stack([track, shot], 1), axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(track < 0, -1, numbers)


def _look_again(
    seen: Detections, shot: np.ndarray, image_wh: tuple[int, int], options: SecondLookOptions
) -> tuple[np.ndarray, list[Switch]]:
    """Track numbers [N] after people who met, or were hidden, were told apart by what they were
    before and after; and when two of them may have been exchanged."""
    track = np.full(len(seen), -1, np.int64)
    switches = []
    for number in np.unique(shot[seen.identity >= 0]):
        rows = np.flatnonzero((shot == number) & (seen.identity >= 0))
        part = seen.picked(rows)
        again, candidates = look_again(part, image_wh, options)
        fresh = int(track.max(initial=-1)) + 1
        track[rows] = np.where(again < 0, -1, fresh + again)
        switches += [(when, fresh + one, fresh + other) for when, one, other in candidates]
    return track, switches


def _in_order_of_appearance(seen: Detections) -> dict[int, int]:
    """Track numbers -> identities, counted from 1 by first detection."""
    first = {
        number: (int(seen.frame[rows[0]]), number) for number, rows in rows_of_tracks(seen).items()
    }
    return {
        number: place for place, number in enumerate(sorted(first, key=lambda n: first[n]), start=1)
    }


def _same_people(seen: Detections, options: IdentityOptions) -> dict[int, int]:
    """Identity -> the earliest identity of the same person, by appearance over the whole track."""
    tracks = rows_of_tracks(seen)
    if not tracks or seen.appearance is None:
        return {identity: identity for identity in tracks}
    appearance = Appearance.concat(
        [overall(seen.appearance.rows(rows)) for rows in tracks.values()]
    )
    first, last = (
        np.array([seen.time_s[rows[end]] for rows in tracks.values()]) for end in (0, -1)
    )
    person = relink(appearance, first, last, options.relink_ratio)
    earliest: dict[int, int] = {}
    for identity, group in zip(
        tracks, person.tolist(), strict=True
    ):  # identities are in order of appearance
        earliest.setdefault(group, identity)
    return {
        identity: earliest[group] for identity, group in zip(tracks, person.tolist(), strict=True)
    }
