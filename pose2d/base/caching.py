"""Is a file still valid? It is while its cache key is the same.

A cache key holds everything a file's content depends on: the settings, the digests of the inputs and weights, and the
code that made it. Each stage of `run`, each step of `eval-3dpw` and each shard of training features asks here, so
there is one rule.
"""

import hashlib
import json
import sys
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pose2d.base import arrays, scratch
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, blocks

if TYPE_CHECKING:
    from torch import Tensor

PACKAGES = ("pose2d", "ccnet", "fitting", "eval3dpw", "fitmesh")
_ROOT = Path(__file__).parents[2]
_KEY = "cache_key"  # the array that holds the key in an npz file


@dataclass(frozen=True)
class CacheKey:
    """Same key, same content."""

    stage: str
    settings: Mapping[str, Any]  # everything that changes the content; what json can hold
    inputs: Mapping[str, str]  # digest of every file, weight or earlier key that was read, by role
    code: str  # `code_digest` of the modules that make the content

    @property
    def text(self) -> str:
        return json.dumps(vars(self), sort_keys=True, default=str)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def content_digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the contents, one file after another: a file that was only moved or touched is the same file."""
    digest = hashlib.sha256()
    for path in paths:
        for block in blocks(path):
            digest.update(block)
        digest.update(path.stat().st_size.to_bytes(8, "little"))
    return digest.hexdigest()


def weights_digest(state: Mapping[str, "Tensor"]) -> str:
    """Of a state dict: equal for equal numbers, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]


@cache
def code_digest(*modules: str) -> str:
    """Of these modules and all modules of this project that they import, directly or not.

    A module of somebody else (a network of your own) counts with the files of its package or folder that it imports.
    Comments, docstrings and layout do not count. The `__init__` of a package counts only where it is imported by name,
    so `from fitting.solver.problem import Problem` does not depend on what `fitting/__init__.py` re-exports.
    """
    digest = hashlib.sha256()
    for name, path in sorted(code_files(*modules).items()):
        digest.update(name.encode())
        digest.update(_parsed(path)[1].encode())
    return digest.hexdigest()[:16]


@cache
def code_files(*modules: str) -> dict[str, Path]:
    """The modules whose code counts in `code_digest`, by name."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _module_file(name)
        if name in found:
            continue
        if path is None:
            raise ValueError(f"there is no module {name}")
        found[name] = path
        waiting += [module for module in map(partial(_counting, name), _parsed(path)[0]) if module is not None]
    return found


def _counting(importer: str, statement: tuple[str, str]) -> str | None:
    """The module that `import name` or `from package import name` stands for, if it counts."""
    package, name = statement
    if package.startswith("."):
        parent = importer if _is_package(importer) else importer.rpartition(".")[0]
        package = ".".join(part for part in (parent, package.lstrip(".")) if part)
    full = f"{package}.{name}" if package else name
    module = package if package and _module_file(full, importer) is None else full
    return module if module.split(".")[0] in PACKAGES or _module_file(module, importer) is not None else None


def _module_file(name: str, importer: str = "") -> Path | None:
    """Of a module of this project; of another one only where it is asked for itself (no importer), or lies in the
    package or, outside of what is installed, in the folder of the module that imports it."""
    base = _ROOT.joinpath(*name.split("."))
    if name.split(".")[0] in PACKAGES:
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    if importer.split(".")[0] in PACKAGES:
        return None
    path, beside = _loaded_file(name), _loaded_file(importer) if importer else None
    if path is None or not importer or name.split(".")[0] == importer.split(".")[0]:
        return path
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
    return path if beside is not None and path.is_relative_to(beside.parent) and not installed else None


def _loaded_file(name: str) -> Path | None:
    """Of a module that was imported; None where it was typed in, or is no Python file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file).resolve() if file and file.endswith(".py") and Path(file).is_file() else None


def _is_package(name: str) -> bool:
    return hasattr(sys.modules.get(name), "__path__")


@cache
def _parsed(path: Path) -> tuple[tuple[tuple[str, str], ...], str]:
    """What a file imports (from where, what), and the digest of its tokens without comments and docstrings.

    Tokens, not a syntax tree: Python 3.11 counts how deep it is in a tree for all threads together, so that `ast.parse`
    in one of them can fail because NumPy reads the header of an array in another.
    """
    imported: list[tuple[str, str]] = []
    digest = hashlib.sha256()
    for depth, statement in _statements(path):
        if all(token.type == tokenize.STRING for token in statement):
            continue  # a docstring
        words = [token.string for token in statement]
        if words[0] in ("import", "from"):
            imported += _imported(words)
        digest.update("\0".join((str(depth), *words, "\n")).encode())
    return tuple(imported), digest.hexdigest()


def _statements(path: Path) -> Iterator[tuple[int, list[tokenize.TokenInfo]]]:
    """The tokens of one statement after another, without comments, with the depth of its block."""
    depth, statement = 0, list[tokenize.TokenInfo]()
    with path.open(encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.INDENT, tokenize.DEDENT):
                depth += 1 if token.type == tokenize.INDENT else -1
            elif token.type == tokenize.NEWLINE:
                yield depth, statement
                statement = []
            elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
                statement.append(token)


def _imported(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """("", a.b) of `import a.b as c`; (a.b, c) and (a.b, e) of `from a.b import (c as d, e)`."""
    clauses = " ".join(words).replace(" . ", ".").replace("(", "").replace(")", "")
    module, _, names = clauses.partition("import ")
    package = module.removeprefix("from").strip()
    names_only = (clause.split(" as ")[0].strip() for clause in names.split(","))
    yield from ((package, name) for name in names_only if name)


def write_npz(path: Path, key: CacheKey, content: Mapping[str, Any]) -> None:
    """An array at a time, so that none needs a copy in memory."""
    with atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in {**content, _KEY: key.text}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
            scratch.release()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of a stage's file but its cache key."""
    if not path.is_file():
        raise UserError(f"{path} is not there. Run `fitmesh run` to make it.")
    found = arrays.read_npz(path, "Run the command that made it again, with --overwrite if it has that option.")
    return {name: value for name, value in found.items() if name != _KEY}


def has_cache_key(path: Path) -> bool:
    """Whether `write_npz` may have made it."""
    try:
        return _KEY in arrays.read_npz(path, "", [_KEY])
    except UserError:
        return False


def npz_is_current(path: Path, key: CacheKey) -> bool:
    """False also for a file that is absent or damaged: it is made (again)."""
    try:
        stated = arrays.read_npz(path, "", [_KEY]).get(_KEY)
    except UserError:
        return False
    return stated is not None and stated.shape == () and str(stated) == key.text and arrays.is_intact(path)


def remove_temporary(path: Path) -> None:
    """Remove what a killed run had written of `path` so far (the names that `atomic_file` gives)."""
    for left in path.parent.glob(f".{path.stem[:100]}.????????{path.suffix}"):
        left.unlink(missing_ok=True)
