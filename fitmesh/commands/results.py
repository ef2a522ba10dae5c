"""Commands for finished runs: show one in the browser (`fitmesh view`), write more formats (`fitmesh
export`), correct identities (`fitmesh tracks`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from fitmesh.options import ranges
from fitmesh.options.record import Option, command, option
from fitmesh.options.run import RunOptions
from fitmesh.ui.trouble import INTERRUPTED, Stopped, count, working
from pose2d.base.errors import OptionError


@dataclass(frozen=True)
class ViewOptions:
    """Hold the options of `fitmesh view`."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    port: int = option(0, "Port to listen on; 0 takes a free one.", limits=ranges.PORT)
    browser: bool = option(True, "Open the browser.")


@command(ViewOptions)
def view(asked: ViewOptions) -> None:
    """Show a result in 3D beside its video: positions, poses, and their uncertainty.

    Serves a page to this computer only, until Ctrl-C. Nothing is loaded from the internet.
    """
    import webbrowser

    import fitmesh.loading
    from fitmesh.ui.events import starting

    result = fitmesh.loading.load(asked.out)
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


_AS_RUN = "as in the run"


def _again(name: str) -> Any:
    """Declare an option of `fitmesh run` whose default is what the run used."""
    description: Option = RunOptions.__dataclass_fields__[name].metadata["option"]
    return option(None, replace(description, panel=None, shown=_AS_RUN))


@dataclass(frozen=True)
class ExportOptions:
    """Hold the options of `fitmesh export`."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    exports: Sequence[str] = option(
        (),
        "Formats, separated by commas: glb, fbx, bvh, obj, amass, trc, opensim, gait, c3d, mot, sto, json, csv.",
        shown=False,
        name="export",
        commas=True,
    )
    rig: str | None = _again("rig")
    per_person: bool | None = _again("per_person")
    names: str | None = _again("names")
    export_fps: float | None = _again("export_fps")
    smooth: float | None = _again("smooth")
    filter: str | None = _again("filter")
    in_place: bool | None = _again("in_place")
    plant_feet: bool | None = _again("plant_feet")
    keep_reliable: float | None = _again("keep_reliable")
    reliable_mm: float | None = _again("reliable_mm")
    trc_axes: str | None = _again("trc_axes")
    quiet: bool = option(False, "Print only warnings.")


@command(ExportOptions)
def export(asked: ExportOptions) -> None:
    """Write more formats of a finished run.

    The video is not needed, and options that are not given are those of the run.
    """
    from fitmesh.ui.events import Reporter, on_stderr, starting

    if not asked.exports:
        raise OptionError("--export is missing: name formats, such as --export fbx,bvh.")
    reporter = Reporter(on_stderr(asked.quiet))
    with starting(reporter):
        from fitmesh.stages.export_again import EXPORT_OPTIONS, export_again

    changes = {name: getattr(asked, name) for name in EXPORT_OPTIONS}
    with working():
        files = export_again(asked.out, asked.exports, changes, reporter)
    shown = [*map(str, files[:6]), *(["..."] if len(files) > 6 else [])]
    reporter.say(f"wrote {', '.join(shown)}", "result", files=[str(path) for path in files])


@dataclass(frozen=True)
class TracksOptions:
    """Hold the options of `fitmesh tracks`; without edits it lists the people."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    merge: tuple[str, ...] = option(
        (), "Numbers that are one person, such as 3,7. The first number is kept.", shown=False
    )
    split: tuple[str, ...] = option(
        (), "Split a person at a time: 2@4.5s. The later part gets a new number.", shown=False
    )
    drop: tuple[str, ...] = option((), "People to leave out: 5 or 5,6.", shown=False)
    undo: bool = option(False, "Take back the last edit.")
    clear: bool = option(False, "Take back all edits.")
    list: bool = option(False, "Only list people and edits, which is the default.")


@command(TracksOptions)
def tracks(asked: TracksOptions) -> None:
    """List the people of a run, and merge, split or drop tracks.

    The next `fitmesh run` with the same settings applies the edits and makes bodies, overlay and
    exports again, without looking for people a second time. Options can be repeated; merges come
    first, then splits, then drops.
    """
    from fitmesh.stages.people import read_tracks
    from fitmesh.tracks import edit_tracks, edited_tracks, list_tracks, read_edits, write_edits

    out = asked.out
    has_edits = any((asked.merge, asked.split, asked.drop))
    if sum((has_edits, asked.undo, asked.clear, asked.list)) > 1:
        raise OptionError("--undo, --clear, --list and edits exclude each other: pass one of them.")
    if asked.clear:
        write_edits(out, read_tracks(out), [])  # also those made for other tracks
    elif asked.undo:
        edit_tracks(out, undo=1)
    elif has_edits:
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
        typer.echo("no people")
    for event in sorted(edited_tracks(out).events, key=lambda event: event.time_s):
        typer.echo(
            f"check {event.time_s:.2f} s: person {event.identity}, {event.kind}: {event.text}"
        )
    for number, edit in enumerate(edits, 1):
        typer.echo(f"edit {number}: {edit}")
    if has_edits or asked.undo or asked.clear:
        typer.echo("Run `fitmesh run` again with the same settings to apply the edits.")


def _identities(text: str, option: str, example: str) -> "list[int]":
    """Parse comma-separated numbers of people."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 16 for part in parts):
        raise OptionError(f"{option} must be numbers of people, such as {example}; got {text!r}.")
    return [int(part) for part in parts]


def _split(text: str) -> tuple[int, float]:
    """Parse a person and a time, such as 2@4.5s."""
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*@\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*s?\s*", text)
    if match is None:
        raise OptionError(
            f"--split must be a person and a time in seconds, such as 2@4.5s; got {text!r}."
        )
    return int(match[1]), float(match[2])
