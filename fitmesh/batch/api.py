"""`fitmesh.run_many`: what `fitmesh run` does with many videos, as a function."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fitmesh import limits
from fitmesh.api import run, settings_of
from fitmesh.batch.batch import Batch, run_batch
from fitmesh.batch.clips import WHOLE, Shard, find_clips
from fitmesh.batch.display import Silent
from fitmesh.batch.sharing import check_many, divided, workers_of
from fitmesh.batch.status import ClipStatus
from fitmesh.workers.tasks import Here

_OF_ONE_CLIP = ("video", "out", "fps", "progress")


def run_many(
    videos: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    jobs: int = 1,
    shard: str | None = None,
    ray: str | None = None,
    threads: int | None = None,
    progress: Callable[[ClipStatus], None] | None = None,
    **options: Any,
) -> list[ClipStatus]:
    """Fit bodies in many videos, a folder of results for each in `out`, with summary.csv and index.html over all.

    videos: several paths or URLs, or one pattern ("clips/**/*.mp4") or .txt file with one path a line.
    jobs: processes that work side by side; with 1 this process does everything. More than one need a script that calls
    this under `if __name__ == "__main__":`.
    shard: "3/20" does every 20th video from the third. ray: address of a Ray cluster, or "auto".
    threads: processor cores that the jobs share; with Ray, of one video.
    progress: called with every video's status when it ends.
    options: those of `fitmesh.run`, but for what belongs to one clip (keypoints, detections from a file, fps).

    A video that fails does not end the others: look at the `state` and `error` of what is returned, one status a video
    of the shard. Raises `fitmesh.UserError` where nothing can be done at all.
    """
    limits.JOBS.check("jobs", jobs)
    limits.THREADS.check("threads", threads)
    several = [str(video) for video in videos] if not isinstance(videos, str | Path) else []
    found = find_clips(several, [str(videos)] if not several else [], str(out))
    call = inspect.signature(run).bind("", "", **options)
    call.apply_defaults()
    given = {name: value for name, value in call.arguments.items() if name not in _OF_ONE_CLIP}
    settings = settings_of(**{**given, "threads": divided(threads, jobs, ray)})
    check_many(settings)
    workers = Here() if jobs == 1 and ray is None else workers_of(jobs, ray, settings)
    batch = Batch(found.clips, str(out), settings, Shard.parse(shard) if shard is not None else WHOLE)
    return run_batch(batch, workers, _Calling(progress))


class _Calling(Silent):
    def __init__(self, progress: Callable[[ClipStatus], None] | None) -> None:
        self._progress = progress

    def ended(self, status: ClipStatus, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(status)
