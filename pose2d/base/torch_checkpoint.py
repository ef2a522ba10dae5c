"""Torch's pickled checkpoints, read by torch's own restricted unpickler and nothing else.

Trainers leave other things beside the weights. Plain NumPy values are let through; the loss curves that
mmengine keeps are replaced by empty objects; anything else in the file is refused by name.
"""

import importlib
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pose2d.base.errors import UserError


class _Ignored:
    """Stands where a file has an object that is of no use here. It keeps nothing and does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def _called(full_name: str, function: Callable) -> Callable:
    """A thin wrapper of `function` that answers to the full name a pickle asks for."""

    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    wrapper.__module__, _, wrapper.__name__ = full_name.rpartition(".")
    wrapper.__qualname__ = wrapper.__name__
    return wrapper


def _ignored(full_name: str) -> type:
    """An `_Ignored` that answers to the full name a pickle asks for."""
    module, _, name = full_name.rpartition(".")
    return type(name, (_Ignored,), {"__module__": module, "__qualname__": name})


def _numpy_values() -> list[Any]:
    """Arrays, scalars and their types: plain data, whose construction runs no code of the file's."""
    multiarray = importlib.import_module(("numpy._core" if hasattr(np, "_core") else "numpy.core") + ".multiarray")
    makers = [
        _called(f"numpy.{core}.multiarray.{name}", getattr(multiarray, name))
        for core in ("core", "_core")  # NumPy 1's and NumPy 2's name of the same module
        for name in ("_reconstruct", "scalar")
    ]
    kinds = {type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?SU"}
    return [*makers, np.ndarray, np.dtype, *kinds]


_HARMLESS = [
    *_numpy_values(),
    _ignored("mmengine.logging.history_buffer.HistoryBuffer"),
    _ignored("builtins.getattr"),  # a HistoryBuffer names its methods so; the real one is never called
]


@contextmanager
def _allowing(values: list[Any]) -> Iterator[None]:
    """Torch's list of safe names, longer for a moment."""
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals(values)
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def read_torch(path: Path) -> object:
    """What `torch.save` wrote, tensors on the CPU."""
    try:
        with _allowing(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign or cut file fails in many ways: zip, pickle, storage, end of file
        refused = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if refused is None:
            raise UserError(f"{path} is not a torch checkpoint, or it is damaged or cut off.") from error
        raise UserError(
            f"{path} was refused: beside tensors it holds {refused[1]}, and loading that could run code. "
            "If you know where the file comes from, open it there and save its weights alone: "
            "torch.save(file['state_dict'], ...)."
        ) from error
