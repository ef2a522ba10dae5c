"""`scene.fbx`: the content of scene.glb, for programs that do not read glTF. Blender writes it, in
a process of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file

if TYPE_CHECKING:
    from fitmesh.exports.blender import to_fbx  # noqa: F401  # its code counts in the cache key
    from fitmesh.result import Result
    from fitmesh.ui.events import Reporter

FILE = "scene.fbx"
PYTHON = "FITMESH_BLENDER_PYTHON"  # environment variable: path of a Python with the package bpy
SCRIPT = Path(__file__).parent / "blender" / "to_fbx.py"


def blender() -> list[str]:
    """Return the command that takes a .glb and an .fbx; UserError if neither Blender nor its Python
    package is installed.
    """
    python = os.environ.get(PYTHON) or (sys.executable if find_spec("bpy") else "")
    if python:
        return [python, str(SCRIPT)]
    if program := shutil.which("blender"):
        return [program, "--background", "--python-exit-code", "1", "--python", str(SCRIPT), "--"]
    raise OptionError(
        "--export fbx needs Blender, which writes the file: install it so that `blender` is on "
        f"the PATH, or `pip install bpy` into a Python and set {PYTHON} to its path."
    )


def write(result: "Result", out: Path, progress: "Reporter", rig: str) -> None:
    """Write scene.fbx from a temporary scene.glb: the one in `out` may be missing or have other
    options.
    """
    from fitmesh.exports import scene_glb
    from fitmesh.ui.events import Reporter

    with (
        tempfile.TemporaryDirectory(prefix="fitmesh-") as folder,
        progress.stage("fbx", len(result.people), "people") as tick,
    ):
        scene_glb.write(result, Path(folder), Reporter(), rig)
        with atomic_file(out / FILE) as temporary:
            command = [*blender(), str(Path(folder, scene_glb.FILE)), str(temporary)]
            try:
                process = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", check=False
                )
            except OSError as error:
                raise UserError(
                    f"cannot start {command[0]}, which should make {FILE}: {error.strerror}."
                ) from error
            if process.returncode or not temporary.stat().st_size:
                output = process.stderr.strip() or process.stdout.strip() or "no output"
                reason = output.splitlines()[-1][:300].rstrip(".")
                raise UserError(f"Blender ({command[0]}) did not make {FILE}: {reason}.")
        tick(len(result.people))
