"""Every model name, and how a name becomes a network with weights."""

import difflib
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch

from pose2d.base.errors import UserError
from pose2d.models.base import ModelCard, PoseModel


@cache
def cards() -> dict[str, ModelCard]:
    """Every model, by name, in the order `fitmesh models` shows."""
    from pose2d.models import hrnet, ipr, movenet, poseur, rle, rtmpose, sbl, vitpose

    modules = (rtmpose, movenet, sbl, hrnet, vitpose, rle, ipr, poseur)
    return {card.name: card for module in modules for card in module.CARDS}


def names() -> list[str]:
    """Every model name."""
    return list(cards())


def card(name: str) -> ModelCard:
    """What is known of one model."""
    if name not in cards():
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise UserError(f"unknown pose model {name!r}.{hint} `fitmesh models` lists every name.")
    return cards()[name]


def load(name: str, checkpoint: str | Path | None = None) -> PoseModel:
    """The network of that name in eval mode, with embedded weights or those of `checkpoint`."""
    from pose2d.checkpoints import fill

    known = card(name)
    if checkpoint is None and known.embedded is None:
        raise UserError(f"{name} ships no weights: pass a checkpoint, from {known.source} (licence: {known.licence}).")
    embedded = Path(str(files("pose2d") / "weights" / str(known.embedded)))
    with torch.device("meta"):  # the file fills every tensor, so no time is spent on random numbers
        model = known.build()
    # As `to_empty`, whose `empty_like` of a meta tensor imports a computer algebra system, for half a second.
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))
    fill(model, embedded if checkpoint is None else checkpoint, name)
    return model.eval().requires_grad_(False)
