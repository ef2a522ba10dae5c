"""`fitmesh synth`: rendered people with exact truth, in 3DPW's layout."""

from pathlib import Path
from typing import Annotated

import typer


def synth(
    out: Annotated[Path, typer.Option(help="Folder for the data set; made if absent.")],
    sequences: Annotated[int, typer.Option(help="How many sequences.")] = 26,
    frames: Annotated[int, typer.Option(help="Frames of a sequence at most; the motion may be shorter.")] = 100,
    size: Annotated[str, typer.Option(help="Width and height of the images in pixels.")] = "640x360",
    seed: Annotated[int, typer.Option(help="The same seed makes the same bytes.")] = 0,
    split: Annotated[
        str, typer.Option(help="train, validation or test; no two share a captured person. train needs --motion.")
    ] = "test",
    motion: Annotated[
        Path | None, typer.Option(help="A file of CMU clips at 30 frames/s (.npz).", show_default="the embedded clips")
    ] = None,
    backgrounds: Annotated[
        Path | None, typer.Option(help="A folder of photographs to use as backgrounds.", show_default="built scenes")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "--jobs", min=1, help="Processor cores to use, a sequence on each.", show_default="all"
        ),
    ] = None,
) -> None:
    """Make a data set of rendered people in exactly 3DPW's layout, so that eval-3dpw runs without a licence.

    Sequences that are complete in the folder are kept, so an interrupted run continues where it stopped.
    """
    import time

    from rich.console import Console

    from eval3dpw.synth.dataset import SynthSettings, make_dataset
    from pose2d.base.threads import cores

    settings = SynthSettings(
        split=split,  # type: ignore[arg-type]  # checked before anything is made
        sequences=sequences,
        frames=frames,
        size=_size(size),
        seed=seed,
        motion=motion,
        backgrounds=backgrounds,
    )
    console = Console(highlight=False)
    began, new_frames, person_frames = time.monotonic(), 0, 0
    for done in make_dataset(out, settings, threads or cores()):
        new_frames += 0 if done.skipped else done.frames
        person_frames += done.frames * done.people
        console.print(f"{done.name}: {done.frames} frames{', kept' if done.skipped else ''}")
    took = time.monotonic() - began
    console.print(
        f"{sequences} sequences with {person_frames} person-frames in {out}"
        + (f"; {new_frames} new frames, {new_frames / took:.1f} a second" if new_frames else "")
    )


def _size(text: str) -> tuple[int, int]:
    from pose2d.base.errors import UserError

    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise UserError(f"--size must read like 640x360, got {text!r}.")
    return int(parts[0]), int(parts[1])
