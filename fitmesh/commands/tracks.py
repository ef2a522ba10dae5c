"""`fitmesh tracks`: look at who is who in a run, and correct it by hand."""

from pathlib import Path
from typing import Annotated

import typer


def tracks(
    out: Annotated[Path, typer.Argument(help="The --out folder of `fitmesh run`.", show_default=False)],
    merge: Annotated[
        list[str] | None, typer.Option(help="People who are one: 3,7. The first number is kept.", show_default=False)
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="A person who is somebody else from a time on: 2@4.5s.", show_default=False),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="People to leave out: 5 or 5,6.", show_default=False)] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last edit.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Take back all edits.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only list people and edits, which is the default.")] = False,
) -> None:
    """List the people of a run, and correct who is who: merge, split and drop tracks.

    The next `fitmesh run` with the same settings keeps the correction and makes bodies, overlay and exports anew; the
    video is not searched again. Options can be given several times; merges come first, then splits, then drops.
    """
    from fitmesh.tracks import clear_edits, edit_tracks, list_edits, list_events, list_tracks
    from pose2d.base.errors import UserError

    wanted = any((merge, split, drop))
    if sum((wanted, undo, clear, list_)) > 1:
        raise UserError("give edits, --undo, --clear or --list: one of them at a time.")
    if clear:
        clear_edits(out)
    elif undo:
        edit_tracks(out, undo=1)
    elif wanted:
        edit_tracks(
            out,
            merge=[_identities(text, "--merge", "3,7") for text in merge or ()],
            split=[_split(text) for text in split or ()],
            drop=[identity for text in drop or () for identity in _identities(text, "--drop", "5")],
        )
    people, edits = list_tracks(out), list_edits(out)
    for person in people:
        span = f"{person.start_s:.2f} to {person.end_s:.2f} s of the video"
        known = f", the same as {person.same_as}" if person.same_as != person.identity else ""
        typer.echo(f"person {person.identity}: {person.frames} frames, {span}{known}")
    if not people:
        typer.echo("nobody")
    for event in list_events(out):
        typer.echo(f"check {event.time_s:.2f} s: person {event.identity}, {event.kind}: {event.text}")
    for number, edit in enumerate(edits, 1):
        typer.echo(f"edit {number}: {edit}")
    if wanted or undo or clear:
        typer.echo("Run `fitmesh run` again with the same settings: it makes bodies, overlay and exports anew.")


def _identities(text: str, option: str, example: str) -> list[int]:
    from pose2d.base.errors import UserError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 16 for part in parts):
        raise UserError(f"{option} takes the numbers of people, such as {example}; got {text!r}.")
    return [int(part) for part in parts]


def _split(text: str) -> tuple[int, float]:
    import math

    from pose2d.base.errors import UserError

    identity, at, time = text.partition("@")
    try:
        seconds = float(time.strip().removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not at or not identity.strip().isdecimal() or len(identity) > 15 or not math.isfinite(seconds):
        raise UserError(f"--split takes a person and a time of the video in seconds, such as 2@4.5s; got {text!r}.")
    return int(identity), seconds
