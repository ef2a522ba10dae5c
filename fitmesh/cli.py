"""The command line: `fitmesh COMMAND`."""

import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fitmesh.commands import body, doctor, eval_3dpw, eval_coco, models, paper, run, synth, tracks, train_ccnet, view
from fitmesh.ui import logs
from fitmesh.ui.signals import Stopped
from fitmesh.ui.trouble import exit_code_of, watch_threads
from fitmesh.version import __version__

app = typer.Typer(
    name="fitmesh",
    help="Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fitmesh {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="What to show of the log on stderr: debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""
    if log_level.lower() not in logs.LEVELS:
        raise typer.BadParameter(f"unknown level {log_level!r}: choose {', '.join(logs.LEVELS)}.")
    logs.show(log_level)


COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run.run,
    "view": view.view,
    "tracks": tracks.tracks,
    "body": body.body,
    "doctor": doctor.doctor,
    "train-ccnet": train_ccnet.train_ccnet,
    "eval-coco": eval_coco.eval_coco,
    "eval-3dpw": eval_3dpw.eval_3dpw,
    "paper": paper.paper,
    "synth": synth.synth,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(models.app, name="models")


def main() -> None:
    """Run a command. Whatever goes wrong becomes a sentence on stderr and an exit code (`fitmesh.ui.trouble`)."""
    watch_threads()
    for stream in (sys.stdout, sys.stderr):  # a file name need not be valid UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (Exception, KeyboardInterrupt, Stopped) as error:
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
