"""`fitmesh view`: a result in the browser."""

from dataclasses import dataclass
from pathlib import Path

import typer

from fitmesh.options import ranges
from fitmesh.options.record import command, option
from fitmesh.ui.trouble import INTERRUPTED, Stopped, working


@dataclass(frozen=True)
class ViewOptions:
    """Which result, where."""

    out: Path = option(..., "The --out folder of `fitmesh run`.", shown=False, is_argument=True)
    port: int = option(0, "Port to listen on; 0 takes a free one.", limits=ranges.PORT)
    browser: bool = option(True, "Open the browser.")


@command(ViewOptions)
def view(asked: ViewOptions) -> None:
    """Show a result in 3D beside its video: positions, poses, and their uncertainty.

    Serves a page to this computer only, until Ctrl-C. Nothing is loaded from the internet.
    """
    import webbrowser

    import fitmesh.result
    from fitmesh.ui.events import starting

    result = fitmesh.result.load(asked.out)
    with starting():
        from fitmesh.viewer.server import serve

    server = serve(result, asked.port)
    try:
        typer.echo(f"{asked.out} is at {server.url}  (Ctrl-C stops)")
        if asked.browser:
            webbrowser.open(server.url)
        with working():
            server.serve_forever()
    except (KeyboardInterrupt, Stopped) as stopped:
        typer.echo("Stopped.")
        code = getattr(stopped, "exit_code", INTERRUPTED)
        raise typer.Exit(0 if code == INTERRUPTED else code) from None  # Ctrl-C is how one ends it
    finally:
        server.server_close()
