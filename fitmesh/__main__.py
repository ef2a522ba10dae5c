"""Where the program starts, as `fitmesh` and as `python -m fitmesh`, also for torchrun."""

from fitmesh.ui.trouble import install


def main() -> None:
    """Signals first, since the imports of a command take long enough to be interrupted."""
    install()
    from fitmesh.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
