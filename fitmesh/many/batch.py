"""A run over many clips: every clip of this machine's share is done once, and the summary is over all of them.

`process_clip` is what a worker does with one clip, wherever it runs: fetch it, run the stages, leave the results, say
what came of it. It never raises for a clip that cannot be done: the others go on."""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fitmesh.inputs import Found, Shard, is_url, open_clip
from fitmesh.many import store
from fitmesh.many.executors import Executor, Notify, ProcessExecutor, RayExecutor, SerialExecutor
from fitmesh.many.summary import MOST_WARNINGS, ClipStatus, check_out, clip_key, recipe_of, write_summary
from fitmesh.options.run import RunOptions
from fitmesh.result import Manifest, load
from fitmesh.stages.people import read_tracks
from fitmesh.stages.pipeline import check_settings, run_settings, run_stages, warnings_of
from fitmesh.stages.settings import Job, NetworkLoader, RunSettings
from fitmesh.ui.events import ClipEnded, Clips, Event, FromClip, Message, Reporter, Stage
from fitmesh.ui.trouble import count, describe_error
from fitmesh.version import __version__
from pose2d.base import files
from pose2d.base.caching import FolderBusy
from pose2d.base.errors import UserError
from pose2d.base.threads import cores
from pose2d.models.base import use_plugin

BUSY_PAUSE_S = 5.0  # before clips that other runs are at work on are asked for again
SUMMARY_EVERY_S = 60.0
SUMMARY_SHARE = 0.02  # of the time at most goes into summaries: of other shards' clips the folders are read


@dataclass(frozen=True)
class ClipTask:
    name: str
    source: str  # path or URL of the clip
    out: str  # path or URL of the folder for its results
    settings: RunSettings
    recipe: str = ""  # `summary.recipe_of` the options
    retry_failed: bool = False
    fitmesh: str = __version__  # of whoever asks; another one would make other results


