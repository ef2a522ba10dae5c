"""Weights from a file, without letting the file run code."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pose2d.errors import UserError
from pose2d.models.base import PoseModel


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.npz`, `.safetensors` or torch checkpoint, under the file's own key names."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}.")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {key: torch.from_numpy(file[key].astype(np.float32)) for key in file.files}
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def fill(model: PoseModel, path: str | Path, name: str) -> None:
    """Load `path` into `model`, or say which keys do not fit."""
    model.load_state_dict(model.adopt(read_state(path)))
