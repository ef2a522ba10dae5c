"""What a body may be given: words for wrong sizes and for numbers that are none."""

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_COUNT, rotation_matrices
from pose2d.base.errors import UserError


def finite(value: Tensor, what: str) -> Tensor:
    """The same tensor, if all of it is finite."""
    # One pass over the sum first: any NaN or infinity survives it, and it costs a tenth of looking at each.
    if not torch.isfinite(value.sum()) and not torch.isfinite(value).all():
        raise UserError(f"{what} holds NaN or infinity; every number must be finite.")
    return value


def rotations(pose: Tensor) -> Tensor:
    """A pose in any of its three forms -> matrices [T, 24, 3, 3]."""
    size = tuple(pose.shape[1:])
    if size == (JOINT_COUNT, 3, 3):
        return pose
    if size == (JOINT_COUNT * 3,):
        return rotation_matrices(pose.unflatten(1, (JOINT_COUNT, 3)))
    if size == (JOINT_COUNT, 3):
        return rotation_matrices(pose)
    raise UserError(
        f"pose has size {list(pose.shape)}; expected axis-angle [T, 24, 3] or [T, 72], or matrices [T, 24, 3, 3], "
        "for T frames (one frame is T = 1)."
    )


def shape(value: Tensor, frames: int, directions: int) -> Tensor:
    """A shape for all frames [S] or for each [T, S], filled up with zeros to all directions."""
    rows_fit = value.ndim == 1 or (value.ndim == 2 and len(value) in (1, frames))
    if not rows_fit or not 1 <= value.shape[-1] <= directions:
        raise UserError(
            f"shape has size {list(value.shape)}; expected [S] or [T, S] for T = {frames} frames, with S at most "
            f"{directions}, the number of this body's shape directions."
        )
    if value.ndim == 2 and len(value) == 1:
        value = value[0]  # one body for all frames
    missing = directions - value.shape[-1]
    return torch.nn.functional.pad(value, (0, missing)) if missing else value


def translation(value: Tensor, frames: int) -> Tensor:
    """A translation [T, 3], or [1, 3] for all frames."""
    if tuple(value.shape) not in ((frames, 3), (1, 3)):
        raise UserError(f"translation has size {list(value.shape)}; expected [{frames}, 3] metres.")
    return value
