"""docs/commands.md: every command with all its options, from the program's own help.

python tools/command_reference.py          writes docs/commands.md
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main

from fitmesh.cli import COMMANDS, app
from pose2d.base.files import atomic_file

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
HEAD = """# All commands and options

**For** everybody who looks up an option: what `--help` says, in one page. `python tools/command_reference.py` writes it
from the code; the pages of the commands ([index](README.md#commands)) say what the options mean and when to use them.
"""


def page() -> str:
    root: Any = typer.main.get_command(app)
    parts = [HEAD, *_entry("fitmesh", root)]
    for name in COMMANDS:
        command = root.get_command(None, name)
        parts += _entry(f"fitmesh {name}", command)
        for inner, below in getattr(command, "commands", {}).items():
            parts += _entry(f"fitmesh {name} {inner}", below)
    return "\n".join(parts)


def _entry(title: str, command: Any) -> Iterator[str]:
    yield f"## `{title}`\n"
    yield f"{_plain(command.help or '')}\n"
    rows = list(_rows(command.params))
    if rows:
        yield "| option | meaning | default |"
        yield "|---|---|---|"
        yield from rows
        yield ""


def _rows(parameters: list[Any]) -> Iterator[str]:
    for parameter in parameters:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        if not parameter.opts[0].startswith("-"):
            names = f"`{parameter.name.upper()}`"
        text = _cell(_plain(getattr(parameter, "help", None) or ""))
        yield f"| {names} | {text} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if (
        value is None
        or value is False
        or callable(value)
        or isinstance(value, Mapping)
        or value in ("", (), [])
    ):
        return ""
    if value is True:
        return "yes"
    values = value if isinstance(value, (list, tuple)) else [value]
    return f"`{_cell(' '.join(str(getattr(entry, 'value', entry)) for entry in values))}`"


def _plain(text: str) -> str:
    """Without the marks that colour text on a terminal, and without line breaks inside paragraphs."""
    text = re.sub(r"\[/?(?:bold|dim|italic|cyan|green|red|yellow)[^\]]*\]", "", text).replace(
        "\\[", "["
    )
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _cell(text: str) -> str:
    return text.replace("\n\n", " ").replace("|", "\\|")


def main() -> None:
    with atomic_file(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
