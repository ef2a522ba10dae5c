"""Render people with exact truth in 3DPW's layout (`fitmesh synth`)."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fitmesh.options import ranges
from fitmesh.options.record import command, option
from fitmesh.ui.trouble import working


@dataclass(frozen=True)
class SynthOptions:
    """Hold the options of `fitmesh synth`."""

    out: Path = option(..., "Folder for the data set, created if absent.")
    sequences: int | None = option(
        None, "Number of sequences.", limits=ranges.COUNT, shown="26, or 8 scripted ones"
    )
    frames: int = option(
        100,
        "Largest number of frames of a sequence; the motion may be shorter.",
        limits=ranges.COUNT,
    )
    size: str = option("640x360", "Width and height of the images in pixels.")
    seed: int = option(0, "The same seed makes the same bytes.", limits=ranges.SEED)
    split: str = option(
        "test", "train, validation or test; no two share a captured person. train needs --motion."
    )
    motion: Path | None = option(
        None, "A file of CMU clips at 30 frames/s (.npz).", shown="the embedded clips"
    )
    scenes: tuple[str, ...] = option(
        (),
        "Scripted scenes instead, separated by commas: crossing, embrace, behind, cuts (identities), world (people "
        "on a floor). They have images and truth, but no 3DPW pickles.",
        shown="none",
        commas=True,
    )
    seconds: float | None = option(
        None, "Length of a scripted scene.", limits=ranges.SCENE_S, shown="as each is written"
    )
    threads: int | None = option(
        None,
        "Processor cores to use, a sequence on each.",
        limits=ranges.JOBS,
        shown="all",
        flags=("--threads", "--jobs"),
    )


@command(SynthOptions)
def synth(asked: SynthOptions) -> None:
    """Make a data set of rendered people in 3DPW's layout, for eval-3dpw without a licence.

    Complete sequences in the folder are kept, so an interrupted run continues where it stopped.
    """
    from rich.console import Console

    from fitmesh.ui.events import Reporter, on_stderr, starting
    from fitmesh.ui.trouble import count as counted

    with starting():
        from eval3dpw.synth.dataset import SynthSettings, make_dataset
        from pose2d.base.folder_lock import folder_lock
        from pose2d.base.threads import cores

    if asked.seconds is not None and not asked.scenes:
        Reporter(on_stderr()).warn(
            "--seconds has no effect without --scenes: --frames limits other sequences."
        )
    workers = asked.threads or cores()
    size = _size(asked.size)
    # checked before anything is made
    split = cast("Any", asked.split)
    scenes = cast("Any", asked.scenes)
    with folder_lock(asked.out):
        count = asked.sequences or (8 if scenes else 26)
        settings = SynthSettings(
            split=split,
            sequences=count,
            frames=asked.frames,
            size=size,
            seed=asked.seed,
            motion=asked.motion,
            scenes=scenes or (),
            seconds=asked.seconds,
        )
        results = make_dataset(asked.out, settings, in_processes(min(workers, count)))
        console = Console(highlight=False)
        began = time.monotonic()
        new_frames = 0
        person_frames = 0
        sequences = 0
        with working(), Reporter(on_stderr()).busy("rendering"):
            for done in results:
                sequences += 1
                new_frames += 0 if done.skipped else done.frames
                person_frames += done.frames * done.people
                console.print(
                    f"{done.name}: {counted(done.frames, 'frames')}{', kept' if done.skipped else ''}"
                )
        took = time.monotonic() - began
        more = (
            f"; {counted(new_frames, 'new frames')}, {new_frames / took:.1f} a second"
            if new_frames
            else ""
        )
        text = f"{counted(sequences, 'sequences')} with {counted(person_frames, 'person-frames')} in {asked.out}"
        console.print(text + more)


def in_processes(jobs: int) -> Callable[..., Iterable[Any]]:
    """Return a `map` that works in several processes and yields results as they end."""
    from fitmesh.many.executors import ProcessExecutor
    from pose2d.base.errors import UserError

    def run(make: Callable[[int], Any], numbers: Iterable[int]) -> Iterator[Any]:
        tasks = [(make, number) for number in numbers]
        for ended in ProcessExecutor(jobs, 1).map(_make, tasks, lambda *_: None):
            if ended.lost:
                raise UserError(f"sequence {ended.number}: {ended.lost}")
            yield ended.result

    return map if jobs == 1 else run


def _make(task: tuple[Callable[[int], Any], int], _: object) -> Any:
    """Make one sequence, in a worker process."""
    make, number = task
    return make(number)


def _size(text: str) -> tuple[int, int]:
    """Parse a width and a height in pixels."""
    from pose2d.base.errors import OptionError

    match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", text.lower())
    if match is None:
        raise OptionError(
            f"--size must be a width and a height, such as 640x360; got {text[:80]!r}."
        )
    width = int(match[1])
    height = int(match[2])
    ranges.SIDE_PX.check("the width in --size", width)
    ranges.SIDE_PX.check("the height in --size", height)
    return width, height
