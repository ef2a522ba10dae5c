"""Read checkpoints of any trainer into a state dict, and compare it with a network's own.

No code in a checkpoint is executed. Torch's pickled checkpoints are read by torch's restricted
unpickler. Trainers leave other things beside the weights: plain NumPy values are let through, the
loss curves that mmengine keeps are replaced by empty objects, and anything else in the file is
refused by name."""

import importlib.util
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pose2d.base.arrays import read_npz
from pose2d.base.errors import UserError

Network = TypeVar("Network", bound=nn.Module)

WEIGHTS = Path(__file__).parents[1] / "weights"  # of what ships with the package


CONTAINERS = (
    "state_dict",
    "model",
    "network",
)  # where trainers put the weights among their other things
SHOWN = 4  # keys named in an error, of each kind


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.npz`, `.safetensors` or torch checkpoint, under the file's own key names;
    of an `.onnx` file under those of `ordered_weights`. Containers are opened, `module.` of
    data-parallel training is taken off, and floats become float32."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a checkpoint file" if path.is_dir() else "does not exist"
        raise UserError(f"checkpoint {path} {what}.")
    if path.suffix == ".npz":
        arrays = read_npz(path, "Expected a checkpoint: named arrays of numbers.")
        wrong = [
            name
            for name, value in arrays.items()
            if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8
        ]
        if wrong:
            raise UserError(
                f"{path} is not a checkpoint: {few(wrong)} hold something other than numbers."
            )
        whole = {
            name: value.astype(np.int64)
            for name, value in arrays.items()
            if value.dtype.kind == "u"
        }
        state = {name: torch.from_numpy(value) for name, value in {**arrays, **whole}.items()}
    elif path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            state = load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise UserError(f"{path} is not a readable .safetensors file: {error}") from error
    elif path.suffix == ".onnx":
        from pose2d.base.onnx_weights import ordered_weights, read_onnx

        state = {
            key: torch.from_numpy(value) for key, value in ordered_weights(read_onnx(path)).items()
        }
    else:
        state = _weights_in(read_torch(path), path)
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return {
        key: value.float() if torch.is_floating_point(value) else value
        for key, value in state.items()
    }


def _weights_in(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict inside whatever a trainer saved."""
    inner = content
    for _ in range(2):  # a container may sit in another one
        if isinstance(inner, Mapping):  # a trainer may keep tensors of its own beside the container
            inner = next(
                (inner[key] for key in CONTAINERS if isinstance(inner.get(key), Mapping)), inner
            )
    if isinstance(inner, Mapping) and any(isinstance(value, Tensor) for value in inner.values()):
        return {key: value for key, value in inner.items() if isinstance(value, Tensor)}
    holds = (
        few(map(str, content), 8)
        if isinstance(content, Mapping)
        else f"one {type(content).__name__}"
    )
    raise UserError(
        f"{path} is no checkpoint: it holds {holds}. Expected named tensors, or a dictionary with them under "
        f"{', '.join(map(repr, CONTAINERS))}."
    )


def unfilled(build: Callable[[], Network]) -> Network:
    """A network of zeros, which a file will fill: no time is spent on random numbers."""
    with torch.device("meta"):
        model = build()
    # As `to_empty`, whose `empty_like` of a meta tensor imports a computer algebra system, for half
    # a second.
    return model._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))


def few(words: Iterable[str], shown: int = SHOWN, separator: str = ", ") -> str:
    words = list(words)
    return separator.join(words[:shown]) + (f"{separator}..." if len(words) > shown else "")


def compare(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """How `state` differs from a network's own state dict, in words; empty where it does not. Batch
    counters may lack: old files have none."""
    missing = [
        key for key in wanted if key not in state and not key.endswith("num_batches_tracked")
    ]
    shapes = {
        key: (list(state[key].shape), list(value.shape))
        for key, value in wanted.items()
        if key in state
    }
    reshaped = [
        f"{key} is {got}, expected {want}" for key, (got, want) in shapes.items() if got != want
    ]
    unknown = [key for key in state if key not in wanted]
    parts = (
        f"{len(missing)} tensors are missing ({few(missing)})" if missing else "",
        f"{len(reshaped)} have another shape ({few(reshaped, separator='; ')})" if reshaped else "",
        f"{len(unknown)} are unknown ({few(unknown)})" if unknown else "",
    )
    return ", ".join(part for part in parts if part)


# What trainers keep beside the weights: mmpose's image normalisation and the grid of its
# soft-argmax; the flow of RLE and Poseur, a density that only their losses need.
_BYSTANDERS = re.compile(
    r"^data_preprocessor\.|\.linspace_[xy]$|(^|\.)((enc|dec)_)?flow(_model)?\."
)


def is_mmpose(state: Mapping[str, Tensor]) -> bool:
    """mmpose puts every network under `backbone.` and `head.` (0.x: `keypoint_head.`)."""
    return any(key.startswith(("head.", "keypoint_head.")) for key in state) and any(
        key.startswith("backbone.") for key in state
    )


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    """The same tensors, every rule (pattern, replacement) applied to their names; bystanders are
    left out.
    """
    names = {key: key for key in state if not _BYSTANDERS.search(key)}
    for pattern, replacement in rules:
        names = {key: re.sub(pattern, replacement, name) for key, name in names.items()}
    return {name: state[key] for key, name in names.items()}


def _stand_in(full_name: str, make: Callable[..., Any] = object) -> type:
    """A class that answers to the full name a pickle asks for. Of it comes what `make` makes, or an
    object that keeps nothing and does nothing."""
    module, _, name = full_name.rpartition(".")
    members = {
        "__new__": lambda cls, *given: object.__new__(cls) if make is object else make(*given),
        "__init__": lambda self, *_: None,
        "__setstate__": lambda self, _: None,
    }
    return type(name, (), {"__module__": module, "__qualname__": name, **members})


def _numpy_values() -> list[Any]:
    """Arrays, scalars and their types: plain data, whose construction runs no code of the file's."""
    multiarray = importlib.import_module(
        ("numpy._core" if hasattr(np, "_core") else "numpy.core") + ".multiarray"
    )
    makers = [
        _stand_in(f"numpy.{core}.multiarray.{name}", getattr(multiarray, name))
        for core in ("core", "_core")  # NumPy 1's and NumPy 2's name of the same module
        for name in ("_reconstruct", "scalar")
    ]
    kinds = {
        type(np.dtype(code))
        for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?SU"
    }
    return [*makers, np.ndarray, np.dtype, *kinds]


_HARMLESS = [
    *_numpy_values(),
    _stand_in("mmengine.logging.history_buffer.HistoryBuffer"),
    _stand_in(
        "builtins.getattr"
    ),  # a HistoryBuffer names its methods so; the real one is never called
]


def read_torch(path: Path) -> object:
    """What `torch.save` wrote, tensors on the CPU. Torch's list of safe names is longer for a
    moment.
    """
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals(_HARMLESS)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # a foreign or cut file fails in many ways: zip, pickle, storage, end of file
        refused = (
            re.search(r"GLOBAL ([\w.]+)", str(error))
            if isinstance(error, pickle.UnpicklingError)
            else None
        )
        if refused is None:
            raise UserError(
                f"{path} is not a torch checkpoint, or it is damaged or cut off."
            ) from error
        raise UserError(
            f"{path} was refused: beside tensors it holds {refused[1]}, and loading that could run code. "
            "If you know where the file comes from, open it there and save its weights alone: "
            "torch.save(file['state_dict'], ...)."
        ) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
