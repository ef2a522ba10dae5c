"""Checkpoints made from key names, and what the original implementations answer for them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from tests import references


@dataclass(frozen=True)
class Reference:
    answers: dict[str, np.ndarray]
    state: dict[str, Tensor]  # under the original key names
    crops: Tensor  # [N, 3, H, W] normalised


@pytest.fixture(scope="session")
def rules(shared: Path) -> ModuleType:
    return references.rules(shared)


@pytest.fixture(scope="session")
def conventions(shared: Path) -> dict[str, np.ndarray]:
    return dict(np.load(shared / "reference" / "conventions.npz"))


@pytest.fixture(scope="session")
def reference(shared: Path, rules: ModuleType) -> Callable[[str], Reference]:
    def read(name: str) -> Reference:
        path = str(shared / "reference" / f"{name}.npz")
        with np.load(path) as file:
            answers = {key: file[key] for key in file.files if key != "keys"}
        state = {key: torch.from_numpy(value) for key, value in rules.checkpoint(path).items()}
        return Reference(answers, state, torch.from_numpy(rules.network_input(path)))

    return read


@pytest.fixture(scope="session")
def relative_error() -> Callable[[Tensor, np.ndarray], float]:
    """The largest difference, relative to the largest expected value."""

    def error(got: Tensor, expected: np.ndarray) -> float:
        assert got.shape == expected.shape
        return float(np.abs(got.numpy() - expected).max() / np.abs(expected).max())

    return error


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[object], Path]:
    """Save something as a torch checkpoint."""

    def save(content: object) -> Path:
        path = tmp_path / "checkpoint.pth"
        torch.save(content, path)
        return path

    return save
