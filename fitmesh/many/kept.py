"""Whether clips were done before and nothing has changed since, told without importing what could do them.

A stage is valid by its own cache key. The key here is coarser, of a whole run: its options, the clip, every file that
an option names, and all code and weights of this project. Where it differs, the stages' keys decide.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from fitmesh.many.clips import ClipSource, is_url
from fitmesh.many.status import ClipStatus
from fitmesh.many.summary import check_out, write_summary
from fitmesh.options.run import RunOptions
from fitmesh.result import EDITS_FILE, Manifest
from fitmesh.ui.events import ClipEnded, ClipsEnded, ClipsStarted, Reporter
from pose2d.base.caching import PACKAGES, CacheKey, content_digest

_NO_MATTER = ("threads", "overwrite")  # options that change no number
_ROOT = Path(__file__).parents[2]


def recipe_of(options: RunOptions) -> str:
    """Digest of what the runs of all clips share; empty where an option names a folder, which is not looked into, or a
    plug-in, which may import others."""
    settings: dict[str, Any] = {
        f.name: getattr(options, f.name) for f in fields(RunOptions) if f.name not in _NO_MATTER
    }
    named = {name: Path(value) for name, value in settings.items() if isinstance(value, str | Path)}
    if options.plugin is not None or any(path.is_dir() for path in named.values()):
        return ""
    inputs = {name: content_digest([path]) for name, path in named.items() if path.is_file()}
    return CacheKey("run", settings, inputs, _product_digest()).digest


def clip_key(recipe: str, source: Path, out: Path) -> str:
    """Of the run of one clip; empty without a recipe or a clip."""
    files = [source, out / EDITS_FILE] if (out / EDITS_FILE).is_file() else [source]
    if not recipe or not source.is_file():
        return ""
    return hashlib.sha256(f"{recipe} {content_digest(files)}".encode()).hexdigest()


def kept(clips: Sequence[ClipSource], recipe: str, out: str, retry_failed: bool = False) -> list[ClipStatus] | None:
    """What became of the clips, if all of them are as they were left; None where one has to be looked at."""
    if not recipe or is_url(out):
        return None
    found = []
    for clip in clips:
        folder = Path(out, clip.name)
        status = None if is_url(clip.source) else ClipStatus.read(folder)
        if status is None or not status.key or (status.is_good and not Manifest.read(folder).is_whole()):
            return None
        if status.key != clip_key(recipe, Path(clip.source), folder) or (retry_failed and not status.is_good):
            return None
        found.append(status.again())
    return found


def report_kept(statuses: Sequence[ClipStatus], clips: Sequence[ClipSource], out: str, reporter: Reporter) -> None:
    """As a run that found nothing to do; `clips` are also those of other shards."""
    check_out(out)
    reporter.emit(ClipsStarted(len(statuses)))
    for number, status in enumerate(statuses, start=1):
        reporter.emit(ClipEnded(status, number, len(statuses)))
    reporter.emit(ClipsEnded())
    write_summary(clips, {status.name: status for status in statuses}, out)


@cache
def _product_digest() -> str:
    """Of all files of this project, code and weights: 50 MB, read in a tenth of a second."""
    files = (path for package in PACKAGES for path in (_ROOT / package).rglob("*") if path.is_file())
    return content_digest(sorted(path for path in files if path.suffix != ".pyc"))
