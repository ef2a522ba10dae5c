"""Every pixel's light: which surface it sees, its colour there, and how sun and sky reach it.

numba's cache watches a function's own file only; everything a pixel needs is therefore compiled here.
"""

from dataclasses import dataclass

import numba
import numpy as np
from fitting.render.rasterize import surface_weights, visibility

from eval3dpw.synth.figure import STEPS
from eval3dpw.synth.light import MAP_SIZE, SKY_MAP_SIZE, Light, Shadows
from eval3dpw.synth.textures import LEVELS, SIZE, Atlas
from fitting.camera import Camera
from fitting.render.screen import Screen, project_triangles


@dataclass(frozen=True)
class Surfaces:
    """What the faces of a scene look like; people's faces come first."""

    faces: np.ndarray  # [F, 3] int32 vertex numbers
    paint: np.ndarray  # [P, (STEPS + 1)^2, 6] float32 of the first P faces, people
    tile: np.ndarray  # [F] int32 tile of the atlas; of people's faces unused
    uv_m: np.ndarray  # [V, 2] float64 metres on the texture; of people's vertices unused
    ground: np.ndarray  # [F] bool
    see_through: np.ndarray  # [F] bool: shows the far image, but catches shadows
    atlas: Atlas


@dataclass(frozen=True)
class Far:
    """What is seen where nothing stands: a sky or a photograph."""

    image: np.ndarray  # [h, w, 3] float32 linear
    frame: np.ndarray  # [3, 3] world direction -> the image's own right, down, forward
    focal_px: float  # of a photograph; 0 for a sky, which wraps around: x is azimuth, y is elevation


@dataclass(frozen=True)
class Sight:
    """Which surface every pixel sees."""

    screen: Screen  # the triangles in the image
    triangle: np.ndarray  # [H, W] int32 of the screen's triangles, -1: none
    inverse_depth: np.ndarray  # [H, W] float32 1 / metres, 0 where there is none

    @property
    def face(self) -> np.ndarray:
        """[H, W] the given face, -1: none."""
        return np.where(self.triangle >= 0, self.screen.parent[self.triangle], -1)


def look(vertices_m: np.ndarray, faces: np.ndarray, camera: Camera, world_to_cam: np.ndarray) -> Sight:
    """See triangles of the world."""
    in_cam = vertices_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3]
    screen = project_triangles(in_cam, faces, camera)
    width, height = camera.size
    triangle, inverse_depth = visibility(screen.xy_px, screen.inverse_depth, screen.faces, width, height, False)
    return Sight(screen, triangle, inverse_depth)


