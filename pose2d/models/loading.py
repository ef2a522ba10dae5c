"""Build a network by its name and fill it with weights: embedded, downloaded or from a checkpoint."""

import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.models.cards import ModelCard
from pose2d.models.checkpoints import WEIGHTS, build_empty, describe_mismatch, list_few, read_state
from pose2d.models.registry import card, is_registered, shipped_cards

Engine = Literal["onnx", "torch"]
_log = logging.getLogger(__name__)


def load(name: str, checkpoint: str | Path | None = None, engine: Engine = "onnx") -> PoseModel:
    """The network of that name in eval mode, with embedded or fetched weights (`pose2d.hub`), or
    those of `checkpoint`. engine: what computes the features on a CPU, ONNX Runtime where there is
    a graph; other devices always use torch."""
    wanted = card(name)
    checkpoint = checkpoint or find_downloaded(name)
    if checkpoint is None and wanted.embedded is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {wanted.source} (licence: {wanted.licence})."
        )
    start = time.perf_counter()
    path = WEIGHTS / str(wanted.embedded) if checkpoint is None else checkpoint
    model = _built(wanted)
    fill(model, path, name)
    model.eval().requires_grad_(False)
    if engine == "onnx" and wanted.graph is not None:
        model.use_graph(wanted.graph)
    _log.debug("%s loaded from %s in %.2f s", name, path, time.perf_counter() - start)
    return model


def _built(wanted: ModelCard) -> PoseModel:
    if is_registered(wanted.name):  # may compute tensors that no checkpoint has
        model = wanted.build()
        if not isinstance(model, PoseModel):
            raise UserError(
                f"build() of the card {wanted.name} must return a pose2d.PoseModel; got {type(model).__name__}."
            )
        for name in ("skeleton", "input_wh"):
            if getattr(model, name, None) != getattr(wanted, name):
                raise UserError(f"the network {wanted.name} and its card differ in {name}.")
        return model
    return build_empty(wanted.build)


def find_downloaded(name: str) -> Path | None:
    """The checkpoint that `fitmesh models get` left for a network that ships none; None: there is
    none, or no need.
    """
    if card(name).embedded is not None:
        return None
    from pose2d.hub import cached

    kept = cached(name)
    return None if kept is None else kept[0]


def fill(model: Any, path: str | Path, name: str) -> None:
    """Load `path` into `model`, which has a `convert` as `PoseModel` has, or say which keys do not
    fit and what the file looks like instead."""
    state = read_state(path)
    converted = model.convert(state)
    if mismatch := describe_mismatch(model.state_dict(), converted):
        names = recognize(state)
        looks = f"It looks like no model known here; its {len(state)} keys begin with {list_few(state)}."
        if names:
            looks = f"The file looks like {' or '.join(names)}: load it under that name."
        raise UserError(f"{path} does not fit {name}: {mismatch}. {looks}")
    model.load_state_dict(converted, strict=False)  # batch counters may lack


def recognize(state: Mapping[str, Tensor]) -> list[str]:
    """Every model whose tensors are exactly those of a file, by names and shapes. Only models of
    about the file's size are tried. Statistics do not count, nor what ViTPose+ has beside one data
    set."""
    beside = re.compile(r"running_|num_batches_tracked|\.experts\.|^associate_")
    weights = sum(value.numel() for key, value in state.items() if not beside.search(key))
    near = [
        card for card in shipped_cards().values() if abs(card.parameters - weights) < 0.1 * weights
    ]
    with torch.device("meta"):
        models = ((card.name, card.build()) for card in near)
        return [
            name
            for name, model in models
            if not describe_mismatch(model.state_dict(), model.convert(state))
        ]
