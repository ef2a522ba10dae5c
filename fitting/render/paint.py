"""Blend coloured triangles into a photograph, with smooth outlines.

One sample per pixel is enough inside a surface. Where neighbouring pixels show different surfaces
(an outline, an arm in front of the chest), and only there, 4 x 4 samples are taken and averaged.
"""

import numpy as np

from fitting.render.compiled import compiled
from fitting.render.raster import corner_areas, inside, surface_weights, visibility
from fitting.render.screen import Screen

_GRID = 4  # samples along each side of an outline pixel
_DEPTH_STEP = 0.005  # neighbours whose depths differ by more than this share are an outline


def paint(image: np.ndarray, screen: Screen, colors: np.ndarray, *, antialias: bool = True) -> None:
    """Blend triangles into `image` [H, W, 3] uint8, in place.

    colors [V', 4] float32 of the vertices: red, green, blue 0..255, each times the opacity 0..1,
    and the opacity. Faces seen from behind are left out: a body is closed, so they are hidden
    anyway.
    """
    left, top, right, bottom = screen.window(image.shape[1], image.shape[0])
    xy = screen.xy_px - (left, top)
    mesh = (xy, screen.inverse_depth, screen.faces)
    triangle, nearest = visibility(*mesh, right - left, bottom - top, True)
    if antialias:
        slot = np.full(nearest.shape, -1, np.int32)
        count = _number_outlines(nearest, slot, np.zeros(nearest.shape[1], np.bool_))
        samples = np.full((count, _GRID * _GRID), -1, np.int32)
        _outline_visibility(*mesh, slot, samples, np.zeros(samples.shape, np.float32))
    else:
        slot = np.full((1, 1), -1, np.int32)
        samples = np.zeros((0, _GRID * _GRID), np.int32)
    _blend(image, (left, top), mesh, colors, triangle, slot, samples)


@compiled
def _number_outlines(nearest: np.ndarray, slot: np.ndarray, jump: np.ndarray) -> int:
    """Number the pixels beside a jump in (inverse) depth in `slot`, which is -1 before; `jump`
    [width] is false.
    """
    height, width = nearest.shape
    count = 0
    for y in range(height):
        centre = nearest[y]
        above = nearest[max(y - 1, 0)]
        below = nearest[min(y + 1, height - 1)]
        # nothing but arithmetic, so that it runs eight pixels at a time
        for x in range(1, width - 1):
            low = min(min(min(centre[x - 1], centre[x]), centre[x + 1]), min(above[x], below[x]))
            high = max(max(max(centre[x - 1], centre[x]), centre[x + 1]), max(above[x], below[x]))
            jump[x] = high - low > np.float32(_DEPTH_STEP) * high
        for x in range(width):
            if jump[x]:
                slot[y, x] = count
                count += 1
    return count


@compiled
def _outline_visibility(
    xy_px: np.ndarray,
    inverse_depth: np.ndarray,
    faces: np.ndarray,
    slot: np.ndarray,
    triangle: np.ndarray,
    nearest: np.ndarray,
) -> None:
    """Fill the nearest triangle at every sample of the numbered pixels, [count, GRID * GRID]: -1
    and 0 before.
    """
    height, width = slot.shape
    for f in range(faces.shape[0]):
        a = faces[f, 0]
        b = faces[f, 1]
        c = faces[f, 2]
        ax = xy_px[a, 0]
        ay = xy_px[a, 1]
        bx = xy_px[b, 0]
        by = xy_px[b, 1]
        cx = xy_px[c, 0]
        cy = xy_px[c, 1]
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        if not area < 0:
            continue
        ia = inverse_depth[a] / area
        ib = inverse_depth[b] / area
        ic = inverse_depth[c] / area
        left = max(np.ceil(min(ax, bx, cx) - 0.5), 0)
        right = min(np.floor(max(ax, bx, cx) + 0.5), width - 1)
        top = max(np.ceil(min(ay, by, cy) - 0.5), 0)
        bottom = min(np.floor(max(ay, by, cy) + 0.5), height - 1)
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


@compiled
def _sample(x: int, y: int, k: int) -> tuple[float, float]:
    return x + (k % _GRID + 0.5) / _GRID - 0.5, y + (k // _GRID + 0.5) / _GRID - 0.5


@compiled
def _blend(
    image: np.ndarray,
    corner: tuple[int, int],
    mesh: tuple[np.ndarray, np.ndarray, np.ndarray],
    colors: np.ndarray,
    triangle: np.ndarray,
    slot: np.ndarray,
    samples: np.ndarray,
) -> None:
    """Blend into the part of the image whose upper left corner is (left, top); mesh: xy_px,
    inverse_depth, faces.

    The image is not sliced: a slice that happens to be contiguous is another type, for which numba
    compiles again.
    """
    left, top = corner
    xy_px, inverse_depth, faces = mesh
    height, width = triangle.shape
    with_outlines = samples.shape[0] > 0
    for y in range(height):
        for x in range(width):
            s = slot[y, x] if with_outlines else -1
            if s < 0 and triangle[y, x] < 0:
                continue
            red = 0.0
            green = 0.0
            blue = 0.0
            covered = 0.0
            r = 0.0
            g = 0.0
            b = 0.0
            o = 0.0
            last = -1
            count = 1 if s < 0 else _GRID * _GRID
            for k in range(count):
                f = triangle[y, x] if s < 0 else samples[s, k]
                if f < 0:
                    continue
                # one colour per triangle and pixel: within a pixel only coverage changes visibly
                if f != last:
                    u, v = _sample(x, y, k) if s >= 0 else (float(x), float(y))
                    wa, wb, wc = surface_weights(xy_px, inverse_depth, faces, f, u, v)
                    p = colors[faces[f, 0]]
                    q = colors[faces[f, 1]]
                    t = colors[faces[f, 2]]
                    r = wa * p[0] + wb * q[0] + wc * t[0]
                    g = wa * p[1] + wb * q[1] + wc * t[1]
                    b = wa * p[2] + wb * q[2] + wc * t[2]
                    o = wa * p[3] + wb * q[3] + wc * t[3]
                    last = f
                red = red + r
                green = green + g
                blue = blue + b
                covered = covered + o
            over = 1 / count
            through = 1 - covered / count
            i = top + y
            j = left + x
            image[i, j, 0] = np.uint8(image[i, j, 0] * through + red * over + 0.5)
            image[i, j, 1] = np.uint8(image[i, j, 1] * through + green * over + 0.5)
            image[i, j, 2] = np.uint8(image[i, j, 2] * through + blue * over + 0.5)
