"""Correct identities by hand (`fitmesh.edit_tracks`) and read the corrected tracks and keypoints.

The edits are stored in tracks_edits.json; tracks.npz and keypoints.npz stay as they were, so any
edit can be taken back without reading the video again. Later stages read both files through
`edited_tracks` and `edited_keypoints`, and the edits are part of the fit's cache key. Edits belong to
the tracks they were made for: if other settings produce other tracks, the edits are refused.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fitmesh.result import EDITS_FILE
from fitmesh.stages.people import TRACKS_FILE, SeenPeople, read_keypoints, read_tracks
from fitmesh.ui.trouble import count
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import Json, read_json
from pose2d.events import Event
from pose2d.types import NOBODY


@dataclass(frozen=True)
class TrackSummary:
    """Describe one person of the tracks, after all edits."""

    identity: int
    frames: int  # number of frames with a detection
    start_s: float  # time of the first of them in the video
    end_s: float  # time of the last
    same_as: int  # the earliest identity of the same person in another shot, or its own


def list_tracks(out: str | Path) -> list[TrackSummary]:
    """Return all people of a run, by increasing identity."""
    tracks = edited_tracks(Path(out))
    people = []
    for identity, track in tracks.people.items():
        start_s, end_s = tracks.times(track.frame[[0, -1]]).tolist()
        people.append(TrackSummary(identity, len(track), start_s, end_s, tracks.same_as[identity]))
    return people


def edit_tracks(
    out: str | Path,
    *,
    merge: Sequence[Sequence[int]] = (),
    split: Sequence[tuple[int, float]] = (),
    drop: Sequence[int] = (),
    undo: int = 0,
) -> list[TrackSummary]:
    """Correct the tracks of a run and return all people after the edits.

    `fitmesh.run` with the same settings then makes the rest again. merge: groups of identities that
    are one person; the first identity is kept. They must not be visible in the same frame; in
    different shots they stay apart and are linked by `same_as`. split: an identity and a time of the
    video in seconds, from which on it is another person with a new identity. drop: identities to
    leave out. undo: number of last edits to take back first. Merges come first, then splits, then
    drops. Everything is checked before anything is written (UserError).
    """
    folder = Path(out)
    tracks = read_tracks(folder)
    edits = read_edits(folder, tracks)
    if not 0 <= undo <= len(edits):
        raise UserError(
            f"{folder} has {len(edits)} edits: {undo} cannot be taken back.", file=folder
        )
    edits = edits[: len(edits) - undo]
    edits += [Merge(tuple(group)) for group in merge]
    for identity, time_s in split:
        edits.append(
            Split(identity, float(time_s), identities_after(tracks, edits).next_identity())
        )
    edits += [Drop(identity) for identity in drop]
    identities_after(tracks, edits)  # refuses what cannot be done
    write_edits(folder, tracks, edits)
    return list_tracks(folder)


@dataclass(frozen=True)
class Identities:
    """Hold the identities of all rows; edits change them in place."""

    tracks: SeenPeople  # before all edits
    owner: np.ndarray  # [N] the current identity of each row, or NOBODY if it was dropped
    person: dict[int, int]  # identity -> a number that identities of the same person share

    def everyone(self) -> list[int]:
        """Return the identities that have rows, sorted."""
        return [identity for identity in np.unique(self.owner).tolist() if identity != NOBODY]

    def frames(self, identity: int) -> np.ndarray:
        """Return the sorted frame numbers of a person; UserError if there is no such person."""
        frames = np.sort(self.tracks.rows.frame[self.owner == identity])
        if identity == NOBODY or not len(frames):
            names = ", ".join(map(str, self.everyone())) or "none"
            raise UserError(f"person {identity} does not exist: the tracks have {names}.")
        return frames

    def next_identity(self) -> int:
        """Return an identity that has never been used."""
        return 1 + max(self.person, default=0)

    def same_as(self) -> dict[int, int]:
        """Return the earliest identity of the same person, by identity."""
        earliest: dict[int, int] = {}
        for identity in sorted(self.everyone(), key=lambda number: int(self.frames(number)[0])):
            earliest.setdefault(self.person[identity], identity)
        return {identity: earliest[self.person[identity]] for identity in self.everyone()}


@dataclass(frozen=True)
class Merge:
    """Declare several tracks to be one person; tracks of different shots stay apart but linked."""

    merge: tuple[int, ...]  # in each shot the first identity of this list is kept

    def __str__(self) -> str:
        return f"merge {', '.join(map(str, self.merge))}"

    def apply(self, identities: Identities) -> None:
        """Change the identities; UserError if two of the tracks overlap in time."""
        if len(self.merge) < 2 or len(set(self.merge)) < len(self.merge):
            raise UserError(
                f"a merge needs two or more different people; got {', '.join(map(str, self.merge))}."
            )
        frames = {identity: identities.frames(identity) for identity in self.merge}
        people = {identities.person[identity] for identity in self.merge}
        linked_before = [
            identity
            for identity in identities.everyone()
            if identities.person[identity] in people and identity not in frames
        ]
        identity_at: dict[int, int] = {}  # frame -> identity
        for identity in (*self.merge, *linked_before):
            own_frames = identities.frames(identity).tolist()
            shared_frames = [frame for frame in own_frames if frame in identity_at]
            if shared_frames:
                first = shared_frames[0]
                raise UserError(
                    f"people {identity_at[first]} and {identity} cannot be merged: both are visible in "
                    f"{count(len(shared_frames), 'frames')}, first at "
                    f"{identities.tracks.times(first):.2f} s (frame {first}). "
                    "Split or drop one of them there first."
                )
            identity_at |= dict.fromkeys(own_frames, identity)
        kept_in_shot: dict[int, int] = {}  # a track lies within one shot
        starts = identities.tracks.shot_first_frame
        for identity, own_frames in frames.items():
            shot = int(np.searchsorted(starts, own_frames[0], side="right"))
            kept = kept_in_shot.setdefault(shot, identity)
            identities.owner[identities.owner == identity] = kept
        merged_person = identities.person[self.merge[0]]
        for identity, person in list(identities.person.items()):
            if person in people:
                identities.person[identity] = merged_person


@dataclass(frozen=True)
class Split:
    """Split a track into two people at a time."""

    split: int
    time_s: float  # of the video
    new: int  # identity from this time on

    def __str__(self) -> str:
        return f"split {self.split} at {self.time_s:g} s, then {self.new}"

    def apply(self, identities: Identities) -> None:
        """Change the identities; UserError if the time is not within the track."""
        tracks = identities.tracks
        first_s, last_s = tracks.times(identities.frames(self.split)[[0, -1]]).tolist()
        if self.new in identities.everyone():
            raise UserError(
                f"a split of person {self.split} cannot make person {self.new}, who exists already."
            )
        if not first_s < self.time_s <= last_s:
            raise UserError(
                f"person {self.split} is visible from {first_s:.2f} to {last_s:.2f} s: a split at "
                f"{self.time_s:g} s leaves nothing on one side."
            )
        is_later = tracks.times(tracks.rows.frame) >= self.time_s
        identities.owner[(identities.owner == self.split) & is_later] = self.new
        identities.person[self.new] = self.new


@dataclass(frozen=True)
class Drop:
    """Leave a track out."""

    drop: int

    def __str__(self) -> str:
        return f"drop {self.drop}"

    def apply(self, identities: Identities) -> None:
        """Change the identities; UserError if there is no such person."""
        identities.frames(self.drop)
        identities.owner[identities.owner == self.drop] = NOBODY


Edit = Merge | Split | Drop


def identities_after(tracks: SeenPeople, edits: Sequence[Edit]) -> Identities:
    """Return the identities after some edits; UserError for an edit that is impossible."""
    identities = Identities(tracks, tracks.rows.identity.copy(), dict(tracks.same_as))
    for edit in edits:
        edit.apply(identities)
    return identities


def edited_tracks(out: Path) -> SeenPeople:
    """Read tracks.npz and apply the edits."""
    tracks = read_tracks(out)
    return apply_edits(tracks, read_edits(out, tracks))


def edited_keypoints(out: Path) -> SeenPeople:
    """Read tracks, keypoints, hands and outlines and apply the edits."""
    people = read_keypoints(out)
    return apply_edits(people, read_edits(out, people))


def apply_edits(tracks: SeenPeople, edits: Sequence[Edit]) -> SeenPeople:
    """Return the people with the edits applied to rows, events and outlines."""
    if not edits:
        return tracks
    identities = identities_after(tracks, edits)
    owner = identities.owner
    order = np.lexsort((tracks.rows.frame, owner))
    order = order[owner[order] != NOBODY]
    rows = replace(tracks.rows, identity=owner).pick(order)
    outlines = tracks.outlines
    if outlines is not None:
        new_row = np.full(len(owner), -1)
        new_row[order] = np.arange(len(order))
        outlines = replace(outlines, row=new_row[outlines.row])
        outlines = outlines.rows(outlines.row >= 0)
    events = _edited_events(tracks, identities)
    same_as = identities.same_as()
    return replace(tracks, rows=rows, same_as=same_as, events=events, outlines=outlines)


def _edited_events(tracks: SeenPeople, identities: Identities) -> list[Event]:
    """Return the events under their new identities, without those that the edits have settled."""
    events = []
    for event in tracks.events:
        own_rows = np.flatnonzero(tracks.rows.identity == event.identity)
        if not len(own_rows):
            events.append(event)
            continue
        # An event concerns the person who owns the row nearest in time.
        distance_s = np.abs(tracks.times(tracks.rows.frame[own_rows]) - event.time_s)
        identity = int(identities.owner[own_rows[distance_s.argmin()]])
        if identity == NOBODY:
            continue
        last_s = tracks.times(identities.frames(identity)[-1])
        if event.kind == "lost" and last_s > event.time_s:
            continue  # the loss was corrected
        events.append(replace(event, identity=identity))
    return events


def read_edits(out: Path, tracks: SeenPeople) -> list[Edit]:
    """Read the edits in the order they were made; UserError if they were made for other tracks."""
    if not (out / EDITS_FILE).exists():
        return []
    content = read_json(
        out / EDITS_FILE,
        "Expected the edits that `fitmesh tracks` writes; `fitmesh tracks OUT --clear` removes them.",
    )
    edits = [_parse_edit(entry) for entry in content.item("edits").items()]
    if edits and content.item("tracks").text() != _fingerprint(tracks):
        raise UserError(
            f"the edits in {out / EDITS_FILE} were made for other tracks than those of "
            f"{out / TRACKS_FILE}, which other settings or another version have made. Remove them "
            f"with `fitmesh tracks {out} --clear`, and make them again.",
            file=out / EDITS_FILE,
        )
    return edits


def write_edits(out: Path, tracks: SeenPeople, edits: Sequence[Edit]) -> None:
    """Write all edits; without edits the file is removed."""
    if not edits:
        (out / EDITS_FILE).unlink(missing_ok=True)
        return
    with atomic_file(out / EDITS_FILE) as temporary:
        temporary.write_text(
            json.dumps({"tracks": _fingerprint(tracks), "edits": list(map(asdict, edits))}) + "\n"
        )


def _fingerprint(tracks: SeenPeople) -> str:
    """Return a digest of the people and their frames."""
    digest = hashlib.sha256()
    for identity, track in tracks.people.items():
        digest.update(np.int64(identity).tobytes())
        digest.update(np.asarray(track.frame, "<i8").tobytes())
    return digest.hexdigest()[:32]


def _parse_edit(entry: Json) -> Edit:
    """Return the edit that an entry of the file describes."""
    if "merge" in entry:
        return Merge(tuple(number.integer(1) for number in entry.item("merge").items()))
    if "split" in entry:
        return Split(
            entry.item("split").integer(1),
            entry.item("time_s").number(),
            entry.item("new").integer(1),
        )
    if "drop" in entry:
        return Drop(entry.item("drop").integer(1))
    raise entry.refuse("is neither a merge nor a split nor a drop")
