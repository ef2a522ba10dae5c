"""Command lines in the documentation name commands, options, scripts and files that exist."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import typer.main

from fitmesh.cli import app
from tests.docs.pages import ROOT, page_names, read_page

SHELL = ("", "sh", "shell", "bash", "console", "powershell", "dockerfile")
_SCRIPT = re.compile(r"(?:^|[\s/])python3? ((?:bench|tools)/[\w/]+\.py)(.*)")
_FITMESH = re.compile(r"^(?:\S*/|.*-m |docker run .* |time )?fitmesh(?= )(.*)")


def lines_of(name: str) -> Iterator[tuple[int, str]]:
    """Lines of shell blocks, joined where they end in a backslash, and inline code."""
    page = read_page(name)
    for block in page.blocks:
        if block.language in SHELL:
            joined = block.code.replace("\\\n", " ")
            yield from ((block.line, line.split(" #")[0]) for line in joined.splitlines())
    yield from page.spans


def commands_in(text: str) -> Iterator[list[str]]:
    """The arguments of each `fitmesh ..` in a line; brackets around what is optional are dropped."""
    for part in re.split(r"&&|;|\||\$ ", text.replace(" [", " ").replace("]", " ")):
        if found := _FITMESH.search(part.strip()):
            yield [
                word for word in shlex.split(found[1], posix=True) if word not in ("...", "..", "…")
            ]


@pytest.fixture(scope="module")
def commands() -> Mapping[str, Any]:
    """The real commands by name; their groups hold further ones."""
    root: Any = typer.main.get_command(app)
    return {**{name: root.get_command(None, name) for name in root.list_commands(None)}, "": root}


def check(arguments: list[str], commands: Mapping[str, Any]) -> str | None:
    """What the command line would be refused for, without running anything."""
    name, rest = (
        (arguments[0], arguments[1:])
        if arguments and not arguments[0].startswith("-")
        else ("", arguments)
    )
    if name not in commands:
        return f"there is no command {name}"
    command = commands[name]
    if rest and rest[0] in (inner := getattr(command, "commands", {})) and name:
        command = inner[rest[0]]
        rest = rest[1:]
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    wrong = [
        word
        for word in rest
        if word.startswith("--") and word.split("=")[0] not in known | {"--help"}
    ]
    return f"no such option: {', '.join(wrong)}" if wrong else None


@pytest.mark.parametrize("name", page_names())
def test_every_fitmesh_command_line_is_understood(name: str, commands: Mapping[str, Any]) -> None:
    wrong = [
        f"line {line}: fitmesh {' '.join(arguments)}: {problem}"
        for line, text in lines_of(name)
        for arguments in commands_in(text)
        if (problem := check(arguments, commands))
    ]
    assert not wrong, f"{name}: " + "; ".join(wrong)


@pytest.mark.parametrize("name", page_names())
def test_every_script_and_its_options_exist(name: str) -> None:
    wrong = []
    for line, text in lines_of(name):
        if not (found := _SCRIPT.search(text)):
            continue
        script = ROOT / found[1]
        if not script.is_file():
            wrong.append(f"line {line}: {found[1]} does not exist")
            continue
        source = script.read_text(encoding="utf-8")
        source += "".join(
            p.read_text(encoding="utf-8")
            for p in script.parent.glob(f"{script.stem.split('_')[0]}*.py")
        )
        if (
            "motion_bank import" in source
        ):  # the files of captured motion are options of all that learn from it
            source += (ROOT / "fitting" / "training" / "motion_bank.py").read_text(encoding="utf-8")
        if script.parent == ROOT / "bench":  # --write is every bench's
            source += (ROOT / "bench" / "lib" / "claim.py").read_text(encoding="utf-8")
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", found[2].split("&&")[0]):
            if f'"{option}"' not in source:
                wrong.append(f"line {line}: {found[1]} has no option {option}")
    assert not wrong, f"{name}: " + "; ".join(wrong)


def test_a_wrong_option_and_a_wrong_command_are_found(commands: Mapping[str, Any]) -> None:
    assert check(["run", "--vidoe", "x.mp4"], commands) is not None
    assert check(["rnu"], commands) is not None
    assert check(["run", "--video", "x.mp4", "--out", "DIR", "--export", "csv"], commands) is None


@pytest.mark.parametrize("name", [name for name in page_names() if name != "CHANGELOG.md"])
def test_every_file_of_the_repository_that_a_page_names_exists(name: str) -> None:
    """The changelog may speak of files that are gone."""
    packages = "fitmesh|pose2d|ccnet|fitting|eval3dpw|bench|tools|tests|docs|examples"
    missing = [
        f"line {line}: {found}"
        for line, text in read_page(name).spans
        for found in re.findall(
            rf"(?<![\w/.-])(?:{packages})/[\w./-]+\.(?:py|md|json|npz|csv|mp4|ipynb)\b", text
        )
        if not (ROOT / found).exists()
    ]
    assert not missing, f"{name}: " + "; ".join(missing)
