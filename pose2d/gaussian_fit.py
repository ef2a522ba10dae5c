"""How wide is the hill around a heatmap's peak? A Gaussian fitted to the map near the peak, all people at once."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 1e-6  # below this a map says nothing, and its logarithm only noise


@dataclass(frozen=True)
class GaussianFit:
    """Axis-aligned Gaussians amplitude * exp(-(x - x0)^2 / 2 sx^2 - (y - y0)^2 / 2 sy^2), in map cells."""

    centre_cells: Tensor  # [N, K, 2] x0, y0; the centre of cell (column i, row j) is (i, j)
    sigma_cells: Tensor  # [N, K, 2] sx, sy
    amplitude: Tensor  # [N, K]


def windows(maps: Tensor, cells: Tensor, radius: int) -> Tensor:
    """Square cut-outs [N, K, 2r+1, 2r+1] of maps [N, K, h, w] around integer cells [N, K, 2] (x, y); zero outside."""
    w = maps.shape[-1]
    steps = torch.arange(2 * radius + 1, device=maps.device)
    rows = cells[..., 1, None, None] + steps[:, None]
    columns = cells[..., 0, None, None] + steps
    padded = F.pad(maps, (radius,) * 4).flatten(2)
    index = rows * (w + 2 * radius) + columns
    return padded.gather(2, index.flatten(2)).unflatten(2, (len(steps), len(steps)))


def fit_gaussian(maps: Tensor, cells: Tensor, radius: int = 2, largest_sigma: float = 8.0) -> GaussianFit:
    """Fit the neighbourhood of `cells` (usually each map's peak) in maps [N, K, h, w].

    The logarithm of a Gaussian is a parabola, so its five coefficients are a linear least-squares problem; weighting
    by the squared height undoes what the logarithm does to the noise (Guo 2011, "A simple algorithm for fitting a
    Gaussian function"). Where an axis has no downward curvature, or less than `largest_sigma` has, sigma is
    `largest_sigma` and the centre stays in the cell.
    """
    values = windows(maps.double(), cells, radius).clamp_min(FLOOR)
    step = torch.arange(-radius, radius + 1, device=maps.device, dtype=values.dtype)
    y, x = torch.meshgrid(step, step, indexing="ij")
    basis = torch.stack([torch.ones_like(x), x, y, x * x, y * y], -1)  # [2r+1, 2r+1, 5]
    weight = torch.where(values > FLOOR, values.square(), 0.0)
    weight = weight / weight.sum((-1, -2), keepdim=True).clamp_min(1e-30)
    normal = torch.einsum("nkyx,yxa,yxb->nkab", weight, basis, basis)
    normal = normal + 1e-9 * torch.eye(5, dtype=values.dtype, device=maps.device)  # a map of zeros has no fit
    right = torch.einsum("nkyx,nkyx,yxa->nka", weight, values.log(), basis)
    coefficient = torch.linalg.solve(normal, right)
    linear, square = coefficient[..., 1:3], coefficient[..., 3:5]
    smallest_curvature = 0.5 / largest_sigma**2
    curvature = (-square).clamp_min(smallest_curvature)
    shift = torch.where(-square > smallest_curvature, linear / (2 * curvature), 0.0).clamp(-radius, radius)
    peak = coefficient[..., 0] + (linear * shift - curvature * shift.square()).sum(-1)
    return GaussianFit(
        centre_cells=(cells + shift).to(maps.dtype),
        sigma_cells=(0.5 / curvature).sqrt().to(maps.dtype),
        amplitude=peak.exp().to(maps.dtype),
    )
