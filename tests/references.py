"""What the original implementations answer, and checkpoints made from key names
(tests/data/reference/README.md).
"""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

REFERENCE = Path(__file__).parent / "data" / "reference"


@cache
def rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rules", REFERENCE / "rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(name: str) -> dict[str, np.ndarray]:
    with np.load(REFERENCE / f"{name}.npz") as file:
        return {key: file[key] for key in file.files if key != "keys"}


def state_and_input(name: str) -> tuple[dict[str, Tensor], Tensor]:
    """The checkpoint under its original key names, and the network's input."""
    path = str(REFERENCE / f"{name}.npz")
    state = {key: torch.from_numpy(value) for key, value in rules().checkpoint(path).items()}
    return state, torch.from_numpy(rules().network_input(path))


def hollow(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same names and shapes with nothing in them, small on disk: every tensor is one number,
    repeated.
    """
    return {
        key: torch.zeros((), dtype=value.dtype).expand(value.shape) for key, value in state.items()
    }


def relative_error(got: Tensor, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected value."""
    assert got.shape == expected.shape
    return float(np.abs(got.numpy() - expected).max() / np.abs(expected).max())
