"""Which triangle does each pixel see? A z-buffer, compiled by numba.

Pixel (x, y) looks through the point (x, y): pixel centres are whole numbers (see fitting/camera.py). Edges belong
to both triangles that share them, so a closed surface has no cracks; of equally near triangles the first wins.
"""

from dataclasses import dataclass

import numba
import numpy as np

from fitting.camera import Camera
from fitting.render.screen import project_triangles


@dataclass(frozen=True)
class Raster:
    """What every pixel of the image sees."""

    face: np.ndarray  # [H, W] int32 index of the nearest face, -1 where there is none
    depth_m: np.ndarray  # [H, W] float32 z in the camera frame, infinite where there is no face
    barycentric: np.ndarray  # [H, W, 3] float32 place in the face (perspective-correct), 0 where there is none


def rasterize(vertices_cam: np.ndarray, faces: np.ndarray, camera: Camera, *, cull: bool = False) -> Raster:
    """Vertices [V, 3] metres in the camera frame, faces [F, 3] -> the nearest face of every pixel.

    `cull` leaves out faces seen from behind; the front is counter-clockwise, as in SMPL's files.
    """
    width, height = camera.size
    screen = project_triangles(vertices_cam, faces, camera)
    left, top, right, bottom = screen.window(width, height)
    mesh = (screen.xy_px - (left, top), screen.inverse_depth, screen.faces)
    triangle, inverse_depth = visibility(*mesh, right - left, bottom - top, cull)

    face = np.full((height, width), -1, np.int32)
    depth = np.full((height, width), np.inf, np.float32)
    weights = np.zeros((height, width, 3), np.float32)
    seen = slice(top, bottom), slice(left, right)
    _place(*mesh, triangle, inverse_depth, depth[seen], weights[seen])
    face[seen], weights[seen] = screen.in_given_faces(triangle, weights[seen])
    return Raster(face, depth, weights)


@numba.njit(cache=True, nogil=True)
def visibility(
    xy_px: np.ndarray, inverse_depth: np.ndarray, faces: np.ndarray, width: int, height: int, cull: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest triangle [height, width] int32 (-1: none) and its inverse depth float32 (0: none)."""
    triangle = np.full((height, width), -1, np.int32)
    nearest = np.zeros((height, width), np.float32)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay, bx, by, cx, cy = xy_px[a, 0], xy_px[a, 1], xy_px[b, 0], xy_px[b, 1], xy_px[c, 0], xy_px[c, 1]
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        # y points down, so a front face, counter-clockwise to the eye, has negative area. NaN fails as well.
        if not (area < 0 or (area > 0 and not cull)):
            continue
        ia, ib, ic = inverse_depth[a] / area, inverse_depth[b] / area, inverse_depth[c] / area
        left, right = max(np.ceil(min(ax, bx, cx)), 0), min(np.floor(max(ax, bx, cx)), width - 1)
        top, bottom = max(np.ceil(min(ay, by, cy)), 0), min(np.floor(max(ay, by, cy)), height - 1)
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
    return triangle, nearest


@numba.njit(cache=True)
def corner_areas(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> tuple[float, float, float]:
    """Corners as seen from a point -> twice the signed areas opposite a, b, c.

    Written so that the two owners of an edge get exactly opposite numbers: no point can fall between them.
    """
    return bx * cy - cx * by, cx * ay - ax * cy, ax * by - bx * ay


@numba.njit(cache=True)
def inside(wa: float, wb: float, wc: float, area: float) -> bool:
    """Whether the point of `corner_areas` lies in the triangle or on its edge."""
    return (wa >= 0 and wb >= 0 and wc >= 0) if area > 0 else (wa <= 0 and wb <= 0 and wc <= 0)


@numba.njit(cache=True, nogil=True)
def _place(
    xy_px: np.ndarray,
    inverse_depth: np.ndarray,
    faces: np.ndarray,
    triangle: np.ndarray,
    nearest: np.ndarray,
    depth_m: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Write where on its triangle every pixel looks, and how far away that is."""
    height, width = triangle.shape
    for y in range(height):
        for x in range(width):
            f = triangle[y, x]
            if f >= 0:
                wa, wb, wc = surface_weights(xy_px, inverse_depth, faces, f, x, y)
                weights[y, x, 0], weights[y, x, 1], weights[y, x, 2] = wa, wb, wc
                depth_m[y, x] = 1 / nearest[y, x]


@numba.njit(cache=True)
def surface_weights(
    xy_px: np.ndarray, inverse_depth: np.ndarray, faces: np.ndarray, f: int, x: float, y: float
) -> tuple[float, float, float]:
    """Where on triangle `f` the ray through (x, y) meets it: affine coordinates over depth, made to sum to 1."""
    a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
    ax, ay, bx, by, cx, cy = xy_px[a, 0], xy_px[a, 1], xy_px[b, 0], xy_px[b, 1], xy_px[c, 0], xy_px[c, 1]
    wa, wb, wc = corner_areas(ax - x, ay - y, bx - x, by - y, cx - x, cy - y)
    wa, wb, wc = wa * inverse_depth[a], wb * inverse_depth[b], wc * inverse_depth[c]
    total = wa + wb + wc
    return wa / total, wb / total, wc / total
