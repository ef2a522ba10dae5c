"""Where the program starts: signals first, since the imports of a command take long enough to be interrupted."""

from fitmesh.ui.trouble import install


def main() -> None:
    install()
    from fitmesh.cli import main as run_command

    run_command()
