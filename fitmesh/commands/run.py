"""`fitmesh run`: from a video, a folder of images or one image to files that say who is where and how they stand."""

from pathlib import Path

import typer

from fitmesh.options.record import command
from fitmesh.options.run import RunCommand
from fitmesh.ui.signals import INTERRUPTED, Stopped, working


@command(RunCommand)
def run(asked: RunCommand) -> None:
    """Fit a body to everyone in a video, every 2D keypoint weighted by its calibrated confidence.

    Leaves fit.npz, overlay.mp4, scene.glb and report.html, and on the way tracks.npz and keypoints.npz. A stage whose
    file is already there and was made from the same input with the same settings is skipped, so an interrupted run
    goes on where it stopped.
    """
    from fitmesh.commands.run_many import many_asked, run_videos
    from fitmesh.exports import check_exports
    from fitmesh.inputs import folder_beside, given_by_name, open_given
    from fitmesh.ui.events import Failed, Reporter
    from fitmesh.ui.sinks import as_json_lines, on_stderr, starting
    from pose2d.base.errors import UserError

    if asked.quiet and asked.json:
        raise UserError("--quiet and --json contradict each other: give one of them.")
    reporter = Reporter(as_json_lines if asked.json else on_stderr(asked.quiet))
    try:
        check_exports(asked.exports, asked.bone_names)
        asked = given_by_name(asked)
        if many_asked(asked):
            raise typer.Exit(run_videos(asked, reporter))
        clip = open_given(asked)
        out = folder_beside(clip.path) if asked.out is None else Path(asked.out)
        with starting(reporter):  # after what is cheap to check: torch alone takes seconds
            from fitmesh.commands.run_report import say_input, say_result
            from fitmesh.stages.from_options import run_settings
            from fitmesh.stages.pipeline import run_stages
            from fitmesh.stages.settings import Job
            from pose2d.base.threads import return_memory
        settings = run_settings(asked)
        job = Job(clip, settings, out, reporter)
        say_input(job)
        return_memory()
        with working():
            say_result(run_stages(job), out, reporter)
    except UserError as error:
        reporter.emit(Failed(str(error)))
        raise
    except (KeyboardInterrupt, Stopped) as stopped:
        reporter.say("Stopped. Finished stages are kept; the same command goes on from there.", "stopped")
        raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None
