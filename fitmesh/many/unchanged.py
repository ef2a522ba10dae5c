"""Find the clips whose results are still valid, without importing what could make them.

A stage is valid by its own cache key. The key here is coarser, of a whole run: its options, the
clip, every file that an option names, and all code and weights of this project. If it differs, the
keys of the stages decide.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path

from fitmesh.manifest import Manifest
from fitmesh.many import store
from fitmesh.many.sources import ClipSource, is_url
from fitmesh.many.status import ClipStatus
from fitmesh.options.run import RunOptions
from fitmesh.result import EDITS_FILE
from pose2d.base.caching import PACKAGES, CacheKey, content_digest

WITHOUT_EFFECT = ("threads", "overwrite")  # options that change no number
ROOT = Path(__file__).parents[2]


def recipe_digest(options: RunOptions) -> str:
    """Return a digest of what the runs of all clips share.

    It is empty if an option names a folder, whose content is not read, or a plug-in, which may
    import other files.
    """
    settings = {
        entry.name: getattr(options, entry.name)
        for entry in fields(RunOptions)
        if entry.name not in WITHOUT_EFFECT
    }
    paths = {name: Path(value) for name, value in settings.items() if isinstance(value, str | Path)}
    if options.plugin is not None or any(path.is_dir() for path in paths.values()):
        return ""
    inputs = {name: content_digest([path]) for name, path in paths.items() if path.is_file()}
    return CacheKey("run", settings, inputs, _product_digest()).digest


def clip_key(recipe: str, source: str, out: str) -> str:
    """Return a digest of everything that the results of one clip depend on.

    The clip is not downloaded. The digest is empty without a recipe or a clip.
    """
    if not recipe or not (is_url(source) or Path(source).is_file()):
        return ""
    version = store.version_of(source) if is_url(source) else content_digest([Path(source)])
    edits = Path(out, EDITS_FILE)
    if not is_url(out) and edits.is_file():
        version += content_digest([edits])
    return hashlib.sha256(f"{recipe} {version}".encode()).hexdigest()


def unchanged_status(source: str, out: str, recipe: str, retry_failed: bool) -> ClipStatus | None:
    """Return the status of a clip if nothing changed since; None if it has to be processed."""
    status = ClipStatus.read(out)
    if status is None or not status.key:
        return None
    if retry_failed and not status.is_good:
        return None
    if status.is_good and not is_url(out) and not Manifest.read(Path(out)).is_whole():
        return None
    return status.repeated() if status.key == clip_key(recipe, source, out) else None


def unchanged_statuses(
    clips: Sequence[ClipSource], recipe: str, out: str, retry_failed: bool = False
) -> list[ClipStatus] | None:
    """Return the statuses of all clips if none has changed and all are local; None otherwise."""
    statuses: list[ClipStatus] = []
    for clip in clips:
        if is_url(out) or is_url(clip.source):
            return None
        status = unchanged_status(clip.source, f"{out}/{clip.name}", recipe, retry_failed)
        if status is None:
            return None
        statuses.append(status)
    return statuses


@cache
def _product_digest() -> str:
    """Return a digest of this project's code and weights: 50 MB, read in a tenth of a second."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    compiled = "__pycache__"  # of Python and numba
    return content_digest(sorted(path for path in files if path.parent.name != compiled))
