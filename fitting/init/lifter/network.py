"""The network: an embedding of each frame, then frames listen to each other; its answer is a body per frame.

Time enters by turning queries and keys by angles in proportion to the frame's time in seconds (rotary embedding), so
only differences of time matter, any frame rate will do, and one frame alone is a window like any other.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix
from fitting.init.lifter.inputs import FEATURES, Box

WIDTH, LAYERS, HEADS = 192, 3, 6
SHAPE = 10
ANSWER = 6 * JOINT_COUNT + SHAPE + 3
LOG_DOUBT = -1.5  # where the doubt begins: 0.22 rad, and 22 % of the distance
LOG_RANGE = (-5.0, 1.0)  # of a stated spread
PERIODS_S = (0.15, 6.0)  # shortest and longest time that a head can tell apart


class Answer(NamedTuple):
    """What the network says of frames [...], in the camera that is turned towards the person."""

    rotation: Tensor  # [..., 24, 3, 3] each joint relative to its parent, the root to the turned camera
    shape: Tensor  # [..., 10] standard deviations
    offset: Tensor  # [..., 2] the pelvis, in boxes from the box's centre
    log_size: Tensor  # [...] log of the box's size in metres, at the distance of the pelvis
    log_turn_rad: Tensor  # [..., 24] log of the standard deviation of each joint's rotation about any axis
    log_depth: Tensor  # [...] log of the relative standard deviation of the distance

    def pelvis(self, box: Box) -> Tensor:
        """[..., 3] metres, in the turned camera."""
        depth = self.log_size.exp() / box.size
        return torch.cat((self.offset * box.size[..., None], torch.ones_like(depth)[..., None]), -1) * depth[..., None]


class Block(nn.Module):
    """Frames listen to each other, then each thinks for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.before_listening = nn.LayerNorm(WIDTH)
        self.ask = nn.Linear(WIDTH, 3 * WIDTH)
        self.heard = nn.Linear(WIDTH, WIDTH)
        self.think = Thought()

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], listens: Tensor) -> Tensor:
        asked = self.ask(self.before_listening(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = asked[0], asked[1], asked[2]
        told = F.scaled_dot_product_attention(rotary(query, turn), rotary(key, turn), value, attn_mask=listens)
        x = x + self.heard(told.transpose(1, 2).flatten(2))
        return self.think(x)


class Thought(nn.Module):
    """A residual step of one frame by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.wide(self.before(x))))


class Lifter(nn.Module):
    """Features of windows of frames -> bodies."""

    mean_pose: Tensor  # [24, 6] the answers begin here

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.first_thought = Thought()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        self.answer = nn.Linear(WIDTH, ANSWER)
        self.doubt = nn.Linear(WIDTH, JOINT_COUNT + 1)
        for head in (self.answer, self.doubt):
            nn.init.zeros_(head.bias)
            nn.init.normal_(head.weight, std=0.002)
        upright = torch.eye(3).repeat(JOINT_COUNT, 1, 1)
        upright[0] = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
        self.register_buffer("mean_pose", matrix_to_rot6d(upright))

    def forward(self, features: Tensor, time_s: Tensor, listens: Tensor) -> Answer:
        """features [B, T, FEATURES]; time_s [B, T]; listens [B, T, T], true where frame i hears frame j."""
        x = self.first_thought(self.embed(features))
        turn = rotary_angles(time_s, WIDTH // HEADS)
        for block in self.blocks:
            x = block(x, turn, listens[:, None])
        x = self.last(x)
        six, shape, offset, size = self.answer(x).split((6 * JOINT_COUNT, SHAPE, 2, 1), -1)
        rotation = rot6d_to_matrix(self.mean_pose + six.unflatten(-1, (JOINT_COUNT, 6)))
        doubt = self.doubt(x.detach()) + LOG_DOUBT  # learns from the answer's errors, and leaves the answer alone
        return Answer(rotation, shape, offset, size.squeeze(-1), doubt[..., :-1], doubt[..., -1])


def rotary_angles(time_s: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """cos and sin [B, 1, T, size / 2] of the angle by which each pair of numbers is turned."""
    shortest, longest = PERIODS_S
    share = torch.arange(size // 2, dtype=time_s.dtype, device=time_s.device) / (size // 2 - 1)
    rate = 2 * torch.pi / (shortest * (longest / shortest) ** share)
    angle = time_s[:, None, :, None] * rate
    return angle.cos(), angle.sin()


def rotary(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of numbers of x [B, heads, T, size]."""
    cosine, sine = turn
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)
