"""Weights from a file, without executing any code in it; and how they differ from a network's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError
from pose2d.base.onnx_weights import ordered_weights, read_onnx
from pose2d.base.torch_checkpoint import read_torch

CONTAINERS = ("state_dict", "model", "network")  # where trainers put the weights among their other things
Shape = tuple[int, ...]
SHOWN = 4  # keys named in an error, of each kind


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.npz`, `.safetensors` or torch checkpoint, under the file's own key names; of an `.onnx` file
    under those of `ordered_weights`.

    Containers are opened, `module.` of data-parallel training is taken off, and floats become float32.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a checkpoint file" if path.is_dir() else "does not exist"
        raise UserError(f"checkpoint {path} {what}.")
    if path.suffix == ".npz":
        state = _read_npz(path)
    elif path.suffix == ".safetensors":
        state = _read_safetensors(path)
    elif path.suffix == ".onnx":
        state = {key: torch.from_numpy(value) for key, value in ordered_weights(read_onnx(path)).items()}
    else:
        state = _weights_in(read_torch(path), path)
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return {key: value.float() if torch.is_floating_point(value) else value for key, value in state.items()}


def _read_npz(path: Path) -> dict[str, Tensor]:
    found = read_npz(path, "Expected a checkpoint: named arrays of numbers.")
    wrong = [name for name, value in found.items() if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8]
    if wrong:
        raise UserError(f"{path} is not a checkpoint: {few(wrong)} hold something other than numbers.")
    native = {name: value.astype(value.dtype.newbyteorder("="), copy=False) for name, value in found.items()}
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
        found = f"it holds {few(map(str, content), 8)}"
    else:
        found = f"it holds one {type(content).__name__}"
    raise UserError(
        f"{path} is no checkpoint: {found}. Expected named tensors, or a dictionary with them under "
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
