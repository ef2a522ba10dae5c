"""From triangles to light: shadow maps, which surface each pixel shows, its colour, and how sun and
sky reach it.

numba's cache watches a function's own file only, so everything a pixel needs is compiled here."""

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from eval3dpw.synth.clothed_people import LATTICE_STEPS, ClothedBody
from eval3dpw.synth.solids import assign_textures
from eval3dpw.synth.surroundings import Scene
from eval3dpw.synth.textures import LEVELS, SIZE, Atlas
from fitting.camera import Camera
from fitting.render.compiled import compiled
from fitting.render.raster import Raster, rasterize, surface_weights, visibility
from fitting.render.shading import vertex_normals

SHADOW_MAP_SIZE = 512  # pixels of a side
SKY_MAP_SIZE = 128
_SHADOW_RADIUS_M = 4.5


class Shadows(NamedTuple):
    """Hold the sun's shadow map, and a map of how much sky objects hide from the ground."""

    to_map: np.ndarray  # [3, 4] world metres -> pixel x, pixel y, nearness to the sun (0..1)
    nearness: np.ndarray  # [SHADOW_MAP_SIZE, SHADOW_MAP_SIZE] float32; 0 where nothing is
    sky_occlusion: (
        np.ndarray
    )  # [SKY_MAP_SIZE, SKY_MAP_SIZE] float32 share of the sky hidden by objects above
    sky_grid: np.ndarray  # [3] x, z of its first pixel in metres, pixels per metre


def seen_by(
    vertices_m: np.ndarray, faces: np.ndarray, camera: Camera, world_to_cam: np.ndarray
) -> Raster:
    """Return the raster that a camera sees of vertices in the world."""
    return rasterize(vertices_m @ world_to_cam[:3, :3].T + world_to_cam[:3, 3], faces, camera)


