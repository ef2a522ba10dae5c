"""Build a network by its name and fill it with weights: embedded, downloaded or from a checkpoint."""

import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel
from pose2d.models.cards import ModelCard
from pose2d.models.checkpoints import WEIGHTS, build_empty, describe_mismatch, list_few, read_state
from pose2d.models.plugins import build_checked
from pose2d.models.registry import card, is_registered, shipped_cards

Engine = Literal["onnx", "torch"]
_log = logging.getLogger(__name__)


def load(name: str, checkpoint: str | Path | None = None, engine: Engine = "onnx") -> PoseModel:
    """Return the network of that name in eval mode.

    Weights are those of `checkpoint`, else downloaded (`pose2d.hub`) or embedded ones. `engine`
    computes features on a CPU: ONNX Runtime if there is a graph; other devices always use torch."""
    wanted = card(name)
    checkpoint = checkpoint or find_downloaded(name)
    if checkpoint is None and wanted.embedded is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {wanted.source} "
            f"(licence: {wanted.licence})."
        )
    start = time.perf_counter()
    path = checkpoint or check_embedded(WEIGHTS / str(wanted.embedded))
    model = _build(wanted)
    fill(model, path, name)
    model.eval().requires_grad_(False)
    if engine == "onnx" and wanted.graph is not None:
        model.use_graph(wanted.graph)
    _log.debug("%s loaded from %s in %.2f s", name, path, time.perf_counter() - start)
    return model


def _build(wanted: ModelCard) -> PoseModel:
    """Build the network of a card; one of a plug-in is checked."""
    if is_registered(wanted.name):  # built for real: it may compute tensors that no file has
        return build_checked(wanted)
    return build_empty(wanted.build)


def find_downloaded(name: str) -> Path | None:
    """Return the checkpoint that `fitmesh models get` downloaded for a network without weights.

    None: there is none, or the weights are embedded."""
    if card(name).embedded is not None:
        return None
    from pose2d.hub import cached

    downloaded = cached(name)
    return None if downloaded is None else downloaded[0]


def fill(model: Any, path: str | Path, name: str) -> None:
    """Load the checkpoint `path` into `model`, which has a `convert` as `PoseModel` has.

    The error names the keys that do not fit, and models that the file does fit."""
    state = read_state(path)
    converted = model.convert(state)
    if mismatch := describe_mismatch(model.state_dict(), converted):
        names = recognize(state)
        hint = f"It fits no known model; its {len(state)} keys begin with {list_few(state)}."
        if names:
            hint = f"The file looks like {' or '.join(names)}: load it under that name."
        raise UserError(f"{path} does not fit {name}: {mismatch}. {hint}", file=path)
    model.load_state_dict(converted, strict=False)  # batch counters may be missing


def recognize(state: Mapping[str, Tensor]) -> list[str]:
    """Return the names of models whose tensors have the names and shapes of a file's.

    Only models of about the file's size are tried. Statistics, and ViTPose+'s tensors of other data
    sets, are not counted."""
    uncounted = re.compile(r"running_|num_batches_tracked|\.experts\.|^associate_")
    weights = sum(value.numel() for key, value in state.items() if not uncounted.search(key))
    candidates = [
        card for card in shipped_cards().values() if abs(card.parameters - weights) < 0.1 * weights
    ]
    with torch.device("meta"):
        models = ((card.name, card.build()) for card in candidates)
        return [
            name
            for name, model in models
            if not describe_mismatch(model.state_dict(), model.convert(state))
        ]
