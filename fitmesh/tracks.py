"""Who is who in a run, corrected by hand: `fitmesh.edit_tracks`, and the tracks and keypoints that
later stages read.

`tracks_edits.json` in the folder of a run is applied to what was found: tracks.npz and
keypoints.npz stay as they were, so that any edit can be taken back without looking at the video
again; every later stage reads them through `edited_tracks` and `edited_keypoints`. The edits are
part of the fit's cache key. They are bound to the tracks they were made for: should those be found
anew and come out differently, nothing is guessed, and the edits are refused."""

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
from pose2d.types import NOBODY


@dataclass(frozen=True)
class TrackSummary:
    """One person of the tracks, after all edits."""

    identity: int
    frames: int  # in which the person was seen
    start_s: float  # time in the video of the first ..
    end_s: float  # .. and of the last
    same_as: int  # the earliest identity of the same person in another shot, or its own


def list_tracks(out: str | Path) -> list[TrackSummary]:
    """Everyone, by rising identity."""
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
    """Correct the tracks of a run; `fitmesh.run` with the same settings then makes the rest anew.

    merge: groups of identities that are one person, who keeps the first. They must not be seen in
    the same frame; in different shots they stay two and are said to be the same. split: an identity
    and a time of the video in seconds, from which on it is somebody else, with a new identity.
    drop: identities to leave out. undo: take back so many of the last edits before that. Merges
    come first, then splits, then drops. All is checked before anything is written (UserError).
    Returns everyone after the edits.
    """
    folder = Path(out)
    tracks = read_tracks(folder)
    edits = read_edits(folder, tracks)
    if not 0 <= undo <= len(edits):
        raise UserError(
            f"there are {len(edits)} edits in {folder}, and {undo} cannot be taken back."
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
    """Who is who after some edits, which change it in place."""

    tracks: SeenPeople  # as found
    owner: np.ndarray  # [N] the identity that each row has now, or NOBODY where it was dropped
    person: dict[int, int]  # identity -> a number that identities of the same person share

    def everyone(self) -> list[int]:
        """Who still has rows, in order."""
        return [identity for identity in np.unique(self.owner).tolist() if identity != NOBODY]

    def frames(self, identity: int) -> np.ndarray:
        """Frame numbers, rising. UserError: there is no such person."""
        frames = np.sort(self.tracks.rows.frame[self.owner == identity])
        if identity == NOBODY or not len(frames):
            names = ", ".join(map(str, self.everyone())) or "none"
            raise UserError(f"there is no person {identity} in the tracks: there are {names}.")
        return frames

    def next_identity(self) -> int:
        """One that nobody has or had."""
        return 1 + max(self.person, default=0)

    def same_as(self) -> dict[int, int]:
        """Identity -> the earliest identity of the same person."""
        earliest: dict[int, int] = {}
        for identity in sorted(self.everyone(), key=lambda one: int(self.frames(one)[0])):
            earliest.setdefault(self.person[identity], identity)
        return {identity: earliest[self.person[identity]] for identity in self.everyone()}


@dataclass(frozen=True)
class Merge:
    """Several tracks are one person. Nobody is followed over a cut: there they stay two, known to
    be the same.
    """

    merge: tuple[int, ...]  # in each shot, the first that is in it is kept

    def __str__(self) -> str:
        return f"merge {', '.join(map(str, self.merge))}"

    def apply(self, now: Identities) -> None:
        """UserError where it cannot be made, as of the other edits."""
        if len(self.merge) < 2 or len(set(self.merge)) < len(self.merge):
            raise UserError(
                f"a merge takes two or more different people, got {', '.join(map(str, self.merge))}."
            )
        frames = {identity: now.frames(identity) for identity in self.merge}
        people = {now.person[identity] for identity in self.merge}
        others = [
            i for i in now.everyone() if now.person[i] in people and i not in frames
        ]  # by earlier merges
        taken: dict[int, int] = {}
        for identity in (*self.merge, *others):
            mine = now.frames(identity).tolist()
            if both := [frame for frame in mine if frame in taken]:
                raise UserError(
                    f"people {taken[both[0]]} and {identity} cannot be one: both are seen in "
                    f"{count(len(both), 'frames')}, first at {now.tracks.times(both[0]):.2f} s (frame {both[0]}). "
                    "Split or drop one of them there first."
                )
            taken |= dict.fromkeys(mine, identity)
        keeps: dict[int, int] = {}  # shot -> who has its rows; a track lies within one shot
        for identity, own in frames.items():
            shot = int(np.searchsorted(now.tracks.shot_first_frame, own[0], side="right"))
            now.owner[now.owner == identity] = keeps.setdefault(shot, identity)
        now.person.update(
            {one: now.person[self.merge[0]] for one, who in now.person.items() if who in people}
        )


@dataclass(frozen=True)
class Split:
    """A track is two people."""

    split: int
    time_s: float  # of the video; from this time on ..
    new: int  # .. it is this person

    def __str__(self) -> str:
        return f"split {self.split} at {self.time_s:g} s, then {self.new}"

    def apply(self, now: Identities) -> None:
        first_s, last_s = now.tracks.times(now.frames(self.split)[[0, -1]]).tolist()
        if self.new in now.everyone():
            raise UserError(
                f"a split of person {self.split} cannot make person {self.new}, who is there already."
            )
        if not first_s < self.time_s <= last_s:
            raise UserError(
                f"person {self.split} is seen from {first_s:.2f} to {last_s:.2f} s: a split at {self.time_s:g} s "
                "leaves nothing on one side."
            )
        later = now.tracks.times(now.tracks.rows.frame) >= self.time_s
        now.owner[(now.owner == self.split) & later] = self.new
        now.person[self.new] = self.new


@dataclass(frozen=True)
class Drop:
    """A track is nobody of interest."""

    drop: int

    def __str__(self) -> str:
        return f"drop {self.drop}"

    def apply(self, now: Identities) -> None:
        now.frames(self.drop)  # refuses who is not there
        now.owner[now.owner == self.drop] = NOBODY


Edit = Merge | Split | Drop


def identities_after(tracks: SeenPeople, edits: Sequence[Edit]) -> Identities:
    """UserError for an edit that cannot be made."""
    now = Identities(tracks, tracks.rows.identity.copy(), dict(tracks.same_as))
    for edit in edits:
        edit.apply(now)
    return now


def edited_tracks(out: Path) -> SeenPeople:
    """`tracks.npz` with the edits applied."""
    tracks = read_tracks(out)
    return after_edits(tracks, read_edits(out, tracks))


def edited_keypoints(out: Path) -> SeenPeople:
    """The same with keypoints, hands and outlines."""
    people = read_keypoints(out)
    return after_edits(people, read_edits(out, people))


def after_edits(tracks: SeenPeople, edits: Sequence[Edit]) -> SeenPeople:
    if not edits:
        return tracks
    now = identities_after(tracks, edits)
    events = []
    for event in tracks.events:
        own = np.flatnonzero(tracks.rows.identity == event.identity)
        if len(own):  # about the person with the identity's row nearest in time
            nearest = np.abs(tracks.times(tracks.rows.frame[own]) - event.time_s).argmin()
            identity = int(now.owner[own[nearest]])
            if identity == NOBODY or (
                event.kind == "lost" and tracks.times(now.frames(identity)[-1]) > event.time_s
            ):
                continue  # nobody's, or the loss was corrected
            event = replace(event, identity=identity)
        events.append(event)
    order = np.lexsort((tracks.rows.frame, now.owner))
    order = order[now.owner[order] != NOBODY]
    rows = replace(tracks.rows, identity=now.owner).pick(order)
    outlines = tracks.outlines
    if outlines is not None:
        place = np.full(len(now.owner), -1)
        place[order] = np.arange(len(order))
        outlines = replace(outlines, row=place[outlines.row])
        outlines = outlines.rows(outlines.row >= 0)
    return replace(tracks, rows=rows, same_as=now.same_as(), events=events, outlines=outlines)


def read_edits(out: Path, tracks: SeenPeople) -> list[Edit]:
    """In the order they were made, none where there is no file; UserError where they were made for
    other tracks.
    """
    if not (out / EDITS_FILE).exists():
        return []
    content = read_json(
        out / EDITS_FILE,
        "Expected the edits that `fitmesh tracks` writes; `fitmesh tracks OUT --clear` removes them.",
    )
    edits = [_edit(entry) for entry in content.item("edits").items()]
    if edits and content.item("tracks").text() != _fingerprint(tracks):
        raise UserError(
            f"the edits in {out / EDITS_FILE} were made for other tracks than those of {out / TRACKS_FILE}, which "
            f"other settings or another version have found anew. Remove them with `fitmesh tracks {out} --clear`, and "
            "make them again."
        )
    return edits


def write_edits(out: Path, tracks: SeenPeople, edits: Sequence[Edit]) -> None:
    """All edits; none removes the file."""
    if not edits:
        (out / EDITS_FILE).unlink(missing_ok=True)
        return
    with atomic_file(out / EDITS_FILE) as temporary:
        temporary.write_text(
            json.dumps({"tracks": _fingerprint(tracks), "edits": list(map(asdict, edits))}) + "\n"
        )


def _fingerprint(tracks: SeenPeople) -> str:
    """Who was found in which frames."""
    digest = hashlib.sha256()
    for identity, track in tracks.people.items():
        digest.update(np.int64(identity).tobytes())
        digest.update(np.asarray(track.frame, "<i8").tobytes())
    return digest.hexdigest()[:32]


def _edit(entry: Json) -> Edit:
    if "merge" in entry:
        return Merge(tuple(one.integer(1) for one in entry.item("merge").items()))
    if "split" in entry:
        return Split(
            entry.item("split").integer(1),
            entry.item("time_s").number(),
            entry.item("new").integer(1),
        )
    if "drop" in entry:
        return Drop(entry.item("drop").integer(1))
    raise entry.refuse("is neither a merge nor a split nor a drop")