@compiled
def _shade(
    triangle: np.ndarray,
    inverse_depth: np.ndarray,
    xy_px: np.ndarray,
    inverse_depths: np.ndarray,
    faces: np.ndarray,
    parent: np.ndarray,
    on_vertices: np.ndarray,
    appearance: np.ndarray,
    tile: np.ndarray,
    ground: np.ndarray,
    texels: np.ndarray,
    start: np.ndarray,
    meters: np.ndarray,
    lens: np.ndarray,
    world_to_cam: np.ndarray,
    lamp: np.ndarray,
    to_map: np.ndarray,
    nearness: np.ndarray,
    sky_map: np.ndarray,
    sky_grid: np.ndarray,
    shift: np.ndarray,
    sky: np.ndarray,
) -> np.ndarray:
    """Linear light [H, W, 3] float32; the arguments are the fields that `SceneMesh.light` passes,
    as arrays.
    """
    height, width = triangle.shape
    out = np.empty((height, width, 3), np.float32)
    people = appearance.shape[0]
    color = np.empty(3)
    for y in range(height):
        for x in range(width):
            t = triangle[y, x]
            f = parent[t] if t >= 0 else -1
            cx = (x - lens[2]) / lens[0]
            cy = (y - lens[3]) / lens[1]
            # The ray in the world: R^T (cx, cy, 1).
            rx = world_to_cam[0, 0] * cx + world_to_cam[1, 0] * cy + world_to_cam[2, 0]
            ry = world_to_cam[0, 1] * cx + world_to_cam[1, 1] * cy + world_to_cam[2, 1]
            rz = world_to_cam[0, 2] * cx + world_to_cam[1, 2] * cy + world_to_cam[2, 2]
            if f < 0:
                _sample_sky(sky, rx, ry, rz, color)
                out[y, x, 0] = color[0]
                out[y, x, 1] = color[1]
                out[y, x, 2] = color[2]
                continue
            z = 1.0 / inverse_depth[y, x]
            wa, wb, wc = surface_weights(xy_px, inverse_depths, faces, t, x, y)
            p = on_vertices[faces[t, 0]]
            q = on_vertices[faces[t, 1]]
            r = on_vertices[faces[t, 2]]
            nx = wa * p[0] + wb * q[0] + wc * r[0]
            ny = wa * p[1] + wb * q[1] + wc * r[1]
            nz = wa * p[2] + wb * q[2] + wc * r[2]
            if f < people:
                i = int(wa * LATTICE_STEPS + 0.5)
                j = int(wb * LATTICE_STEPS + 0.5)
                surface = appearance[f, i * (LATTICE_STEPS + 1) + j]
                color[0] = surface[0]
                color[1] = surface[1]
                color[2] = surface[2]
                nx = nx + surface[3]
                ny = ny + surface[4]
                nz = nz + surface[5]
            else:
                u = wa * p[3] + wb * q[3] + wc * r[3]
                v = wa * p[4] + wb * q[4] + wc * r[4]
                slant = max(
                    abs(nx * rx + ny * ry + nz * rz) / np.sqrt(rx * rx + ry * ry + rz * rz), 0.08
                )
                k = tile[f]
                per_px = (
                    z / lens[0] / np.sqrt(slant) * SIZE / meters[k]
                )  # texels that one pixel covers
                level = min(max(int(np.log2(max(per_px, 1e-6)) + 0.3), 0), LEVELS - 1)
                _sample(texels, start[k, level], SIZE >> level, u / meters[k], v / meters[k], color)
            length = np.sqrt(nx * nx + ny * ny + nz * nz) + 1e-9
            nx = nx / length
            ny = ny / length
            nz = nz / length
            if nx * rx + ny * ry + nz * rz > 0 and f >= people:  # the back of a surface
                nx = -nx
                ny = -ny
                nz = -nz
            # The point in the world: R^T (z (cx, cy, 1) - t).
            tx = world_to_cam[0, 3]
            ty = world_to_cam[1, 3]
            tz = world_to_cam[2, 3]
            px = rx * z - (
                world_to_cam[0, 0] * tx + world_to_cam[1, 0] * ty + world_to_cam[2, 0] * tz
            )
            py = ry * z - (
                world_to_cam[0, 1] * tx + world_to_cam[1, 1] * ty + world_to_cam[2, 1] * tz
            )
            pz = rz * z - (
                world_to_cam[0, 2] * tx + world_to_cam[1, 2] * ty + world_to_cam[2, 2] * tz
            )
            facing = nx * lamp[0, 0] + ny * lamp[0, 1] + nz * lamp[0, 2]
            sun = 0.0
            if facing > -0.2:
                sun = (
                    (facing + 0.2) / 1.2 if f < people else max(facing, 0.0)
                )  # cloth and skin scatter light a little
                sun *= _sun_visibility(
                    to_map, nearness, px + 0.02 * nx, py + 0.02 * ny, pz + 0.02 * nz, shift
                )
            up = (ny + 1) / 2
            open_sky = 1.0
            if ground[f]:
                mx = (px - sky_grid[0]) * sky_grid[2]
                my = (pz - sky_grid[1]) * sky_grid[2]
                if 0 <= mx < SKY_MAP_SIZE and 0 <= my < SKY_MAP_SIZE:
                    open_sky = 1 - sky_map[int(my), int(mx)]
            elif f < people:
                open_sky = 0.55 + 0.45 * min(
                    max(py, 0.0) / 0.9, 1.0
                )  # less light gets between legs
            for k in range(3):
                ambient = lamp[3, k] + (lamp[2, k] - lamp[3, k]) * up
                out[y, x, k] = color[k] * (ambient * open_sky + lamp[1, k] * sun)
    return out


@compiled
def _sample(
    texels: np.ndarray, first: int, size: int, u: float, v: float, color: np.ndarray
) -> None:
    """Look a texel up bilinearly in a texture that wraps around."""
    fu = u * size - 0.5
    fv = v * size - 0.5
    iu = int(np.floor(fu))
    iv = int(np.floor(fv))
    su = fu - iu
    sv = fv - iv
    u0 = iu % size
    u1 = (iu + 1) % size
    v0 = iv % size
    v1 = (iv + 1) % size
    for k in range(3):
        above = (
            texels[first + v0 * size + u0, k] * (1 - su) + texels[first + v0 * size + u1, k] * su
        )
        below = (
            texels[first + v1 * size + u0, k] * (1 - su) + texels[first + v1 * size + u1, k] * su
        )
        color[k] = above * (1 - sv) + below * sv


