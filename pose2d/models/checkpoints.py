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

WEIGHTS = Path(__file__).parents[1] / "weights"  # folder of the embedded weights
CONTAINERS = ("state_dict", "model", "network")  # keys under which trainers save the weights
SHOWN = 4  # keys of each kind that an error message lists


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a `.npz`, `.safetensors`, `.onnx` or torch checkpoint.

    Names are those of the file; an `.onnx` file has those of `ordered_weights`. Containers are
    opened, `module.` of data-parallel training is removed, and floats become float32."""
    path = Path(path)
    if not path.is_file():
        problem = "is a folder, not a checkpoint file" if path.is_dir() else "does not exist"
        raise UserError(f"checkpoint {path} {problem}.", file=path)
    if path.suffix == ".npz":
        state = _read_npz_state(path)
    elif path.suffix == ".safetensors":
        state = _read_safetensors(path)
    elif path.suffix == ".onnx":
        from pose2d.base.onnx_weights import ordered_weights, read_onnx

        weights = ordered_weights(read_onnx(path))
        state = {key: torch.from_numpy(value) for key, value in weights.items()}
    else:
        state = _find_weights(read_torch(path), path)
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return {
        key: value.float() if torch.is_floating_point(value) else value
        for key, value in state.items()
    }


def _read_npz_state(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an .npz file as tensors."""
    arrays = read_npz(path, "Expected a checkpoint: named arrays of numbers.")
    wrong = [
        name
        for name, value in arrays.items()
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8
    ]
    if wrong:
        raise UserError(
            f"{path} is not a checkpoint: {list_few(wrong)} hold something other than numbers.",
            file=path,
        )
    for name, value in arrays.items():
        if value.dtype.kind == "u":  # torch has no unsigned integers of more than 8 bits
            arrays[name] = value.astype(np.int64)
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable .safetensors file: {error}", file=path
        ) from error


def _find_weights(content: object, path: Path) -> dict[str, Tensor]:
    """Return the state dict inside whatever a trainer saved."""
    inner = content
    for _ in range(2):  # a container may lie in another one, beside other tensors of the trainer
        if isinstance(inner, Mapping):
            containers = [inner[key] for key in CONTAINERS if isinstance(inner.get(key), Mapping)]
            inner = containers[0] if containers else inner
    if isinstance(inner, Mapping) and any(isinstance(value, Tensor) for value in inner.values()):
        return {key: value for key, value in inner.items() if isinstance(value, Tensor)}
    description = f"one {type(content).__name__}"
    if isinstance(content, Mapping):
        description = list_few(map(str, content), 8)
    raise UserError(
        f"{path} is no checkpoint: it holds {description}. Expected named tensors, or a dictionary "
        f"with them under {', '.join(map(repr, CONTAINERS))}.",
        file=path,
    )


def build_empty(build: Callable[[], Network]) -> Network:
    """Build a network of zeros, without spending time on random numbers, to be filled by a file."""
    with torch.device("meta"):
        model = build()
    # `to_empty` would do the same, but its `empty_like` of a meta tensor imports sympy, which takes
    # half a second.
    return model._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))


def list_few(words: Iterable[str], shown: int = SHOWN, separator: str = ", ") -> str:
    """Join the first words, with dots if there are more."""
    words = list(words)
    return separator.join(words[:shown]) + (f"{separator}..." if len(words) > shown else "")


def describe_mismatch(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Say how `state` differs from a network's own state dict; empty if it does not.

    Batch counters may be missing, since old files have none."""
    missing = [
        key for key in wanted if key not in state and not key.endswith("num_batches_tracked")
    ]
    reshaped = [
        f"{key} is {list(state[key].shape)}, expected {list(value.shape)}"
        for key, value in wanted.items()
        if key in state and state[key].shape != value.shape
    ]
    unknown = [key for key in state if key not in wanted]
    parts = []
    if missing:
        parts.append(f"{len(missing)} tensors are missing ({list_few(missing)})")
    if reshaped:
        examples = list_few(reshaped, separator="; ")
        parts.append(f"{len(reshaped)} have another shape ({examples})")
    if unknown:
        parts.append(f"{len(unknown)} are unknown ({list_few(unknown)})")
    return ", ".join(parts)


# Tensors that trainers save beside the weights: mmpose's image normalisation and the grid of its
# soft-argmax; the flow of RLE and Poseur, a density that only their losses need.
_BYSTANDERS = re.compile(
    r"^data_preprocessor\.|\.linspace_[xy]$|(^|\.)((enc|dec)_)?flow(_model)?\."
)


def is_mmpose(state: Mapping[str, Tensor]) -> bool:
    """Tell whether names are mmpose's: `backbone.` and `head.` (0.x: `keypoint_head.`)."""
    return any(key.startswith(("head.", "keypoint_head.")) for key in state) and any(
        key.startswith("backbone.") for key in state
    )


def rename_tensors(state: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    """Rename tensors by rules (pattern, replacement), applied in order, and drop bystanders."""
    names = {key: key for key in state if not _BYSTANDERS.search(key)}
    for pattern, replacement in rules:
        names = {key: re.sub(pattern, replacement, name) for key, name in names.items()}
    return {name: state[key] for key, name in names.items()}


def _stand_in(full_name: str, make: Callable[..., Any] = object) -> type:
    """Return a class with the full name that a pickle asks for.

    An instance is what `make` returns, or by default an object that keeps and does nothing."""
    module, _, name = full_name.rpartition(".")
    members = {
        "__new__": lambda cls, *args: object.__new__(cls) if make is object else make(*args),
        "__init__": lambda self, *_: None,
        "__setstate__": lambda self, _: None,
    }
    return type(name, (), {"__module__": module, "__qualname__": name, **members})


def _numpy_values() -> list[Any]:
    """Return the classes of NumPy arrays, scalars and types, which are plain data and run no code."""
    core_name = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    multiarray = importlib.import_module(f"{core_name}.multiarray")
    makers = [
        _stand_in(f"numpy.{core}.multiarray.{name}", getattr(multiarray, name))
        for core in ("core", "_core")  # the module's name in NumPy 1 and 2
        for name in ("_reconstruct", "scalar")
    ]
    codes = np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?SU"
    dtype_classes = {type(np.dtype(code)) for code in codes}
    return [*makers, np.ndarray, np.dtype, *dtype_classes]


_HARMLESS = [
    *_numpy_values(),
    _stand_in("mmengine.logging.history_buffer.HistoryBuffer"),
    # A HistoryBuffer names its methods by getattr; the real getattr is never called.
    _stand_in("builtins.getattr"),
]


def read_torch(path: Path) -> object:
    """Return what `torch.save` wrote, with tensors on the CPU and no code executed.

    While it reads, torch's list of safe names is extended by _HARMLESS."""
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals(_HARMLESS)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # foreign or cut files fail in zip, pickle, storage, ..
        refused = None
        if isinstance(error, pickle.UnpicklingError):
            refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if refused is None:
            raise UserError(
                f"{path} is not a torch checkpoint, or it is damaged or cut off.", file=path
            ) from error
        raise UserError(
            f"{path} was refused: beside tensors it holds {refused[1]}, and loading that could run "
            "code. If you know where the file comes from, open it there and save its weights "
            "alone: torch.save(file['state_dict'], ...).",
            file=path,
        ) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
