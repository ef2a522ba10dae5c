"""The front door: `fitmesh COMMAND`."""

import sys
from typing import Annotated

import typer

from fitmesh.commands import body, eval_3dpw, eval_coco, models, run, synth, train_ccnet, view
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
) -> None:
    """Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""


app.command("run")(run.run)
app.command("view")(view.view)
app.command("models")(models.models)
app.command("body")(body.body)
app.command("train-ccnet")(train_ccnet.train_ccnet)
app.command("eval-coco")(eval_coco.eval_coco)
app.command("eval-3dpw")(eval_3dpw.eval_3dpw)
app.command("synth")(synth.synth)


def main() -> None:
    """Run a command; a user's mistake becomes one sentence on stderr and exit code 2."""
    try:
        app()
    except Exception as error:
        # Imported only now: it brings torch with it, and `fitmesh --help` should not wait for torch.
        from pose2d.base.errors import UserError

        if not isinstance(error, UserError):
            raise
        typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
