"""Provide `fitmesh.run` and `fitmesh.run_many`, the command as Python functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitmesh.inputs import folder_beside, open_clip, spooled
from fitmesh.loading import load
from fitmesh.many.status import ClipStatus
from fitmesh.options import ranges
from fitmesh.options.record import function, option
from fitmesh.options.run import RunOptions
from fitmesh.result import Result
from fitmesh.stages.pipeline import run_settings, run_stages
from fitmesh.stages.settings import Job
from fitmesh.ui.events import ClipEnded, Event, Reporter, Sink, Stage, to_log
from pose2d.base.errors import OptionError


@dataclass(frozen=True)
class Progress:
    """Tell how far a stage has got."""

    stage: str
    done: int
    total: int | None  # None: not known in advance
    unit: str  # what `done` counts: frames, people, ..


@dataclass(frozen=True, kw_only=True)
class RunArguments(RunOptions):
    """Hold the arguments of `fitmesh.run`."""

    video: str | Path | Sequence[str | Path] | None = option(
        None,
        "A video, an image, or a folder of consecutive images. Several: views of one scene.",
        kw_only=False,
    )
    out: str | Path | None = option(
        None,
        "Folder for the results, created if absent. None: CLIP.fitmesh beside the clip.",
        kw_only=False,
    )
    frames: Iterable[np.ndarray] | None = option(
        None,
        "Instead of a video: RGB images [height, width, 3] uint8 of one size. They are read once and stored as a "
        "lossless video in `out` while the run lasts.",
    )
    fps: float | None = option(
        None,
        "Frame rate of `frames` or of a folder of images; None: 30.",
        limits=ranges.FPS,
    )
    progress: Callable[[Progress], None] | None = option(
        None, "Called several times a second while a stage works."
    )


@dataclass(frozen=True, kw_only=True)
class RunManyArguments(RunOptions):
    """Hold the arguments of `fitmesh.run_many`."""

    videos: str | Path | Sequence[str | Path] = option(
        ...,
        'Several paths or URLs, one pattern ("clips/**/*.mp4"), or a .txt file with one path per line.',
        kw_only=False,
    )
    out: str | Path = option(..., "Folder or URL for the results.", kw_only=False)
    jobs: int = option(
        1,
        "Number of processes; 1 works in this process. More than one need a script that calls this function under "
        '`if __name__ == "__main__":`.',
        limits=ranges.JOBS,
    )
    shard: str | None = option(
        None, 'Process only a part: "3/20" takes every 20th video, starting with the third.'
    )
    ray: str | None = option(None, 'Address of a Ray cluster, or "auto".')
    retry_failed: bool = option(False, "Process videos again that failed before.")
    progress: Callable[[ClipStatus], None] | None = option(
        None, "Called with the status of each video when it ends."
    )


@function(RunArguments)
def run(asked: RunArguments) -> Result:
    """Fit a body to each person in a video, write the files of `fitmesh run` to `out`, return them.

    Files in `out` that are still valid are kept; `overwrite` makes them again. Raises
    `fitmesh.UserError` for mistakes that the caller can fix.
    """
    if (asked.video is None) == (asked.frames is None):
        raise OptionError("pass either `video` or `frames`.", option="video")
    videos: tuple[str | Path, ...] = ()
    if not isinstance(asked.video, str | Path | None):
        videos = tuple(asked.video)
    if videos and len(videos) < 2:
        raise OptionError(
            "several cameras need at least two videos; pass a single video as a path.",
            option="video",
        )
    settings = run_settings(asked, videos[1:])
    if settings.only_people:
        raise OptionError(
            'outputs=("people",) makes no fit to return: use outputs=("fit",).', option="outputs"
        )
    reporter = Reporter(to_log if asked.progress is None else _to_function(asked.progress))
    if asked.frames is not None:
        if asked.out is None:
            raise OptionError("`frames` needs `out`, a folder for the results.", option="out")
        out = Path(asked.out)
        with spooled(asked.frames, asked.fps, out) as clip:
            run_stages(Job(clip, settings, out, reporter))
    else:
        clip = open_clip(videos[0] if videos else str(asked.video or ""), asked.fps)
        out = folder_beside(clip.path) if asked.out is None else Path(asked.out)
        run_stages(Job(clip, settings, out, reporter))
    return load(out)


@function(RunManyArguments)
def run_many(asked: RunManyArguments) -> list[ClipStatus]:
    """Fit bodies in many videos and return the status of each.

    Each video gets a folder in `out`, which also holds summary.csv and index.html. A video that
    fails does not stop the others: read `state` and `error` of its status. The options are those of
    `fitmesh.run`, without keypoints and detections, which belong to one video. Raises
    `fitmesh.UserError` if no video can be processed.
    """
    from fitmesh.many.batch import run_clips

    patterns: list[str] = []
    videos: list[str] = []
    if isinstance(asked.videos, str | Path):
        patterns = [str(asked.videos)]
    else:
        videos = [str(video) for video in asked.videos]

    def sink(event: Event) -> None:
        if isinstance(event, ClipEnded) and asked.progress is not None:
            asked.progress(event.status)

    return run_clips(
        asked,
        videos,
        patterns,
        str(asked.out),
        Reporter(sink),
        shard=asked.shard,
        jobs=asked.jobs if asked.jobs > 1 else None,
        ray=asked.ray,
        retry_failed=asked.retry_failed,
    )


def _to_function(progress: Callable[[Progress], None]) -> Sink:
    """Return a sink that calls the function in the working thread and logs messages."""

    def sink(event: Event) -> None:
        match event:
            case Stage(stage, "started" | "running", done, total, unit, beat=None) if unit:
                progress(Progress(stage, done, total, unit))
            case _:
                to_log(event)

    return sink
