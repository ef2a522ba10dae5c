"""Verify the files that ship with the package: weights, graphs, bodies and tables.

`pose2d/embedded.json` lists their SHA-256 digests (tools/embedded_digests.py writes it). A file is
verified when it is loaded, once in a process: a flipped bit in a weight would otherwise change
results without a word."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pose2d.base.errors import UserError
from pose2d.base.files import file_sha256

ROOT = Path(__file__).parents[2]  # the folder that holds the packages, installed or not
LIST = ROOT / "pose2d" / "embedded.json"


@cache
def check_embedded(path: Path) -> Path:
    """Return the path of an embedded file after its SHA-256 was compared with the listed one."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    expected = _read_digests().get(name)
    if expected is None:
        raise UserError(
            f"{path} is not in the list of embedded files ({LIST.name}). Reinstall fitmesh; in a "
            "checkout run `python tools/embedded_digests.py`.",
            file=path,
        )
    digest = file_sha256(path)
    if digest != expected:
        raise UserError(
            f"{path} is damaged: its SHA-256 begins with {digest[:12]}, expected {expected[:12]}. "
            "Reinstall fitmesh (`fitmesh doctor` checks all files); if you have changed the file, "
            "run `python tools/embedded_digests.py`.",
            file=path,
        )
    return path


@cache
def _read_digests() -> Mapping[str, str]:
    """Return the SHA-256 of every embedded file by its path from the folder of the packages."""
    try:
        content = json.loads(LIST.read_text("utf-8"))
        return {name: str(facts["sha256"]) for name, facts in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{LIST}, the list of embedded files, cannot be read ({error}). Reinstall fitmesh.",
            file=LIST,
        ) from error
