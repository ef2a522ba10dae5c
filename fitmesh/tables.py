"""Tables on stdout."""

from rich.console import Console
from rich.table import Table

UNLIMITED = 10_000  # characters: a file or a pipe has no width, so no column may be cut


def print_table(table: Table) -> None:
    """As wide as the terminal; into a file or a pipe as wide as the table is."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=UNLIMITED)
    console.print(table)
