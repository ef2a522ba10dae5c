"""`scene.fbx`: as scene.glb, for programs that read nothing else. Blender writes it, in a process
of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

if TYPE_CHECKING:
    from fitmesh.exports.blender import to_fbx  # noqa: F401  # its code counts in the cache key
    from fitmesh.result import Result
    from fitmesh.ui.events import Reporter

FILE = "scene.fbx"
PYTHON = "FITMESH_BLENDER_PYTHON"  # names a Python with the package bpy
SCRIPT = Path(__file__).parent / "blender" / "to_fbx.py"


def blender() -> list[str]:
    """The command before a .glb and an .fbx; UserError where there is neither Blender nor its
    Python package.
    """
    python = os.environ.get(PYTHON) or (sys.executable if find_spec("bpy") else "")
    if python:
        return [python, str(SCRIPT)]
    if program := shutil.which("blender"):
        return [program, "--background", "--python-exit-code", "1", "--python", str(SCRIPT), "--"]
    raise UserError(
        "--export fbx needs Blender, which writes it: install Blender so that `blender` is on the PATH, or `pip "
        f"install bpy` into a Python and name it in {PYTHON}."
    )


def write(result: "Result", out: Path, progress: "Reporter", convention: str) -> None:
    """From a scene.glb of its own: another's may have been made otherwise, or not at all."""
    from fitmesh.exports import scene_glb
    from fitmesh.ui.events import Reporter

    with (
        tempfile.TemporaryDirectory(prefix="fitmesh-") as folder,
        progress.stage("fbx", len(result.people), "people") as tick,
    ):
        scene_glb.write(result, Path(folder), Reporter(), convention)
        with atomic_file(out / FILE) as temporary:
            command = [*blender(), str(Path(folder, scene_glb.FILE)), str(temporary)]
            try:
                ended = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", check=False
                )
            except OSError as error:
                raise UserError(
                    f"cannot start {command[0]}, which should make {FILE}: {error.strerror}."
                ) from error
            if ended.returncode or not temporary.stat().st_size:
                said = (
                    ended.stderr.strip() or ended.stdout.strip() or "it said nothing"
                ).splitlines()[-1][:300]
                raise UserError(f"Blender ({command[0]}) did not make {FILE}: {said.rstrip('.')}.")
        tick(len(result.people))
