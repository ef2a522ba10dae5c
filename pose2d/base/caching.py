"""Is a file still valid? It is while its cache key is the same.

A cache key holds everything a file's content depends on: the settings, the digests of the inputs
and weights, and the code that made it. Each stage of `run`, each step of `eval-3dpw` and each shard
of training features asks here, so there is one rule.

One writer a folder: a second one is told who is at work there, and the lock of a dead process is
taken over.

The lock is a file that says who holds it, locked with flock, which the system gives back when its
process ends however it ends, and which Linux passes on between machines over NFS. Where there is no
flock (Windows) there is no lock."""

import contextlib
import errno
import hashlib
import json
import os
import socket
import stat
import sys
import time
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pose2d.base import arrays, files
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
    """SHA-256 of the contents, one file after another: a file that was only moved or touched is the
    same file.
    """
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
    """Of these modules and all modules of this project that they import, directly or not. A module
    of somebody else (a network of your own) counts with the files of its package or folder that it
    imports. Comments, docstrings and layout do not count. The `__init__` of a package counts only
    where it is imported by name, so `from fitting.solver.unknowns import State` does not depend on
    what `fitting/__init__.py` re-exports."""
    digest = hashlib.sha256()
    for name, path in sorted(code_files(*modules).items()):
        digest.update(name.encode())
        digest.update(_parsed(path)[1].encode())
    return digest.hexdigest()[:16]


@cache
def code_files(*modules: str) -> dict[str, Path]:
    """The modules whose code counts in `code_digest`, by name."""
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
        waiting += [
            module
            for module in map(partial(_counting, name), _parsed(path)[0])
            if module is not None
        ]
    return paths


def _counting(importer: str, statement: tuple[str, str]) -> str | None:
    """The module that `import name` or `from package import name` stands for, if it counts."""
    package, name = statement
    if package.startswith("."):
        is_package = hasattr(sys.modules.get(importer), "__path__")
        parent = importer if is_package else importer.rpartition(".")[0]
        package = ".".join(part for part in (parent, package.lstrip(".")) if part)
    full = f"{package}.{name}" if package else name
    module = package if package and _module_file(full, importer) is None else full
    return (
        module
        if module.split(".")[0] in PACKAGES or _module_file(module, importer) is not None
        else None
    )


def _module_file(name: str, importer: str = "") -> Path | None:
    """Of a module of this project; of another one only where it is asked for itself (no importer),
    or lies in the package or, outside of what is installed, in the folder of the module that
    imports it."""
    base = _ROOT.joinpath(*name.split("."))
    if name.split(".")[0] in PACKAGES:
        return next(
            (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()),
            None,
        )
    if importer.split(".")[0] in PACKAGES:
        return None
    path = _loaded_file(name)
    beside = _loaded_file(importer)
    if path is None or not importer or name.split(".")[0] == importer.split(".")[0]:
        return path
    installed = {"site-packages", "dist-packages"} & {*path.parts}
    return (
        path
        if beside is not None and path.is_relative_to(beside.parent) and not installed
        else None
    )


def _loaded_file(name: str) -> Path | None:
    """Of a module that was imported; None where it was typed in, or is no Python file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file).resolve() if file and file.endswith(".py") and Path(file).is_file() else None


@cache
def _parsed(path: Path) -> tuple[tuple[tuple[str, str], ...], str]:
    """What a file imports, and the digest of its tokens without comments and docstrings. `import
    a.b as c` is ("", a.b), `from a.b import (c as d, e)` is (a.b, c) and (a.b, e). Tokens, not a
    syntax tree: Python 3.11 counts how deep it is in a tree for all threads together, so that
    `ast.parse` in one of them can fail because NumPy reads the header of an array in another."""
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
                words = [one.string for one in statement]
                if words[0] in ("import", "from"):
                    clauses = " ".join(words).replace(" . ", ".").replace("(", "").replace(")", "")
                    module, _, names = clauses.partition("import ")
                    clean = (clause.split(" as ")[0].strip() for clause in names.split(","))
                    imported += [
                        (module.removeprefix("from").strip(), name) for name in clean if name
                    ]
                if any(one.type != tokenize.STRING for one in statement):  # no docstring
                    digest.update("\0".join((str(depth), *words, "\n")).encode())
                statement = []
    return tuple(imported), digest.hexdigest()


def write_npz(path: Path, key: CacheKey, content: Mapping[str, Any]) -> None:
    """An array at a time, so that none needs a copy in memory."""
    with (
        atomic_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, value in {**content, _KEY: key.text}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
            release_scratch()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of a stage's file but its cache key."""
    if not path.is_file():
        raise UserError(f"{path} is not there. Run `fitmesh run` to make it.")
    content = arrays.read_npz(
        path, "Run the command that made it again, with --overwrite if it has that option."
    )
    return {name: value for name, value in content.items() if name != _KEY}


def stated_key(path: Path) -> str | None:
    """The text of the cache key that `write_npz` gave a file; None where there is none, or the file
    is damaged.
    """
    try:
        stated = arrays.read_npz(path, "", [_KEY]).get(_KEY)
    except UserError:
        return None
    return str(stated) if stated is not None and stated.shape == () else None


def npz_is_current(path: Path, key: CacheKey) -> bool:
    """False also for a file that is absent or damaged: it is made (again)."""
    return stated_key(path) == key.text and arrays.is_intact(path)


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".fitmesh.lock"
MOST_BYTES = 400  # of the file
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(
    os, "O_NONBLOCK", 0
)  # neither through a link nor into a pipe


class FolderBusy(UserError):
    """Somebody else is writing into the folder."""


@contextmanager
def folder_lock(folder: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is made if absent. Raises FolderBusy when it is held after
    `patience_s`.
    """
    path = folder / FILE
    give_up = time.monotonic() + patience_s
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. --out takes a folder for the results.")
    handle = None
    while handle is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = _take(path)
        except FolderBusy:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.1)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(
                f"cannot write {folder}: {reason}. Choose a folder you may write to."
            ) from error
    files.unfinished.add(path)  # goes with a process that ends at once
    files.held.add(folder.absolute())
    try:
        yield
    finally:
        with contextlib.suppress(
            OSError
        ):  # before the lock is given back, while nobody else can have taken it
            path.unlink(missing_ok=True)
        os.close(handle)
        files.unfinished.discard(path)
        files.held.discard(folder.absolute())


def _take(path: Path) -> int | None:
    """The open file, ours. None: it was too late, and the file no longer has the name; try again."""
    if path.is_symlink():  # what it leads to is not ours
        raise OSError(errno.ELOOP, f"{path.name} in it is a link, no lock. Remove it")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o666)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise OSError(errno.EINVAL, f"{path.name} in it is no lock but another file. Remove it")
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = "".join(
                    filter(str.isprintable, os.read(handle, MOST_BYTES).decode("utf-8", "replace"))
                )
                raise FolderBusy(
                    f"{path.parent} is being written by {holder or 'another process'}. Two runs in one folder would "
                    "destroy each other's files: wait for that one to end, stop it, or choose another --out."
                ) from None
            except OSError:  # a file system without it
                pass
            if not path.exists() or not os.path.samestat(about, path.stat()):
                os.close(handle)
                return None
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[: MOST_BYTES // 2]
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        os.ftruncate(handle, 0)
        os.write(
            handle,
            f"process {os.getpid()} on {socket.gethostname()}, since {since} ({command})".encode(
                errors="replace"
            ),
        )
        return handle
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise
