"""Every model name, and how a name becomes a network with weights."""

import difflib
import logging
import re
import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.checkpoints import compare, few, read_state
from pose2d.models.base import ModelCard, PoseModel

Engine = Literal["onnx", "torch"]
_log = logging.getLogger(__name__)

# The first part of every name -> the module in pose2d/models that has it; in the order `fitmesh models` shows.
FAMILIES = {
    "rtmpose": "rtmpose",
    "movenet": "movenet",
    "sbl": "sbl",
    "hrnet": "hrnet",
    "vitpose": "vitpose",
    "rle": "rle",
    "ipr": "ipr",
    "poseur": "poseur",
}


@cache
def _family(name: str) -> dict[str, ModelCard]:
    module = import_module(f"pose2d.models.{FAMILIES[name]}")
    return {card.name: card for card in module.CARDS}


def cards() -> dict[str, ModelCard]:
    """Every model, by name. Imports all of them."""
    return {name: card for family in FAMILIES for name, card in _family(family).items()}


def names() -> list[str]:
    """Every model name."""
    return list(cards())


def card(name: str) -> ModelCard:
    """The facts of one model: skeleton, input size, parameters, licence, source."""
    family = name.split("-")[0]
    known = _family(family).get(name) if family in FAMILIES else None
    if known is None:
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise UserError(f"unknown pose model {name!r}.{hint} `fitmesh models` lists every name.")
    return known


def module_of(name: str) -> str:
    """The module that has a model's code, for cache keys."""
    return f"pose2d.models.{FAMILIES[card(name).name.split('-')[0]]}"


def load(name: str, checkpoint: str | Path | None = None, engine: Engine = "onnx") -> PoseModel:
    """The network of that name in eval mode, with embedded or fetched weights (`pose2d.hub`), or those of `checkpoint`.

    engine: what computes the features on a CPU, ONNX Runtime where there is a graph; other devices always use torch.
    """
    wanted = card(name)
    checkpoint = checkpoint or fetched(name)
    if checkpoint is None and wanted.embedded is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {wanted.source} (licence: {wanted.licence})."
        )
    start, embedded = time.perf_counter(), Path(str(files("pose2d") / "weights" / str(wanted.embedded)))
    path = embedded if checkpoint is None else checkpoint
    with torch.device("meta"):  # the file fills every tensor, so no time is spent on random numbers
        model = wanted.build()
    # As `to_empty`, whose `empty_like` of a meta tensor imports a computer algebra system, for half a second.
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    fill(model, path, name)
    model.eval().requires_grad_(False)
    if engine == "onnx" and wanted.graph is not None:
        model.use_graph(wanted.graph)
    _log.debug("%s loaded from %s in %.2f s", name, path, time.perf_counter() - start)
    return model


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
        raise UserError(f"{path} does not fit {name}: {mismatch}. {_looks_like(state)}")
    counters = {key: torch.zeros_like(value) for key, value in wanted.items() if key not in converted}
    model.load_state_dict({**counters, **converted})


def _looks_like(state: Mapping[str, Tensor]) -> str:
    names = recognize(state)
    if names:
        return f"The file looks like {' or '.join(names)}: load it under that name."
    return f"It looks like no model known here; its {len(state)} keys begin with {few(state)}."


def recognize(state: Mapping[str, Tensor]) -> list[str]:
    """Every model whose tensors are exactly those of a file, by names and shapes.

    Only models of about the file's size are tried. Statistics do not count, nor what ViTPose+ has beside one data set.
    """
    beside = re.compile(r"running_|num_batches_tracked|\.experts\.|^associate_")
    weights = sum(value.numel() for key, value in state.items() if not beside.search(key))
    near = [card for card in cards().values() if abs(card.parameters - weights) < 0.1 * weights]
    with torch.device("meta"):
        models = ((card.name, card.build()) for card in near)
        return [name for name, model in models if not compare(model.state_dict(), model.convert(state))]
