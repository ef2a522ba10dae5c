"""Tables on stdout."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

UNLIMITED = 10_000  # characters: a file or a pipe has no width, so no column may be cut


def table_console() -> Console:
    """As wide as the terminal; into a file or a pipe as wide as a table is."""
    console = Console()
    return console if console.is_terminal else Console(width=UNLIMITED)


def print_tables(tables: Iterable[Table]) -> None:
    console = table_console()
    for table in tables:
        console.print(table)
