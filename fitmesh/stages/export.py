"""Stage 5: the formats of `fitmesh.exports`, each a stage with a recipe of its own."""

import json
from collections.abc import Iterable
from pathlib import Path

from fitmesh.caching import Recipe, clear_partial
from fitmesh.exports import EXPORTERS
from fitmesh.progress import Reporter
from fitmesh.result import Result
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

ALWAYS = ("glb", "report")
FOLDER = ".recipes"  # these files have no room for a recipe of their own


def wanted(names: Iterable[str]) -> list[str]:
    """The exports of a run that was asked for `names`, in the order they are made; the report comes last."""
    asked = set(names)
    unknown = sorted(asked - set(EXPORTERS))
    if unknown:
        raise UserError(f"unknown --export {', '.join(unknown)}: choose {', '.join(EXPORTERS)}.")
    chosen = [name for name in EXPORTERS if name in asked or name in ALWAYS]
    return sorted(chosen, key=lambda name: name == "report")


def recipe(name: str, fit_recipe: Recipe, overlay_recipe: Recipe) -> Recipe:
    return Recipe(stage=name, settings={}, inputs={"fit": fit_recipe.digest, "overlay": overlay_recipe.digest})


def matches(out: Path, made_from: Recipe) -> bool:
    """The recipe is the same, and every file is there in the size it was written in."""
    try:
        noted = json.loads(_note(out, made_from.stage).read_text())
        sizes = {name: (out / name).stat().st_size for name in noted["bytes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return noted.get("recipe") == made_from.text and sizes == noted["bytes"]


def make(result: Result, out: Path, made_from: Recipe, reporter: Reporter) -> None:
    exporter = EXPORTERS[made_from.stage]
    _note(out, made_from.stage).unlink(missing_ok=True)  # while files change, no note vouches for them
    names = exporter.files(result)
    for name in names:
        clear_partial(out / name)
    exporter.write(result, out, reporter)
    sizes = {name: (out / name).stat().st_size for name in names}
    with atomic_file(_note(out, made_from.stage)) as temporary:
        temporary.write_text(json.dumps({"recipe": made_from.text, "bytes": sizes}, indent=1) + "\n")


def _note(out: Path, name: str) -> Path:
    return out / FOLDER / f"{name}.json"
