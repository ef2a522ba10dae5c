"""Coloured triangles over a photograph, with smooth outlines.

One sample per pixel is enough inside a surface. Where neighbouring pixels see different surfaces (an outline, an
arm before the chest), and only there, 4 x 4 samples are taken and averaged.

numba's cache watches a function's own file only: after editing rasterize.py, touch this file as well.
"""

import numba
import numpy as np

from fitting.render.rasterize import corner_areas, inside, surface_weights, visibility
from fitting.render.screen import Screen

_GRID = 4  # samples along each side of an outline pixel
_DEPTH_STEP = 0.005  # neighbours whose depths differ by more than this share are an outline


def paint(image: np.ndarray, screen: Screen, colors: np.ndarray, *, alpha: float = 1.0, antialias: bool = True) -> None:
    """Blend triangles with vertex colours [V', 3] float32 0..255 into `image` [H, W, 3] uint8, in place.

    Faces seen from behind are left out: a body is closed, so they are hidden anyway.
    """
    left, top, right, bottom = screen.window(image.shape[1], image.shape[0])
    xy = screen.xy_px - (left, top)
    mesh = (xy, screen.inverse_depth, screen.faces)
    triangle, nearest = visibility(*mesh, right - left, bottom - top, True)
    if antialias:
        slot, count = _outlines(nearest)
        samples = _outline_visibility(*mesh, slot, count)
    else:
        slot, samples = np.full((1, 1), -1, np.int32), np.zeros((0, _GRID * _GRID), np.int32)
    _blend(image[top:bottom, left:right], *mesh, colors, alpha, triangle, slot, samples)


@numba.njit(cache=True, nogil=True)
def _outlines(nearest: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the pixels beside a jump in (inverse) depth; the others get -1."""
    height, width = nearest.shape
    slot = np.full((height, width), -1, np.int32)
    jump = np.zeros(width, np.bool_)
    count = 0
    for y in range(height):
        here, above, below = nearest[y], nearest[max(y - 1, 0)], nearest[min(y + 1, height - 1)]
        for x in range(1, width - 1):  # nothing but arithmetic, so that it runs eight pixels at a time
            low = min(min(min(here[x - 1], here[x]), here[x + 1]), min(above[x], below[x]))
            high = max(max(max(here[x - 1], here[x]), here[x + 1]), max(above[x], below[x]))
            jump[x] = high - low > np.float32(_DEPTH_STEP) * high
        for x in range(width):
            if jump[x]:
                slot[y, x] = count
                count += 1
    return slot, count


@numba.njit(cache=True, nogil=True)
def _outline_visibility(
    xy_px: np.ndarray, inverse_depth: np.ndarray, faces: np.ndarray, slot: np.ndarray, count: int
) -> np.ndarray:
    """The nearest triangle at every sample of the numbered pixels, [count, GRID * GRID] (-1: none)."""
    height, width = slot.shape
    triangle = np.full((count, _GRID * _GRID), -1, np.int32)
    nearest = np.zeros((count, _GRID * _GRID), np.float32)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay, bx, by, cx, cy = xy_px[a, 0], xy_px[a, 1], xy_px[b, 0], xy_px[b, 1], xy_px[c, 0], xy_px[c, 1]
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        if not area < 0:
            continue
        ia, ib, ic = inverse_depth[a] / area, inverse_depth[b] / area, inverse_depth[c] / area
        left, right = max(np.ceil(min(ax, bx, cx) - 0.5), 0), min(np.floor(max(ax, bx, cx) + 0.5), width - 1)
        top, bottom = max(np.ceil(min(ay, by, cy) - 0.5), 0), min(np.floor(max(ay, by, cy) + 0.5), height - 1)
        if left > right or top > bottom:
            continue
        for y in range(int(top), int(bottom) + 1):
            for x in range(int(left), int(right) + 1):
                s = slot[y, x]
                if s < 0:
                    continue
                for k in range(_GRID * _GRID):
                    u, v = _sample(x, y, k)
                    wa, wb, wc = corner_areas(ax - u, ay - v, bx - u, by - v, cx - u, cy - v)
                    if inside(wa, wb, wc, area):
                        near = np.float32(wa * ia + wb * ib + wc * ic)
                        if near > nearest[s, k]:
                            nearest[s, k] = near
                            triangle[s, k] = f
    return triangle


@numba.njit(cache=True)
def _sample(x: int, y: int, k: int) -> tuple[float, float]:
    return x + (k % _GRID + 0.5) / _GRID - 0.5, y + (k // _GRID + 0.5) / _GRID - 0.5


@numba.njit(cache=True, nogil=True)
def _blend(
    image: np.ndarray,
    xy_px: np.ndarray,
    inverse_depth: np.ndarray,
    faces: np.ndarray,
    colors: np.ndarray,
    alpha: float,
    triangle: np.ndarray,
    slot: np.ndarray,
    samples: np.ndarray,
) -> None:
    height, width = triangle.shape
    with_outlines = samples.shape[0] > 0
    for y in range(height):
        for x in range(width):
            s = slot[y, x] if with_outlines else -1
            if s < 0 and triangle[y, x] < 0:
                continue
            red, green, blue, covered = 0.0, 0.0, 0.0, 0
            r, g, b, last = 0.0, 0.0, 0.0, -1
            count = 1 if s < 0 else _GRID * _GRID
            for k in range(count):
                f = triangle[y, x] if s < 0 else samples[s, k]
                if f < 0:
                    continue
                if f != last:  # one colour per triangle and pixel: within a pixel only coverage changes visibly
                    u, v = _sample(x, y, k) if s >= 0 else (float(x), float(y))
                    wa, wb, wc = surface_weights(xy_px, inverse_depth, faces, f, u, v)
                    p, q, t = colors[faces[f, 0]], colors[faces[f, 1]], colors[faces[f, 2]]
                    r = wa * p[0] + wb * q[0] + wc * t[0]
                    g = wa * p[1] + wb * q[1] + wc * t[1]
                    b = wa * p[2] + wb * q[2] + wc * t[2]
                    last = f
                red, green, blue, covered = red + r, green + g, blue + b, covered + 1
            over, through = alpha / count, 1 - alpha * covered / count
            image[y, x, 0] = np.uint8(image[y, x, 0] * through + red * over + 0.5)
            image[y, x, 1] = np.uint8(image[y, x, 1] * through + green * over + 0.5)
            image[y, x, 2] = np.uint8(image[y, x, 2] * through + blue * over + 0.5)
