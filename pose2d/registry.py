"""Every model name, and how a name becomes a network with weights.

Names come from `pose2d.models`, from `register` (a network of your own, docs/own-network.md) and from installed
packages: their entry points of the group `fitmesh.models` are cards, by name."""

import difflib
import importlib.util
import logging
import re
import sys
import time
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pose2d.base.caching import code_files
from pose2d.base.errors import UserError
from pose2d.models.base import ModelCard, PoseModel, compare, few, read_state

Engine = Literal["onnx", "torch"]
_log = logging.getLogger(__name__)

# The first part of every name -> the module in pose2d/models that has it; in the order `fitmesh models` shows.
FAMILIES = {name: name for name in ("rtmpose", "movenet", "sbl", "hrnet", "vitpose", "rle", "ipr", "poseur")}
FAMILIES["ipr"] = "sbl"

_registered: dict[str, ModelCard] = {}
ENTRY_POINTS = "fitmesh.models"


def register(card: ModelCard) -> None:
    """Make a network of your own known by its name, everywhere in this process; again replaces it. Other processes
    (`--jobs`, Ray) know it when the file that registers it is named as a plug-in (`use_plugin`)."""
    if not isinstance(card, ModelCard):
        raise UserError(f"pose2d.register takes a pose2d.ModelCard; got {type(card).__name__}.")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", card.name):
        raise UserError(f"a model's name has letters, digits, '-', '_' and '.' only; got {card.name[:80]!r}.")
    if _shipped(card.name) is not None:
        raise UserError(f"{card.name} is the name of a network that ships with fitmesh: choose another one.")
    _registered[card.name] = card


def use_plugin(path: str | Path | None) -> None:
    """Run a Python file that calls `register`, once in a process. Its folder can be imported from, as in a script."""
    if path is None:
        return
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise UserError(f"{path}: expected a Python file (.py) that calls pose2d.register(card) (docs/own-network.md).")
    name, main = file.stem, getattr(sys.modules.get("__main__"), "__file__", None)
    if main is not None and Path(main).resolve() == file:
        return  # the script itself
    if name in sys.modules and Path(getattr(sys.modules[name], "__file__", None) or "/").resolve() == file:
        return
    other = None if name in sys.modules else importlib.util.find_spec(name)
    if name in sys.modules or (other is not None and other.origin != str(file)):
        raise UserError(f"{path}: there is a module called {name} already. Give the file another name.")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(file.parent))
    before = dict(_registered)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if _registered == before:
        raise UserError(f"{path} registers no network: call pose2d.register(card) in it (docs/own-network.md).")


@cache
def _installed() -> dict[str, Any]:
    """Entry points by name, not loaded yet."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _entry_point(name: str) -> ModelCard | None:
    point = _installed().get(name)
    if point is None or name in _registered:
        return _registered.get(name)
    try:
        found = point.load()
    except Exception as error:
        raise UserError(f"the installed model {name} ({point.value}) does not load: {error}") from error
    if not isinstance(found, ModelCard) or found.name != name:
        raise UserError(f"the entry point {name} ({point.value}) must be a pose2d.ModelCard of that name.")
    register(found)
    return found


def _shipped(name: str) -> ModelCard | None:
    family = name.split("-")[0]
    return _family(family).get(name) if family in FAMILIES else None


@cache
def _family(name: str) -> dict[str, ModelCard]:
    cards: list[ModelCard] = import_module(f"pose2d.models.{FAMILIES[name]}").CARDS
    return {card.name: card for card in cards if card.name.startswith(f"{name}-")}


def cards() -> dict[str, ModelCard]:
    """Every model, by name. Imports all of them."""
    for name in _installed():
        _entry_point(name)
    return {name: card for family in FAMILIES for name, card in _family(family).items()} | _registered


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


def load(name: str, checkpoint: str | Path | None = None, engine: Engine = "onnx") -> PoseModel:
    """The network of that name in eval mode, with embedded or fetched weights (`pose2d.hub`), or those of `checkpoint`.
    engine: what computes the features on a CPU, ONNX Runtime where there is a graph; other devices always use torch."""
    wanted = card(name)
    checkpoint = checkpoint or fetched(name)
    if checkpoint is None and wanted.embedded is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {wanted.source} (licence: {wanted.licence})."
        )
    start, embedded = time.perf_counter(), Path(str(files("pose2d") / "weights" / str(wanted.embedded)))
    path = embedded if checkpoint is None else checkpoint
    model = _built(wanted)
    fill(model, path, name)
    model.eval().requires_grad_(False)
    if engine == "onnx" and wanted.graph is not None:
        model.use_graph(wanted.graph)
    _log.debug("%s loaded from %s in %.2f s", name, path, time.perf_counter() - start)
    return model


def _built(wanted: ModelCard) -> PoseModel:
    if wanted.name in _registered:  # may compute tensors that no checkpoint has
        model = wanted.build()
        if not isinstance(model, PoseModel):
            raise UserError(
                f"build() of the card {wanted.name} must return a pose2d.PoseModel; got {type(model).__name__}."
            )
        for name in ("skeleton", "input_wh"):
            if getattr(model, name, None) != getattr(wanted, name):
                raise UserError(f"the network {wanted.name} and its card differ in {name}.")
        return model
    with torch.device("meta"):  # the file fills every tensor, so no time is spent on random numbers
        model = wanted.build()
    # As `to_empty`, whose `empty_like` of a meta tensor imports a computer algebra system, for half a second.
    return model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))


def fetched(name: str) -> Path | None:
    """The checkpoint that `fitmesh models get` left for a network that ships none; None: there is none, or no need."""
    if card(name).embedded is not None:
        return None
    from pose2d.hub import cached

    kept = cached(name)
    return None if kept is None else kept[0]


def fill(model: PoseModel, path: str | Path, name: str) -> None:
    """Load `path` into `model`, or say which keys do not fit and what the file looks like instead."""
    state = read_state(path)
    wanted = model.state_dict()
    converted = model.convert(state)
    mismatch = compare(wanted, converted)
    if mismatch:
        names = recognize(state)
        looks = f"It looks like no model known here; its {len(state)} keys begin with {few(state)}."
        if names:
            looks = f"The file looks like {' or '.join(names)}: load it under that name."
        raise UserError(f"{path} does not fit {name}: {mismatch}. {looks}")
    counters = {key: torch.zeros_like(value) for key, value in wanted.items() if key not in converted}
    model.load_state_dict({**counters, **converted})


def recognize(state: Mapping[str, Tensor]) -> list[str]:
    """Every model whose tensors are exactly those of a file, by names and shapes. Only models of about the file's size
    are tried. Statistics do not count, nor what ViTPose+ has beside one data set."""
    beside = re.compile(r"running_|num_batches_tracked|\.experts\.|^associate_")
    weights = sum(value.numel() for key, value in state.items() if not beside.search(key))
    shipped = (card for family in FAMILIES for card in _family(family).values())
    near = [card for card in shipped if abs(card.parameters - weights) < 0.1 * weights]
    with torch.device("meta"):
        models = ((card.name, card.build()) for card in near)
        return [name for name, model in models if not compare(model.state_dict(), model.convert(state))]
