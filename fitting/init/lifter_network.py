"""The lifter's network: attention between the frames of a window.

Time enters by rotary embedding: queries and keys are rotated by angles in proportion to the frame's
time in seconds. So only differences of time matter, every frame rate works, and a single frame is a
window like any other.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix
from fitting.init.lifter_inputs import FEATURES, Box
from pose2d.base.arrays import read_npz
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

WINDOW = 8  # frames that are read together
SLOW_STEP_S = 0.25  # longest time between frames of a window in training
WIDTH = 192
LAYERS = 3
HEADS = 6
SHAPE = 10
OUTPUT_SIZE = 6 * JOINT_COUNT + SHAPE + 3
INITIAL_LOG_STD = -1.5  # before training: 0.22 rad, and 22 % of the distance
LOG_STD_RANGE = (-5.0, 1.0)  # of a stated standard deviation
PERIODS_S = (0.15, 6.0)  # shortest and longest rotary period


class LifterOutput(NamedTuple):
    """The network's output for frames [...], in the camera that is turned towards the person."""

    # [..., 24, 3, 3] each joint relative to its parent, the root to the turned camera
    rotation: Tensor
    shape: Tensor  # [..., 10] standard deviations
    offset: Tensor  # [..., 2] the pelvis, in boxes from the box's centre
    log_size: Tensor  # [...] log of the box's size in metres, at the distance of the pelvis
    # [..., 24] log of the standard deviation of each joint's rotation about any axis
    log_rotation_std: Tensor
    log_depth_std: Tensor  # [...] log of the relative standard deviation of the distance

    def pelvis(self, box: Box) -> Tensor:
        """Return the pelvis [..., 3] in metres, in the turned camera."""
        depth = self.log_size.exp() / box.size
        return (
            torch.cat((self.offset * box.size[..., None], torch.ones_like(depth)[..., None]), -1)
            * depth[..., None]
        )


class Block(nn.Module):
    """Attention between frames, then a feed-forward step of each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], attends: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query = qkv[0]
        key = qkv[1]
        value = qkv[2]
        attended = F.scaled_dot_product_attention(
            rotary(query, angles), rotary(key, angles), value, attn_mask=attends
        )
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        return self.feed_forward(x)


class FeedForward(nn.Module):
    """A residual step of one frame by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Lifter(nn.Module):
    """A network from features of windows of frames to bodies."""

    mean_pose: Tensor  # [24, 6] added to the output

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.feed_forward = FeedForward()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, OUTPUT_SIZE)
        self.log_std = nn.Linear(WIDTH, JOINT_COUNT + 1)
        for head in (self.output, self.log_std):
            nn.init.zeros_(head.bias)
            nn.init.normal_(head.weight, std=0.002)
        upright = torch.eye(3).repeat(JOINT_COUNT, 1, 1)
        upright[0] = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
        self.register_buffer("mean_pose", matrix_to_rot6d(upright))

    def forward(self, features: Tensor, time_s: Tensor, attends: Tensor) -> LifterOutput:
        """Return bodies for windows of frames.

        features [B, T, FEATURES]; time_s [B, T]; attends [B, T, T], true where frame i attends to
        frame j.
        """
        x = self.feed_forward(self.embed(features))
        angles = rotary_angles(time_s, WIDTH // HEADS)
        for block in self.blocks:
            x = block(x, angles, attends[:, None])
        x = self.output_norm(x)
        six, shape, offset, size = self.output(x).split((6 * JOINT_COUNT, SHAPE, 2, 1), -1)
        rotation = rot6d_to_matrix(self.mean_pose + six.unflatten(-1, (JOINT_COUNT, 6)))
        # detached: it learns from the output's errors without changing the output
        log_std = self.log_std(x.detach()) + INITIAL_LOG_STD
        return LifterOutput(
            rotation, shape, offset, size.squeeze(-1), log_std[..., :-1], log_std[..., -1]
        )


def rotary_angles(time_s: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin [B, 1, T, size / 2] of the angle by which each pair of numbers is
    turned.
    """
    shortest, longest = PERIODS_S
    share = torch.arange(size // 2, dtype=time_s.dtype, device=time_s.device) / (size // 2 - 1)
    rate = 2 * torch.pi / (shortest * (longest / shortest) ** share)
    angle = time_s[:, None, :, None] * rate
    return angle.cos(), angle.sin()


def rotary(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of numbers of x [B, heads, T, size]."""
    cosine, sine = angles
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)


def save_lifter(state: dict[str, Tensor], path: str | Path) -> None:
    """Write a state dictionary atomically."""
    arrays: dict[str, Any] = {
        name: value.detach().cpu().half().numpy() for name, value in state.items()
    }
    with atomic_file(path) as temporary:
        np.savez(temporary, **arrays)


@lru_cache(maxsize=2)
def load_lifter(path: str | Path | None = None) -> Lifter:
    """Load the embedded network, or one that `training.lifter` wrote, in eval mode."""
    if path is None:
        source = check_embedded(Path(str(files("fitting") / "data" / "lifter.npz")))
    else:
        source = Path(path)
    network = Lifter()
    arrays = read_npz(
        source, "Expected a lifter's weights, as `python -m training.lifter` makes them."
    )
    try:
        network.load_state_dict(
            {name: torch.from_numpy(value).float() for name, value in arrays.items()}
        )
    except Exception as error:  # text instead of numbers, tensors of another network
        raise UserError(f"{source} does not hold the weights of a lifter.") from error
    return network.eval().requires_grad_(False)
