"""What the original implementations answer, and checkpoints made from key names."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor


def rules(shared: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rules", shared / "reference" / "rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(shared: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(shared / "reference" / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def state_and_input(shared: Path, name: str) -> tuple[dict[str, Tensor], Tensor]:
    """The checkpoint under its original key names, and the network's input."""
    rule, path = rules(shared), str(shared / "reference" / f"{name}.npz")
    state = {key: torch.from_numpy(value) for key, value in rule.checkpoint(path).items()}
    return state, torch.from_numpy(rule.network_input(path))


def hollow(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same names and shapes with nothing in them, small on disk: every tensor is one number, repeated."""
    return {key: torch.zeros((), dtype=value.dtype).expand(value.shape) for key, value in state.items()}


def relative_error(got: Tensor, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest expected value."""
    assert got.shape == expected.shape
    return float(np.abs(got.numpy() - expected).max() / np.abs(expected).max())
