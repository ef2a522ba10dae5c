"""Identities over a whole video, decided once all of it is known.

A track ends at a cut. People who met or were hidden are told apart again by motion and appearance
before and after (second_look.py). What the user should check becomes an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pose2d.base.scratch import release_scratch
from pose2d.base.table import join_rows
from pose2d.events import Event
from pose2d.tracking.appearance import overall
from pose2d.tracking.exchange import SecondLookOptions
from pose2d.tracking.relink import RELINK_RATIO, relink
from pose2d.tracking.second_look import Switch, look_again
from pose2d.tracking.track_path import inside_image, rows_of_tracks
from pose2d.tracking.tracker import Tracker
from pose2d.types import NOBODY, Appearance, Detections


@dataclass(frozen=True)
class IdentityOptions:
    """How identities are decided, chosen on the tuning seeds of bench/identity.py."""

    relink: bool = False  # join the same person across shots and long absences
    relink_ratio: float = RELINK_RATIO
    # A track that ends earlier before the end of its shot was lost, unless it left the image.
    lost_s: float = 0.5
    second_look: SecondLookOptions = field(default_factory=SecondLookOptions)


@dataclass(frozen=True)
class Settled:
    """The identities of N detections."""

    identity: np.ndarray  # [N] from 1 in the order of first detections; -1: dropped
    same_as: Mapping[int, int]  # identity -> that of the earliest track of the same person
    events: list[Event]


@dataclass(frozen=True)
class People:
    """The people of a video."""

    detections: Detections  # person after person, frames rising
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F]
    detected: np.ndarray  # [F] bool: the detector looked at it
    shot_first_frame: np.ndarray  # [S] number of the first frame of each shot
    # identity -> the earliest identity of the same person; itself unless relinking was asked for
    same_as: Mapping[int, int]
    events: list[Event]  # what the user should check, in order of time


def tracked_rows(detections: Detections) -> Detections:
    """Return the detections that belong to a track, with appearance in single precision, because it
    is held for a whole video.
    """
    rows = detections.rows(detections.identity != NOBODY)
    if rows.appearance is None:
        return rows
    colours = rows.appearance.colours.astype(np.float32)
    weight = rows.appearance.weight.astype(np.float32)
    return replace(rows, appearance=Appearance(colours, weight))


def collect_people(
    rows: Sequence[Detections],
    tracker: Tracker,
    frames: np.ndarray,
    times: np.ndarray,
    shot_first_frame: np.ndarray,
    options: IdentityOptions,
) -> People:
    """Return the people of confirmed tracks, after a second look at their identities. rows: the
    tracked detections in order of time; frames, times [F]: of all frames that were read;
    shot_first_frame [S].
    """
    detections = join_rows(rows, sum(map(len, rows))) if rows else Detections.empty()
    if detections.time_s is None:
        detections = replace(detections, time_s=np.zeros(0))
    is_confirmed = np.isin(detections.identity, list(tracker.confirmed()))
    identity = np.where(is_confirmed, detections.identity, NOBODY)
    detections = replace(detections, identity=identity)
    shot_ends = [*shot_first_frame[1:], np.inf][: len(shot_first_frame)]
    last_frames = np.searchsorted(frames, shot_ends) - 1
    # Identities do not depend on these columns, which are half of the bytes.
    keypoints = detections.keypoints
    without_errors = keypoints and replace(keypoints, error=None, raw=None)
    settled = settle(
        replace(detections, keypoints=without_errors),
        shot_first_frame,
        times[last_frames],
        tracker.image_wh,
        options,
    )
    return People(
        detections=replace(detections, identity=settled.identity, appearance=None).by_person(),
        frames=frames,
        time_s=times,
        detected=np.zeros(len(frames), np.bool_),
        shot_first_frame=shot_first_frame,
        same_as=settled.same_as,
        events=settled.events,
    )


def settle(
    detections: Detections,
    shot_first_frame: np.ndarray,
    last_frame_s: np.ndarray,
    image_wh: tuple[int, int],
    options: IdentityOptions,
) -> Settled:
    """Return the final identities of detections whose `identity` is the tracker's. shot_first_frame
    [S]: where shots begin; last_frame_s [S]: the time of each shot's last frame.
    """
    shot = np.searchsorted(shot_first_frame, detections.frame, side="right") - 1
    track = _split_tracks_at_cuts(detections.identity, shot)
    switches: list[Switch] = []
    if detections.keypoints is not None and detections.appearance is not None:
        by_shot = replace(detections, identity=track)
        track, switches = _look_again_at_shots(by_shot, shot, image_wh, options.second_look)
        release_scratch()
    detections = replace(detections, identity=track)
    identities = _number_by_first_frame(detections)
    identity = np.array([identities.get(number, -1) for number in track.tolist()], np.int64)
    events = _swap_events(switches, identities)
    inside = inside_image(detections.box_px, image_wh)
    for number, rows in rows_of_tracks(detections).items():
        last = rows[-1]
        time_s = float(detections.time_s[last])
        if inside[last] and last_frame_s[shot[last]] - time_s > options.lost_s:
            person = identities[number]
            message = f"person {person} is not seen again after this"
            events.append(Event(time_s, person, "lost", message))
    same_as = {i: i for i in identities.values()}
    if options.relink:
        same_as = _same_people(replace(detections, identity=identity), options)
    events.sort(key=lambda event: (event.time_s, event.identity))
    return Settled(identity, same_as, events)


def _swap_events(switches: list[Switch], identities: Mapping[int, int]) -> list[Event]:
    """Return the events for pairs of tracks that may have been exchanged."""
    events = []
    for time_s, track_a, track_b in switches:
        if track_a in identities and track_b in identities:
            a = identities[track_a]
            b = identities[track_b]
            message = f"person {a} and person {b} may have been exchanged here"
            events.append(Event(time_s, a, "swap", message))
    return events


def _split_tracks_at_cuts(track: np.ndarray, shot: np.ndarray) -> np.ndarray:
    """Return track numbers such that none lies in two shots; -1 stays."""
    pairs = np.stack([track, shot], 1)
    numbers = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where(track < 0, -1, numbers)


def _look_again_at_shots(
    detections: Detections, shot: np.ndarray, image_wh: tuple[int, int], options: SecondLookOptions
) -> tuple[np.ndarray, list[Switch]]:
    """Return the track numbers [N] after `look_again` at every shot, and exchanges that are nearly
    as likely.
    """
    track = np.full(len(detections), -1, np.int64)
    switches: list[Switch] = []
    for number in np.unique(shot[detections.identity >= 0]):
        rows = np.flatnonzero((shot == number) & (detections.identity >= 0))
        track_in_shot, shot_switches = look_again(detections.pick(rows), image_wh, options)
        offset = int(track.max(initial=-1)) + 1
        track[rows] = np.where(track_in_shot < 0, -1, offset + track_in_shot)
        switches += [(time_s, offset + a, offset + b) for time_s, a, b in shot_switches]
    return track, switches


def _number_by_first_frame(detections: Detections) -> dict[int, int]:
    """Return identities by track number, counted from 1 in order of the tracks' first frames."""
    first_frame = {
        number: int(detections.frame[rows[0]])
        for number, rows in rows_of_tracks(detections).items()
    }
    in_order = sorted(first_frame, key=lambda number: (first_frame[number], number))
    return {number: identity for identity, number in enumerate(in_order, start=1)}


def _same_people(detections: Detections, options: IdentityOptions) -> dict[int, int]:
    """Return the earliest identity of the same person by identity, from the mean appearance of
    whole tracks.
    """
    tracks = rows_of_tracks(detections)
    if not tracks or detections.appearance is None:
        return {identity: identity for identity in tracks}
    means = [overall(detections.appearance.rows(rows)) for rows in tracks.values()]
    first_s = np.array([detections.time_s[rows[0]] for rows in tracks.values()])
    last_s = np.array([detections.time_s[rows[-1]] for rows in tracks.values()])
    person = relink(Appearance.concat(means), first_s, last_s, options.relink_ratio).tolist()
    earliest: dict[int, int] = {}
    for identity, group in zip(tracks, person, strict=True):  # identities rise with time
        earliest.setdefault(group, identity)
    return {identity: earliest[group] for identity, group in zip(tracks, person, strict=True)}
