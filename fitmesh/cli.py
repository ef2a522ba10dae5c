"""Define the command line: `fitmesh COMMAND`."""

import io
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from fitmesh.ui import trouble
from fitmesh.ui.trouble import Stopped, exit_code_of, install
from fitmesh.version import __version__

# By name: the module of `fitmesh.commands` that has it.
COMMANDS = {
    "run": "run",
    "view": "results",
    "export": "results",
    "tracks": "results",
    "opensim": "opensim",
    "body": "doctor",
    "doctor": "doctor",
    "synth": "synth",
    **dict.fromkeys(("train-ccnet", "eval-coco", "eval-3dpw", "paper"), "measure"),
    "models": "models",
}
_HOW: dict[str, Any] = {"rich_markup_mode": "rich", "pretty_exceptions_enable": False}


def command_of(name: str) -> Any:
    """Return the function of a command, or the Typer of one with subcommands."""
    module = import_module(f"fitmesh.commands.{COMMANDS[name]}")
    return getattr(module, "app", None) or getattr(module, name.replace("-", "_"))


class _Commands(typer.core.TyperGroup):
    """Import a command when it is called, so that it does not wait for the others."""

    def list_commands(self, context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: Any, name: str) -> Any:
        if name in COMMANDS and name not in self.commands:
            function = command_of(name)
            if not isinstance(function, typer.Typer):
                alone = typer.Typer(add_completion=False, **_HOW)
                alone.command(name)(function)
                function = alone
            self.commands[name] = typer.main.get_command(function)
            self.commands[name].name = name
        return self.commands.get(name)


app = typer.Typer(
    name="fitmesh",
    help="Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence.",
    no_args_is_help=True,
    cls=_Commands,
    **_HOW,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fitmesh {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="What to show of the log on stderr: debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Body meshes from ordinary video, every 2D keypoint weighted by its calibrated confidence."""
    if log_level.lower() not in trouble.LEVELS:
        raise typer.BadParameter(
            f"unknown level {log_level!r}: choose {', '.join(trouble.LEVELS)}."
        )
    trouble.show_log(log_level)


def main() -> None:
    """Run a command; failures become a message on stderr and an exit code (`fitmesh.ui.trouble`)."""
    install()  # signals first: the imports of a command take long enough to be interrupted
    for stream in (sys.stdout, sys.stderr):  # a file name need not be valid UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here its errors can be told
    except (Exception, KeyboardInterrupt, Stopped) as error:
        sys.exit(exit_code_of(error))


if __name__ == "__main__":
    main()
