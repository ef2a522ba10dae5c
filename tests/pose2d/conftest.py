"""Checkpoints made from key names, and what the original implementations answer for them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
def conventions() -> dict[str, np.ndarray]:
    return references.answers("conventions")


@pytest.fixture(scope="session")
def reference() -> Callable[[str], Reference]:
    return lambda name: Reference(references.answers(name), *references.state_and_input(name))


@pytest.fixture(scope="session")
def relative_error() -> Callable[[Tensor, np.ndarray], float]:
    return references.relative_error


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[object], Path]:
    """Save something as a torch checkpoint."""

    def save(content: object) -> Path:
        path = tmp_path / "checkpoint.pth"
        torch.save(content, path)
        return path

    return save
