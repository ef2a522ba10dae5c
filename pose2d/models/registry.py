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
from pose2d.base.files import real_path
from pose2d.models.cards import ModelCard
from pose2d.models.plugins import check_card

# First part of a model's name -> its module in pose2d/models, in the order of `fitmesh models`
FAMILIES = {
    name: name for name in ("rtmpose", "movenet", "sbl", "hrnet", "vitpose", "rle", "ipr", "poseur")
}
FAMILIES["ipr"] = "sbl"
_registered: dict[str, ModelCard] = {}
ENTRY_POINTS = "fitmesh.models"


def register(card: ModelCard) -> None:
    """Make a network of your own known by its name in this process; a second call replaces it.

    Worker processes (`--jobs`, Ray) know it if the file that registers it is passed as a plug-in
    (`use_plugin`)."""
    if not isinstance(card, ModelCard):
        raise UserError(f"pose2d.register takes a pose2d.ModelCard; got {type(card).__name__}.")
    if not isinstance(card.name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", card.name):
        raise UserError(
            "the name of a model must have letters, digits, '-', '_' and '.' only; "
            f"got {repr(card.name)[:80]}."
        )
    if _shipped_card(card.name) is not None:
        raise UserError(
            f"{card.name} is the name of a network that ships with fitmesh: choose another one."
        )
    check_card(card)
    _registered[card.name] = card


def use_plugin(path: str | Path | None) -> None:
    """Run a Python file that calls `register`, once in a process.

    As in a script, it can import modules of its folder."""
    if path is None:
        return
    file = real_path(path)
    if file.suffix != ".py" or not file.is_file():
        raise UserError(
            f"{path}: expected a Python file (.py) that calls pose2d.register(card) "
            "(docs/own-network.md).",
            file=path,
        )
    name = file.stem
    if "." in name:  # Python would take what is before the dot for a package
        raise UserError(
            f"{path}: give the plug-in a file name without a dot before .py.", file=path
        )
    for loaded in ("__main__", name):
        loaded_file = getattr(sys.modules.get(loaded), "__file__", None)
        if loaded_file and real_path(loaded_file) == file:
            return  # it is the running script, or was run before
    same_name = None if name in sys.modules else importlib.util.find_spec(name)
    if name in sys.modules or (same_name is not None and same_name.origin != str(file)):
        raise UserError(
            f"{path}: there is a module called {name} already. Give the file another name.",
            file=path,
        )
    sys.path.append(str(file.parent))
    importlib.invalidate_caches()
    before = dict(_registered)
    try:
        importlib.import_module(name)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise UserError(f"{path} does not run: {reason}", file=path) from error
    if _registered == before:
        raise UserError(
            f"{path} registers no network: call pose2d.register(card) in it (docs/own-network.md).",
            file=path,
        )


@cache
def _installed() -> dict[str, Any]:
    """Return the entry points of installed packages by name, not loaded yet."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _registered_card(name: str) -> ModelCard | None:
    """Return the card of a registered or installed network; None if there is none."""
    point = _installed().get(name)
    if point is None or name in _registered:
        return _registered.get(name)
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the installed model {name} ({point.value}) does not load: {error}"
        ) from error
    if not isinstance(loaded, ModelCard) or loaded.name != name:
        raise UserError(
            f"the entry point {name} ({point.value}) must be a pose2d.ModelCard of that name."
        )
    register(loaded)
    return loaded


def _shipped_card(name: str) -> ModelCard | None:
    """Return the card of a network of this package; None for other names."""
    family = name.split("-")[0]
    return _family(family).get(name) if family in FAMILIES else None


@cache
def _family(name: str) -> dict[str, ModelCard]:
    """Import a family of networks and return its cards by name."""
    cards: list[ModelCard] = importlib.import_module(f"pose2d.models.{FAMILIES[name]}").CARDS
    return {card.name: card for card in cards if card.name.startswith(f"{name}-")}


def cards() -> dict[str, ModelCard]:
    """Return the cards of all models by name; this imports all of them."""
    for name in _installed():
        _registered_card(name)
    return shipped_cards() | _registered


def shipped_cards() -> dict[str, ModelCard]:
    """Return the cards of every network whose code ships with fitmesh, by name."""
    return {name: card for family in FAMILIES for name, card in _family(family).items()}


def is_registered(name: str) -> bool:
    """Tell whether a network was registered by a plug-in or an installed package."""
    return name in _registered


def names() -> list[str]:
    """Return the names of all models."""
    return list(cards())


def card(name: str) -> ModelCard:
    """Return the card of a model: skeleton, input size, parameters, licence, source."""
    model_card = _shipped_card(name) or _registered_card(name)
    if model_card is None:
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise UserError(
            f"unknown pose model {name!r}.{hint} `fitmesh models` lists every name; a network of "
            "your own needs --plugin FILE.py, in worker processes too."
        )
    return model_card


def module_of(name: str) -> str:
    """Return the name of the module with a model's code, for cache keys."""
    if _shipped_card(name) is not None:
        return f"pose2d.models.{FAMILIES[name.split('-')[0]]}"
    build: Any = card(name).build
    while isinstance(build, partial):
        build = build.func
    module = getattr(build, "__module__", None)
    try:
        if not isinstance(module, str):
            raise ValueError("it has no module")
        code_files(module)
    except ValueError as error:
        raise UserError(
            f"the network {name} was typed in, but results depend on the code that made them: "
            "write it to a file, such as my_network.py, and import that."
        ) from error
    return module