@compiled
def _sun_visibility(
    to_map: np.ndarray, nearness: np.ndarray, px: float, py: float, pz: float, shift: np.ndarray
) -> float:
    """Share of the sun's light that reaches a point: the shadow map's four neighbours, weighted
    bilinearly.
    """
    mx = to_map[0, 0] * px + to_map[0, 1] * py + to_map[0, 2] * pz + to_map[0, 3] + shift[0]
    my = to_map[1, 0] * px + to_map[1, 1] * py + to_map[1, 2] * pz + to_map[1, 3] + shift[1]
    near = to_map[2, 0] * px + to_map[2, 1] * py + to_map[2, 2] * pz + to_map[2, 3] + 1.5e-3
    ix = int(np.floor(mx))
    iy = int(np.floor(my))
    if ix < 0 or iy < 0 or ix >= SHADOW_MAP_SIZE - 1 or iy >= SHADOW_MAP_SIZE - 1:
        return 1.0
    sx = mx - ix
    sy = my - iy
    lit = 0.0
    for dx, dy, share in (
        (0, 0, (1 - sx) * (1 - sy)),
        (1, 0, sx * (1 - sy)),
        (0, 1, (1 - sx) * sy),
        (1, 1, sx * sy),
    ):
        if nearness[iy + dy, ix + dx] <= near:
            lit += share
    return lit


@compiled
def _sample_sky(image: np.ndarray, rx: float, ry: float, rz: float, color: np.ndarray) -> None:
    """Look a colour up in a panorama: x is azimuth, y is elevation, row 0 straight up."""
    height = image.shape[0]
    width = image.shape[1]
    length = np.sqrt(rx * rx + ry * ry + rz * rz)
    u = (np.arctan2(rx, rz) / (2 * np.pi) + 0.5) * width
    v = (0.5 + np.arcsin(-ry / length) / np.pi) * height
    u = min(max(u - 0.5, 0.0), width - 1.001)
    v = min(max(v - 0.5, 0.0), height - 1.001)
    iu = int(u)
    iv = int(v)
    su = u - iu
    sv = v - iv
    for k in range(3):
        above = image[iv, iu, k] * (1 - su) + image[iv, iu + 1, k] * su
        below = image[iv + 1, iu, k] * (1 - su) + image[iv + 1, iu + 1, k] * su
        color[k] = above * (1 - sv) + below * sv


