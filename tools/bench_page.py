"""Make bench/README.md of bench/page.md (hand-written) and bench/results/*.json (written by the
benches).

    python tools/bench_page.py

In page.md stands for what bench/results/NAME.json holds:

| text | becomes |
|---|---|
| `{{NAME}}` | its command and commit, with a link to the file |
| `{{NAME 2}}` | its second table |
| `{{NAME 2: val2017 & 416 ; all}}` | the rows of it that have both cells `val2017` and `416`, or a cell `all` |
| `{{NAME 2: .. | AP, mean | AR}}` | of these rows, the first column and those two |
| `{{NAME 2: val2017 & sizes=416 @ AR}}` | one cell; 416 is one of the column `sizes` |
| `{{NAME notes}}`, `{{NAME note}}` | its notes, as a list; the first of them |
"""

import json
import re
from pathlib import Path
from typing import Any

from pose2d.base.files import atomic_file

BENCH = Path(__file__).resolve().parents[1] / "bench"
PAGE = BENCH / "README.md"
_PLACE = re.compile(r"\{\{([\w-]+)(?: (\d+|notes?))?(?:: ([^}]+))?\}\}")


def page() -> str:
    """Return the whole page."""
    notice = "<!-- Made by tools/bench_page.py from bench/page.md and bench/results/: change those. -->\n\n"
    return notice + _PLACE.sub(_filled, (BENCH / "page.md").read_text(encoding="utf-8"))


def _filled(place: re.Match[str]) -> str:
    name, part, which = place.groups()
    result = json.loads((BENCH / "results" / f"{name}.json").read_text(encoding="utf-8"))
    if part is None:
        return _source(name, result)
    if part == "note":
        return result["notes"][0]
    if part == "notes":
        return "\n".join(f"- {note}" for note in result["notes"])
    return _part(result["tables"][int(part) - 1], which or "")


def _source(name: str, result: dict[str, Any]) -> str:
    kind = "carried over from the page of" if result.get("carried_over") else "at"
    return f"`{result['command']}`, {kind} commit `{result['commit']}` ([all rows](results/{name}.json))"


def _part(table: dict[str, Any], which: str) -> str:
    """Return a table, some of its rows and columns, or one cell."""
    columns = table["columns"]
    requested, _, cell = which.partition("@")
    requested, *names = (text.strip() for text in requested.split("|"))
    rows = [
        row
        for row in table["rows"]
        if not requested or any(_has(columns, row, condition) for condition in requested.split(";"))
    ]
    visible = [0, *(_at(columns, name) for name in names)] if names else range(len(columns))
    if not rows or (cell and len(rows) > 1):
        raise ValueError(f"{len(rows)} rows of {table['title'] or columns} have {requested!r}")
    return (
        rows[0][_at(columns, cell.strip())].replace("*", "")
        if cell
        else _table(columns, rows, visible)
    )


def _has(columns: list[str], row: list[str], words: str) -> bool:
    named = {f"{column}={cell}" for column, cell in zip(columns, row, strict=True)}
    return all(word.strip() in named.union(row) for word in words.split("&"))


def _at(columns: list[str], name: str) -> int:
    if name not in columns:
        raise ValueError(f"there is no column {name!r}, only {columns}")
    return columns.index(name)


def _table(columns: list[str], rows: list[list[str]], visible: Any) -> str:
    numbers = {
        i for i in visible if i and all(re.match(r"[\d\W]*$|[\d\W]*[x%]", row[i]) for row in rows)
    }
    rule = {i: "---:" if i in numbers else "---" for i in visible}
    return "\n".join(
        f"| {' | '.join(cells[i] for i in visible)} |" for cells in (columns, rule, *rows)
    )


def main() -> None:
    with atomic_file(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
