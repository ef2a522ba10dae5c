"""Tracks corrected by hand: `tracks_edits.json` in the folder of a run, applied to what the stage `people` found.

tracks.npz and keypoints.npz stay as they were found, so that any edit can be taken back without looking at the video
again; every later stage reads them through `edited_tracks` and `edited_keypoints`. The edits are part of the fit's
cache key. They are bound to the tracks they were made for: should those be found anew and come out differently,
nothing is guessed, and the edits are refused.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.result import EDITS_FILE
from fitmesh.stages.people import KEYPOINTS_FILE, TRACKS_FILE, KeypointsFile, TracksFile, read_keypoints, read_tracks
from fitmesh.ui.trouble import count
from pose2d.base.errors import UserError
from pose2d.base.files import Json, atomic_file, read_json
from pose2d.base.table import Table
from pose2d.events import Event
from pose2d.types import Track

FILE = EDITS_FILE
NOBODY = -1  # owner of a row that was dropped; identities are positive
_EXPECTED = "Expected the edits that `fitmesh tracks` writes; `fitmesh tracks OUT --clear` removes them."
_Rows = Any  # an array [T, ...], or a table of T frames


@dataclass(frozen=True)
class Merge:
    """Several tracks are one person."""

    identities: tuple[int, ...]  # in each shot, the first that is in it is kept

    def __str__(self) -> str:
        return f"merge {', '.join(map(str, self.identities))}"


@dataclass(frozen=True)
class Split:
    """A track is two people."""

    identity: int
    time_s: float  # of the video; from this time on ..
    new_identity: int  # .. it is this person

    def __str__(self) -> str:
        return f"split {self.identity} at {self.time_s:g} s, then {self.new_identity}"


@dataclass(frozen=True)
class Drop:
    """A track is nobody of interest."""

    identity: int

    def __str__(self) -> str:
        return f"drop {self.identity}"


Edit = Merge | Split | Drop
Owners = dict[int, np.ndarray]  # found identity -> [T] the identity that each of its rows has now, or NOBODY


@dataclass(frozen=True)
class Identities:
    """Who is who after some edits; edits change it in place."""

    tracks: TracksFile  # as found
    owners: Owners
    person: dict[int, int]  # identity -> a number that identities of the same person share

    def everyone(self) -> list[int]:
        """Who still has rows, in order."""
        found = np.unique(np.concatenate([np.zeros(0, np.int64), *self.owners.values()]))
        return [identity for identity in found.tolist() if identity != NOBODY]

    def frames(self, identity: int) -> np.ndarray:
        """Frame numbers, rising."""
        parts = [track.frames[self.owners[track.identity] == identity] for track in self.tracks.tracks]
        return np.sort(np.concatenate(parts))

    def shot(self, identity: int) -> int:
        """A track lies within one shot."""
        return int(np.searchsorted(self.tracks.shot_first_frame, self.frames(identity)[0], side="right"))

    def next_identity(self) -> int:
        """One that nobody has or had."""
        return 1 + max(self.person, default=0)

    def same_as(self) -> dict[int, int]:
        """Identity -> the earliest identity of the same person."""
        earliest: dict[int, int] = {}
        for identity in sorted(self.everyone(), key=lambda one: int(self.frames(one)[0])):
            earliest.setdefault(self.person[identity], identity)
        return {identity: earliest[self.person[identity]] for identity in self.everyone()}


def edited_tracks(out: Path) -> TracksFile:
    """`tracks.npz` with the edits applied."""
    found = read_tracks(out)
    edits = read_edits(out, found)
    return _edited(found, identities_after(found, edits)) if edits else found


def edited_keypoints(out: Path) -> KeypointsFile:
    """`keypoints.npz` with the edits applied."""
    tracks, keypoints = read_tracks(out), read_keypoints(out)
    seen, rows = {track.identity: track.frames for track in tracks.tracks}, keypoints.frames
    if seen.keys() != rows.keys() or any(not np.array_equal(seen[who], frames) for who, frames in rows.items()):
        raise UserError(f"{out / KEYPOINTS_FILE} is of others than {out / TRACKS_FILE}: `fitmesh run` makes both anew.")
    edits = read_edits(out, tracks)
    if not edits:
        return keypoints
    now = identities_after(tracks, edits)
    changed: dict[str, Any] = {
        entry.name: _gathered(now, keypoints.frames, values)
        for entry in fields(keypoints)
        if isinstance(values := getattr(keypoints, entry.name), dict) and values
    }
    return replace(keypoints, **changed)


def edits_digest(out: Path) -> str | None:
    """For cache keys; None where there are no edits."""
    try:
        edits = _read(out)[1]
    except FileNotFoundError:
        return None
    return hashlib.sha256(_as_json(edits).encode()).hexdigest() if edits else None


def read_edits(out: Path, tracks: TracksFile) -> list[Edit]:
    """In the order they were made; UserError where they were made for other tracks than these."""
    try:
        fingerprint, edits = _read(out)
    except FileNotFoundError:
        return []
    if edits and fingerprint != _fingerprint(tracks):
        raise UserError(
            f"the edits in {out / FILE} were made for other tracks than those of {out / TRACKS_FILE}, which other "
            f"settings or another version have found anew. Remove them with `fitmesh tracks {out} --clear`, and make "
            "them again."
        )
    return edits


def write_edits(out: Path, tracks: TracksFile, edits: Sequence[Edit]) -> None:
    """All edits; none removes the file."""
    if not edits:
        (out / FILE).unlink(missing_ok=True)
        return
    with atomic_file(out / FILE) as temporary:
        text = f'{{"tracks": "{_fingerprint(tracks)}",\n"edits": {_as_json(edits)}}}\n'
        temporary.write_text(text)


def identities_after(tracks: TracksFile, edits: Sequence[Edit]) -> Identities:
    """UserError for an edit that cannot be made."""
    owners = {track.identity: np.full(len(track.frames), track.identity, np.int64) for track in tracks.tracks}
    now = Identities(tracks, owners, dict(tracks.same_as))
    for edit in edits:
        if isinstance(edit, Merge):
            _merge(edit, now)
        elif isinstance(edit, Split):
            _split(edit, now)
        else:
            _check_known(edit.identity, now)
            _give(edit.identity, NOBODY, now)
    return now


def _give(identity: int, other: int, now: Identities) -> None:
    for rows in now.owners.values():
        rows[rows == identity] = other


def _merge(edit: Merge, now: Identities) -> None:
    """Within a shot tracks become one. Nobody is followed over a cut: there they stay two, known to be the same."""
    _check_merge(edit, now)
    keeps: dict[int, int] = {}  # shot -> who has its rows
    shots = {identity: now.shot(identity) for identity in edit.identities}
    people = {now.person[identity] for identity in edit.identities}
    for identity, shot in shots.items():
        _give(identity, keeps.setdefault(shot, identity), now)
    now.person.update({one: now.person[edit.identities[0]] for one, who in now.person.items() if who in people})


def _check_merge(edit: Merge, now: Identities) -> None:
    if len(edit.identities) < 2 or len(set(edit.identities)) < len(edit.identities):
        raise UserError(f"a merge takes two or more different people, got {', '.join(map(str, edit.identities))}.")
    for identity in edit.identities:
        _check_known(identity, now)
    known, taken = now.everyone(), dict[int, int]()
    people = {now.person[identity] for identity in edit.identities}
    others = [one for one in known if now.person[one] in people and one not in edit.identities]  # by earlier merges
    for identity in (*edit.identities, *others):
        frames = now.frames(identity)
        both = [frame for frame in frames.tolist() if frame in taken]
        if both:
            time_s = float(now.tracks.time_s[np.searchsorted(now.tracks.frames, both[0])])
            raise UserError(
                f"people {taken[both[0]]} and {identity} cannot be one: both are seen in {count(len(both), 'frames')}, "
                f"first at {time_s:.2f} s (frame {both[0]}). Split or drop one of them there first."
            )
        taken |= dict.fromkeys(frames.tolist(), identity)


def _split(edit: Split, now: Identities) -> None:
    _check_known(edit.identity, now)
    if edit.new_identity in now.everyone():
        raise UserError(
            f"a split of person {edit.identity} cannot make person {edit.new_identity}, who is there already."
        )
    times = dict(zip(now.tracks.frames.tolist(), now.tracks.time_s.tolist(), strict=True))
    frames = now.frames(edit.identity)
    first_s, last_s = times[int(frames[0])], times[int(frames[-1])]
    if not first_s < edit.time_s <= last_s:
        raise UserError(
            f"person {edit.identity} is seen from {first_s:.2f} to {last_s:.2f} s: a split at {edit.time_s:g} s leaves "
            "nothing on one side."
        )
    for track in now.tracks.tracks:
        late = np.array([times[frame] >= edit.time_s for frame in track.frames.tolist()], np.bool_)
        rows = now.owners[track.identity]
        rows[late & (rows == edit.identity)] = edit.new_identity
    now.person[edit.new_identity] = edit.new_identity


def _check_known(identity: int, now: Identities) -> None:
    known = now.everyone()
    if identity not in known:
        names = ", ".join(map(str, known)) or "none"
        raise UserError(f"there is no person {identity} in the tracks: there are {names}.")


def _edited(found: TracksFile, now: Identities) -> TracksFile:
    by_identity = {track.identity: track for track in found.tracks}
    frames = {identity: track.frames for identity, track in by_identity.items()}
    boxes_px = _gathered(now, frames, {i: track.boxes_px for i, track in by_identity.items()})
    scores = _gathered(now, frames, {i: track.scores for i, track in by_identity.items()})
    tracks = [
        Track(identity, rows, boxes_px[identity], scores[identity])
        for identity, rows in _gathered(now, frames, frames).items()
    ]
    events = [moved for event in found.events if (moved := _event(event, now)) is not None]
    return replace(found, tracks=tracks, same_as=now.same_as(), events=events)


def _event(event: Event, now: Identities) -> Event | None:
    """About the person with the identity's row nearest in time; None if there is none, or the loss was corrected."""
    times = dict(zip(now.tracks.frames.tolist(), now.tracks.time_s.tolist(), strict=True))
    for track in now.tracks.tracks:
        if track.identity == event.identity:
            away = np.abs([times[frame] - event.time_s for frame in track.frames.tolist()])
            identity = int(now.owners[track.identity][int(away.argmin())])
            if identity == NOBODY or (event.kind == "lost" and times[int(now.frames(identity)[-1])] > event.time_s):
                return None
            return replace(event, identity=identity)
    return event


