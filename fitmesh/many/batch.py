"""A run over many clips: every clip of this machine's share is done once, and the summary is over
all of them.

Imports nothing heavy before there is work: clips that were done before and have not changed are
told by digests."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fitmesh.inputs import find_clips, share_of
from fitmesh.many.executors import Executor, ProcessExecutor, RayExecutor, SerialExecutor
from fitmesh.many.summary import ClipStatus, check_out, kept, recipe_of, write_summary
from fitmesh.options.run import RunOptions
from fitmesh.ui.events import ClipEnded, Event, FromClip, Reporter, starting
from fitmesh.ui.trouble import count
from pose2d.base.threads import cores

if TYPE_CHECKING:
    from fitmesh.many.clip import ClipTask

BUSY_PAUSE_S = 5.0  # before clips that other runs are at work on are asked for again
SUMMARY_EVERY_S = 60.0
SUMMARY_SHARE = (
    0.02  # of the time at most goes into summaries: of other shards' clips the folders are read
)


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
    """What became of each clip of the shard, in order. The two files over all clips are renewed on
    the way. video, videos: as in `find_clips`; jobs: local processes, None: this one does
    everything; ray: address of a cluster instead. retry_failed: also clips that are known to be
    broken."""
    given = find_clips(video, videos, out)
    clips = share_of(given.clips, shard)
    before = None if options.overwrite else kept(clips, recipe_of(options), out, retry_failed)
    if before is not None:
        check_out(out)
        statuses = iter(before)
    else:
        with starting(reporter):
            from fitmesh.many.clip import process_clip, tasks_of
        # On a cluster a clip has one thread: several clips side by side keep cores busier than one
        # on several.
        threads = (
            max(1, (options.threads or cores()) // (jobs or 1))
            if ray is None
            else options.threads or 1
        )
        tasks = tasks_of(replace(options, threads=threads), clips, out, retry_failed)
        check_out(out, options.overwrite)
        executor: Executor = ProcessExecutor(jobs, threads) if jobs else SerialExecutor()
        executor = executor if ray is None else RayExecutor(ray, threads)
        for path in given.twice:
            reporter.warn(f"{path} was given more than once: it is done once.")
        if given.left_out:
            reporter.say(
                f"{count(given.left_out, 'files')} in {out} match too; they are results and left out."
            )
        of = "" if shard is None else f" (part {shard} of {len(given.clips)})"
        reporter.say(f"{count(len(tasks), 'clips')}{of}, {executor}")
        statuses = _all(process_clip, tasks, executor, reporter)
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
                    write_summary(given.clips, known, out)
                    renewed = time.monotonic()
                    pause_s = max(SUMMARY_EVERY_S, (renewed - began) / SUMMARY_SHARE)
        finally:  # also after Ctrl-C
            write_summary(given.clips, known, out)
    return [known[clip.name] for clip in clips]


def _all(
    work: Callable[..., ClipStatus],
    tasks: Sequence["ClipTask"],
    executor: Executor,
    reporter: Reporter,
) -> Iterator[ClipStatus]:
    """Clips that another run holds come last: when that is done with them, they are found up to
    date.
    """
    while tasks:
        current = tasks
        busy: list[ClipTask] = []

        def pass_on(number: int, event: Event, current: Sequence["ClipTask"] = current) -> None:
            reporter.emit(FromClip(current[number].name, event))

        for ended in executor.map(work, current, pass_on):
            task = current[ended.number]
            if ended.result is None:
                lost = ClipStatus(task.name, task.source, "failed", error=ended.lost)
                lost.note(task.out)
                yield lost
            elif ended.result.state == "busy":
                busy.append(task)
            else:
                yield ended.result
        if busy:
            reporter.say(
                f"waiting for {count(len(busy), 'clips')} that other runs are at work on: {busy[0].name} .."
            )
            time.sleep(BUSY_PAUSE_S)
        tasks = busy
