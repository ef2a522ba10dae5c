"""Every regressor by name, and how a name and a checkpoint become a network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.init.regressors.network import CAMERA, MEAN_PARAMS, POSE, SHAPE, BodyRegressor
from fitting.init.regressors.windows import CLIFF_CROPPING, SPIN_CROPPING
from pose2d.backbones.hrnet import HRNetVector
from pose2d.backbones.resnet import ResNet
from pose2d.base.errors import UserError
from pose2d.checkpoints import compare, read_state
from pose2d.registry import recognize


@dataclass(frozen=True)
class RegressorCard:
    """One name that `load` knows."""

    name: str
    build: Callable[[], BodyRegressor]
    parameters: int  # number of weights, statistics and mean parameters not counted
    source: str  # where the checkpoint comes from
    licence: str  # of the published weights


def _cliff(trunk: Callable[[], ResNet | HRNetVector]) -> BodyRegressor:
    return BodyRegressor(trunk(), CLIFF_CROPPING, reads_box=True)


_SMPL = "non-commercial: trained on research data sets with SMPL"
CARDS = {
    card.name: card
    for card in (
        RegressorCard(
            "spin",
            lambda: BodyRegressor(ResNet(50), SPIN_CROPPING, reads_box=False),
            26_977_501,
            "github.com/nkolot/SPIN (fetch_data.sh: data/model_checkpoint.pt)",
            _SMPL,
        ),
        RegressorCard(
            "cliff-res50",
            partial(_cliff, partial(ResNet, 50)),
            26_980_573,
            "github.com/huawei-noah/noah-research, folder CLIFF (res50-*.pt)",
            _SMPL,
        ),
        RegressorCard(
            "cliff-hr48",
            partial(_cliff, partial(HRNetVector, 48)),
            78_893_405,
            "github.com/huawei-noah/noah-research, folder CLIFF (hr48-*.pt)",
            _SMPL,
        ),
    )
}


def names() -> list[str]:
    """Every regressor's name."""
    return list(CARDS)


def load(name: str, checkpoint: str | Path | None = None, mean_params: str | Path | None = None) -> BodyRegressor:
    """The network of that name in eval mode with the weights of an official checkpoint.

    mean_params: smpl_mean_params.npz; only for a checkpoint that does not hold them itself. The official ones do.
    """
    if name not in CARDS:
        raise UserError(f"unknown body regressor {name!r}: choose {', '.join(CARDS)}.")
    card = CARDS[name]
    if checkpoint is None:
        raise UserError(f"{name} ships no weights: pass a checkpoint, from {card.source} (licence: {card.licence}).")
    state = read_state(checkpoint)
    adopted = BodyRegressor.adopt(state)
    if mean_params is not None:
        adopted = {**_read_mean_params(Path(mean_params)), **adopted}
    elif not any(key in adopted for key in MEAN_PARAMS) and "decpose.weight" in adopted:
        raise UserError(
            f"{checkpoint} has no mean parameters (init_pose, ..): pass smpl_mean_params.npz as mean_params."
        )
    with torch.device("meta"):  # the file fills every tensor, so no time is spent on random numbers
        network = card.build()
    wanted = network.state_dict()
    mismatch = compare(wanted, adopted)
    if mismatch:
        raise UserError(f"{checkpoint} does not fit {name}: {mismatch}. {_looks_like(state)}")
    network.to_empty(device="cpu")
    counters = {key: torch.zeros(()) for key in wanted if key not in adopted}
    network.load_state_dict({**counters, **adopted})
    return network.eval().requires_grad_(False)


def _looks_like(state: Mapping[str, Tensor]) -> str:
    with torch.device("meta"):
        mine = [
            name for name, card in CARDS.items() if not compare(card.build().state_dict(), BodyRegressor.adopt(state))
        ]
    if mine:
        return f"The file looks like {' or '.join(mine)}: load it under that name."
    theirs = recognize(state)
    if theirs:
        return f"The file looks like the 2D pose network {' or '.join(theirs)}, which gives no body."
    return f"It looks like no body regressor known here ({', '.join(CARDS)})."


def _read_mean_params(path: Path) -> dict[str, Tensor]:
    """smpl_mean_params.npz: `pose` [144], `shape` [10], `cam` [3]."""
    sizes = {"pose": POSE, "shape": SHAPE, "cam": CAMERA}
    try:
        with np.load(path, allow_pickle=False) as file:
            values = [torch.tensor(file[name], dtype=torch.float32).view(1, size) for name, size in sizes.items()]
    except Exception as error:  # no file, no zip, no such entry, another size, objects instead of numbers
        wanted = ", ".join(f"`{name}` [{size}]" for name, size in sizes.items())
        raise UserError(f"{path} does not hold SMPL's mean parameters: expected an .npz with {wanted}.") from error
    return dict(zip(MEAN_PARAMS, values, strict=True))
