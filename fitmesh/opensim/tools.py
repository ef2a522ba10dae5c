"""Run OpenSim on the set-up files of a result, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitmesh.opensim import FOLDER
from fitmesh.opensim.setup_files import PersonFiles
from fitmesh.opensim.tables import read_table
from pose2d.base.errors import OptionError, UserError

_WORKER = Path(__file__).with_name("worker.py")
_INSTALL = "pip install 'fitmesh[opensim]'"
_LONGEST_MESSAGE = 600  # characters of OpenSim's output in an error
_MM = 1000.0


@dataclass(frozen=True)
class MarkerErrors:
    """Hold how far OpenSim's model stays away from the markers."""

    rms_mm: float  # mean over frames of the root mean square over markers
    largest_mm: float


def segments(out: Path) -> Iterator[PersonFiles]:
    """Yield the segments that a folder has set-up files for."""
    folder = out / FOLDER
    for scale in sorted(folder.glob("*_scale.xml")):
        yield PersonFiles(folder, scale.name.removesuffix("_scale.xml"))


def check_python(python: str) -> str:
    """Return the path of a Python that has opensim; UserError says how to get one."""
    try:
        done = subprocess.run(
            [python, "-c", "import opensim"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise OptionError(
            f"--python must be a Python with the package opensim; {python}: {error.strerror}.",
            option="--python",
        ) from None
    if done.returncode:
        where = "this Python" if python == sys.executable else python
        reason = done.stderr.strip().splitlines()[-1:] or ["it crashed"]
        raise UserError(
            f"the package opensim cannot be imported by {where} ({reason[0]}): {_INSTALL}, or give "
            "--python a Python that has it."
        )
    return python


def run(files: PersonFiles, python: str) -> MarkerErrors:
    """Scale the model to a segment's markers, follow them, and return the marker errors."""
    for made in (files.scaled_model, files.motion, files.marker_errors):
        made.unlink(missing_ok=True)
    done = subprocess.run(
        [python, str(_WORKER.resolve()), files.scale.name, files.kinematics.name],
        cwd=files.folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not files.motion.is_file():
        lines = (done.stdout + done.stderr).splitlines()
        said = [line for line in lines if "[error]" in line] or lines
        text = "\n".join(said).strip()[-_LONGEST_MESSAGE:]
        raise UserError(
            f"OpenSim failed on {files.scale} and {files.kinematics.name}; "
            f"{files.folder / 'opensim.log'} has its log. It said: {text or 'nothing'}"
        )
    return read_marker_errors(files.marker_errors)


def read_marker_errors(path: Path) -> MarkerErrors:
    """Return what OpenSim's table of marker errors says."""
    _, columns = read_table(path)
    if not {"marker_error_RMS", "marker_error_max"} <= set(columns):
        raise UserError(
            f"{path} must have the columns marker_error_RMS and marker_error_max of OpenSim's "
            "inverse kinematics.",
            file=path,
        )
    return MarkerErrors(
        _MM * float(np.mean(columns["marker_error_RMS"])),
        _MM * float(np.max(columns["marker_error_max"])),
    )
