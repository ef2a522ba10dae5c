"""Find a network by its name.

Names come from the families in this folder, from `register` (a network of your own,
docs/own-network.md), and from installed packages, whose entry points of the group `fitmesh.models`
are cards by name."""

import difflib
import importlib.util
import re
import sys
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pose2d.base.caching import code_files
from pose2d.base.errors import UserError
from pose2d.models.cards import ModelCard

# The first part of every name -> the module in pose2d/models that has it; in the order `fitmesh
# models` shows.
FAMILIES = {
    name: name for name in ("rtmpose", "movenet", "sbl", "hrnet", "vitpose", "rle", "ipr", "poseur")
}
FAMILIES["ipr"] = "sbl"
_registered: dict[str, ModelCard] = {}
ENTRY_POINTS = "fitmesh.models"


def register(card: ModelCard) -> None:
    """Make a network of your own known by its name, everywhere in this process; again replaces it.
    Other processes (`--jobs`, Ray) know it when the file that registers it is named as a plug-in
    (`use_plugin`)."""
    if not isinstance(card, ModelCard):
        raise UserError(f"pose2d.register takes a pose2d.ModelCard; got {type(card).__name__}.")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", card.name):
        raise UserError(
            f"a model's name has letters, digits, '-', '_' and '.' only; got {card.name[:80]!r}."
        )
    if _shipped(card.name) is not None:
        raise UserError(
            f"{card.name} is the name of a network that ships with fitmesh: choose another one."
        )
    _registered[card.name] = card


def use_plugin(path: str | Path | None) -> None:
    """Run a Python file that calls `register`, once in a process. Its folder can be imported from,
    as in a script.
    """
    if path is None:
        return
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise UserError(
            f"{path}: expected a Python file (.py) that calls pose2d.register(card) (docs/own-network.md)."
        )
    name = file.stem
    loaded = [getattr(sys.modules.get(one), "__file__", None) or "/" for one in ("__main__", name)]
    if file in [Path(one).resolve() for one in loaded]:
        return  # the script itself, or run before
    other = None if name in sys.modules else importlib.util.find_spec(name)
    if name in sys.modules or (other is not None and other.origin != str(file)):
        raise UserError(
            f"{path}: there is a module called {name} already. Give the file another name."
        )
    sys.path.append(str(file.parent))
    importlib.invalidate_caches()
    before = dict(_registered)
    try:
        importlib.import_module(name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if _registered == before:
        raise UserError(
            f"{path} registers no network: call pose2d.register(card) in it (docs/own-network.md)."
        )


@cache
def _installed() -> dict[str, Any]:
    """Entry points by name, not loaded yet."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _entry_point(name: str) -> ModelCard | None:
    point = _installed().get(name)
    if point is None or name in _registered:
        return _registered.get(name)
    try:
        loaded = point.load()
    except Exception as error:
        raise UserError(
            f"the installed model {name} ({point.value}) does not load: {error}"
        ) from error
    if not isinstance(loaded, ModelCard) or loaded.name != name:
        raise UserError(
            f"the entry point {name} ({point.value}) must be a pose2d.ModelCard of that name."
        )
    register(loaded)
    return loaded


def _shipped(name: str) -> ModelCard | None:
    family = name.split("-")[0]
    return _family(family).get(name) if family in FAMILIES else None


@cache
def _family(name: str) -> dict[str, ModelCard]:
    cards: list[ModelCard] = importlib.import_module(f"pose2d.models.{FAMILIES[name]}").CARDS
    return {card.name: card for card in cards if card.name.startswith(f"{name}-")}


def cards() -> dict[str, ModelCard]:
    """Every model, by name. Imports all of them."""
    for name in _installed():
        _entry_point(name)
    return shipped_cards() | _registered


def shipped_cards() -> dict[str, ModelCard]:
    """Return the cards of every network whose code ships with fitmesh, by name."""
    return {name: card for family in FAMILIES for name, card in _family(family).items()}


def is_registered(name: str) -> bool:
    """Tell whether a network was registered by a plug-in or an installed package."""
    return name in _registered


def names() -> list[str]:
    """Every model name."""
    return list(cards())


def card(name: str) -> ModelCard:
    """The facts of one model: skeleton, input size, parameters, licence, source."""
    known = _shipped(name) or _entry_point(name)
    if known is None:
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise UserError(
            f"unknown pose model {name!r}.{hint} `fitmesh models` lists every name; a network of your own needs "
            "--plugin FILE.py, in worker processes too."
        )
    return known


def module_of(name: str) -> str:
    """The module that has a model's code, for cache keys."""
    if _shipped(name) is not None:
        return f"pose2d.models.{FAMILIES[name.split('-')[0]]}"
    build: Any = card(name).build
    while isinstance(build, partial):
        build = build.func
    try:
        code_files(build.__module__)
    except ValueError as error:
        raise UserError(
            f"the network {name} was typed in, and results state the code they were made with: write it to a file, "
            "such as my_network.py, and import that."
        ) from error
    return str(build.__module__)
