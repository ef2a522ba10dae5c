"""Which triangle does each pixel see? A z-buffer, compiled by numba.

Pixel (x, y) looks through the point (x, y): pixel centres are whole numbers (see
fitting/camera.py). Edges belong to both triangles that share them, so a closed surface has no
cracks; of equally near triangles the first wins.

`paint` blends coloured triangles into a photograph, with smooth outlines: one sample per pixel is
enough inside a surface; where neighbouring pixels see different surfaces (an outline, an arm before
the chest), and only there, 4 x 4 samples are taken and averaged.

Loops over triangles and pixels, compiled by numba when they are first called.

Two habits keep that first call short: compiled functions are given the arrays that they fill, and
they write plain scalars. One line of array arithmetic in one of them (`normals[i] /= length`) took
two seconds to compile."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numba
import numpy as np
import torch

from fitting.camera import NEAR_PLANE_M, Camera, valid_radius

F = TypeVar("F", bound=Callable)


def compiled(function: F) -> F:
    """A decorator. What was compiled is kept on disk, so that the next process only reads it. numba
    keeps it in NUMBA_CACHE_DIR, in `__pycache__` beside the file, or in the user's cache folder,
    whichever of them is the first that can be written to. Where none can, as in some containers,
    every process compiles anew."""
    njit: Any = numba.njit  # what it returns is called as the function itself
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no place to keep it
        return njit(nogil=True)(function)


@dataclass(frozen=True)
class Screen:
    """Projected triangles. Those cut at the near plane come last, each with three vertices of its
    own.
    """

    xy_px: np.ndarray  # [V', 2] float64; NaN for a vertex that no triangle uses
    inverse_depth: (
        np.ndarray
    )  # [V'] float64, 1 / metres: affine across a triangle in the image, as depth is not
    faces: np.ndarray  # [F', 3] int32
    parent: np.ndarray  # [F'] int32 the given face that each triangle is (a part of)
    part: (
        np.ndarray
    )  # [P, 3, 3] corners of the last P triangles in barycentric coordinates of their parent

    def interpolate(self, values: np.ndarray, given_faces: np.ndarray) -> np.ndarray:
        """Values at the given vertices [V, C] -> at the vertices of this screen [V', C]."""
        if not len(self.part):
            return values
        corners = values[given_faces[self.parent[-len(self.part) :]]]  # [P, 3, C]
        cut = np.einsum("pij,pjc->pic", self.part, corners).reshape(-1, values.shape[1])
        return np.concatenate((values, cut.astype(values.dtype)))

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """The part of an image the triangles can touch, a pixel's margin included: left, top,
        right, bottom. Right and bottom are exclusive, as in slices; all are 0 when nothing is in
        sight."""
        left, top = np.nanmin(self.xy_px, 0, initial=np.inf)
        right, bottom = np.nanmax(self.xy_px, 0, initial=-np.inf)
        if not right >= left:
            return 0, 0, 0, 0
        left = min(max(left - 1, 0), width)
        top = min(max(top - 1, 0), height)
        right = min(max(right + 2, 0), width)
        bottom = min(max(bottom + 2, 0), height)
        return math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)


def project_triangles(vertices_cam: np.ndarray, faces: np.ndarray, camera: Camera) -> Screen:
    """Vertices [V, 3] metres in the camera frame, faces [F, 3] -> the triangles in the image."""
    vertices = vertices_cam.astype(np.float64)
    parent = np.arange(len(faces), dtype=np.int32)
    part = np.zeros((0, 3, 3))
    front = vertices[:, 2] > NEAR_PLANE_M
    if not front.all():
        vertices, faces, parent, part = _cut_at_near_plane(vertices, faces, front)
    # Cut vertices lie at NEAR_PLANE_M, give or take.
    z = np.where(vertices[:, 2] > NEAR_PLANE_M / 2, vertices[:, 2], np.nan)
    xy_px = camera.project(torch.from_numpy(vertices)).numpy()
    if camera.distortion:  # beyond this the lens formula would fold the scene back into the image
        folded = np.hypot(vertices[:, 0], vertices[:, 1]) > valid_radius(camera.distortion) * z
        xy_px[folded] = np.nan
    return Screen(xy_px, 1 / z, faces, parent, part)


