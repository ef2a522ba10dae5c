"""`fitmesh run` with many videos."""

from dataclasses import replace
from typing import TYPE_CHECKING

from fitmesh.ui.words import count

if TYPE_CHECKING:
    from fitmesh.many.status import ClipStatus
    from fitmesh.options.run import RunCommand
    from fitmesh.ui.events import Reporter

SOME_FAILED = 3  # exit code: the other clips are done


def many_asked(asked: "RunCommand") -> bool:
    """Whether options ask for a folder a clip. One --video has its results in --out itself."""
    from fitmesh.many.clips import is_url
    from pose2d.base.errors import UserError

    if asked.videos or len(asked.video) > 1 or any(map(is_url, [*asked.video, asked.out or ""])):
        for name in ("images", "image", "fps"):
            if getattr(asked, name):
                raise UserError(f"--{name} is for one clip, and many videos were asked for: leave one of them out.")
        return True
    for name in ("jobs", "shard", "ray", "retry_failed"):
        if getattr(asked, name):
            raise UserError(f"--{name.replace('_', '-')} is for many videos: give --videos, or --video several times.")
    return False


def run_videos(many: "RunCommand", reporter: "Reporter") -> int:
    """The exit code."""
    from fitmesh.many.clips import WHOLE, Shard, find_clips
    from fitmesh.many.summary import kept, recipe_of, report_kept
    from fitmesh.ui.signals import working
    from fitmesh.ui.sinks import starting
    from pose2d.base.errors import UserError

    if not many.video and not many.videos:
        raise UserError("give --video or --videos: results in object storage are of videos.")
    if many.out is None:
        raise UserError("many videos were asked for: give --out, the folder above their folders of results.")
    if many.jobs is not None and many.ray is not None:
        raise UserError("--jobs is for processes of this machine; Ray has its own: leave one of --jobs and --ray out.")
    shard = WHOLE if many.shard is None else Shard.parse(many.shard)
    found = find_clips(many.video, many.videos, many.out)
    recipe = recipe_of(many)
    before = None if many.overwrite else kept(shard.share(found.clips), recipe, many.out, many.retry_failed)
    if before is not None:
        report_kept(before, found.clips, many.out, reporter)
        reporter.say(_summary(before, many.out))
        return SOME_FAILED if any(not status.is_good for status in before) else 0
    with starting(reporter):
        from fitmesh.many.batch import Batch, check_many, run_batch
        from fitmesh.many.ray_cluster import executor_of, threads_each
        from fitmesh.stages.from_options import run_settings
    settings = run_settings(many)
    check_many(settings)
    settings = replace(settings, threads=threads_each(settings.threads, many.jobs or 1, many.ray))
    if settings.keypoints.checkpoint is not None and many.checkpoint is None:
        recipe = ""  # a checkpoint that was fetched: no option names the file
    batch = Batch(found.clips, many.out, settings, shard, recipe, many.retry_failed)
    with working():
        executor = executor_of(many.jobs or 1, many.ray, settings.threads)
        for path in found.twice:
            reporter.warn(f"{path} was given more than once: it is done once.")
        if found.left_out:
            reporter.say(f"{count(found.left_out, 'files')} in {many.out} match too; they are results and left out.")
        of = f" (part {shard.number} of {shard.of} of {len(found.clips)})" if shard.of > 1 else ""
        reporter.say(f"{count(len(batch.tasks()), 'clips')}{of}, {executor}")
        statuses = run_batch(batch, executor, reporter)
        reporter.say(_summary(statuses, many.out))
    return SOME_FAILED if any(not status.is_good for status in statuses) else 0


def _summary(statuses: list["ClipStatus"], out: str) -> str:
    done, kept = (sum(status.state == state for status in statuses) for state in ("done", "kept"))
    failed = len(statuses) - done - kept
    text = f"{done + kept} of {count(len(statuses), 'clips')} done"
    text += f" ({kept} before)" if kept else ""
    text += f", {failed} failed" if failed else ""
    warned = sum(bool(status.warnings) for status in statuses)
    text += f", {warned} with warnings" if warned else ""
    return f"{text}: {out.rstrip('/')}/index.html, {out.rstrip('/')}/summary.csv"
