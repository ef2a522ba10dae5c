"""`run.json`: what a run was told, where its clip is, and how long each stage took when it was made."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fitmesh
from fitmesh.result import RUN_FILE
from pose2d.base.files import atomic_file
from pose2d.io.clip import Clip

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class About:
    """Kept up to date while the stages run, so that a stopped run has it too."""

    def __init__(self, out: Path, clip: Clip, settings: "DataclassInstance") -> None:
        self._path = out / RUN_FILE
        self._facts: dict[str, Any] = {
            "fitmesh": fitmesh.__version__,
            "clip": str(clip.path.resolve()),
            "settings": asdict(settings),
            "timings_s": dict(self._earlier().get("timings_s", {})),
        }

    def took(self, stage: str, seconds: float) -> None:
        """Note the time of a stage that was made; one that is kept keeps its time."""
        self._facts["timings_s"][stage] = round(seconds, 3)
        self.write()

    def write(self) -> None:
        with atomic_file(self._path) as temporary:
            temporary.write_text(json.dumps(self._facts, indent=1, default=str) + "\n")

    def _earlier(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
