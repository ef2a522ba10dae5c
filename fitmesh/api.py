"""`fitmesh.run` and `fitmesh.run_many`: what the command does, as functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitmesh.inputs import folder_beside, open_clip, spooled
from fitmesh.many.summary import ClipStatus
from fitmesh.options import ranges
from fitmesh.options.record import function, option
from fitmesh.options.run import RunOptions
from fitmesh.result import Result, load
from fitmesh.stages.pipeline import run_settings, run_stages
from fitmesh.stages.settings import Job
from fitmesh.ui.events import ClipEnded, Event, Reporter, Sink, Stage, to_log
from pose2d.base.errors import UserError


@dataclass(frozen=True)
class Progress:
    """How far a stage is."""

    stage: str
    done: int
    total: int | None  # None: not known in advance
    unit: str  # what `done` counts: frames, people, ..


@dataclass(frozen=True, kw_only=True)
class RunArguments(RunOptions):
    """Of `fitmesh.run`."""

    video: str | Path | Sequence[str | Path] | None = option(
        None,
        "A video, an image, or a folder of images that follow each other. Several: cameras of one scene.",
        kw_only=False,
    )
    out: str | Path | None = option(
        None,
        "Folder for the results; made if absent. None: CLIP.fitmesh beside the clip.",
        kw_only=False,
    )
    frames: Iterable[np.ndarray] | None = option(
        None,
        "Instead of a video: RGB images [height, width, 3] uint8 of one size, read once, one in memory at a time; "
        "meanwhile they are in a lossless video in `out`.",
    )
    fps: float | None = option(
        None,
        "Images per second of `frames`, or of a folder of images; None: 30.",
        limits=ranges.FPS,
    )
    progress: Callable[[Progress], None] | None = option(
        None, "Called several times a second while a stage works."
    )


@dataclass(frozen=True, kw_only=True)
class RunManyArguments(RunOptions):
    """Of `fitmesh.run_many`."""

    videos: str | Path | Sequence[str | Path] = option(
        ...,
        'Several paths or URLs, or one pattern ("clips/**/*.mp4") or .txt file with one path a line.',
        kw_only=False,
    )
    out: str | Path = option(..., "Folder or URL for the results.", kw_only=False)
    jobs: int = option(
        1,
        "Processes that work side by side; with 1 this process does everything. More than one need a script that "
        'calls this under `if __name__ == "__main__":`.',
        limits=ranges.JOBS,
    )
    shard: str | None = option(None, '"3/20" does every 20th video from the third.')
    ray: str | None = option(None, 'Address of a Ray cluster, or "auto".')
    retry_failed: bool = option(False, "Try videos again that could not be read or used before.")
    progress: Callable[[ClipStatus], None] | None = option(
        None, "Called with every video's status when it ends."
    )


@function(RunArguments)
def run(asked: RunArguments) -> Result:
    """Fit a body to everyone in a video and leave the files in the folder `out`, as `fitmesh run`
    does. What is in `out` already and still valid is kept; `overwrite` makes it anew. Raises
    `fitmesh.UserError` for what a user can fix."""
    if (asked.video is None) == (asked.frames is None):
        raise UserError("give a video, or frames.")
    several = (
        () if asked.video is None or isinstance(asked.video, str | Path) else tuple(asked.video)
    )
    if not isinstance(asked.video, str | Path | None) and len(several) < 2:
        raise UserError(
            "several cameras are two at least: give their videos, or one video by itself."
        )
    settings = run_settings(asked, several[1:])
    if settings.only_people:
        raise UserError(
            'outputs=("people",) leaves no fit to return: use outputs=("fit",), or `fitmesh run --only people`.'
        )
    reporter = Reporter(to_log if asked.progress is None else _to_function(asked.progress))
    if asked.frames is not None:
        if asked.out is None:
            raise UserError("frames need `out`, a folder for the results.")
        out = Path(asked.out)
        with spooled(asked.frames, asked.fps, out) as clip:
            run_stages(Job(clip, settings, out, reporter))
    else:
        clip = open_clip(several[0] if several else str(asked.video or ""), asked.fps)
        out = folder_beside(clip.path) if asked.out is None else Path(asked.out)
        run_stages(Job(clip, settings, out, reporter))
    return load(out)


@function(RunManyArguments)
def run_many(asked: RunManyArguments) -> list[ClipStatus]:
    """Fit bodies in many videos, a folder of results for each in `out`, with summary.csv and
    index.html over all. A video that fails does not end the others: look at the `state` and `error`
    of what is returned, one status a video of the shard. The options are those of `fitmesh.run`,
    but keypoints or detections of one clip are refused. Raises `fitmesh.UserError` where nothing
    can be done at all."""
    from fitmesh.many.batch import run_clips

    one, several = (
        ([asked.videos], []) if isinstance(asked.videos, str | Path) else ([], asked.videos)
    )

    def sink(event: Event) -> None:
        if isinstance(event, ClipEnded) and asked.progress is not None:
            asked.progress(event.status)

    return run_clips(
        asked,
        list(map(str, several)),
        list(map(str, one)),
        str(asked.out),
        Reporter(sink),
        shard=asked.shard,
        jobs=asked.jobs if asked.jobs > 1 else None,
        ray=asked.ray,
        retry_failed=asked.retry_failed,
    )


def _to_function(progress: Callable[[Progress], None]) -> Sink:
    """Calls it in the thread that does the work; what is said goes to the log."""

    def sink(event: Event) -> None:
        match event:
            case Stage(stage, "started" | "running", done, total, unit, beat=None) if unit:
                progress(Progress(stage, done, total, unit))
            case _:
                to_log(event)

    return sink
