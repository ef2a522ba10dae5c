"""A run over many clips: every clip of this machine's share is done once, and the summary is over all of them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fitmesh.inputs import ClipSource, Shard
from fitmesh.many.clip_worker import ClipTask, note_failure, process_clip
from fitmesh.many.executors import Executor
from fitmesh.many.ray_cluster import executor_of, threads_each
from fitmesh.many.status import ClipStatus
from fitmesh.many.summary import check_out, recipe_of, write_summary
from fitmesh.options.run import RunOptions
from fitmesh.stages.pipeline import check_settings, run_settings
from fitmesh.stages.settings import RunSettings
from fitmesh.ui.events import ClipEnded, Clips, Event, FromClip, Reporter
from fitmesh.ui.trouble import count
from pose2d.base.errors import UserError

BUSY_PAUSE_S = 5.0  # before clips that other runs are at work on are asked for again
SUMMARY_EVERY_S = 60.0
SUMMARY_SHARE = 0.02  # of the time at most goes into summaries: of other shards' clips the folders are read


@dataclass(frozen=True)
class Batch:
    """What is to be done, and by whom."""

    clips: Sequence[ClipSource]  # all of them, also those of other shards
    out: str  # path or URL of the folder above the clips' folders
    tasks: list[ClipTask]  # of the shard
    executor: Executor


def prepared(
    options: RunOptions, clips: Sequence[ClipSource], out: str, shard: Shard, jobs: int, ray: str | None,
    retry_failed: bool,
) -> Batch:  # fmt: skip
    """For processes of this machine, or for a Ray cluster. retry_failed: also clips that are known to be broken."""
    threads = threads_each(options.threads, jobs, ray)
    settings = run_settings(replace(options, threads=threads))
    check_many(settings)
    check_settings(settings)
    check_out(out, settings.overwrite)
    has_fetched = settings.checkpoint is not None and options.checkpoint is None
    recipe = "" if has_fetched else recipe_of(options)  # of a checkpoint that was fetched no option names the file
    tasks = [
        ClipTask(clip.name, clip.source, f"{out.rstrip('/')}/{clip.name}", settings, recipe, retry_failed)
        for clip in shard.share(clips)
    ]
    return Batch(clips, out, tasks, executor_of(jobs, ray, threads))


def run_batch(batch: Batch, reporter: Reporter) -> list[ClipStatus]:
    """What became of each clip of the shard, in order. The two files over all clips are renewed on the way."""
    tasks = batch.tasks
    known: dict[str, ClipStatus] = {}
    renewed, pause_s = time.monotonic(), SUMMARY_EVERY_S
    reporter.emit(Clips(len(tasks)))
    try:
        for status in _all(tasks, batch.executor, reporter):
            known[status.name] = status
            reporter.emit(ClipEnded(status, len(known), len(tasks)))
            began = time.monotonic()
            if began - renewed > pause_s:
                write_summary(batch.clips, known, batch.out)
                renewed = time.monotonic()
                pause_s = max(SUMMARY_EVERY_S, (renewed - began) / SUMMARY_SHARE)
    finally:  # also after Ctrl-C
        reporter.emit(Clips(None))
        write_summary(batch.clips, known, batch.out)
    return [known[task.name] for task in tasks]


def _all(tasks: Sequence[ClipTask], executor: Executor, reporter: Reporter) -> Iterator[ClipStatus]:
    """Clips that another run holds come last: when that is done with them, they are found up to date."""
    while tasks:
        current = tasks
        busy: list[ClipTask] = []

        def pass_on(number: int, event: Event, current: Sequence[ClipTask] = current) -> None:
            reporter.emit(FromClip(current[number].name, event))

        for ended in executor.map(process_clip, current, pass_on):
            task = current[ended.number]
            if ended.result is None:
                lost = ClipStatus(task.name, task.source, "failed", error=ended.lost)
                note_failure(lost, task.out)
                yield lost
            elif ended.result.state == "busy":
                busy.append(task)
            else:
                yield ended.result
        if busy:
            reporter.say(f"waiting for {count(len(busy), 'clips')} that other runs are at work on: {busy[0].name} ..")
            time.sleep(BUSY_PAUSE_S)
        tasks = busy


def check_many(settings: RunSettings) -> None:
    """Refuse what describes one clip."""
    for option, given in (("keypoints", settings.keypoints), ("detections", settings.detections)):
        if given is not None:
            raise UserError(f"--{option} belong to one clip, and many videos were asked for: leave them out.")
    if any(identity is not None for identity in settings.heights()):
        raise UserError("--height of single people belongs to one clip: with many videos give one for everybody.")
