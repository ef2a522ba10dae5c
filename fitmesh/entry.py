"""Where the program starts: signals first, since the imports of a command take long enough to be interrupted."""

from fitmesh.ui import signals


def main() -> None:
    signals.install()
    from fitmesh import cli

    cli.main()
