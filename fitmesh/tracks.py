"""`fitmesh.edit_tracks`: who is who, corrected by hand in the folder of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fitmesh.stages.people import (
    Drop,
    Edit,
    Merge,
    Split,
    TracksFile,
    edited_tracks,
    identities_after,
    read_edits,
    read_tracks,
    write_edits,
)
from pose2d.base.errors import UserError
from pose2d.events import Event


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
    found = edited_tracks(Path(out))
    times = dict(zip(found.frames.tolist(), found.time_s.tolist(), strict=True))
    return [
        TrackSummary(
            track.identity,
            len(track.frames),
            times[int(track.frames[0])],
            times[int(track.frames[-1])],
            found.same_as[track.identity],
        )
        for track in found.tracks
    ]


def list_events(out: str | Path) -> list[Event]:
    """What should be looked at, in order of time."""
    return sorted(edited_tracks(Path(out)).events, key=lambda event: event.time_s)


def list_edits(out: str | Path) -> list[Edit]:
    """Those made so far, in order."""
    return read_edits(Path(out), read_tracks(Path(out)))


def edit_tracks(
    out: str | Path, *, merge: Sequence[Sequence[int]] = (), split: Sequence[tuple[int, float]] = (),
    drop: Sequence[int] = (), undo: int = 0,
) -> list[TrackSummary]:  # fmt: skip
    """Correct the tracks of a run; `fitmesh.run` with the same settings then makes the rest anew.

    merge: groups of identities that are one person, who keeps the first. They must not be seen in the same frame; in
    different shots they stay two and are said to be the same.
    split: an identity and a time of the video in seconds, from which on it is somebody else, with a new identity.
    drop: identities to leave out. undo: take back so many of the last edits before that.
    Merges come first, then splits, then drops. All is checked before anything is written (UserError). Returns everyone
    after the edits.
    """
    folder = Path(out)
    tracks = read_tracks(folder)
    edits = read_edits(folder, tracks)
    if not 0 <= undo <= len(edits):
        raise UserError(f"there are {len(edits)} edits in {folder}, and {undo} cannot be taken back.")
    edits = edits[: len(edits) - undo]
    edits += [Merge(tuple(group)) for group in merge]
    edits += _splits(split, tracks, edits)
    edits += [Drop(identity) for identity in drop]
    identities_after(tracks, edits)  # refuses what cannot be done
    write_edits(folder, tracks, edits)
    return list_tracks(folder)


def clear_edits(out: str | Path) -> None:
    """All of them, also those made for other tracks."""
    write_edits(Path(out), read_tracks(Path(out)), [])


def _splits(wanted: Sequence[tuple[int, float]], tracks: TracksFile, before: Sequence[Edit]) -> list[Edit]:
    splits: list[Edit] = []
    for identity, time_s in wanted:
        new = identities_after(tracks, [*before, *splits]).next_identity()
        splits.append(Split(identity, float(time_s), new))
    return splits
