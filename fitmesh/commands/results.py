"""`fitmesh view`: a result in the browser; `fitmesh tracks`: look at who is who in it, and correct
that by hand.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import typer

from fitmesh.options import ranges
from fitmesh.options.record import command, option
from fitmesh.ui.trouble import INTERRUPTED, Stopped, count, working
from pose2d.base.errors import UserError


@dataclass(frozen=True)
class ViewOptions:
    """Which result, where."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    port: int = option(0, "Port to listen on; 0 takes a free one.", limits=ranges.PORT)
    browser: bool = option(True, "Open the browser.")


@command(ViewOptions)
def view(asked: ViewOptions) -> None:
    """Show a result in 3D beside its video: positions, poses, and their uncertainty.

    Serves a page to this computer only, until Ctrl-C. Nothing is loaded from the internet.
    """
    import webbrowser

    import fitmesh.result
    from fitmesh.ui.events import starting

    result = fitmesh.result.load(asked.out)
    with starting():
        from fitmesh.viewer.server import serve

    server = serve(result, asked.port)
    try:
        typer.echo(f"{asked.out} is at {server.url}  (Ctrl-C stops)")
        if asked.browser:
            webbrowser.open(server.url)
        with working():
            server.serve_forever()
    except (KeyboardInterrupt, Stopped) as stopped:
        typer.echo("Stopped.")
        code = getattr(stopped, "exit_code", INTERRUPTED)
        raise typer.Exit(0 if code == INTERRUPTED else code) from None  # Ctrl-C is how one ends it
    finally:
        server.server_close()


@dataclass(frozen=True)
class TracksOptions:
    """What to correct; nothing lists."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    merge: tuple[str, ...] = option(
        (), "People who are one: 3,7. The first number is kept.", shown=False
    )
    split: tuple[str, ...] = option(
        (), "A person who is somebody else from a time on: 2@4.5s.", shown=False
    )
    drop: tuple[str, ...] = option((), "People to leave out: 5 or 5,6.", shown=False)
    undo: bool = option(False, "Take back the last edit.")
    clear: bool = option(False, "Take back all edits.")
    list: bool = option(False, "Only list people and edits, which is the default.")


@command(TracksOptions)
def tracks(asked: TracksOptions) -> None:
    """List the people of a run, and correct who is who: merge, split and drop tracks.

    The next `fitmesh run` with the same settings keeps the correction and makes bodies, overlay and
    exports anew; the video is not searched again. Options can be given several times; merges come
    first, then splits, then drops.
    """
    from fitmesh.stages.people import read_tracks
    from fitmesh.tracks import edit_tracks, edited_tracks, list_tracks, read_edits, write_edits

    out = asked.out
    wanted = any((asked.merge, asked.split, asked.drop))
    if sum((wanted, asked.undo, asked.clear, asked.list)) > 1:
        raise UserError("give edits, --undo, --clear or --list: one of them at a time.")
    if asked.clear:
        write_edits(out, read_tracks(out), [])  # also those made for other tracks
    elif asked.undo:
        edit_tracks(out, undo=1)
    elif wanted:
        edit_tracks(
            out,
            merge=[_identities(text, "--merge", "3,7") for text in asked.merge],
            split=[_split(text) for text in asked.split],
            drop=[identity for text in asked.drop for identity in _identities(text, "--drop", "5")],
        )
    people = list_tracks(out)
    edits = read_edits(out, read_tracks(out))
    for person in people:
        span = f"{person.start_s:.2f} to {person.end_s:.2f} s of the video"
        known = f", the same as {person.same_as}" if person.same_as != person.identity else ""
        typer.echo(f"person {person.identity}: {count(person.frames, 'frames')}, {span}{known}")
    if not people:
        typer.echo("nobody")
    for event in sorted(edited_tracks(out).events, key=lambda event: event.time_s):
        typer.echo(
            f"check {event.time_s:.2f} s: person {event.identity}, {event.kind}: {event.text}"
        )
    for number, edit in enumerate(edits, 1):
        typer.echo(f"edit {number}: {edit}")
    if wanted or asked.undo or asked.clear:
        typer.echo(
            "Run `fitmesh run` again with the same settings: it makes bodies, overlay and exports anew."
        )


def _identities(text: str, option: str, example: str) -> "list[int]":
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 16 for part in parts):
        raise UserError(f"{option} takes the numbers of people, such as {example}; got {text!r}.")
    return [int(part) for part in parts]


def _split(text: str) -> tuple[int, float]:
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*@\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*s?\s*", text)
    if match is None:
        raise UserError(
            f"--split takes a person and a time of the video in seconds, such as 2@4.5s; got {text!r}."
        )
    return int(match[1]), float(match[2])
