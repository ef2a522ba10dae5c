"""The lifter's network: what it reads of a frame, its layers, and its weights as a file.

Directions are points on the plane z = 1 of a camera ("rays"), so focal length and pixels are gone. Every frame is
looked at by a camera of its own, turned from the real one towards the person: what is left of the person's place in the
image is said in three numbers, the direction and the size of the box (CLIFF's full-frame inputs), and the answer is
turned back. The "box" is the mean and the spread of the keypoints, each counted by its trust; extremes would belong to
outliers.

Time enters by turning queries and keys by angles in proportion to the frame's time in seconds (rotary embedding), so
only differences of time matter, any frame rate will do, and one frame alone is a window like any other.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.rotations import matrix_to_rot6d, rot6d_to_matrix
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

KEYPOINTS = 17
LEAST_TRUST, LEAST_KEYPOINTS = 0.05, 2  # a frame with fewer keypoints of this trust says nothing
SIGMA_SCALE = 0.15  # of the box: a keypoint of this sigma is half believed
FARTHEST = 4.0  # boxes; what is read beyond is held there
PER_KEYPOINT = 5
FEATURES = PER_KEYPOINT * KEYPOINTS + 5


class Seen(NamedTuple):
    """Keypoints of frames [...], in any number of leading dimensions; the last of them is time."""

    rays: Tensor  # [..., T, 17, 2] on the plane z = 1; finite everywhere
    sigma: Tensor  # [..., T, 17] standard deviation on either axis, same unit
    confidence: Tensor  # [..., T, 17] expected OKS
    presence: Tensor  # [..., T, 17]
    marked: Tensor  # [..., T] 1: where people mark joints in photographs (`fitting.marked`), 0: the body's own points


class Box(NamedTuple):
    """Where a person is, as the turned camera sees it."""

    to_camera: Tensor  # [..., T, 3, 3] from the turned camera to the real one; its third column looks at the person
    size: Tensor  # [..., T] spread of the keypoints on the turned camera's plane z = 1
    known: Tensor  # [..., T] false: too little was seen, the box is between its neighbours'


class Inputs(NamedTuple):
    features: Tensor  # [..., T, FEATURES]
    box: Box
    points: Tensor  # [..., T, 17, 2] keypoints in boxes from the box's centre
    trust: Tensor  # [..., T, 17] how far each is believed, 0..1


def inputs(seen: Seen) -> Inputs:
    """Everything that the network reads."""
    trust = seen.confidence * seen.presence
    known = (trust >= LEAST_TRUST).sum(-1) >= LEAST_KEYPOINTS
    share = (trust / trust.sum(-1, keepdim=True).clamp(min=1e-6)).unsqueeze(-1)
    center = between((share * seen.rays).sum(-2), known)
    to_camera = turned_towards(center)
    rays = torch.einsum("...ki,...ij->...kj", _homogeneous(seen.rays), to_camera)  # R^T x, row by row
    rays = rays[..., :2] / rays[..., 2:].clamp(min=0.05)
    # A pixel off the axis covers a smaller angle: cos^2 along the way out, cos across; one number for both.
    shrink = center.square().sum(-1).add(1).pow(-0.75)
    size = between((share.squeeze(-1) * rays.square().sum(-1)).sum(-1).sqrt().clamp(min=1e-4).log()[..., None], known)
    size = size.squeeze(-1).exp()
    box = Box(to_camera, size, known)

    points = (rays / size[..., None, None]).clamp(-FARTHEST, FARTHEST)
    sigma = seen.sigma * (shrink / size)[..., None]
    presence = seen.presence * known[..., None]
    believed = presence / (1 + (sigma / SIGMA_SCALE).square())
    told = torch.stack((believed, presence, presence * (sigma.clamp(0.0075, 3).log() + 3)), -1)
    keypoint = torch.cat((points * believed[..., None], told), -1)
    said = torch.stack((size.log() + 3, known.to(size.dtype), seen.marked), -1)
    place = torch.cat((2.8 * center, said), -1)
    return Inputs(torch.cat((keypoint.flatten(-2), place), -1), box, points, believed)


def _homogeneous(rays: Tensor) -> Tensor:
    return torch.cat((rays, torch.ones_like(rays[..., :1])), -1)


def turned_towards(center: Tensor) -> Tensor:
    """The shortest turn [..., 3, 3] that takes the optical axis to a point [..., 2] of the plane z = 1."""
    x, y = center.unbind(-1)
    length = (x * x + y * y + 1).sqrt()
    x, y, z = x / length, y / length, 1 / length
    k = 1 / (1 + z)
    return torch.stack((1 - k * x * x, -k * x * y, x, -k * x * y, 1 - k * y * y, y, -x, -y, z), -1).unflatten(
        -1, (3, 3)
    )


def between(values: Tensor, known: Tensor) -> Tensor:
    """Values [..., T, n] where known [..., T]; elsewhere between the nearest known ones, zero if there is none."""
    if bool(known.all()):
        return values
    frame = torch.arange(known.shape[-1], device=known.device).expand(known.shape)
    never = torch.full_like(frame, -1)
    before = torch.where(known, frame, never).cummax(-1).values
    after = (
        torch.where(known, -frame, torch.full_like(frame, -known.shape[-1])).flip(-1).cummax(-1).values.flip(-1).neg()
    )
    last = known.shape[-1]
    first = torch.where(before >= 0, before, after.clamp(max=last - 1))
    second = torch.where(after < last, after, first)
    share = ((frame - first) / (second - first).clamp(min=1)).to(values.dtype)[..., None]
    index = (..., slice(None))

    def at(frames: Tensor) -> Tensor:
        return values.gather(-2, frames[..., None].expand(*frames.shape, values.shape[-1])[index])

    any_known = known.any(-1)[..., None, None]
    return torch.where(any_known, torch.lerp(at(first), at(second), share), torch.zeros_like(values))


WINDOW = 8  # frames that are read together
SLOW_STEP_S = 0.25  # longest time between frames of a window in training
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
