"""More formats of a finished run (`fitmesh export`): the video and the run's options are not needed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fitmesh.exports import EXPORTERS, choose_exports
from fitmesh.manifest import Manifest
from fitmesh.options.record import check_ranges
from fitmesh.options.run import RunOptions
from fitmesh.result import FIT_FILE, RUN_FILE
from fitmesh.stages import export
from fitmesh.stages.pipeline import check_export_settings
from fitmesh.stages.settings import RunSettings
from fitmesh.ui.events import Reporter
from pose2d.base.caching import read_cache_key
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.folder_lock import folder_lock
from pose2d.base.json_files import read_json

# Options of a run that say how formats are written.
EXPORT_OPTIONS = (
    "rig",
    "per_person",
    "names",
    "export_fps",
    "smooth",
    "filter",
    "in_place",
    "plant_feet",
    "keep_reliable",
    "reliable_mm",
    "trc_axes",
)


def export_again(
    out: Path, formats: Sequence[str], changes: Mapping[str, Any], reporter: Reporter
) -> list[Path]:
    """Write formats of the result in a folder and return their files.

    changes: options of EXPORT_OPTIONS by name; the others are those of the run. Where scene.glb is
    written, they become the run's, because the viewer shows it.
    """
    if not (out / FIT_FILE).is_file():
        raise UserError(
            f"{out} has no {FIT_FILE}: expected the --out folder of a finished `fitmesh run`.",
            file=out,
        )
    run = _read_run(out)
    kept = run.get("settings")
    old_settings: dict[str, Any] = kept if isinstance(kept, dict) else {}
    settings = _settings(old_settings, formats, changes)
    check_export_settings(settings)
    names = choose_exports(formats, always=())
    fit_digest = _digest(read_cache_key(out / FIT_FILE))
    overlay_digest = _digest(export.noted_key(out, "overlay"))
    files: list[str] = []
    with folder_lock(out):
        manifest = Manifest.read(out)
        entries = [entry for name in names for entry in EXPORTERS[name].entries]
        manifest.claim(entries, (), overwrite=False)
        for name in names:
            key = export.cache_key(settings, name, fit_digest, overlay_digest)
            if not export.is_current(out, key):
                manifest.forget(export.noted_files(out, name))
                export.write_export(out, settings, key, reporter)
                manifest.record(export.noted_files(out, name))
            files += export.noted_files(out, name)
        run |= {"files": manifest.digests, "entries": sorted(manifest.entries)}
        if "glb" in names:
            run["settings"] = {**old_settings, **_export_values(settings)}
        with atomic_file(out / RUN_FILE) as temporary:
            temporary.write_text(json.dumps(run, indent=1) + "\n")
    return [out / file for file in files]


def _settings(
    run: Mapping[str, Any], formats: Sequence[str], changes: Mapping[str, Any]
) -> RunSettings:
    """Return the settings of exports; values of run.json that are no such values do not count."""
    defaults = {entry.name: entry.default for entry in fields(RunOptions)}
    values: dict[str, Any] = {}
    for name in EXPORT_OPTIONS:
        value = changes.get(name)
        if value is None and _fits(run.get(name), defaults[name]):
            value = run.get(name)
        values[name] = defaults[name] if value is None else value
    several = run.get("videos")
    videos = tuple(map(Path, several)) if isinstance(several, list | tuple) else ()
    return check_ranges(RunSettings(exports=tuple(formats), videos=videos, **values))


def _fits(value: Any, default: Any) -> bool:
    """Say whether a value of run.json has the type of an option."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, float | int)
    return isinstance(value, float | int | str)


def _export_values(settings: RunSettings) -> dict[str, Any]:
    """Return the options of exports by name."""
    return {name: getattr(settings, name) for name in EXPORT_OPTIONS}


def _read_run(out: Path) -> dict[str, Any]:
    """Return run.json; empty without one."""
    try:
        return dict(read_json(out / RUN_FILE).object())
    except UserError:
        return {}


def _digest(key: str | None) -> str:
    """Return the digest of a cache key's text, as `CacheKey.digest` is; empty if there is none."""
    return hashlib.sha256(key.encode()).hexdigest() if key else ""
