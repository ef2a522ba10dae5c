"""What a worker does with one clip, wherever it runs: fetch it, run the stages, leave the results, say what came of it.

Never raises for a clip that cannot be done: the others go on."""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from fitmesh.exports import EXPORTERS
from fitmesh.inputs import is_url, open_clip
from fitmesh.many.executors import Notify
from fitmesh.many.status import MOST_WARNINGS, ClipStatus
from fitmesh.many.summary import clip_key
from fitmesh.result import Manifest, load
from fitmesh.stages.people import read_tracks
from fitmesh.stages.pipeline import run_stages, warnings_of
from fitmesh.stages.settings import Job, NetworkLoader, RunSettings
from fitmesh.ui.events import Event, Message, Reporter, Stage
from fitmesh.ui.trouble import describe_error
from fitmesh.version import __version__
from pose2d.base import files
from pose2d.base.caching import CacheKey, FolderBusy, code_digest, content_digest
from pose2d.base.errors import UserError
from pose2d.models.base import module_of, use_plugin


@dataclass(frozen=True)
class ClipTask:
    name: str
    source: str  # path or URL of the clip
    out: str  # path or URL of the folder for its results
    settings: RunSettings
    recipe: str = ""  # `summary.recipe_of` the options
    retry_failed: bool = False
    fitmesh: str = __version__  # of whoever asks; another one would make other results


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
        return _run(
            task, Path(task.source), Path(task.out), reporter, warned
        )  # files of this machine, or that it shares
    except FolderBusy as error:
        return replace(blank, state="busy", error=str(error))
    except Exception as error:
        lines, _ = describe_error(error)
        warnings, seconds = tuple(warned[:MOST_WARNINGS]), round(time.monotonic() - began, 2)
        failed = replace(blank, error=" ".join(lines), warnings=warnings, seconds=seconds, peak_mb=_peak_mb())
        if isinstance(error, UserError) and not isinstance(error.__cause__, OSError):  # a full disk is not the clip's
            with contextlib.suppress(Exception):
                failed = replace(failed, key=_key_of(task))
        note_failure(failed, task.out)
        return failed


def _in_store(task: ClipTask, reporter: Reporter, warned: list[str]) -> ClipStatus:
    """One of them, or both, are in object storage."""
    from fitmesh.many import store

    key = ""
    if is_url(task.out):
        key = _key_of(task)
        before = store.read_status(task.out)
        if before is not None and before.key == key and _is_kept(task, before):
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
    is_broken = before is not None and not before.is_good and before.key == clip_key(task.recipe, source, out) != ""
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
    key = clip_key(task.recipe, source, out) if names <= set(Manifest.read(out).digests) else ""
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


def _key_of(task: ClipTask) -> str:
    """Of everything that what becomes of a clip depends on, without fetching it; empty: not known."""
    if not is_url(task.out):
        return "" if is_url(task.source) else clip_key(task.recipe, Path(task.source), Path(task.out))
    from fitmesh.many import store

    version = store.version_of(task.source) if is_url(task.source) else content_digest([Path(task.source)])
    settings = {name: value for name, value in asdict(task.settings).items() if name not in ("overwrite", "threads")}
    own = [module_of(task.settings.pose_model)] if task.settings.plugin is not None else []
    code = code_digest("fitmesh.stages.pipeline", *(exporter.module for exporter in EXPORTERS.values()), *own)
    return CacheKey("clip", settings, {"clip": version}, code).digest


def note_failure(status: ClipStatus, out: str) -> None:
    """For summaries of later runs and other machines; whoever asked is told anyway."""
    with contextlib.suppress(Exception):
        if is_url(out):
            from fitmesh.many import store

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
