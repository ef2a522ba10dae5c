"""Write fitmesh/__init__.pyi: the public names with signatures that type checkers can read.

    python tools/api_stub.py

`fitmesh.run` and `fitmesh.run_many` get their arguments from the record of the command's options
when they are imported, which a type checker cannot follow. The stub states them; a test compares it
with the functions.
"""

import inspect
import re
from pathlib import Path

import fitmesh
from pose2d.base.files import atomic_file

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "fitmesh" / "__init__.pyi"
WRITTEN_OUT = ("run", "run_many")
HEADER = '''"""Public names of fitmesh. Written by tools/api_stub.py; do not edit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from numpy import ndarray
'''


def page() -> str:
    """Return the text of the stub."""
    lines = [HEADER.rstrip()]
    lines.append("")
    imported = set(fitmesh.__all__) - set(WRITTEN_OUT)
    for module, name in sorted((_module_of(name), name) for name in imported):
        lines.append(f"from {module} import {name} as {name}")
    lines.append("")
    for name in WRITTEN_OUT:
        lines += _definition(name)
    lines.append("")
    return "\n".join(lines)


def _module_of(name: str) -> str:
    """Return the module that defines a public name."""
    value = getattr(fitmesh, name)
    if name == "__version__":
        return "fitmesh.version"
    return str(getattr(value, "__module__", "fitmesh"))


def _definition(name: str) -> list[str]:
    """Return the lines of a function's signature."""
    signature = inspect.signature(getattr(fitmesh, name))
    lines = [f"def {name}("]
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            lines.append("    *,")
        text = _without_modules(str(parameter))
        if parameter.default is not inspect.Parameter.empty:
            text = text.replace("'", '"')
        lines.append(f"    {text},")
    result = _without_modules(inspect.formatannotation(signature.return_annotation))
    lines.append(f") -> {result}: ...")
    return lines


def _without_modules(text: str) -> str:
    """Drop the modules in front of type names."""
    return re.sub(r"\b(?:[a-z_0-9]+\.)+([A-Z_]\w*|ndarray)", r"\1", text)


def main() -> None:
    with atomic_file(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
