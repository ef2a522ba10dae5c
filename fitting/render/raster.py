"""A z-buffer: find the triangle that each pixel shows.

Pixel (x, y) looks through the point (x, y): pixel centres are whole numbers (`fitting.camera`).
Edges belong to both triangles that share them, so a closed surface has no cracks; of equally near
triangles the first wins.
"""

from dataclasses import dataclass

import numpy as np

from fitting.camera import Camera
from fitting.render.compiled import compiled
from fitting.render.screen import Screen, project_triangles


@dataclass(frozen=True)
class Raster:
    """Which surface every pixel shows."""

    screen: Screen  # the triangles in the image
    triangle: np.ndarray  # [H, W] int32 of the screen's triangles, -1: none
    inverse_depth: np.ndarray  # [H, W] float32 1 / metres, 0 where there is none

    @property
    def face(self) -> np.ndarray:
        """Return the given face of every pixel, [H, W]; -1: none."""
        return np.append(self.screen.parent, np.int32(-1))[self.triangle]


def rasterize(
    vertices_cam: np.ndarray, faces: np.ndarray, camera: Camera, *, cull: bool = False
) -> Raster:
    """Return the nearest face of every pixel, for vertices [V, 3] in metres in the camera frame and
    faces [F, 3].

    `cull` leaves out faces seen from behind; the front is counter-clockwise, as in SMPL's files.
    """
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
    """Return the nearest triangle [height, width] int32 (-1: none) and its inverse depth float32
    (0: none).
    """
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
        # too.
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
    """Return twice the signed areas opposite a, b, c, for corners as seen from a point.

    Written so that the two owners of an edge get exactly opposite numbers: no point can fall
    between them.
    """
    return bx * cy - cx * by, cx * ay - ax * cy, ax * by - bx * ay


@compiled
def inside(wa: float, wb: float, wc: float, area: float) -> bool:
    """Return whether the point of `corner_areas` lies in the triangle or on its edge."""
    return (wa >= 0 and wb >= 0 and wc >= 0) if area > 0 else (wa <= 0 and wb <= 0 and wc <= 0)


@compiled
def surface_weights(
    xy_px: np.ndarray, inverse_depth: np.ndarray, faces: np.ndarray, f: int, x: float, y: float
) -> tuple[float, float, float]:
    """Return where on triangle `f` the ray through (x, y) meets it: affine coordinates over depth,
    normalised to sum to 1.
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
