"""`fitmesh view`: a result in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.ui.signals import Stopped, working

INTERRUPTED = 130  # what a shell expects after Ctrl-C


def view(
    out: Annotated[Path, typer.Argument(help="The --out folder of `fitmesh run`.", show_default=False)],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one."), limits.PORT] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Show a result in 3D beside its video: positions, poses, and their uncertainty.

    Serves a page to this computer only, until Ctrl-C. Nothing is loaded from the internet.
    """
    import webbrowser

    from fitmesh.ui.sinks import starting

    with starting():
        import fitmesh.result
        from fitmesh.viewer.server import serve

    server = serve(fitmesh.result.load(out), port)
    try:
        typer.echo(f"{out} is at {server.url}  (Ctrl-C stops)")
        if browser:
            webbrowser.open(server.url)
        with working():
            server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("Stopped.")
    except Stopped as stopped:  # Ctrl-C is how one ends it
        typer.echo("Stopped.")
        raise typer.Exit(0 if stopped.exit_code == INTERRUPTED else stopped.exit_code) from None
    finally:
        server.server_close()
