"""Frames that show too little: filled from their neighbours."""

import roma
import torch
from torch import Tensor

from fitting.solver.unknowns import State


def filled(state: State, known: Tensor) -> State:
    """Put the frames that are not known [T] between their nearest known neighbours; before the first and after the
    last the nearest one stands still. At least one frame must be known."""
    if bool(known.all()):
        return state
    index = known.nonzero().squeeze(1)
    frame = torch.arange(len(state))
    after = torch.searchsorted(index, frame).clamp(max=len(index) - 1)
    before = (torch.searchsorted(index, frame, right=True) - 1).clamp(min=0)
    low, high = index[before], index[after]
    share = ((frame - low) / (high - low).clamp(min=1)).clamp(0, 1).to(state.theta.dtype)

    def between(values: Tensor) -> Tensor:
        part = share.view(-1, *[1] * (values.ndim - 1))
        return torch.lerp(values[low], values[high], part)

    turn = roma.rotmat_to_rotvec(state.root[high] @ state.root[low].mT)
    root = roma.rotvec_to_rotmat(turn * share[:, None]) @ state.root[low]
    return State(
        root,
        between(state.theta),
        between(state.translation),
        state.shape if state.shared_shape else between(state.shape),
    )