@dataclass(frozen=True)
class SceneMesh:
    """Hold people and scene as one mesh: people in order, then the ground, then the objects."""

    scene: Scene
    faces: np.ndarray  # [F, 3] int32 vertex numbers
    appearance: np.ndarray  # [P, (LATTICE_STEPS + 1)^2, 6] float32 of the first P faces, people
    tile: np.ndarray  # [F] int32 tile of the atlas; of people's faces unused
    uv_m: np.ndarray  # [V, 2] float64 metres on the texture; of people's vertices unused
    ground: np.ndarray  # [F] bool
    atlas: Atlas
    static_m: np.ndarray  # [S, 3] vertices that do not move; they come after people's
    static_normals: np.ndarray  # [S, 3]
    person_faces: np.ndarray  # [P + 1] first face of each person, and the end
    shadow_faces: np.ndarray  # [C, 3] int32 faces that cast shadows

    def vertices_m(self, people_m: list[np.ndarray]) -> np.ndarray:
        """Return all vertices in the world, from each person's [V, 3]."""
        return np.concatenate((*people_m, self.static_m))

    def shadows(self, vertices_m: np.ndarray, center_m: np.ndarray) -> Shadows:
        """Compute the shadows of everything within a radius of the centre, world frame."""
        forward = self.scene.light.towards_sun
        right = np.cross((0.0, 1.0, 0.0), forward)
        right /= np.linalg.norm(right)
        frame = np.stack(
            (right, np.cross(right, forward), forward)
        )  # x right, y down seen from the sun, towards it
        scale = SHADOW_MAP_SIZE / (2 * _SHADOW_RADIUS_M)
        rows = frame * np.array([[scale], [scale], [1 / (4 * _SHADOW_RADIUS_M)]])
        offset = -rows @ center_m + (SHADOW_MAP_SIZE / 2, SHADOW_MAP_SIZE / 2, 0.5)
        in_map = vertices_m @ rows.T + offset

        def nearest(xy_px: np.ndarray, near: np.ndarray, size: int) -> np.ndarray:
            xy_px = np.ascontiguousarray(xy_px)
            near = np.ascontiguousarray(near)
            return visibility(xy_px, near, self.shadow_faces, size, size, False)[1]

        # From above: the lower an object, the more sky it hides from the ground below it.
        origin = center_m[[0, 2]] - _SHADOW_RADIUS_M
        px_per_m = SKY_MAP_SIZE / (2 * _SHADOW_RADIUS_M)
        lowness = 1 / (1 + np.clip(vertices_m[:, 1], 0, None) * 3)
        low = nearest((vertices_m[:, [0, 2]] - origin) * px_per_m, lowness, SKY_MAP_SIZE)
        near, wide = (cv2.GaussianBlur(low, (0, 0), reach_m * px_per_m) for reach_m in (0.10, 0.40))
        hidden = np.clip(0.8 * near + 0.8 * wide, 0, 0.8).astype(np.float32)
        nearness = nearest(in_map[:, :2], in_map[:, 2], SHADOW_MAP_SIZE)
        return Shadows(
            np.column_stack((rows, offset)), nearness, hidden, np.array([*origin, px_per_m])
        )

    def light(
        self,
        vertices_m: np.ndarray,
        camera: Camera,
        world_to_cam: np.ndarray,
        shadows: Shadows,
        shadow_shift_px: np.ndarray,
    ) -> np.ndarray:
        """Linear light [H, W, 3] float32; `shadow_shift_px` [2] moves shadows, in units of their
        softness.
        """
        moving = len(vertices_m) - len(self.static_m)
        people = self.faces[: self.person_faces[-1]]
        normals = np.concatenate((vertex_normals(vertices_m[:moving], people), self.static_normals))
        buffer = seen_by(vertices_m, self.faces, camera, world_to_cam)
        screen = buffer.screen
        atlas = self.atlas
        light = self.scene.light
        on_vertices = screen.interpolate(
            np.concatenate((normals, self.uv_m), 1, dtype=np.float64), self.faces
        )
        return _shade(
            buffer.triangle,
            buffer.inverse_depth,
            screen.xy_px,
            screen.inverse_depth,
            screen.faces,
            screen.parent,
            on_vertices,
            self.appearance,
            self.tile,
            self.ground,
            atlas.texels,
            atlas.start,
            atlas.meters,
            np.array([*camera.focal_px, *camera.center_px]),
            world_to_cam,
            np.stack((light.towards_sun, light.sun, light.sky, light.ground)),
            *shadows,
            shadow_shift_px * light.softness_px,
            self.scene.sky,
        )

    def owner(self, buffer: Raster) -> np.ndarray:
        """Return the person [H, W] that each pixel shows; -1: an object, -2: nothing or the
        ground.
        """
        face = buffer.face
        person = np.searchsorted(self.person_faces, face, side="right") - 1
        owner = np.where(face < self.person_faces[-1], person, -1)
        return np.where((face < 0) | self.ground[face], -2, owner)


def build_scene_mesh(
    people: list[ClothedBody], scene: Scene, rng: np.random.Generator
) -> SceneMesh:
    atlas, tiles = assign_textures(scene.solids, rng)
    # faces, uv, whether ground, whether it casts shadows, tile
    parts = [
        (person.faces, np.zeros((person.rest.shape[1], 2)), False, True, 0) for person in people
    ]
    for number, (solid, which) in enumerate(zip(scene.solids, tiles, strict=True)):
        parts.append((solid.faces, solid.uv_m, number == 0, solid.casts_shadow, which))
    first = np.cumsum([0, *(len(part[1]) for part in parts)])  # vertex of each part
    faces = np.concatenate(
        [part[0] + start for part, start in zip(parts, first, strict=False)]
    ).astype(np.int32)
    ground, casts, tile = (
        np.concatenate([np.full(len(p[0]), p[n]) for p in parts]) for n in (2, 3, 4)
    )
    static_m = np.concatenate([solid.vertices_m for solid in scene.solids])
    ends = np.cumsum([0, *(len(person.faces) for person in people)])
    return SceneMesh(
        scene=scene,
        faces=faces,
        appearance=np.concatenate([person.appearance for person in people]),
        tile=tile.astype(np.int32),
        uv_m=np.concatenate([part[1] for part in parts]),
        ground=ground,
        atlas=atlas,
        static_m=static_m,
        static_normals=vertex_normals(static_m, faces[ends[-1] :] - np.int32(first[len(people)])),
        person_faces=ends,
        shadow_faces=np.ascontiguousarray(faces[casts]),
    )
