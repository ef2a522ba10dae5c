"""The lifter's weights as a file: float16 in an .npz, one array per tensor."""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fitting.init.lifter.network import Lifter
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file


def save_lifter(state: dict[str, Tensor], path: str | Path) -> None:
    """Write a state dictionary, whole or not at all."""
    arrays: dict[str, Any] = {name: value.detach().cpu().half().numpy() for name, value in state.items()}
    with atomic_file(path) as temporary:
        np.savez(temporary, **arrays)


@lru_cache(maxsize=2)
def load_lifter(path: str | Path | None = None) -> Lifter:
    """The embedded network, or one that `fitting.lifter_training.train` wrote, ready to be asked."""
    source = Path(str(files("fitting") / "data" / "lifter.npz")) if path is None else Path(path)
    network = Lifter()
    try:
        with np.load(source, allow_pickle=False) as file:
            state = {name: torch.from_numpy(cast(np.ndarray, file[name])).float() for name in file.files}
        network.load_state_dict(state)
    except FileNotFoundError as error:
        raise UserError(
            f"{source} does not exist; expected a lifter's weights. Make them: python -m fitting.lifter_training.train."
        ) from error
    except Exception as error:  # no zip, objects instead of numbers, tensors of another network
        raise UserError(f"{source} does not hold the weights of a lifter.") from error
    return network.eval().requires_grad_(False)
