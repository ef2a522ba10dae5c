"""Make bench/README.md of bench/page.md (hand-written) and bench/results/*.json (written by the benches).

    python tools/bench_page.py

In page.md, `{{NAME}}` stands for the command and commit of bench/results/NAME.json, `{{NAME 2}}` for its second table,
`{{NAME 2: val2017, 1.15}}` for the rows of it that have both words among their cells, `{{NAME notes}}` for its notes.
"""

import json
import re
from pathlib import Path
from typing import Any

from pose2d.base.files import atomic_file

BENCH = Path(__file__).resolve().parents[1] / "bench"
PAGE = BENCH / "README.md"
_PLACE = re.compile(r"\{\{([\w-]+)(?: (\d+|notes))?(?:: ([^}]+))?\}\}")


def page() -> str:
    """The whole page."""
    made = "<!-- Made by tools/bench_page.py from bench/page.md and bench/results/: change those. -->\n\n"
    return made + _PLACE.sub(_filled, (BENCH / "page.md").read_text(encoding="utf-8"))


def _filled(place: re.Match[str]) -> str:
    name, part, words = place.groups()
    result = json.loads((BENCH / "results" / f"{name}.json").read_text(encoding="utf-8"))
    if part is None:
        return _source(name, result)
    if part == "notes":
        return "\n".join(f"- {note}" for note in result["notes"])
    return _table(result["tables"][int(part) - 1], [word.strip() for word in (words or "").split(",") if word.strip()])


def _source(name: str, result: dict[str, Any]) -> str:
    of = "carried over from the page of" if result.get("carried_over") else "at"
    command = f"`{result['command']}`, " if result["command"] else ""
    return f"{command}{of} commit `{result['commit']}` ([all rows](results/{name}.json))"


def _table(table: dict[str, Any], words: list[str]) -> str:
    rows = [row for row in table["rows"] if all(word in row for word in words)]
    if not rows:
        raise ValueError(f"no row of {table['title'] or table['columns']} has {words}")
    numbers = [all(re.match(r"[\d\W]*$|[\d\W]*[x%]", row[i]) for row in rows) for i in range(len(table["columns"]))]
    rule = ["---:" if number and i else "---" for i, number in enumerate(numbers)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (table["columns"], rule, *rows))


def main() -> None:
    with atomic_file(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
