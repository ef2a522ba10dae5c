"""Check and unify what a body is called with: poses in three forms, shapes in two."""

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import rotation_matrices
from pose2d.base.errors import UserError


def pose_matrices(pose: Tensor) -> Tensor:
    """Convert a pose in any of its three forms to matrices [T, 24, 3, 3]."""
    size = tuple(pose.shape[1:])
    if size == (JOINT_COUNT, 3, 3):
        return pose
    if size in ((JOINT_COUNT * 3,), (JOINT_COUNT, 3)):
        return rotation_matrices(pose.reshape(-1, JOINT_COUNT, 3))
    raise UserError(
        f"pose has size {list(pose.shape)}; expected axis-angle [T, 24, 3] or [T, 72], "
        "or matrices [T, 24, 3, 3], for T frames (one frame is T = 1)."
    )


def check_shape(value: Tensor, frames: int, directions: int) -> Tensor:
    """Return a shape for all frames [S] or for each [T, S], padded with zeros to all directions."""
    rows_fit = value.ndim == 1 or (value.ndim == 2 and len(value) in (1, frames))
    # a fixed body has no shape directions
    if not rows_fit or not min(1, directions) <= value.shape[-1] <= directions:
        raise UserError(
            f"shape has size {list(value.shape)}; expected [S] or [T, S] for T = {frames} frames, "
            f"with S at most {directions}, the number of this body's shape directions."
        )
    if value.ndim == 2 and len(value) == 1:
        value = value[0]  # one body for all frames
    missing = directions - value.shape[-1]
    return torch.nn.functional.pad(value, (0, missing)) if missing else value
