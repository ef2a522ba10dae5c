"""Stage 4: the formats of `fitmesh.exports`, each a stage with a cache key of its own."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fitmesh.result
from fitmesh.exports import EXPORTERS
from fitmesh.stages.manifest import CACHE_FOLDER
from fitmesh.stages.settings import Job
from pose2d.base.caching import CacheKey, code_digest, remove_temporary
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import read_json


def cache_key(job: Job, name: str, fit_key: CacheKey, overlay_key: CacheKey) -> CacheKey:
    return CacheKey(
        stage=name,
        settings=_settings(job, name),
        inputs={"fit": fit_key.digest, "overlay": overlay_key.digest},
        code=code_digest(EXPORTERS[name].module, *(["fitmesh.exports.motion"] if EXPORTERS[name].is_motion else [])),
    )


def _settings(job: Job, name: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {"bone_names": job.settings.bone_names} if EXPORTERS[name].names_bones else {}
    return chosen | (asdict(job.settings.motion) if EXPORTERS[name].is_motion else {})


def is_current(out: Path, key: CacheKey) -> bool:
    """The cache key is the same, and every file is there in the size it was written in."""
    try:
        noted = read_json(_note(out, key.stage)).object()
        sizes = {name: (out / name).stat().st_size for name in noted["bytes"]}
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return False
    return noted.get("cache_key") == key.text and sizes == noted["bytes"]


def noted_files(out: Path, name: str) -> list[str]:
    """What an export left in `out`, as its note says; nothing without one."""
    try:
        return [file for file in read_json(_note(out, name)).item("bytes").object() if ".." not in Path(file).parts]
    except UserError:
        return []


def make(job: Job, key: CacheKey) -> None:
    exporter, result, note = EXPORTERS[key.stage], fitmesh.result.load(job.out), _note(job.out, key.stage)
    note.unlink(missing_ok=True)  # while files change, no note vouches for them
    names = exporter.files(result, job.settings.motion)
    for name in names:
        remove_temporary(job.out / name)
    exporter.write(result, job.out, job.reporter, job.settings.bone_names, job.settings.motion)
    sizes = {name: (job.out / name).stat().st_size for name in names}
    with atomic_file(note) as temporary:
        temporary.write_text(json.dumps({"cache_key": key.text, "bytes": sizes}, indent=1) + "\n")


def _note(out: Path, name: str) -> Path:
    """These files have no room for a cache key of their own."""
    return out / CACHE_FOLDER / f"{name}.json"
