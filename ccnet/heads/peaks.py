"""What a map of features says about the keypoints read from it, as numbers a small network can weigh.

The network's own last layer turns features into one map per keypoint. How high is the peak, how wide, how far is the
next one, what do the features look like there, and what else is in the crop: all of this is fixed arithmetic, so it
is done once per crop and kept (ccnet/cache.py); only the layers behind it learn.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GRID = 4  # the crop's features are averaged over GRID x GRID fields
RIVAL_RADII = (1 / 16, 1 / 8, 1 / 4)  # a peak farther away than this, in map sides, is another place
MASS_RADII = (1 / 24, 1 / 10, 1 / 5)  # how much of the map lies this close to the peak
SPREAD_RADIUS = 1 / 7
LOCAL_WINDOW = 7  # cells: features at the peak, and averaged over this window
CENTRE_REACH = 0.3  # map sides: the person of interest is in the middle of the crop
PEAK_NUMBERS = 6 + len(RIVAL_RADII) + len(MASS_RADII)  # per keypoint, as `describe_peaks` lists them
FLOOR = 1e-4


def cell_grid(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of every cell, [h * w] each."""
    rows, columns = (torch.arange(n, device=device, dtype=torch.float32) for n in (height, width))
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return y.flatten(), x.flatten()


def find_peaks(heat: Tensor) -> Tensor:
    """Where each keypoint of the person in the middle probably is: flat cell index [N, K] of maps [N, K, h, w]."""
    height, width = heat.shape[-2:]
    y, x = cell_grid(height, width, heat.device)
    distance = torch.hypot(y - height / 2, x - width / 2) / max(height, width)
    return (heat.flatten(2) / (distance + CENTRE_REACH)).argmax(-1)


def describe_peaks(heat: Tensor, index: Tensor) -> Tensor:
    """Numbers about the peaks at cells [N, K] of maps [N, K, h, w] with values in [0, 1]: [N, K, PEAK_NUMBERS].

    Height (plain and as log odds), place, how much higher the map is elsewhere: anywhere and beyond each of
    RIVAL_RADII; the map's mass within each of MASS_RADII against all of it; its spread around the peak.
    """
    height, width = heat.shape[-2:]
    side = max(height, width)
    flat = heat.flatten(2).clamp(FLOOR, 1 - FLOOR)
    y, x = cell_grid(height, width, heat.device)
    row, column = (index // width).float(), (index % width).float()
    away2 = (y - row[..., None]).square().add_((x - column[..., None]).square())  # [N, K, h * w] cells^2
    peak = flat.gather(2, index[..., None])[..., 0]
    odds, mass = torch.logit(peak), flat.sum(-1)
    rivals = [(flat * (away2 > (r * side) ** 2)).amax(-1).clamp_min(FLOOR).logit() - odds for r in RIVAL_RADII]
    within = [((flat * (away2 <= (r * side) ** 2)).sum(-1) / mass).clamp_min(FLOOR).log() for r in MASS_RADII]
    near = flat * (away2 <= (SPREAD_RADIUS * side) ** 2)
    spread = ((near * away2).sum(-1) / near.sum(-1)).sqrt() / side
    return torch.stack([peak, odds, column / width, row / height, mass.log(), spread, *rivals, *within], -1)


def features_at(features: Tensor, index: Tensor) -> Tensor:
    """Features [N, C, h, w] in the cells [N, K], and averaged around them: [N, K, 2 C].

    Beyond the map's edge its last row or column is repeated.
    """
    height, width = features.shape[-2:]
    step = torch.arange(LOCAL_WINDOW, device=features.device) - LOCAL_WINDOW // 2
    rows = ((index // width)[..., None] + step).clamp(0, height - 1)
    columns = ((index % width)[..., None] + step).clamp(0, width - 1)
    cells = (rows[..., :, None] * width + columns[..., None, :]).flatten(2)  # [N, K, window^2]
    picked = features.flatten(2).gather(2, cells.flatten(1)[:, None].expand(-1, features.shape[1], -1))
    window = picked.unflatten(2, cells.shape[1:])  # [N, C, K, window^2]
    return torch.cat([window[..., LOCAL_WINDOW**2 // 2], window.mean(-1)], 1).transpose(1, 2)


def survey(features: Tensor) -> Tensor:
    """The whole crop, coarsely: features [N, C, h, w] averaged over fields, [N, C, GRID^2]."""
    return F.adaptive_avg_pool2d(features, GRID).flatten(2)
