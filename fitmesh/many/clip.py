"""Process one clip among many: fetch it, run the stages, store the results, return a status."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fitmesh.inputs import open_clip, scratch_folder
from fitmesh.loading import load
from fitmesh.manifest import Manifest
from fitmesh.many import store
from fitmesh.many.executors import Notify
from fitmesh.many.sources import ClipSource, is_url
from fitmesh.many.status import MOST_WARNINGS, ClipStatus
from fitmesh.many.unchanged import clip_key, recipe_digest, unchanged_status
from fitmesh.options.run import RunOptions
from fitmesh.stages.people import read_tracks
from fitmesh.stages.pipeline import check_settings, run_settings, run_stages, warnings_of
from fitmesh.stages.settings import Job, NetworkLoader, RunSettings
from fitmesh.ui.events import Event, Message, Reporter, Stage
from fitmesh.ui.trouble import describe_error, error_facts
from fitmesh.version import __version__
from pose2d.base.errors import OptionError, UserError
from pose2d.base.folder_lock import FolderBusy
from pose2d.models.registry import use_plugin


@dataclass(frozen=True)
class ClipTask:
    """Hold what a worker needs to process one clip."""

    name: str
    source: str  # path or URL of the clip
    out: str  # path or URL of the folder for its results
    settings: RunSettings
    recipe: str  # `unchanged.recipe_digest` of the options
    retry_failed: bool
    fitmesh: str = __version__  # of the process that asks; another version makes other results


def tasks_of(
    options: RunOptions, clips: Sequence[ClipSource], out: str, retry_failed: bool
) -> list[ClipTask]:
    """Return one task per clip; options that are wrong or describe a single clip are refused."""
    settings = run_settings(options)
    for option, file in (("keypoints", settings.keypoints), ("detections", settings.detections)):
        if file is not None:
            raise OptionError(
                f"--{option} belongs to one clip and cannot be used with many videos: leave it out."
            )
    if any(identity is not None for identity in settings.heights()):
        raise OptionError(
            "--height of single people belongs to one clip: with many videos give one for all people."
        )
    check_settings(settings)
    has_fetched = settings.checkpoint is not None and options.checkpoint is None
    # No option names the file of a checkpoint that was fetched, so no digest covers it.
    recipe = "" if has_fetched else recipe_digest(options)
    root = out.rstrip("/")
    return [
        ClipTask(clip.name, clip.source, f"{root}/{clip.name}", settings, recipe, retry_failed)
        for clip in clips
    ]


def process_clip(task: ClipTask, notify: Notify) -> ClipStatus:
    """Make the results of one clip and return its status; failures do not raise, they are a status."""
    began = time.monotonic()
    warnings = list[str]()
    key = ""

    def pass_on(event: Event) -> None:
        """Collect warnings, and pass on at most one advance a second."""
        if isinstance(event, Message) and event.kind == "warning":
            warnings.append(event.text)
        if not isinstance(event, Stage) or event.state != "running" or event.beat:
            notify(event)

    failed = ClipStatus(task.name, task.source, "failed")
    try:
        if task.fitmesh != __version__:
            raise UserError(
                f"this machine has fitmesh {__version__}, the run was started by {task.fitmesh}."
            )
        use_plugin(task.settings.plugin)
        if not task.settings.overwrite:
            unchanged = unchanged_status(task.source, task.out, task.recipe, task.retry_failed)
            if unchanged is not None:
                return unchanged
        key = clip_key(task.recipe, task.source, task.out)
        with scratch_folder("fitmesh-") as scratch:
            source = Path(task.source)
            out = Path(task.out)
            if is_url(task.source):
                source = scratch / "clip" / Path(task.source).name
                source.parent.mkdir()
                store.fetch(task.source, source)
            if is_url(task.out):
                out = scratch / "out"
                out.mkdir()
                if not task.settings.overwrite and ClipStatus.read(task.out) is not None:
                    store.fetch_folder(task.out, out)  # stages of it may still be valid
            status = _run(task, source, out, key, Reporter(pass_on), warnings)
            if is_url(task.out):
                store.put_folder(out, task.out)
            return status
    except FolderBusy as error:
        return replace(failed, state="busy", error=str(error))
    except Exception as error:
        is_full_disk = isinstance(error.__cause__, OSError)
        is_of_clip = isinstance(error, UserError) and not is_full_disk
        failed = replace(
            failed,
            error=" ".join(describe_error(error)[0]),
            code=error_facts(error)["code"] or "",
            warnings=tuple(warnings[:MOST_WARNINGS]),
            seconds=round(time.monotonic() - began, 2),
            peak_mb=_peak_mb(),
            key=key if is_of_clip else "",
        )
        failed.try_to_write(task.out)
        return failed


def _run(
    task: ClipTask, source: Path, out: Path, key: str, reporter: Reporter, warnings: list[str]
) -> ClipStatus:
    """Run the stages on local files and return the status.

    key: digest by which a later run recognises that nothing has changed.
    """
    began = time.monotonic()
    cpu_began = time.process_time()
    before = ClipStatus.read(out)
    if before is not None and before.key:
        replace(before, key="").write(str(out))  # while files change, no key is valid
    job = Job(open_clip(source), task.settings, out, reporter, _loader(task.settings))
    files, made = run_stages(job)
    names = {path.relative_to(out).as_posix() for path in files}
    if not is_url(task.out) and not names <= set(Manifest.read(out).digests):
        key = ""  # the manifest does not cover all files
    if before is not None and before.is_good and not made:
        status = replace(before, key=key)
    else:
        tracks = read_tracks(out)
        people = tracks.same_as if task.settings.only_people else load(out).people
        status = ClipStatus(
            task.name,
            task.source,
            "done",
            people=len(people),
            frames=len(tracks.frames),
            seconds=round(time.monotonic() - began, 2),
            cpu_s=round(time.process_time() - cpu_began, 2),
            made=tuple(made),
            warnings=tuple([*warnings, *warnings_of(out)][:MOST_WARNINGS]),
            peak_mb=_peak_mb(),
            key=key,
        )
    status.write(str(out))
    return status if made else replace(status, state="kept", made=())


@lru_cache(maxsize=1)
def _loader(settings: RunSettings) -> NetworkLoader:
    """Return a loader that keeps the networks from clip to clip."""
    return NetworkLoader(settings)


def _peak_mb() -> int:
    """Return the largest memory of this process so far, in MB; 0 if it is not known."""
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    except ImportError:  # not on Windows
        return 0
