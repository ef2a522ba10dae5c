"""`fitmesh synth`: rendered people with exact truth, in 3DPW's layout."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fitmesh import limits
from fitmesh.ui.signals import working

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from eval3dpw.synth.dataset import MadeSequence


def synth(
    out: Annotated[Path, typer.Option(help="Folder for the data set; made if absent.")],
    sequences: Annotated[
        int | None, typer.Option(help="How many sequences.", show_default="26, or 8 scripted ones"), limits.COUNT
    ] = None,
    frames: Annotated[
        int, typer.Option(help="Frames of a sequence at most; the motion may be shorter."), limits.COUNT
    ] = 100,
    size: Annotated[str, typer.Option(help="Width and height of the images in pixels.")] = "640x360",
    seed: Annotated[int, typer.Option(help="The same seed makes the same bytes."), limits.SEED] = 0,
    split: Annotated[
        str, typer.Option(help="train, validation or test; no two share a captured person. train needs --motion.")
    ] = "test",
    motion: Annotated[
        Path | None, typer.Option(help="A file of CMU clips at 30 frames/s (.npz).", show_default="the embedded clips")
    ] = None,
    backgrounds: Annotated[
        Path | None, typer.Option(help="A folder of photographs to use as backgrounds.", show_default="built scenes")
    ] = None,
    scenes: Annotated[
        str | None,
        typer.Option(
            help="Scripted scenes instead, with commas: crossing, embrace, behind, cuts (who is who), world (people on "
            "a floor). Images and truth, no 3DPW pickles.",
            show_default="none",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Length of a scripted scene.", show_default="as each is written"),
        limits.SCENE_S,
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", "--jobs", help="Processor cores to use, a sequence on each.", show_default="all"),
        limits.JOBS,
    ] = None,
) -> None:
    """Make a data set of rendered people in exactly 3DPW's layout, so that eval-3dpw runs without a licence.

    Sequences that are complete in the folder are kept, so an interrupted run continues where it stopped.
    """

    from rich.console import Console

    from fitmesh.ui.sinks import starting

    with starting():
        from eval3dpw.synth.dataset import SynthSettings, make_dataset
        from eval3dpw.synth.scripted_dataset import ScriptedSettings, make_scripted
        from pose2d.base.folder_lock import folder_lock
        from pose2d.base.threads import cores

    console = Console(highlight=False)
    workers = threads or cores()
    if scenes is not None:
        scripts = tuple(name.strip() for name in scenes.split(",") if name.strip())
        scripted = ScriptedSettings(scripts, sequences or 8, seconds, _size(size), seed, split, motion)  # type: ignore[arg-type]
        with folder_lock(out):
            _report(make_scripted(out, scripted, min(workers, scripted.sequences)), console, out)
        return
    settings = SynthSettings(
        split=split,  # type: ignore[arg-type]  # checked before anything is made
        sequences=sequences or 26,
        frames=frames,
        size=_size(size),
        seed=seed,
        motion=motion,
        backgrounds=backgrounds,
    )
    with folder_lock(out):
        _report(make_dataset(out, settings, min(workers, settings.sequences)), console, out)


def _report(made: "Iterator[MadeSequence]", console: "Console", out: Path) -> None:
    import time

    from fitmesh.ui.events import Reporter
    from fitmesh.ui.sinks import on_stderr
    from fitmesh.ui.words import count

    began, new_frames, person_frames, sequences = time.monotonic(), 0, 0, 0
    with working(), Reporter(on_stderr()).busy("rendering"):
        for done in made:
            sequences += 1
            new_frames += 0 if done.skipped else done.frames
            person_frames += done.frames * done.people
            console.print(f"{done.name}: {count(done.frames, 'frames')}{', kept' if done.skipped else ''}")
    took = time.monotonic() - began
    console.print(
        f"{count(sequences, 'sequences')} with {person_frames} person-frames in {out}"
        + (f"; {new_frames} new frames, {new_frames / took:.1f} a second" if new_frames else "")
    )


def _size(text: str) -> tuple[int, int]:
    from pose2d.base.errors import UserError

    match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", text.lower())
    if match is None:
        raise UserError(f"--size must read like 640x360, got {text[:80]!r}.")
    width, height = int(match[1]), int(match[2])
    limits.SIDE_PX.check("the width in --size", width)
    limits.SIDE_PX.check("the height in --size", height)
    return width, height
