"""Process every clip of this machine's share once, and write a summary of all clips.

Nothing heavy is imported before there is work: unchanged clips are recognised by digests.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fitmesh.many.executors import Executor, ProcessExecutor, RayExecutor, SerialExecutor
from fitmesh.many.sources import find_clips, share_of
from fitmesh.many.status import ClipStatus
from fitmesh.many.summary import check_out, write_summary
from fitmesh.many.unchanged import recipe_digest, unchanged_statuses
from fitmesh.options.run import RunOptions
from fitmesh.ui.events import ClipEnded, Event, FromClip, Reporter, starting
from fitmesh.ui.trouble import count
from pose2d.base.threads import cores

if TYPE_CHECKING:
    from fitmesh.many.clip import ClipTask

BUSY_PAUSE_S = 5.0  # before clips that other runs hold are tried again
SUMMARY_EVERY_S = 60.0
# Upper bound on the share of time for summaries, which read the folders of other shards' clips.
SUMMARY_SHARE = 0.02


def run_clips(
    options: RunOptions,
    video: Sequence[str],
    videos: Sequence[str],
    out: str,
    reporter: Reporter,
    *,
    shard: str | None,
    jobs: int | None,
    ray: str | None,
    retry_failed: bool,
) -> list[ClipStatus]:
    """Process the clips of a shard and return the status of each, in order.

    The two files over all clips are renewed on the way. video, videos: as in `find_clips`; jobs:
    local processes, None: this process; ray: address of a cluster instead; retry_failed: also
    process clips that failed before.
    """
    selection = find_clips(video, videos, out)
    clips = share_of(selection.clips, shard)
    unchanged = None
    if not options.overwrite:
        unchanged = unchanged_statuses(clips, recipe_digest(options), out, retry_failed)
    if unchanged is not None:
        check_out(out)
        statuses = iter(unchanged)
    else:
        with starting(reporter):
            from fitmesh.many.clip import process_clip, tasks_of
        threads = max(1, (options.threads or cores()) // (jobs or 1))
        if ray is not None:
            # Several clips with one thread each keep a cluster busier than one clip with several.
            threads = options.threads or 1
        tasks = tasks_of(replace(options, threads=threads), clips, out, retry_failed)
        check_out(out, options.overwrite)
        executor: Executor = ProcessExecutor(jobs, threads) if jobs else SerialExecutor()
        executor = executor if ray is None else RayExecutor(ray, threads)
        for path in selection.twice:
            reporter.warn(f"{path} was given more than once: it is processed once.")
        if selection.left_out:
            reporter.say(
                f"{count(selection.left_out, 'files')} in {out} match too; they are results and left out."
            )
        part = "" if shard is None else f" (part {shard} of {len(selection.clips)})"
        reporter.say(f"{count(len(tasks), 'clips')}{part}, {executor}")
        statuses = _process_all(process_clip, tasks, executor, reporter)
    known: dict[str, ClipStatus] = {}
    renewed = time.monotonic()
    pause_s = SUMMARY_EVERY_S
    with reporter.stage("all clips", len(clips), "clips") as tick:
        try:
            for status in statuses:
                known[status.name] = status
                tick(1)
                reporter.emit(ClipEnded(status, len(known), len(clips)))
                began = time.monotonic()
                if began - renewed > pause_s:
                    write_summary(selection.clips, known, out)
                    renewed = time.monotonic()
                    pause_s = max(SUMMARY_EVERY_S, (renewed - began) / SUMMARY_SHARE)
        finally:  # also after Ctrl-C
            write_summary(selection.clips, known, out)
    return [known[clip.name] for clip in clips]


def _process_all(
    work: Callable[..., ClipStatus],
    tasks: Sequence["ClipTask"],
    executor: Executor,
    reporter: Reporter,
) -> Iterator[ClipStatus]:
    """Yield the status of each clip as it ends.

    Clips that another run holds come last; when that run has finished them, they are up to date.
    """
    while tasks:
        current = tasks
        busy: list[ClipTask] = []

        def pass_on(number: int, event: Event, current: Sequence["ClipTask"] = current) -> None:
            reporter.emit(FromClip(current[number].name, event))

        for ended in executor.map(work, current, pass_on):
            task = current[ended.number]
            if ended.result is None:
                lost = ClipStatus(
                    task.name, task.source, "failed", error=ended.lost, code="resource"
                )
                lost.try_to_write(task.out)
                yield lost
            elif ended.result.state == "busy":
                busy.append(task)
            else:
                yield ended.result
        if busy:
            reporter.say(
                f"waiting for {count(len(busy), 'clips')} that other runs hold: {busy[0].name} .."
            )
            time.sleep(BUSY_PAUSE_S)
        tasks = busy
