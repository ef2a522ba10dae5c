"""Which module of this project imports which, read from the source: also imports inside functions
and for types.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pose2d", "ccnet", "fitting", "eval3dpw", "fitmesh")  # what the wheel holds
OUTSIDE_THE_WHEEL = ("training",)


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Module -> the modules it names in an import. The `__init__` of a package counts where it is
    imported by name.
    """
    packages = (*PACKAGES, *OUTSIDE_THE_WHEEL)
    paths = {_name(path): path for package in packages for path in (ROOT / package).rglob("*.py")}
    return {name: frozenset(_imported(path, paths)) - {name} for name, path in paths.items()}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    loads_by_name = any(
        isinstance(node, ast.Name) and node.id == "import_module" for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if module in modules else node.module
        elif (
            loads_by_name
            and isinstance(node, ast.Constant)
            and node.value in modules
            and "." in str(node.value)
        ):
            yield str(node.value)


def closure(*starts: str) -> set[str]:
    """These modules and all that they import, directly or not."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += import_graph()[name]
    return found


def cycles() -> list[list[str]]:
    """Groups of modules that import each other, directly or not (strongly connected components of
    two or more).
    """
    reach = {name: closure(*import_graph()[name]) for name in import_graph()}
    on_a_cycle = [name for name in sorted(reach) if name in reach[name]]
    groups = {
        tuple(other for other in on_a_cycle if other in reach[name] and name in reach[other])
        for name in on_a_cycle
    }
    return [list(group) for group in sorted(groups)]


def modules_in(*packages: str) -> list[str]:
    """All modules of these packages or modules."""
    return [
        name
        for name in import_graph()
        if any(name == one or name.startswith(f"{one}.") for one in packages)
    ]
