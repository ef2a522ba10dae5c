"""Decode heatmaps [N, K, h, w] to keypoints in cells (x right, y down) and the height of each peak.

The centre of the cell in column i and row j is (i, j). `xy_cells` [N, K, 2] times the crop pixels
per cell are crop pixels (`HeatmapModel`). The score is the height of the raw map at its peak,
before a blur. The functions at the end serve the flip test: they map predictions of mirrored crops
back to the original crops."""

from collections.abc import Sequence
from functools import partial

import cv2
import torch
import torch.nn.functional as F
from torch import Tensor

NOWHERE = -1.0  # mmpose's cell for a map without any positive value
TINY = torch.finfo(torch.float32).eps


def peaks(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the highest cell of each map, [N, K, 2] integers (x, y), and its height [N, K]."""
    score, index = maps.flatten(2).max(2)
    width = maps.shape[-1]
    return torch.stack([index % width, index.div(width, rounding_mode="floor")], -1), score


def _around(maps: Tensor, cells: Tensor, dx: int, dy: int) -> Tensor:
    """Return the value [N, K] at a step from `cells`; steps off the map stay on its edge."""
    h, w = maps.shape[-2:]
    x = (cells[..., 0] + dx).clamp(0, w - 1)
    y = (cells[..., 1] + dy).clamp(0, h - 1)
    return maps.flatten(2).gather(2, (y * w + x)[..., None])[..., 0]


def _inside(maps: Tensor, cells: Tensor, margin_end: int) -> Tensor:
    """Tell where 1 < x < w - margin_end and 1 < y < h - margin_end, [N, K]."""
    h, w = maps.shape[-2:]
    end = cells.new_tensor([w - margin_end, h - margin_end])
    return ((cells > 1) & (cells < end)).all(-1)


def quarter_offset(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Decode as Simple Baselines and HRNet: move the peak a quarter cell to its higher neighbours.

    Peaks near the edge stay. A map without a positive value puts its keypoint into cell (0, 0)."""
    cells, score = peaks(maps)
    cells = torch.where(score[..., None] > 0, cells, 0)
    steps = ((1, 0), (0, 1))
    slope = torch.stack(
        [_around(maps, cells, x, y) - _around(maps, cells, -x, -y) for x, y in steps], -1
    )
    return cells + 0.25 * slope.sign() * _inside(maps, cells, 1)[..., None], score


def mmpose_default(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Decode as `quarter_offset`, but put keypoints of maps without positive values at (-1, -1)."""
    xy_cells, score = quarter_offset(maps)
    return torch.where(score[..., None] > 0, xy_cells, NOWHERE), score


def _blur(padded: Tensor, size: int) -> Tensor:
    """Blur maps that are padded by size // 2 on every side; the padding is removed."""
    kernel = torch.from_numpy(cv2.getGaussianKernel(size, 0)[:, 0]).to(padded)
    flat = padded.flatten(0, 1)[:, None]
    flat = F.conv2d(F.conv2d(flat, kernel.view(1, 1, 1, -1)), kernel.view(1, 1, -1, 1))
    return flat.view(*padded.shape[:2], *flat.shape[2:])


def _newton_step(
    gradient: Tensor, dxx: Tensor, dxy: Tensor, dyy: Tensor, ridge: float = 0.0
) -> Tensor:
    """Return -H^-1 g [N, K, 2], H = [[dxx, dxy], [dxy, dyy]] + ridge * I; 0 where H is singular."""
    dxx = dxx + ridge
    dyy = dyy + ridge
    determinant = dxx * dyy - dxy**2
    gx, gy = gradient.unbind(-1)
    step = torch.stack([dxy * gy - dyy * gx, dxy * gx - dxx * gy], -1)
    is_singular = determinant == 0
    step = step / torch.where(is_singular, 1.0, determinant)[..., None]
    return torch.where(is_singular[..., None], 0.0, step)


def dark(maps: Tensor, kernel: int = 11) -> tuple[Tensor, Tensor]:
    """Decode as DARK (Zhang et al. 2020): blur, logarithm, a Newton step over two cells.

    `kernel` is 11 for maps trained with a target sigma of 2 cells and 17 for 3 cells."""
    cells, score = peaks(maps)
    blurred = _blur(F.pad(maps, (kernel // 2,) * 4), kernel)
    height = blurred.amax((2, 3), keepdim=True)
    log = (blurred * maps.amax((2, 3), keepdim=True) / height).clamp_min(1e-10).log()
    at = partial(_around, log, cells)
    gradient = 0.5 * torch.stack([at(1, 0) - at(-1, 0), at(0, 1) - at(0, -1)], -1)
    step = _newton_step(
        gradient,
        dxx=0.25 * (at(2, 0) - 2 * at(0, 0) + at(-2, 0)),
        dxy=0.25 * (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)),
        dyy=0.25 * (at(0, 2) - 2 * at(0, 0) + at(0, -2)),
    )
    xy_cells = cells + torch.where(_inside(maps, cells, 2)[..., None], step, 0.0)
    return torch.where(score[..., None] > 0, xy_cells, NOWHERE), score


def udp(maps: Tensor, kernel: int = 11) -> tuple[Tensor, Tensor]:
    """Decode as UDP (Huang et al. 2020) in ViTPose: blur, logarithm, a Newton step on 3x3 cells."""
    cells, score = peaks(maps)
    log = _blur(F.pad(maps, (kernel // 2,) * 4, mode="reflect"), kernel).clamp(1e-3, 50).log()
    at = partial(_around, log, cells)
    middle = at(0, 0)
    left = at(-1, 0)
    right = at(1, 0)
    up = at(0, -1)
    down = at(0, 1)
    step = _newton_step(
        gradient=0.5 * torch.stack([right - left, down - up], -1),
        dxx=right - 2 * middle + left,
        dxy=0.5 * (at(1, 1) - right - down + 2 * middle - left - up + at(-1, -1)),
        dyy=down - 2 * middle + up,
        ridge=TINY,
    )
    return torch.where(score[..., None] > 0, cells + step, NOWHERE), score


def soft_argmax(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Decode as integral regression (Sun et al. 2018).

    Returns the expected cell under the softmax of each map and the standard deviations around it in
    cells, both [N, K, 2]."""
    h, w = maps.shape[-2:]
    weight = maps.flatten(2).softmax(2).unflatten(2, (h, w))
    means = []
    spreads = []
    for size, shares in ((w, weight.sum(-2)), (h, weight.sum(-1))):  # [N, K, size] along x, then y
        cell = torch.arange(size, dtype=maps.dtype, device=maps.device)
        means.append((shares * cell).sum(-1))
        spreads.append((shares * (cell - means[-1][..., None]).square()).sum(-1).sqrt())
    return torch.stack(means, -1), torch.stack(spreads, -1)


FLOOR = 1e-6  # the logarithm of lower values is noise


def windows(maps: Tensor, cells: Tensor, radius: int) -> Tensor:
    """Cut squares [N, K, 2r+1, 2r+1] out of maps [N, K, h, w] around integer cells [N, K, 2] (x, y).

    Values outside the maps are zero."""
    w = maps.shape[-1]
    steps = torch.arange(2 * radius + 1, device=maps.device)
    rows = cells[..., 1, None, None] + steps[:, None]
    columns = cells[..., 0, None, None] + steps
    padded = F.pad(maps, (radius,) * 4).flatten(2)
    index = rows * (w + 2 * radius) + columns
    return padded.gather(2, index.flatten(2)).unflatten(2, (len(steps), len(steps)))


def fit_gaussian(
    maps: Tensor, cells: Tensor, radius: int = 2, largest_sigma: float = 8.0
) -> Tensor:
    """Fit axis-aligned Gaussians to maps [N, K, h, w] around `cells` (usually each map's peak).

    Returns their standard deviations [N, K, 2] along x and y, in cells. The logarithm of a Gaussian
    is a parabola, so its five coefficients are a linear least-squares problem; weighting by the
    squared height undoes what the logarithm does to the noise (Guo 2011, "A simple algorithm for
    fitting a Gaussian function"). An axis with too little downward curvature gets `largest_sigma`.
    """
    values = windows(maps.double(), cells, radius).clamp_min(FLOOR)
    step = torch.arange(-radius, radius + 1, device=maps.device, dtype=values.dtype)
    y, x = torch.meshgrid(step, step, indexing="ij")
    basis = torch.stack([torch.ones_like(x), x, y, x * x, y * y], -1)  # [2r+1, 2r+1, 5]
    weight = torch.where(values > FLOOR, values.square(), 0.0)
    weight = weight / weight.sum((-1, -2), keepdim=True).clamp_min(1e-30)
    normal = torch.einsum("nkyx,yxa,yxb->nkab", weight, basis, basis)
    ridge = 1e-9 * torch.eye(5, dtype=values.dtype, device=maps.device)  # for maps of zeros
    normal = normal + ridge
    right = torch.einsum("nkyx,nkyx,yxa->nka", weight, values.log(), basis)
    coefficient = torch.linalg.solve(normal, right)
    curvature = (-coefficient[..., 3:5]).clamp_min(0.5 / largest_sigma**2)
    return (0.5 / curvature).sqrt().to(maps.dtype)


def maps_back(maps: Tensor, flip_order: Sequence[int]) -> Tensor:
    """Map maps [N, K, h, w] of mirrored crops back: swap left and right, then reverse columns."""
    return maps[:, list(flip_order)].flip(-1)


def shift_right(maps: Tensor) -> Tensor:
    """Shift maps one cell to the right and repeat the first column.

    Sampling every fourth pixel is not symmetric under mirroring: a map that was mapped back lies
    about one cell to the left of the map of the crop itself."""
    return torch.cat([maps[..., :1], maps[..., :-1]], -1)


def points_back(xy: Tensor, flip_order: Sequence[int], mirror_sum: float) -> Tensor:
    """Map points [N, K, 2] of mirrored crops back: swap left and right, x becomes mirror_sum - x."""
    swapped = xy[:, list(flip_order)]
    return torch.stack([mirror_sum - swapped[..., 0], swapped[..., 1]], -1)
