"""Stage 5: the formats of `fitmesh.exports`, each a stage with a cache_key of its own."""

import json
from collections.abc import Iterable
from pathlib import Path

from fitmesh.exports import EXPORTERS
from fitmesh.progress import Reporter
from fitmesh.result import Result
from pose2d.base.caching import CacheKey, remove_temporary
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

ALWAYS = ("glb", "report")
FOLDER = ".recipes"  # these files have no room for a cache_key of their own


def wanted(names: Iterable[str]) -> list[str]:
    """The exports of a run that was asked for `names`, in the order they are made; the report comes last."""
    asked = set(names)
    unknown = sorted(asked - set(EXPORTERS))
    if unknown:
        raise UserError(f"unknown --export {', '.join(unknown)}: choose {', '.join(EXPORTERS)}.")
    chosen = [name for name in EXPORTERS if name in asked or name in ALWAYS]
    return sorted(chosen, key=lambda name: name == "report")


def cache_key(name: str, fit_key: CacheKey, overlay_key: CacheKey) -> CacheKey:
    return CacheKey(stage=name, settings={}, inputs={"fit": fit_key.digest, "overlay": overlay_key.digest})


def matches(out: Path, key: CacheKey) -> bool:
    """The cache_key is the same, and every file is there in the size it was written in."""
    try:
        noted = json.loads(_note(out, key.stage).read_text())
        sizes = {name: (out / name).stat().st_size for name in noted["bytes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return noted.get("cache_key") == key.text and sizes == noted["bytes"]


def make(result: Result, out: Path, key: CacheKey, reporter: Reporter) -> None:
    exporter = EXPORTERS[key.stage]
    _note(out, key.stage).unlink(missing_ok=True)  # while files change, no note vouches for them
    names = exporter.files(result)
    for name in names:
        remove_temporary(out / name)
    exporter.write(result, out, reporter)
    sizes = {name: (out / name).stat().st_size for name in names}
    with atomic_file(_note(out, key.stage)) as temporary:
        temporary.write_text(json.dumps({"cache_key": key.text, "bytes": sizes}, indent=1) + "\n")


def _note(out: Path, name: str) -> Path:
    return out / FOLDER / f"{name}.json"