def run_clips(
    options: RunOptions, given: Found, out: str, shard: Shard, reporter: Reporter, *, jobs: int | None, ray: str | None,
    retry_failed: bool,
) -> list[ClipStatus]:  # fmt: skip
    """What became of each clip of the shard, in order. The two files over all clips are renewed on the way. jobs: local
    processes, None: this one does everything; ray: address of a cluster instead. retry_failed: also clips that are
    known to be broken."""
    # On a cluster a clip has one thread: several clips side by side keep cores busier than one on several.
    threads = max(1, (options.threads or cores()) // (jobs or 1)) if ray is None else options.threads or 1
    settings = run_settings(replace(options, threads=threads))
    _check_many(settings)
    check_settings(settings)
    check_out(out, settings.overwrite)
    has_fetched = settings.checkpoint is not None and options.checkpoint is None
    recipe = "" if has_fetched else recipe_of(options)  # of a checkpoint that was fetched no option names the file
    tasks = [
        ClipTask(clip.name, clip.source, f"{out.rstrip('/')}/{clip.name}", settings, recipe, retry_failed)
        for clip in shard.share(given.clips)
    ]
    executor: Executor = ProcessExecutor(jobs, threads) if jobs else SerialExecutor()
    executor = executor if ray is None else RayExecutor(ray, threads)
    for path in given.twice:
        reporter.warn(f"{path} was given more than once: it is done once.")
    if given.left_out:
        reporter.say(f"{count(given.left_out, 'files')} in {out} match too; they are results and left out.")
    of = f" (part {shard.number} of {shard.of} of {len(given.clips)})" if shard.of > 1 else ""
    reporter.say(f"{count(len(tasks), 'clips')}{of}, {executor}")
    known: dict[str, ClipStatus] = {}
    renewed, pause_s = time.monotonic(), SUMMARY_EVERY_S
    reporter.emit(Clips(len(tasks)))
    try:
        for status in _all(tasks, executor, reporter):
            known[status.name] = status
            reporter.emit(ClipEnded(status, len(known), len(tasks)))
            began = time.monotonic()
            if began - renewed > pause_s:
                write_summary(given.clips, known, out)
                renewed = time.monotonic()
                pause_s = max(SUMMARY_EVERY_S, (renewed - began) / SUMMARY_SHARE)
    finally:  # also after Ctrl-C
        reporter.emit(Clips(None))
        write_summary(given.clips, known, out)
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


def _check_many(settings: RunSettings) -> None:
    """Refuse what describes one clip."""
    for option, given in (("keypoints", settings.keypoints), ("detections", settings.detections)):
        if given is not None:
            raise UserError(f"--{option} belong to one clip, and many videos were asked for: leave them out.")
    if any(identity is not None for identity in settings.heights()):
        raise UserError("--height of single people belongs to one clip: with many videos give one for everybody.")


def process_clip(task: ClipTask, notify: Notify) -> ClipStatus:
    """From a clip to a folder of results and a status."""
    began, warned = time.monotonic(), list[str]()

    def pass_on(event: Event) -> None:
        """Of advances one a second; warnings are kept."""
        if isinstance(event, Message) and event.kind == "warning":
            warned.append(event.text)
        if not isinstance(event, Stage) or event.state != "running" or event.beat:
            notify(event)

    reporter = Reporter(pass_on)
    blank = ClipStatus(task.name, task.source, "failed")
    try:
        if task.fitmesh != __version__:
            raise UserError(f"this machine has fitmesh {__version__}, the run was started by {task.fitmesh}.")
        use_plugin(task.settings.plugin)
        if is_url(task.out) or is_url(task.source):
            return _in_store(task, reporter, warned)
        return _run(task, Path(task.source), Path(task.out), reporter, warned)  # files that this machine sees
    except FolderBusy as error:
        return replace(blank, state="busy", error=str(error))
    except Exception as error:
        lines, _ = describe_error(error)
        warnings, seconds = tuple(warned[:MOST_WARNINGS]), round(time.monotonic() - began, 2)
        failed = replace(blank, error=" ".join(lines), warnings=warnings, seconds=seconds, peak_mb=_peak_mb())
        if isinstance(error, UserError) and not isinstance(error.__cause__, OSError):  # a full disk is not the clip's
            with contextlib.suppress(Exception):
                failed = replace(failed, key=clip_key(task.recipe, task.source, task.out))
        note_failure(failed, task.out)
        return failed


def _in_store(task: ClipTask, reporter: Reporter, warned: list[str]) -> ClipStatus:
    """One of them, or both, are in object storage."""
    key = ""
    if is_url(task.out):
        key = clip_key(task.recipe, task.source, task.out)
        before = ClipStatus.read(task.out)
        if before is not None and before.key == key != "" and _is_kept(task, before):
            return before.again()
    with _scratch() as scratch:
        source, out = Path(task.source), Path(task.out)
        if is_url(task.source):
            source = scratch / "clip" / Path(task.source).name
            source.parent.mkdir()
            store.fetch(task.source, source)
        if not is_url(task.out):
            return _run(task, source, out, reporter, warned)
        out = scratch / "out"
        out.mkdir()
        if before is not None and not task.settings.overwrite:
            store.fetch_folder(task.out, out)  # stages of it may still be valid
        done = replace(_run(task, source, out, reporter, warned), key=key)
        done.write(out)
        store.put_folder(out, task.out)
        return done


def _run(task: ClipTask, source: Path, out: Path, reporter: Reporter, warned: list[str]) -> ClipStatus:
    began, cpu_began, before = time.monotonic(), time.process_time(), ClipStatus.read(out)
    is_broken = (
        before is not None and not before.is_good and before.key == clip_key(task.recipe, str(source), str(out)) != ""
    )
    if before is not None and is_broken and _is_kept(task, before):
        return before.again()
    job = Job(open_clip(source), task.settings, out, reporter, _loader(task.settings))
    written = run_stages(job)
    seen = read_tracks(out)
    result = None if task.settings.only_people else load(out)
    status = ClipStatus(
        task.name, task.source, "done" if written.made else "kept",
        people=len(seen.same_as if result is None else result.people), frames=len(seen.frames),
        seconds=round(time.monotonic() - began, 2), made=written.made,
        cpu_s=round(time.process_time() - cpu_began, 2), peak_mb=_peak_mb(),
        warnings=tuple([*warned, *warnings_of(out)][:MOST_WARNINGS]),
    )  # fmt: skip
    # By which a later run tells that nothing has changed; empty where its digests would not tell.
    names = {path.relative_to(out).as_posix() for path in written.files}
    key = clip_key(task.recipe, str(source), str(out)) if names <= set(Manifest.read(out).digests) else ""
    if before is not None and before.is_good and not written.made:
        if before.key != key:
            replace(before, key=key).write(out)
        return replace(before, state="kept", made=())
    replace(status, state="done", key=key).write(out)
    return status


def _is_kept(task: ClipTask, before: ClipStatus) -> bool:
    """Whether what became of a clip stands, if nothing has changed."""
    return not task.settings.overwrite and (before.is_good or not task.retry_failed)


@lru_cache(maxsize=1)
def _loader(settings: RunSettings) -> NetworkLoader:
    """The networks stay loaded from clip to clip."""
    return NetworkLoader(settings)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for one clip; it goes with the process too, if that has time."""
    folder = Path(tempfile.mkdtemp(prefix="fitmesh-"))
    files.unfinished.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        files.unfinished.discard(folder)


def note_failure(status: ClipStatus, out: str) -> None:
    """For summaries of later runs and other machines; whoever asked is told anyway."""
    with contextlib.suppress(Exception):
        if is_url(out):
            with _scratch() as scratch:
                status.write(scratch)
                store.put_folder(scratch, out)
        elif (folder := Path(out)).is_dir() or not folder.exists():
            status.write(folder)


def _peak_mb() -> int:
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    except ImportError:  # not on Windows
        return 0
