"""A run over many clips: every clip of this machine's share is done once, and the summary is over all of them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fitmesh.batch.clip_worker import ClipTask, note_failure, process_clip
from fitmesh.batch.clips import WHOLE, ClipSource, Shard
from fitmesh.batch.display import Display
from fitmesh.batch.status import ClipStatus
from fitmesh.batch.summary import check_out, write_summary
from fitmesh.stages.pipeline import check_settings
from fitmesh.stages.settings import RunSettings
from fitmesh.workers.tasks import Workers

BUSY_PAUSE_S = 5.0  # before clips that other runs are at work on are asked for again
SUMMARY_EVERY_S = 60.0
SUMMARY_SHARE = (
    0.02  # of the time at most goes into summaries: those of other shards' clips are read from their folders
)


@dataclass(frozen=True)
class Batch:
    """What to do."""

    clips: Sequence[ClipSource]  # all of them, also those of other shards
    out: str  # path or URL of the folder above the clips' folders
    settings: RunSettings
    shard: Shard = WHOLE

    def tasks(self) -> list[ClipTask]:
        """Of this shard."""
        mine = [self.clips[n] for n in self.shard.numbers(len(self.clips))]
        return [ClipTask(clip.name, clip.source, f"{self.out.rstrip('/')}/{clip.name}", self.settings) for clip in mine]


def run_batch(batch: Batch, workers: Workers, display: Display) -> list[ClipStatus]:
    """What became of each clip of the shard, in order. The two files over all clips are renewed on the way."""
    check_settings(batch.settings)
    check_out(batch.out)
    tasks = batch.tasks()
    known: dict[str, ClipStatus] = {}
    renewed, pause_s = time.monotonic(), SUMMARY_EVERY_S
    try:
        for status in _all(tasks, workers, display):
            known[status.name] = status
            display.ended(status, len(known), len(tasks))
            began = time.monotonic()
            if began - renewed > pause_s:
                write_summary(batch.clips, known, batch.out)
                renewed = time.monotonic()
                pause_s = max(SUMMARY_EVERY_S, (renewed - began) / SUMMARY_SHARE)
    finally:  # also after Ctrl-C
        write_summary(batch.clips, known, batch.out)
    return [known[task.name] for task in tasks]


def _all(tasks: Sequence[ClipTask], workers: Workers, display: Display) -> Iterator[ClipStatus]:
    """Clips that another run holds come last: when that is done with them, they are found up to date."""
    while tasks:
        current = tasks
        busy: list[ClipTask] = []
        for ended in workers.each(process_clip, current, lambda n, what: display.news(current[n].name, what)):  # noqa: B023
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
            display.say(f"waiting for {len(busy)} clips that other runs are at work on: {busy[0].name} ..")
            time.sleep(BUSY_PAUSE_S)
        tasks = busy
