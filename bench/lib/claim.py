"""A claim's way out: what it prints, and with --write the same figures in bench/results/.

Every bench is called by `python bench/NAME.py [options]`, prints through `Console` and ends with
`claim(main)`. With --write (or --write=VARIANT, where one bench answers several questions) its
tables go into bench/results/NAME.json (or NAME-VARIANT.json) with the command and the commit;
`python tools/bench_page.py` makes bench/README.md of them.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import console, table
from rich.text import Text

from pose2d.base.files import atomic_file

BENCH = Path(__file__).resolve().parents[1]
RESULTS = BENCH / "results"
_TABLES: list[dict[str, Any]] = []
_NOTES: list[str] = []


class Console(console.Console):
    """Rich's, wide enough for our tables; what it prints is the claim's result."""

    def __init__(self, width: int = 150) -> None:
        super().__init__(width=width)

    def print(self, *objects: Any, **options: Any) -> None:
        for content in objects:
            if isinstance(content, table.Table):
                columns = [_plain(column.header) for column in content.columns]
                cells = [[_plain(cell) for cell in column._cells] for column in content.columns]
                _TABLES.append(
                    {
                        "title": _plain(content.title or ""),
                        "columns": columns,
                        "rows": [*zip(*cells, strict=True)],
                    }
                )
            elif isinstance(content, str):
                _NOTES.append(_plain(content))
        super().print(*objects, **options)

    def print_markdown(self, text: str) -> None:
        """Print a text with tables in Markdown as it is, and keep both."""
        tables, notes = read_markdown(text)
        _TABLES.extend(tables)
        _NOTES.extend(notes)
        super().print(text, markup=False, highlight=False, soft_wrap=True)


def claim(main: Callable[[], None]) -> None:
    """Run a bench; write its result if asked to."""
    path = Path(sys.argv[0]).resolve()
    script = path.relative_to(BENCH.parent).as_posix()
    command = " ".join(["python", script, *sys.argv[1:]])
    write_options = [
        word for word in sys.argv[1:] if word == "--write" or word.startswith("--write=")
    ]
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in write_options]
    main()
    if write_options:
        variant = write_options[-1].partition("=")[2]
        name = f"{path.stem}-{variant}" if variant else path.stem
        result = {"command": command, "commit": _commit(), "tables": _TABLES, "notes": _NOTES}
        with atomic_file(RESULTS / f"{name}.json") as temporary:
            temporary.write_text(
                json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        print(
            f"wrote bench/results/{name}.json; `python tools/bench_page.py` puts it on the page",
            file=sys.stderr,
        )


def read_markdown(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables of a text, each titled by the line before it, and its other lines."""
    tables: list[dict[str, Any]] = []
    notes: list[str] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            if line.strip():
                notes.append(line.strip())
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside:
            title = notes.pop().strip("*: ") if notes and notes[-1].startswith("**") else ""
            tables.append({"title": title, "columns": cells, "rows": []})
            inside = True
        elif not all(set(cell) <= set(" :-") for cell in cells) or tables[-1]["rows"]:
            tables[-1]["rows"].append(cells)
    return tables, notes


def _plain(cell: Any) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def _commit() -> str:
    """Return the commit of the code that ran; with + if files had changed since."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=BENCH, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    )