def shade(
    sight: Sight,
    surfaces: Surfaces,
    normals: np.ndarray,
    camera: Camera,
    world_to_cam: np.ndarray,
    light: Light,
    shadows: Shadows,
    far: Far,
    shadow_shift_px: np.ndarray,
) -> np.ndarray:
    """Linear light [H, W, 3] float32. Normals [V, 3] and light in the world; `shadow_shift_px` [2] moves shadows."""
    screen, atlas = sight.screen, surfaces.atlas
    fx, fy = camera.focal_px
    lens = np.array([fx, fy, *camera.center_px])
    lamp = np.stack((light.towards_sun, light.sun, light.sky, light.ground))
    roof = np.array([*shadows.roof_origin_m, shadows.roof_px_per_m])
    on_vertices = screen.interpolate(np.concatenate((normals, surfaces.uv_m), 1, dtype=np.float64), surfaces.faces)
    return _shade(
        sight.triangle, sight.inverse_depth, screen.xy_px, screen.inverse_depth, screen.faces, screen.parent,
        on_vertices, surfaces.paint, surfaces.tile, surfaces.ground, surfaces.see_through, atlas.texels, atlas.start,
        atlas.meters, lens, world_to_cam, lamp, shadows.to_map, shadows.nearness, shadows.roof, roof, shadow_shift_px,
        far.image, far.frame, far.focal_px,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _shade(
    triangle: np.ndarray, inverse_depth: np.ndarray, xy_px: np.ndarray, inverse_depths: np.ndarray, faces: np.ndarray,
    parent: np.ndarray, on_vertices: np.ndarray, paint: np.ndarray, tile: np.ndarray, ground: np.ndarray,
    see_through: np.ndarray, texels: np.ndarray, start: np.ndarray, meters: np.ndarray, lens: np.ndarray,
    world_to_cam: np.ndarray, lamp: np.ndarray, to_map: np.ndarray, nearness: np.ndarray, roof_map: np.ndarray,
    roof: np.ndarray, shift: np.ndarray, far_image: np.ndarray, far_frame: np.ndarray, far_focal: float,
) -> np.ndarray:  # fmt: skip
    height, width = triangle.shape
    out = np.empty((height, width, 3), np.float32)
    people = paint.shape[0]
    color = np.empty(3)
    for y in range(height):
        for x in range(width):
            t = triangle[y, x]
            f = parent[t] if t >= 0 else -1
            cx, cy = (x - lens[2]) / lens[0], (y - lens[3]) / lens[1]
            # The ray in the world: R^T (cx, cy, 1).
            rx = world_to_cam[0, 0] * cx + world_to_cam[1, 0] * cy + world_to_cam[2, 0]
            ry = world_to_cam[0, 1] * cx + world_to_cam[1, 1] * cy + world_to_cam[2, 1]
            rz = world_to_cam[0, 2] * cx + world_to_cam[1, 2] * cy + world_to_cam[2, 2]
            if f < 0 or see_through[f]:
                _look_far(far_image, far_frame, far_focal, rx, ry, rz, color)
                if f < 0:
                    out[y, x, 0], out[y, x, 1], out[y, x, 2] = color[0], color[1], color[2]
                    continue
            z = 1.0 / inverse_depth[y, x]
            wa, wb, wc = surface_weights(xy_px, inverse_depths, faces, t, x, y)
            p, q, r = on_vertices[faces[t, 0]], on_vertices[faces[t, 1]], on_vertices[faces[t, 2]]
            nx = wa * p[0] + wb * q[0] + wc * r[0]
            ny = wa * p[1] + wb * q[1] + wc * r[1]
            nz = wa * p[2] + wb * q[2] + wc * r[2]
            if f < people:
                i, j = int(wa * STEPS + 0.5), int(wb * STEPS + 0.5)
                seen = paint[f, i * (STEPS + 1) + j]
                color[0], color[1], color[2] = seen[0], seen[1], seen[2]
                nx, ny, nz = nx + seen[3], ny + seen[4], nz + seen[5]
            elif not see_through[f]:
                u = wa * p[3] + wb * q[3] + wc * r[3]
                v = wa * p[4] + wb * q[4] + wc * r[4]
                slant = max(abs(nx * rx + ny * ry + nz * rz) / np.sqrt(rx * rx + ry * ry + rz * rz), 0.08)
                k = tile[f]
                per_px = z / lens[0] / np.sqrt(slant) * SIZE / meters[k]  # texels that one pixel covers
                level = min(max(int(np.log2(max(per_px, 1e-6)) + 0.3), 0), LEVELS - 1)
                _sample(texels, start[k, level], SIZE >> level, u / meters[k], v / meters[k], color)
            length = np.sqrt(nx * nx + ny * ny + nz * nz) + 1e-9
            nx, ny, nz = nx / length, ny / length, nz / length
            if nx * rx + ny * ry + nz * rz > 0 and f >= people:  # the back of a surface
                nx, ny, nz = -nx, -ny, -nz
            # The point in the world: R^T (z (cx, cy, 1) - t).
            tx, ty, tz = world_to_cam[0, 3], world_to_cam[1, 3], world_to_cam[2, 3]
            px = rx * z - (world_to_cam[0, 0] * tx + world_to_cam[1, 0] * ty + world_to_cam[2, 0] * tz)
            py = ry * z - (world_to_cam[0, 1] * tx + world_to_cam[1, 1] * ty + world_to_cam[2, 1] * tz)
            pz = rz * z - (world_to_cam[0, 2] * tx + world_to_cam[1, 2] * ty + world_to_cam[2, 2] * tz)
            facing = nx * lamp[0, 0] + ny * lamp[0, 1] + nz * lamp[0, 2]
            sun = 0.0
            if facing > -0.2:
                sun = (facing + 0.2) / 1.2 if f < people else max(facing, 0.0)  # cloth and skin scatter a little
                sun *= _lit(to_map, nearness, px + 0.02 * nx, py + 0.02 * ny, pz + 0.02 * nz, shift)
            up = (ny + 1) / 2
            open_sky = 1.0
            if ground[f]:
                open_sky = 1 - _at(roof_map, (px - roof[0]) * roof[2], (pz - roof[1]) * roof[2])
            elif f < people:
                open_sky = 0.55 + 0.45 * min(max(py, 0.0) / 0.9, 1.0)  # less light gets between legs
            if see_through[f]:  # the photograph is lit already: only darken it
                full = lamp[0, 1] * lamp[1, 1] + lamp[2, 1]
                share = (sun * lamp[1, 1] + open_sky * lamp[2, 1]) / full
                out[y, x, 0], out[y, x, 1], out[y, x, 2] = color[0] * share, color[1] * share, color[2] * share
                continue
            for k in range(3):
                ambient = lamp[3, k] + (lamp[2, k] - lamp[3, k]) * up
                out[y, x, k] = color[k] * (ambient * open_sky + lamp[1, k] * sun)
    return out


@numba.njit(cache=True)
def _sample(texels: np.ndarray, first: int, size: int, u: float, v: float, color: np.ndarray) -> None:
    """Bilinear, repeating."""
    fu, fv = u * size - 0.5, v * size - 0.5
    iu, iv = int(np.floor(fu)), int(np.floor(fv))
    su, sv = fu - iu, fv - iv
    u0, u1, v0, v1 = iu % size, (iu + 1) % size, iv % size, (iv + 1) % size
    for k in range(3):
        above = texels[first + v0 * size + u0, k] * (1 - su) + texels[first + v0 * size + u1, k] * su
        below = texels[first + v1 * size + u0, k] * (1 - su) + texels[first + v1 * size + u1, k] * su
        color[k] = above * (1 - sv) + below * sv


@numba.njit(cache=True)
def _lit(to_map: np.ndarray, nearness: np.ndarray, px: float, py: float, pz: float, shift: np.ndarray) -> float:
    """Share of the sun's light that reaches a point: four neighbouring pixels of the map, weighted."""
    mx = to_map[0, 0] * px + to_map[0, 1] * py + to_map[0, 2] * pz + to_map[0, 3] + shift[0]
    my = to_map[1, 0] * px + to_map[1, 1] * py + to_map[1, 2] * pz + to_map[1, 3] + shift[1]
    near = to_map[2, 0] * px + to_map[2, 1] * py + to_map[2, 2] * pz + to_map[2, 3] + 1.5e-3
    ix, iy = int(np.floor(mx)), int(np.floor(my))
    if ix < 0 or iy < 0 or ix >= MAP_SIZE - 1 or iy >= MAP_SIZE - 1:
        return 1.0
    sx, sy = mx - ix, my - iy
    lit = 0.0
    if nearness[iy, ix] <= near:
        lit += (1 - sx) * (1 - sy)
    if nearness[iy, ix + 1] <= near:
        lit += sx * (1 - sy)
    if nearness[iy + 1, ix] <= near:
        lit += (1 - sx) * sy
    if nearness[iy + 1, ix + 1] <= near:
        lit += sx * sy
    return lit


@numba.njit(cache=True)
def _at(image: np.ndarray, x: float, y: float) -> float:
    if x < 0 or y < 0 or x >= SKY_MAP_SIZE or y >= SKY_MAP_SIZE:
        return 0.0
    return image[int(y), int(x)]


@numba.njit(cache=True)
def _look_far(
    image: np.ndarray, frame: np.ndarray, focal: float, rx: float, ry: float, rz: float, color: np.ndarray
) -> None:
    """A photograph hangs far away in front and is mirrored at its edges; a sky surrounds the world."""
    height, width = image.shape[0], image.shape[1]
    dx = frame[0, 0] * rx + frame[0, 1] * ry + frame[0, 2] * rz
    dy = frame[1, 0] * rx + frame[1, 1] * ry + frame[1, 2] * rz
    dz = frame[2, 0] * rx + frame[2, 1] * ry + frame[2, 2] * rz
    if focal > 0:
        dz = max(dz, 0.05)
        u, v = abs(dx / dz * focal + width / 2) % (2 * width), abs(dy / dz * focal + height / 2) % (2 * height)
        u, v = min(u, 2 * width - u), min(v, 2 * height - v)
    else:
        length = np.sqrt(dx * dx + dy * dy + dz * dz)
        u = (np.arctan2(dx, dz) / (2 * np.pi) + 0.5) * width
        v = (0.5 + np.arcsin(dy / length) / np.pi) * height
    u, v = min(max(u - 0.5, 0.0), width - 1.001), min(max(v - 0.5, 0.0), height - 1.001)
    iu, iv = int(u), int(v)
    su, sv = u - iu, v - iv
    for k in range(3):
        above = image[iv, iu, k] * (1 - su) + image[iv, iu + 1, k] * su
        below = image[iv + 1, iu, k] * (1 - su) + image[iv + 1, iu + 1, k] * su
        color[k] = above * (1 - sv) + below * sv
