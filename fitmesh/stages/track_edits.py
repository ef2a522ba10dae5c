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
from typing import Any, TypeVar

import numpy as np
import torch

from fitmesh.stages.people import TRACKS_FILE, KeypointsFile, TracksFile, read_keypoints, read_tracks
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import Json, read_json
from pose2d.types import Keypoints, Track

FILE = "tracks_edits.json"
NOBODY = -1  # owner of a row that was dropped; identities are positive
_EXPECTED = "Expected the edits that `fitmesh tracks` writes; `fitmesh tracks OUT --clear` removes them."
_Rows = TypeVar("_Rows", np.ndarray, Keypoints)


@dataclass(frozen=True)
class Merge:
    """Several tracks are one person."""

    identities: tuple[int, ...]  # the first is kept

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


def edited_tracks(out: Path) -> TracksFile:
    """`tracks.npz` with the edits applied."""
    found = read_tracks(out)
    return _edited(found, owners_after(found, read_edits(out, found)))


def edited_keypoints(out: Path) -> KeypointsFile:
    """`keypoints.npz` with the edits applied."""
    tracks, keypoints = read_tracks(out), read_keypoints(out)
    edits = read_edits(out, tracks)
    if not edits:
        return keypoints
    owners, frames = owners_after(tracks, edits), keypoints.frames
    changed = {
        entry.name: _gathered(owners, frames, values)
        for entry in fields(keypoints)
        if isinstance(values := getattr(keypoints, entry.name), dict)
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


def owners_after(tracks: TracksFile, edits: Sequence[Edit]) -> Owners:
    """Whose each row is; UserError for an edit that cannot be made."""
    owners = {track.identity: np.full(len(track.frames), track.identity, np.int64) for track in tracks.tracks}
    for edit in edits:
        _apply(edit, owners, tracks)
    return owners


def next_identity(owners: Owners) -> int:
    """One that nobody has or had."""
    return 1 + max((max(found, int(now.max(initial=0))) for found, now in owners.items()), default=0)


def _apply(edit: Edit, owners: Owners, tracks: TracksFile) -> None:
    """Change `owners` in place, after all is checked."""
    if isinstance(edit, Merge):
        first, *others = _checked_merge(edit, owners, tracks)
        for now in owners.values():
            now[np.isin(now, others)] = first
        return
    _check_known(edit.identity, owners)
    if isinstance(edit, Drop):
        for now in owners.values():
            now[now == edit.identity] = NOBODY
        return
    times = dict(zip(tracks.frames.tolist(), tracks.time_s.tolist(), strict=True))
    frames = frames_of(edit.identity, owners, tracks)
    first_s, last_s = times[frames[0]], times[frames[-1]]
    if not first_s < edit.time_s <= last_s:
        raise UserError(
            f"person {edit.identity} is seen from {first_s:.2f} to {last_s:.2f} s: a split at {edit.time_s:g} s leaves "
            "nothing on one side."
        )
    for track in tracks.tracks:
        late = np.array([times[frame] >= edit.time_s for frame in track.frames.tolist()], np.bool_)
        now = owners[track.identity]
        now[late & (now == edit.identity)] = edit.new_identity


def _checked_merge(edit: Merge, owners: Owners, tracks: TracksFile) -> tuple[int, ...]:
    if len(edit.identities) < 2 or len(set(edit.identities)) < len(edit.identities):
        raise UserError(f"a merge takes two or more different people, got {', '.join(map(str, edit.identities))}.")
    for identity in edit.identities:
        _check_known(identity, owners)
    taken: dict[int, int] = {}
    for identity in edit.identities:
        frames = frames_of(identity, owners, tracks)
        both = [frame for frame in frames.tolist() if frame in taken]
        if both:
            time_s = float(tracks.time_s[np.searchsorted(tracks.frames, both[0])])
            raise UserError(
                f"people {taken[both[0]]} and {identity} cannot be one: both are seen in {len(both)} frames, first at "
                f"{time_s:.2f} s (frame {both[0]}). Split or drop one of them there first."
            )
        taken |= dict.fromkeys(frames.tolist(), identity)
    return edit.identities


def _check_known(identity: int, owners: Owners) -> None:
    known = identities_of(owners)
    if identity not in known:
        raise UserError(
            f"there is no person {identity} in the tracks: there are {', '.join(map(str, known)) or 'none'}."
        )


def identities_of(owners: Owners) -> list[int]:
    """Everyone who still has rows, in order."""
    everyone = np.unique(np.concatenate([np.zeros(0, np.int64), *owners.values()]))
    return [identity for identity in everyone.tolist() if identity != NOBODY]


def frames_of(identity: int, owners: Owners, tracks: TracksFile) -> np.ndarray:
    """Frame numbers, rising."""
    return np.sort(np.concatenate([track.frames[owners[track.identity] == identity] for track in tracks.tracks]))


def _edited(found: TracksFile, owners: Owners) -> TracksFile:
    by_identity = {track.identity: track for track in found.tracks}
    frames = {identity: track.frames for identity, track in by_identity.items()}
    boxes_px = _gathered(owners, frames, {i: track.boxes_px for i, track in by_identity.items()})
    scores = _gathered(owners, frames, {i: track.scores for i, track in by_identity.items()})
    tracks = [
        Track(identity, rows, boxes_px[identity], scores[identity])
        for identity, rows in _gathered(owners, frames, frames).items()
    ]
    return replace(found, tracks=tracks)


def _gathered(owners: Owners, frames: Mapping[int, np.ndarray], values: Mapping[int, _Rows]) -> dict[int, _Rows]:
    """What found identities have in rows [T, ...] -> what those after the edits have, by rising frame."""
    gathered: dict[int, _Rows] = {}
    for identity in identities_of(owners):
        parts = [(found, np.flatnonzero(now == identity)) for found, now in owners.items() if (now == identity).any()]
        order = np.argsort(np.concatenate([frames[found][rows] for found, rows in parts]), kind="stable")
        gathered[identity] = _taken([_take(values[found], rows) for found, rows in parts], order)
    return gathered


def _take(values: _Rows, rows: np.ndarray) -> _Rows:
    return values.rows(rows) if isinstance(values, Keypoints) else values[rows]


def _taken(parts: Sequence[_Rows], order: np.ndarray) -> _Rows:
    """One after the other, then in this order."""
    first = parts[0]
    if not isinstance(first, Keypoints):
        return np.concatenate(parts)[order]  # type: ignore[arg-type]
    names = [entry.name for entry in fields(first) if isinstance(getattr(first, entry.name), torch.Tensor)]
    whole = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return replace(first, **whole).rows(order)


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
