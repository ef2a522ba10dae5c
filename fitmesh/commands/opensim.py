"""Scale OpenSim's model to people and run its inverse kinematics (`fitmesh opensim`)."""

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from fitmesh.options.record import command, option


@dataclass(frozen=True)
class OpensimOptions:
    """Hold the options of `fitmesh opensim`."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    python: str | None = option(
        None,
        "A Python that has the package opensim, such as that of a conda environment.",
        shown="the one that runs fitmesh",
    )
    refresh: bool = option(
        False, "Write the set-up files again, also those of --export opensim that were changed."
    )


@command(OpensimOptions)
def opensim(asked: OpensimOptions) -> None:
    """Scale OpenSim's model to the people of a result and run its inverse kinematics.

    Writes into OUT/opensim for every person: the scaled model, OpenSim's motion (person_1_ik.mot),
    its marker errors, and a page that sets its angles beside ours. Set-up files that
    `fitmesh run --export opensim` wrote are used as they are, so you may edit them first; without
    them they are written. Needs pip install 'fitmesh[opensim]'.
    """
    import fitmesh.loading
    from fitmesh.opensim import FOLDER, comparison, setup_files, tools
    from fitmesh.ui.events import Reporter
    from fitmesh.ui.trouble import count
    from pose2d.base.errors import UserError

    python = tools.check_python(asked.python or sys.executable)
    if asked.refresh or not (asked.out / FOLDER).is_dir():
        result = fitmesh.loading.load(asked.out)
        setup_files.write(result, asked.out, Reporter(lambda event: None))
    segments = list(tools.segments(asked.out))
    if not segments:
        raise UserError(
            f"{asked.out / FOLDER} has no set-up file (person_N_scale.xml): nobody was fitted for "
            f"{setup_files.FEWEST_FRAMES} frames, or files were removed; --refresh writes them "
            "again."
        )
    for files in segments:
        errors = tools.run(files, python)
        comparisons = comparison.compare(files)
        comparison.write_page(files, comparisons, errors)
        knees = [one for one in comparisons if one.name.startswith("knee_angle")]
        knee_text = ", ".join(f"{one.rms_deg:.1f}" for one in knees)
        frames = count(len(comparisons[0].time_s), "frames") if comparisons else "no frame"
        typer.echo(
            f"{files.name}: {frames}, markers {errors.rms_mm:.0f} mm RMS, at most "
            f"{errors.largest_mm:.0f} mm; knees differ by {knee_text} degrees RMS; "
            f"{files.motion}, {files.comparison}"
        )
