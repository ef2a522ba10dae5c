"""Is it a person? A centre alone can be a table or a bush; a person has keypoints where the centre expects them."""

import torch
from torch import Tensor

from pose2d.models.movenet_network import MoveNet

BEST = 8  # of 17 keypoints: half of a person may be hidden
REACH = 3  # steps in each direction
STEP = 0.03  # of the box's diagonal, at least one cell


def keypoint_evidence(net: MoveNet, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
    """Mean heat [M], in 0..1, of the surest keypoints near where centres at cells [1, M, 2] (x, y) expect them, for
    boxes of width and height `box_cells` [1, M, 2]."""
    heat = net.head("kpt_heatmap")(trunk).sigmoid()[0]  # [17, h, w]
    expected = cells[0, :, None] + net.head("kpt_regress").at(trunk, cells).unflatten(-1, (17, 2))[0].flip(-1)
    step = (STEP * box_cells[0].norm(dim=-1)).clamp_min(1)
    grid = torch.arange(-REACH, REACH + 1, device=trunk.device)
    around = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1).flatten(0, 1)  # [S, 2]
    places = (expected[:, :, None] + step[:, None, None, None] * around).round().long()  # [M, 17, S, 2]
    h, w = heat.shape[1:]
    x, y = places[..., 0].clamp(0, w - 1), places[..., 1].clamp(0, h - 1)
    keypoint = torch.arange(17, device=trunk.device)[None, :, None]
    return heat[keypoint, y, x].amax(-1).topk(BEST, dim=-1).values.mean(-1)