def _gathered(now: Identities, frames: Mapping[int, np.ndarray], values: Mapping[int, _Rows]) -> dict[int, _Rows]:
    """What found identities have in rows [T, ...] -> what those after the edits have, by rising frame."""
    gathered: dict[int, _Rows] = {}
    for identity in now.everyone():
        parts = [
            (found, np.flatnonzero(who == identity)) for found, who in now.owners.items() if (who == identity).any()
        ]
        order = np.argsort(np.concatenate([frames[found][rows] for found, rows in parts]), kind="stable")
        gathered[identity] = _taken([_take(values[found], rows) for found, rows in parts], order)
    return gathered


def _take(values: _Rows, rows: np.ndarray) -> _Rows:
    return values.rows(rows) if isinstance(values, Table) else values[rows]


def _taken(parts: Sequence[_Rows], order: np.ndarray) -> _Rows:
    """One after the other, then in this order."""
    first = parts[0]
    if not isinstance(first, Table):
        return np.concatenate(parts)[order]
    return type(first).concat(parts).rows(order)


def _fingerprint(tracks: TracksFile) -> str:
    """Who was found in which frames."""
    digest = hashlib.sha256()
    for track in tracks.tracks:
        digest.update(np.int64(track.identity).tobytes())
        digest.update(np.asarray(track.frames, "<i8").tobytes())
    return digest.hexdigest()[:32]


def _as_json(edits: Sequence[Edit]) -> str:
    entries: list[Mapping[str, Any]] = []
    for edit in edits:
        if isinstance(edit, Merge):
            entries.append({"merge": list(edit.identities)})
        elif isinstance(edit, Split):
            entries.append({"split": edit.identity, "time_s": edit.time_s, "new": edit.new_identity})
        else:
            entries.append({"drop": edit.identity})
    return json.dumps(entries)


def _read(out: Path) -> tuple[str, list[Edit]]:
    """Fingerprint of the tracks, and the edits; FileNotFoundError where there are none."""
    path = out / FILE
    if not path.exists():
        raise FileNotFoundError(path)
    content = read_json(path, _EXPECTED)
    return content.item("tracks").text(), [_edit(entry) for entry in content.item("edits").items()]


def _edit(entry: Json) -> Edit:
    if "merge" in entry:
        return Merge(tuple(one.integer(1) for one in entry.item("merge").items()))
    if "split" in entry:
        return Split(entry.item("split").integer(1), entry.item("time_s").number(), entry.item("new").integer(1))
    if "drop" in entry:
        return Drop(entry.item("drop").integer(1))
    raise entry.refuse("is neither a merge nor a split nor a drop")
