"""What MoveNet's heads say of each other.

Its heatmaps show keypoints of anyone in the crop; its centre map shows middles of people; its regression head says
where the person with this middle should have its keypoints. Where the three agree, the keypoints are probably right.
"""

import torch
from torch import Tensor, nn

from pose2d.models.movenet import SinglePose
from pose2d.models.movenet_decode import Choice, View, choose
from pose2d.models.movenet_network import SINGLE_HEADS, Head
from pose2d.skeletons import COCO17

HEARD = ("kpt_heatmap", "center", "kpt_regress")
RIVAL_RADII = (1 / 16, 1 / 8, 1 / 4)  # a middle farther away than this, in map sides, is another person's
KEYPOINT_NUMBERS, PERSON_NUMBERS = 6, 3 + len(RIVAL_RADII)  # as `describe` lists them
FLOOR = 1e-4


class Witnesses(nn.Module):
    """Copies of those of MoveNet's heads that choose a keypoint's cell."""

    def __init__(self, keypoints: int) -> None:
        super().__init__()
        assert keypoints == COCO17.size
        self.heads = nn.ModuleDict({name: Head(SINGLE_HEADS[name]) for name in HEARD})

    def head(self, name: str) -> Head:
        found = self.heads[name]
        assert isinstance(found, Head)
        return found

    def hear(self, model: SinglePose) -> None:
        """Take over the model's weights."""
        for name in HEARD:
            self.head(name).load_state_dict(model.net.head(name).state_dict())

    def forward(self, hidden: Tensor, trunk: Tensor) -> Choice:
        return choose([View(self, hidden, trunk)])


def count(keypoints: int) -> int:
    """How many numbers `describe` gives."""
    return keypoints * KEYPOINT_NUMBERS + PERSON_NUMBERS


def describe(chosen: Choice) -> Tensor:
    """[N, count]: for each keypoint how far its cell lies from where it was expected (x, y, and logarithm), how much
    hotter its own map is there than its mirror twin's, and than it is at the expected place, and how far its twin's
    cell is; then the centre map's height, how much higher it is farther away, and where.
    """
    h, w = chosen.heat.shape[2:]
    odds = chosen.heat.clamp(FLOOR, 1 - FLOOR).logit().flatten(2)
    own = odds.gather(2, chosen.index[..., None])[..., 0]
    twin = torch.tensor(COCO17.flip_order, device=odds.device)
    others = odds[:, twin].gather(2, chosen.index[..., None])[..., 0]
    column, row = (chosen.expected[..., axis].floor().clamp(0, last - 1) for axis, last in ((0, w), (1, h)))
    there = odds.gather(2, (row * w + column).long()[..., None])[..., 0]
    places = chosen.cells + 0.5
    off = (places - chosen.expected) / w
    apart = (places - places[:, twin]).norm(dim=-1) / w
    nearness = torch.stack([off.norm(dim=-1) + 1e-3, apart + 1e-2], -1).log()
    keypoint = torch.cat([off, nearness, torch.stack([own - others, there - own], -1)], -1)
    return torch.cat([keypoint.flatten(1), _describe_centre(chosen)], 1)


def _describe_centre(chosen: Choice) -> Tensor:
    """[N, PERSON_NUMBERS]"""
    h, w = chosen.centre.shape[2:]
    odds = chosen.centre[:, 0].clamp(FLOOR, 1 - FLOOR).logit()
    x, y = (chosen.person[:, 0, axis].float() for axis in (0, 1))
    own = odds.flatten(1).gather(1, (y * w + x).long()[:, None])[:, 0]
    columns = torch.arange(w, device=odds.device) - x[:, None, None]
    rows = torch.arange(h, device=odds.device)[:, None] - y[:, None, None]
    away = torch.hypot(columns, rows) / w
    lowest = odds.new_tensor(FLOOR).logit()
    rivals = [torch.where(away > radius, odds, lowest).amax((1, 2)) - own for radius in RIVAL_RADII]
    return torch.stack([own, *rivals, (x + 0.5) / w - 0.5, (y + 0.5) / h - 0.5], 1)