def joined(screens: Sequence[Screen]) -> Screen:
    """All triangles on one screen, for painting: which of them were cut is forgotten."""
    first = np.cumsum([0, *(len(screen.xy_px) for screen in screens[:-1])], dtype=np.int32)
    faces = np.concatenate(
        [screen.faces + start for screen, start in zip(screens, first, strict=True)]
    )
    xy_px, inverse_depth = (
        np.concatenate([getattr(s, name) for s in screens]) for name in ("xy_px", "inverse_depth")
    )
    return Screen(
        xy_px, inverse_depth, faces, np.arange(len(faces), dtype=np.int32), np.zeros((0, 3, 3))
    )


def _cut_at_near_plane(
    vertices: np.ndarray, faces: np.ndarray, front: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Keep what is in front; cut a crossing triangle into one (one corner in front) or two (two
    corners).
    """
    in_front = front[faces]  # [F, 3]
    count = in_front.sum(axis=1)
    owners = []
    parts = []
    for corners_in_front, lone_is_front in ((1, True), (2, False)):
        owner = np.flatnonzero(count == corners_in_front)
        lone = (in_front[owner] == lone_is_front).argmax(axis=1)
        order = (lone[:, None] + np.arange(3)) % 3  # the lone corner first; winding kept
        z = np.take_along_axis(vertices[faces[owner], 2], order, axis=1)
        corner = np.eye(3)[order]  # [N, 3, 3] the corners a, b, c themselves
        t = (NEAR_PLANE_M - z[:, :1]) / (
            z[:, 1:] - z[:, :1]
        )  # where edges a-b and a-c meet the plane
        ab, ac = (
            (1 - t[:, i, None]) * corner[:, 0] + t[:, i, None] * corner[:, i + 1] for i in (0, 1)
        )
        if lone_is_front:
            triangles = [(corner[:, 0], ab, ac)]
        else:
            triangles = [(ab, corner[:, 1], corner[:, 2]), (ab, corner[:, 2], ac)]
        for triangle in triangles:
            owners.append(owner)
            parts.append(np.stack(triangle, axis=1))
    owner = np.concatenate(owners)
    part = np.concatenate(parts)
    cut = np.einsum("pij,pjk->pik", part, vertices[faces[owner]]).reshape(-1, 3)
    whole = np.flatnonzero(count == 3)
    new_faces = np.arange(len(cut)).reshape(-1, 3) + len(vertices)
    kept, parent = (
        np.concatenate(both).astype(np.int32)
        for both in ((faces[whole], new_faces), (whole, owner))
    )
    return np.concatenate((vertices, cut)), kept, parent, part


@dataclass(frozen=True)
class Raster:
    """Which surface every pixel shows."""

    screen: Screen  # the triangles in the image
    triangle: np.ndarray  # [H, W] int32 of the screen's triangles, -1: none
    inverse_depth: np.ndarray  # [H, W] float32 1 / metres, 0 where there is none

    @property
    def face(self) -> np.ndarray:
        """[H, W] the given face, -1: none."""
        return np.append(self.screen.parent, np.int32(-1))[self.triangle]


def rasterize(
    vertices_cam: np.ndarray, faces: np.ndarray, camera: Camera, *, cull: bool = False
) -> Raster:
    """Vertices [V, 3] metres in the camera frame, faces [F, 3] -> the nearest face of every pixel.
    `cull` leaves out faces seen from behind; the front is counter-clockwise, as in SMPL's files."""
    screen = project_triangles(vertices_cam, faces, camera)
    return Raster(
        screen, *visibility(screen.xy_px, screen.inverse_depth, screen.faces, *camera.size, cull)
    )


def visibility(
    xy_px: np.ndarray,
    inverse_depth: np.ndarray,
    faces: np.ndarray,
    width: int,
    height: int,
    cull: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest triangle [height, width] int32 (-1: none) and its inverse depth float32 (0: none)."""
    triangle = np.full((height, width), -1, np.int32)
    nearest = np.zeros((height, width), np.float32)
    _visibility(xy_px, inverse_depth, faces, cull, triangle, nearest)
    return triangle, nearest


@compiled
def _visibility(
    xy_px: np.ndarray,
    inverse_depth: np.ndarray,
    faces: np.ndarray,
    cull: bool,
    triangle: np.ndarray,
    nearest: np.ndarray,
) -> None:
    height, width = triangle.shape
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
        # y points down, so a front face, counter-clockwise to the eye, has negative area. NaN fails
        # as well.
        if not (area < 0 or (area > 0 and not cull)):
            continue
        ia = inverse_depth[a] / area
        ib = inverse_depth[b] / area
        ic = inverse_depth[c] / area
        left = max(np.ceil(min(ax, bx, cx)), 0)
        right = min(np.floor(max(ax, bx, cx)), width - 1)
        top = max(np.ceil(min(ay, by, cy)), 0)
        bottom = min(np.floor(max(ay, by, cy)), height - 1)
        if left > right or top > bottom:
            continue
        for y in range(int(top), int(bottom) + 1):
            for x in range(int(left), int(right) + 1):
                wa, wb, wc = corner_areas(ax - x, ay - y, bx - x, by - y, cx - x, cy - y)
                if inside(wa, wb, wc, area):
                    near = np.float32(wa * ia + wb * ib + wc * ic)
                    if near > nearest[y, x]:
                        nearest[y, x] = near
                        triangle[y, x] = f


@compiled
def corner_areas(
    ax: float, ay: float, bx: float, by: float, cx: float, cy: float
) -> tuple[float, float, float]:
    """Corners as seen from a point -> twice the signed areas opposite a, b, c. Written so that the
    two owners of an edge get exactly opposite numbers: no point can fall between them."""
    return bx * cy - cx * by, cx * ay - ax * cy, ax * by - bx * ay


@compiled
def inside(wa: float, wb: float, wc: float, area: float) -> bool:
    """Whether the point of `corner_areas` lies in the triangle or on its edge."""
    return (wa >= 0 and wb >= 0 and wc >= 0) if area > 0 else (wa <= 0 and wb <= 0 and wc <= 0)


@compiled
def surface_weights(
    xy_px: np.ndarray, inverse_depth: np.ndarray, faces: np.ndarray, f: int, x: float, y: float
) -> tuple[float, float, float]:
    """Where on triangle `f` the ray through (x, y) meets it: affine coordinates over depth, made to
    sum to 1.
    """
    a = faces[f, 0]
    b = faces[f, 1]
    c = faces[f, 2]
    ax = xy_px[a, 0]
    ay = xy_px[a, 1]
    bx = xy_px[b, 0]
    by = xy_px[b, 1]
    cx = xy_px[c, 0]
    cy = xy_px[c, 1]
    wa, wb, wc = corner_areas(ax - x, ay - y, bx - x, by - y, cx - x, cy - y)
    wa = wa * inverse_depth[a]
    wb = wb * inverse_depth[b]
    wc = wc * inverse_depth[c]
    total = wa + wb + wc
    return wa / total, wb / total, wc / total


_GRID = 4  # samples along each side of an outline pixel
_DEPTH_STEP = 0.005  # neighbours whose depths differ by more than this share are an outline


def paint(image: np.ndarray, screen: Screen, colors: np.ndarray, *, antialias: bool = True) -> None:
    """Blend triangles into `image` [H, W, 3] uint8, in place. colors [V', 4] float32 of the
    vertices: red, green, blue 0..255, each times the opacity 0..1, and the opacity. Faces seen from
    behind are left out: a body is closed, so they are hidden anyway."""
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
        here = nearest[y]
        above = nearest[max(y - 1, 0)]
        below = nearest[min(y + 1, height - 1)]
        for x in range(
            1, width - 1
        ):  # nothing but arithmetic, so that it runs eight pixels at a time
            low = min(min(min(here[x - 1], here[x]), here[x + 1]), min(above[x], below[x]))
            high = max(max(max(here[x - 1], here[x]), here[x + 1]), max(above[x], below[x]))
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
    """The nearest triangle at every sample of the numbered pixels, [count, GRID * GRID]: -1 and 0
    before.
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
    """Into the part of the image whose upper left corner is (left, top); mesh: xy_px,
    inverse_depth, faces. Not a slice of the image: one that happens to be contiguous is another
    type, for which numba compiles again."""
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
                if (
                    f != last
                    # one colour per triangle and pixel: within a pixel only coverage changes
                    # visibly
                ):
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
