"""docs/api.md, made from signatures, docstrings and the comments beside the fields of dataclasses.

python tools/api_reference.py          writes docs/api.md
python tools/api_reference.py --check  fails if docs/api.md is not what the code says
"""

import argparse
import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pose2d.base.files import atomic_file

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
PACKAGES = ("fitmesh", "fitting", "pose2d", "ccnet", "eval3dpw")
WIDTH = 100  # of a signature before it is broken into lines
HEAD = """# Python API

**For** engineers: every public name, its arguments, shapes and units. `python tools/api_reference.py` writes this page
from the code.

Public is what these packages list in `__all__`; everything else may change without notice
([what is stable](engineering.md#what-is-stable)). In shapes, T counts frames, N people or crops, K keypoints and V
vertices.
"""


_ARGUMENT = re.compile(
    r"[a-z_0-9]+(, [a-z_0-9]+)*( or [a-z_0-9]+)?( \([^)]*\)( or [a-z_0-9]+ \([^)]*\))?)?: "
)


def page() -> str:
    parts = [HEAD]
    for package in PACKAGES:
        module = importlib.import_module(package)
        summary = (inspect.getdoc(module) or "").split("\n")[0]
        parts.append(f"## {package}\n\n{summary}\n")
        names = [name for name in module.__all__ if not name.startswith("__")]
        for name in sorted(
            names, key=lambda name: (not name[0].islower(), name.lower())
        ):  # functions first
            parts.append(entry(f"{package}.{name}", getattr(module, name)))
    return "\n".join(parts)


def entry(title: str, value: object) -> str:
    lines = [f"### `{title}`", ""]
    if inspect.isclass(value):
        lines += [*_paragraphs(value), *_fields(value), *_members(value, title.split(".")[-1])]
    elif callable(value):
        lines += [*_signature(title.split(".")[-1], value), *_paragraphs(value)]
    else:
        lines += [f"{_constant(value)}", ""]
    return "\n".join(lines)


def _signature(name: str, function: object) -> Iterator[str]:
    assert callable(function)
    signature = inspect.signature(function)
    parameters = [str(parameter) for parameter in signature.parameters.values()]
    result = _short(inspect.formatannotation(signature.return_annotation))
    one_line = f"{name}{_short(str(signature))}"
    yield "```text"
    if len(one_line) <= WIDTH:
        yield one_line
    else:
        kinds = [p.kind for p in signature.parameters.values()]
        yield f"{name}("
        for number, parameter in enumerate(parameters):
            if (
                kinds[number] is inspect.Parameter.KEYWORD_ONLY
                and inspect.Parameter.KEYWORD_ONLY not in kinds[:number]
            ):
                yield "    *,"
            yield f"    {_short(parameter)},"
        yield f") -> {result}"
    yield from ("```", "")


def _short(text: str) -> str:
    """Return annotations without the modules they come from."""
    text = re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Z_]\w*|ndarray)", r"\1", text)
    text = re.sub(r"Optional\[(Literal\[[^\]]*\]|\w+)\]", r"\1 | None", text)
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    return re.sub(r"Annotated\[([^,\]]+),[^\]]*\]", r"\1", text)


def _paragraphs(value: object) -> Iterator[str]:
    text = inspect.getdoc(value) or ""
    if text.startswith(
        f"{getattr(value, '__name__', '')}("
    ):  # the docstring that `dataclass` writes by itself
        return
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        starts = [bool(_ARGUMENT.match(line)) for line in lines]
        if sum(starts) >= 2 and starts[0]:  # each line that begins with a name explains an argument
            for line, begins in zip(lines, starts, strict=True):
                yield f"- {line}" if begins else f"  {line}"
        else:
            yield from lines
        yield ""


def _fields(value: type) -> Iterator[str]:
    """Yield a table of a dataclass's fields with the comments beside them, which hold shapes and
    units.
    """
    if not dataclasses.is_dataclass(value):
        return
    comments = _comments(value)
    rows = [
        (
            field.name,
            _short(_annotation(field.type)),
            _explained(field, comments.get(field.name, "")),
        )
        for field in dataclasses.fields(value)
        if not field.name.startswith("_")
    ]
    if rows:
        yield from ("| field | type | |", "|---|---|---|")
        for name, kind, comment in rows:
            yield f"| `{name}` | `{_cell(kind)}` | {_cell(comment)} |"
        yield ""


def _explained(field: "dataclasses.Field[Any]", comment: str) -> str:
    """Return the comment beside a field; for a table's column also its size, meaning and unit."""
    stated_value = field.metadata.get("column")
    if stated_value is None:
        return comment
    shape, bracket, remaining = (
        comment.partition("]") if comment.startswith("[") else ("", "", comment)
    )
    single = (
        stated_value.each
        or _annotation(field.type) in ("int", "float", "str", "bool")
        or stated_value.kind == "U"
    )
    sides = stated_value.shape if single else ("T", *stated_value.shape)
    size = shape + bracket or (f"[{', '.join(map(str, sides))}]" if sides else "")
    parts = [stated_value.meaning, stated_value.unit, remaining.lstrip("; ")]
    return f"{size} {', '.join(part for part in parts if part)}".strip()


def _annotation(kind: object) -> str:
    return kind if isinstance(kind, str) else inspect.formatannotation(kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _comments(value: type) -> dict[str, str]:
    """Field name -> the comment on its line, or the comment lines directly above it."""
    source = textwrap.dedent(inspect.getsource(value))
    lines = source.splitlines()
    results = {}
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        last = lines[node.end_lineno - 1] if node.end_lineno else ""
        beside = last[node.end_col_offset or 0 :].strip()
        above = []
        number = node.lineno - 2
        while number >= 0 and lines[number].strip().startswith("#"):
            above.insert(0, lines[number].strip().lstrip("# "))
            number -= 1
        results[node.target.id] = " ".join([*above, beside.lstrip("# ")]).strip()
    return results


def _members(value: type, name: str) -> Iterator[str]:
    """Public methods and properties that the class itself defines and explains."""
    for member, kind in vars(value).items():
        if member.startswith("_"):
            continue
        if isinstance(kind, property) or type(kind).__name__ == "cached_property":
            text = inspect.getdoc(kind) or ""
            yield f"- `.{member}`{': ' + _one_line(text) if text else ''}"
        elif inspect.isfunction(kind) or isinstance(kind, classmethod | staticmethod):
            function = kind if inspect.isfunction(kind) else kind.__func__
            signature = (
                _short(str(inspect.signature(function)))
                .replace("(self, ", "(")
                .replace("(self)", "()")
            )
            signature = signature.replace("(cls, ", "(").replace("(cls)", "()")
            text = inspect.getdoc(function) or ""
            prefix = f"{name}." if isinstance(kind, classmethod | staticmethod) else "."
            yield f"- `{prefix}{member}{signature}`{': ' + _one_line(text) if text else ''}"
    yield ""


def _one_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _constant(value: object) -> str:
    if dataclasses.is_dataclass(value):
        kind = type(value).__name__
        name = getattr(value, "name", None)
        return f"A `{kind}`{f' named `{name}`' if name else ''}."
    text = _short(repr(value))
    return f"`{text if len(text) < WIDTH else type(value).__name__}`"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if the page is out of date"
    )
    arguments = parser.parse_args()
    text = page()
    if arguments.check:
        if PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/api.md is out of date: run `python tools/api_reference.py`.")
        return
    with atomic_file(PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
