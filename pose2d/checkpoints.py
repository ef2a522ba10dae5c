"""Weights from a file, without executing any code in it; their names in other formats; and how they differ from a
network's.

Torch's pickled checkpoints are read by torch's own restricted unpickler. Trainers leave other things beside the
weights: plain NumPy values are let through; the loss curves that mmengine keeps are replaced by empty objects; anything
else in the file is refused by name.
"""

import importlib
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError

CONTAINERS = ("state_dict", "model", "network")  # where trainers put the weights among their other things
Shape = tuple[int, ...]
SHOWN = 4  # keys named in an error, of each kind


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.npz`, `.safetensors` or torch checkpoint, under the file's own key names; of an `.onnx` file
    under those of `ordered_weights`. Containers are opened, `module.` of data-parallel training is taken off, and
    floats become float32."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a checkpoint file" if path.is_dir() else "does not exist"
        raise UserError(f"checkpoint {path} {what}.")
    if path.suffix == ".npz":
        state = _read_npz(path)
    elif path.suffix == ".safetensors":
        state = _read_safetensors(path)
    elif path.suffix == ".onnx":
        from pose2d.base.onnx_weights import ordered_weights, read_onnx

        state = {key: torch.from_numpy(value) for key, value in ordered_weights(read_onnx(path)).items()}
    else:
        state = _weights_in(read_torch(path), path)
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return {key: value.float() if torch.is_floating_point(value) else value for key, value in state.items()}


def _read_npz(path: Path) -> dict[str, Tensor]:
    arrays = read_npz(path, "Expected a checkpoint: named arrays of numbers.")
    wrong = [name for name, value in arrays.items() if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8]
    if wrong:
        raise UserError(f"{path} is not a checkpoint: {few(wrong)} hold something other than numbers.")
    native = {name: value.astype(value.dtype.newbyteorder("="), copy=False) for name, value in arrays.items()}
    return {
        name: torch.from_numpy(value if value.dtype.kind != "u" else value.astype(np.int64))
        for name, value in native.items()
    }


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise UserError(f"{path} is not a readable .safetensors file: {error}") from error


def _weights_in(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict inside whatever a trainer saved."""
    inner = content
    for _ in range(2):  # a container may sit in another one
        if isinstance(inner, Mapping):  # a trainer may keep tensors of its own beside the container
            inner = next((inner[key] for key in CONTAINERS if isinstance(inner.get(key), Mapping)), inner)
    if isinstance(inner, Mapping) and _is_state(inner):
        return {key: value for key, value in inner.items() if isinstance(value, Tensor)}
    if isinstance(content, Mapping):
        content_text = f"it holds {few(map(str, content), 8)}"
    else:
        content_text = f"it holds one {type(content).__name__}"
    raise UserError(
        f"{path} is no checkpoint: {content_text}. Expected named tensors, or a dictionary with them under "
        f"{', '.join(map(repr, CONTAINERS))}."
    )


def _is_state(content: Mapping) -> bool:
    return any(isinstance(value, Tensor) for value in content.values())


@dataclass(frozen=True)
class Mismatch:
    """How the tensors of a file differ from those of a network."""

    missing: tuple[str, ...]  # the network has them, the file has not
    unexpected: tuple[str, ...]  # the other way round
    reshaped: tuple[tuple[str, Shape, Shape], ...]  # key, shape in the file, shape expected

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.reshaped)

    def __str__(self) -> str:
        parts = []
        if self.missing:
            parts.append(f"{len(self.missing)} tensors are missing ({few(self.missing)})")
        if self.reshaped:
            shapes = (f"{key} is {list(got)}, expected {list(want)}" for key, got, want in self.reshaped)
            parts.append(f"{len(self.reshaped)} have another shape ({few(shapes, separator='; ')})")
        if self.unexpected:
            parts.append(f"{len(self.unexpected)} are unknown ({few(self.unexpected)})")
        return ", ".join(parts)


def few(words: Iterable[str], shown: int = SHOWN, separator: str = ", ") -> str:
    words = list(words)
    return separator.join(words[:shown]) + (f"{separator}..." if len(words) > shown else "")


def compare(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mismatch:
    """How `state` differs from a network's own state dict. Batch counters may lack: old files have none."""
    shapes = {key: tuple(value.shape) for key, value in wanted.items()}
    return Mismatch(
        missing=tuple(key for key in shapes if key not in state and not key.endswith("num_batches_tracked")),
        unexpected=tuple(key for key in state if key not in shapes),
        reshaped=tuple(
            (key, tuple(state[key].shape), shape)
            for key, shape in shapes.items()
            if key in state and tuple(state[key].shape) != shape
        ),
    )


# What mmpose keeps beside the weights: its image normalisation, the grid of its soft-argmax.
_BYSTANDERS = re.compile(r"^data_preprocessor\.|\.linspace_[xy]$")


def is_mmpose(state: Mapping[str, Tensor]) -> bool:
    """mmpose puts every network under `backbone.` and `head.` (0.x: `keypoint_head.`)."""
    return any(key.startswith(("head.", "keypoint_head.")) for key in state) and any(
        key.startswith("backbone.") for key in state
    )


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    """The same tensors, every rule (pattern, replacement) applied to their names; bystanders are left out."""
    names = {key: key for key in state if not _BYSTANDERS.search(key)}
    for pattern, replacement in rules:
        names = {key: re.sub(pattern, replacement, name) for key, name in names.items()}
    return {name: state[key] for key, name in names.items()}


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
