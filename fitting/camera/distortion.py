"""Lens distortion with OpenCV's coefficients, in their order: k1 k2 p1 p2 [k3 [k4 k5 k6 [s1 s2 s3
s4]]].

A ray through (x, y, 1) meets the sensor, in units of the focal length and with r^2 = x^2 + y^2, at

    x' = x R + 2 p1 x y + p2 (r^2 + 2 x^2) + s1 r^2 + s2 r^4        R = 1 + k1 r^2 + k2 r^4 + k3 r^6
    y' = y R + p1 (r^2 + 2 y^2) + 2 p2 x y + s3 r^2 + s4 r^4            ---------------------------
                                                                        1 + k4 r^2 + k5 r^4 + k6 r^6
"""

import numpy as np
import torch
from torch import Tensor

_NEWTON_STEPS = 20  # quadratic near the answer: 4 or 5 do for an ordinary lens
# f'(x) = Im f(x + i h) / h for an analytic f, exact to rounding for any small h
_COMPLEX_STEP = 1e-20
_WIDEST = 20.0  # tan of the widest angle looked at, 87 degrees


def _padded(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return (*coefficients, *(0.0,) * (12 - len(coefficients)))


def distort(xy: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Return where straight rays [..., 2] (x / z, y / z) meet the sensor [..., 2]."""
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = _padded(coefficients)
    x, y = xy.unbind(-1)
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return torch.stack(
        (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + r2 * (s1 + r2 * s2),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + r2 * (s3 + r2 * s4),
        ),
        dim=-1,
    )


def undistort(xy_seen: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Invert `distort` by Newton's method in float64; NaN where no ray leads to that point.

    No gradient flows through it: the argument is a measurement.
    """
    distorted = xy_seen.detach().double()
    ray = distorted
    steps = _COMPLEX_STEP * torch.eye(2, dtype=distorted.dtype, device=distorted.device)
    for _ in range(_NEWTON_STEPS):
        stepped = (
            distort(torch.complex(ray, step.expand_as(ray)), coefficients).imag for step in steps
        )
        (xx, yx), (xy, yy) = (
            (change / _COMPLEX_STEP).unbind(-1) for change in stepped
        )  # d(x', y') / dx, / dy
        ex, ey = (distort(ray, coefficients) - distorted).unbind(-1)
        determinant = xx * yy - xy * yx
        ray = (
            ray
            - torch.stack(((yy * ex - xy * ey), (xx * ey - yx * ex)), -1) / determinant[..., None]
        )
    off = (distort(ray, coefficients) - distorted).norm(dim=-1)
    converged = (off < 1e-9) & (ray.norm(dim=-1) <= valid_radius(coefficients))
    return ray.where(converged[..., None], torch.nan).to(xy_seen.dtype)


def valid_radius(coefficients: tuple[float, ...]) -> float:
    """Return the largest |(x, y)| up to which the radial part grows; beyond it the image folds back
    on itself.
    """
    k1, k2, _, _, k3, k4, k5, k6, *_ = _padded(coefficients)
    r = np.linspace(0, _WIDEST, 20_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.polynomial.polynomial.polyval(r * r, (1, k1, k2, k3))
        distorted_radius = r * top / np.polynomial.polynomial.polyval(r * r, (1, k4, k5, k6))
    folds = ~(np.diff(distorted_radius) > 0)
    return float(r[folds.argmax()]) if folds.any() else float("inf")
