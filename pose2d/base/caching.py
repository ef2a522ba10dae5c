"""Decide by cache keys whether a file is still valid.

A cache key holds everything that a file's content depends on: the settings, the digests of the
inputs and weights, and the code that made it. The stages of `run`, the steps of `eval-3dpw` and the
shards of training features all follow this one rule."""

import hashlib
import json
import sys
import tokenize
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pose2d.base import arrays
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, blocks
from pose2d.base.scratch import release_scratch

if TYPE_CHECKING:
    from torch import Tensor


PACKAGES = ("pose2d", "ccnet", "fitting", "eval3dpw", "fitmesh")
_ROOT = Path(__file__).parents[2]
_KEY = "cache_key"  # the array that holds the key in an npz file


@dataclass(frozen=True)
class CacheKey:
    """Everything a file's content depends on: files with the same key have the same content."""

    stage: str
    settings: Mapping[str, Any]  # everything that changes the content, as JSON can hold it
    inputs: Mapping[str, str]  # digest of every file, weight or earlier key that was read, by role
    code: str  # `code_digest` of the modules that make the content

    @property
    def text(self) -> str:
        return json.dumps(vars(self), sort_keys=True, default=str)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def content_digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of files; names and times do not count."""
    digest = hashlib.sha256()
    for path in paths:
        for block in blocks(path):
            digest.update(block)
        digest.update(path.stat().st_size.to_bytes(8, "little"))
    return digest.hexdigest()


def weights_digest(state: Mapping[str, "Tensor"]) -> str:
    """Return a digest of a state dict's names and numbers, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()[:16]


@cache
def code_digest(*modules: str) -> str:
    """Return a digest of these modules and of all modules of this project that they import.

    A module outside this project (a network of your own) counts with the files of its package or
    folder that it imports. Comments, docstrings and layout do not count. The `__init__` of a
    package counts only where it is imported by name, so `from fitting.solver.unknowns import State`
    does not depend on what `fitting/__init__.py` re-exports."""
    digest = hashlib.sha256()
    for name, path in sorted(code_files(*modules).items()):
        digest.update(name.encode())
        digest.update(_parse_file(path)[1].encode())
    return digest.hexdigest()[:16]


@cache
def code_files(*modules: str) -> dict[str, Path]:
    """Return the files of the modules that count in `code_digest`, by module name."""
    paths: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _module_file(name)
        if name in paths:
            continue
        if path is None:
            raise ValueError(f"there is no module {name}")
        paths[name] = path
        imported = (_imported_module(name, statement) for statement in _parse_file(path)[0])
        waiting += [module for module in imported if module is not None]
    return paths


def _imported_module(importer: str, statement: tuple[str, str]) -> str | None:
    """Return the module that `from package import name` (or `import name`) loads, if it counts."""
    package, name = statement
    if package.startswith("."):
        is_package = hasattr(sys.modules.get(importer), "__path__")
        parent = importer if is_package else importer.rpartition(".")[0]
        package = ".".join(part for part in (parent, package.lstrip(".")) if part)
    full = f"{package}.{name}" if package else name
    module = package if package and _module_file(full, importer) is None else full
    is_ours = module.split(".")[0] in PACKAGES
    return module if is_ours or _module_file(module, importer) is not None else None


def _module_file(name: str, importer: str = "") -> Path | None:
    """Return the file of a module that counts; None for others.

    A module outside this project counts if it is asked for itself (no importer), if it lies in the
    package of its importer, or if it lies in the importer's folder and is not installed."""
    base = _ROOT.joinpath(*name.split("."))
    if name.split(".")[0] in PACKAGES:
        candidates = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)
    if importer.split(".")[0] in PACKAGES:
        return None
    path = _loaded_file(name)
    if path is None or not importer or name.split(".")[0] == importer.split(".")[0]:
        return path
    importer_path = _loaded_file(importer)
    is_installed = bool({"site-packages", "dist-packages"} & {*path.parts})
    is_beside = importer_path is not None and path.is_relative_to(importer_path.parent)
    return path if is_beside and not is_installed else None


def _loaded_file(name: str) -> Path | None:
    """Return the file of an imported module; None if it was typed in or is no Python file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None
    return Path(file).resolve()


@cache
def _parse_file(path: Path) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return what a file imports, and the digest of its tokens without comments and docstrings.

    `import a.b as c` is ("", a.b), `from a.b import (c as d, e)` is (a.b, c) and (a.b, e). Tokens
    are read instead of a syntax tree since Python 3.11 counts the depth of trees over all threads:
    `ast.parse` can fail because NumPy parses the header of an array in another thread."""
    imported = list[tuple[str, str]]()
    digest = hashlib.sha256()
    depth = 0
    statement = list[tokenize.TokenInfo]()
    with path.open(encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.INDENT, tokenize.DEDENT):
                depth += 1 if token.type == tokenize.INDENT else -1
            elif token.type != tokenize.NEWLINE:
                if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
                    statement.append(token)
            else:
                words = [word.string for word in statement]
                if words[0] in ("import", "from"):
                    clauses = " ".join(words).replace(" . ", ".").replace("(", "").replace(")", "")
                    module, _, names = clauses.partition("import ")
                    clean = (clause.split(" as ")[0].strip() for clause in names.split(","))
                    imported += [
                        (module.removeprefix("from").strip(), name) for name in clean if name
                    ]
                is_docstring = all(word.type == tokenize.STRING for word in statement)
                if not is_docstring:
                    digest.update("\0".join((str(depth), *words, "\n")).encode())
                statement = []
    return tuple(imported), digest.hexdigest()


def write_npz(path: Path, key: CacheKey, content: Mapping[str, Any]) -> None:
    """Write arrays and the cache key, one array at a time to save memory."""
    with (
        atomic_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, value in {**content, _KEY: key.text}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
            release_scratch()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a stage's file without its cache key."""
    if not path.is_file():
        raise UserError(f"{path} does not exist. Run `fitmesh run` to make it.", file=path)
    content = arrays.read_npz(
        path, "Run the command that made it again, with --overwrite if it has that option."
    )
    return {name: value for name, value in content.items() if name != _KEY}


def read_cache_key(path: Path) -> str | None:
    """Return the text of a file's cache key; None if there is none or the file is damaged."""
    try:
        key = arrays.read_npz(path, "", [_KEY]).get(_KEY)
    except UserError:
        return None
    return str(key) if key is not None and key.shape == () else None


def npz_is_current(path: Path, key: CacheKey) -> bool:
    """Tell whether a file is intact and has this key; absent or damaged files are not current."""
    return read_cache_key(path) == key.text and arrays.is_intact(path)
