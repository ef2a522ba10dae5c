"""A result -> files that other programs open. Each format says which files it makes and writes them."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitmesh.exports.choices import DEFAULT, check_convention
from fitmesh.exports.choices import PLAIN as PLAIN
from fitmesh.exports.choices import Motion as Motion
from pose2d.base.errors import UserError

if TYPE_CHECKING:
    from fitmesh.result import Result
    from fitmesh.ui.events import Reporter


@dataclass(frozen=True)
class Exporter:
    """One format. Its module is imported when it is used: a run needs few of them, and those last."""

    module: str  # of its two functions
    entry: str  # the one file or folder that it leaves in `out`
    about: str  # one line for a list of formats
    files_function: str = "files"  # (result) -> names
    write_function: str = "write"  # (result, folder, progress), and the convention where it names bones
    names_bones: bool = False
    is_motion: bool = False  # of what `exports.motion` makes of a result

    def files(self, result: "Result", motion: Motion = PLAIN) -> list[str]:
        """The names it writes, relative to the folder."""
        return self._function(self.files_function)(self._moved(result, motion))

    def write(
        self,
        result: "Result",
        folder: Path,
        progress: "Reporter",
        bone_names: str = DEFAULT,
        motion: Motion = PLAIN,
    ) -> None:
        convention = (bone_names,) if self.names_bones else ()
        self._function(self.write_function)(self._moved(result, motion), folder, progress, *convention)

    def _moved(self, result: "Result", motion: Motion) -> "Result":
        if not self.is_motion or motion == PLAIN:
            return result
        from fitmesh.exports.motion import reworked

        return reworked(result, motion)

    def _function(self, name: str) -> Any:
        return getattr(import_module(self.module), name)


def _exporter(module: str, entry: str, about: str, **how: Any) -> Exporter:
    return Exporter(f"{__name__}.{module}", entry, about, **how)


EXPORTERS = {
    "glb": _exporter(
        "scene_glb",
        "scene.glb",
        "animated, skinned meshes with the camera; Blender, three.js",
        names_bones=True,
        is_motion=True,
    ),
    "fbx": _exporter("fbx", "scene.fbx", "the same as FBX, by Blender", names_bones=True, is_motion=True),
    "report": _exporter("report", "report.html", "a page that shows the quality of the run"),
    "obj": _exporter("obj", "obj", "the exact mesh of every person and frame"),
    "bvh": _exporter("bvh", "bvh", "skeleton motion, one file per person", names_bones=True, is_motion=True),
    "amass": _exporter("amass", "amass", "SMPL-H poses in AMASS's layout, z up, for retargeting", is_motion=True),
    "trc": _exporter("trc", "trc", "markers for OpenSim and Pose2Sim", is_motion=True),
    "json": _exporter(
        "csv_json",
        "motion.json",
        "everything, readable by any program",
        files_function="json_files",
        write_function="write_json",
    ),
    "csv": _exporter(
        "csv_json",
        "motion.csv",
        "joints and joint angles, one row per person and frame",
        files_function="csv_files",
        write_function="write_csv",
    ),
}
ALWAYS = ("glb", "report")


def wanted(names: Iterable[str], always: Iterable[str] | None = None) -> list[str]:
    """The exports of a run that was asked for `names`, in the order they are made; the report comes last.

    always: what is made unasked; None: ALWAYS.
    """
    asked = set(names)
    unknown = sorted(asked - set(EXPORTERS))
    if unknown:
        raise UserError(f"unknown --export {', '.join(unknown)}: choose {', '.join(EXPORTERS)}.")
    chosen = [name for name in EXPORTERS if name in asked or name in (ALWAYS if always is None else always)]
    return sorted(chosen, key=lambda name: name == "report")


def check_exports(names: Iterable[str], convention: str) -> None:
    """Refuse formats and names of bones that there are none of, and what this machine cannot make."""
    if "fbx" in wanted(names, ()):
        from fitmesh.exports.fbx import blender

        blender()
    check_convention(convention)
