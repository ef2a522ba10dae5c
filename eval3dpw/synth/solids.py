"""Textured shapes to build a scene from: boxes, cylinders, bushes, and furniture. World frame: y up, metres."""

from dataclasses import dataclass, replace

import numpy as np

from eval3dpw.synth import noise


@dataclass(frozen=True)
class Solid:
    """A textured surface."""

    vertices_m: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3]
    uv_m: np.ndarray  # [V, 2] metres on the texture
    texture: str  # a key of textures.TEXTURES
    casts_shadow: bool = True

    def moved(self, shift_m: np.ndarray | tuple[float, float, float], yaw: float = 0.0) -> "Solid":
        """Rotated about the vertical, then moved."""
        c, s = np.cos(yaw), np.sin(yaw)
        rotation = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        return replace(self, vertices_m=self.vertices_m @ rotation.T + np.asarray(shift_m))


def box(size_m: tuple[float, float, float], texture: str, casts_shadow: bool = True) -> Solid:
    """Width, height, depth; stands on y = 0 around the vertical axis."""
    w, h, d = size_m
    sides = (  # corner, along u, along v: counter-clockwise from outside
        ((-w / 2, 0, d / 2), (w, 0, 0), (0, h, 0)),
        ((w / 2, 0, -d / 2), (-w, 0, 0), (0, h, 0)),
        ((w / 2, 0, d / 2), (0, 0, -d), (0, h, 0)),
        ((-w / 2, 0, -d / 2), (0, 0, d), (0, h, 0)),
        ((-w / 2, h, d / 2), (w, 0, 0), (0, 0, -d)),
        ((-w / 2, 0, -d / 2), (w, 0, 0), (0, 0, d)),
    )
    vertices, uv = [], []
    for corner, u, v in sides:
        for a, b in ((0, 0), (1, 0), (1, 1), (0, 1)):
            vertices.append(np.add(corner, np.multiply(a, u) + np.multiply(b, v)))
            uv.append((a * np.linalg.norm(u), b * np.linalg.norm(v)))
    faces = np.concatenate([[[4 * k, 4 * k + 1, 4 * k + 2], [4 * k, 4 * k + 2, 4 * k + 3]] for k in range(6)])
    return Solid(np.array(vertices), faces, np.array(uv), texture, casts_shadow)


def floor(half_m: float, texture: str) -> Solid:
    """The ground, y = 0."""
    corners = np.array([(-1, 0, 1), (1, 0, 1), (1, 0, -1), (-1, 0, -1)]) * half_m
    return Solid(corners, np.array([[0, 1, 2], [0, 2, 3]]), corners[:, [0, 2]], texture, casts_shadow=False)


def cylinder(radius_m: float, height_m: float, texture: str, top_radius_m: float | None = None) -> Solid:
    angle = np.linspace(0, 2 * np.pi, 17)
    rings = [(radius_m, 0.0), (radius_m if top_radius_m is None else top_radius_m, height_m), (0.0, height_m)]
    vertices = np.array([(r * np.sin(a), y, r * np.cos(a)) for r, y in rings for a in angle])
    uv = np.array([(a * radius_m, y + radius_m - r) for r, y in rings for a in angle])
    lower = np.concatenate([np.arange(16) + 17 * k for k in range(2)])
    faces = np.concatenate((np.stack((lower, lower + 1, lower + 18), 1), np.stack((lower, lower + 18, lower + 17), 1)))
    return Solid(vertices, faces, uv, texture)


def bush(radius_m: tuple[float, float, float], texture: str, rng: np.random.Generator) -> Solid:
    """A ball with a ragged surface, standing on y = 0."""
    polar, around = 25, 37
    theta, phi = np.meshgrid(np.linspace(0, np.pi, polar), np.linspace(0, 2 * np.pi, around), indexing="ij")
    ball = np.stack((np.sin(theta) * np.sin(phi), np.cos(theta), np.sin(theta) * np.cos(phi)), -1).reshape(-1, 3)
    ragged = 1 + 0.3 * noise.fractal_noise(ball, 0.6, rng) + 0.28 * noise.value_noise(ball, 0.13, rng)
    vertices = (ball * ragged[:, None] + (0, 1, 0)) * radius_m
    i, j = np.mgrid[: polar - 1, : around - 1].reshape(2, -1)
    a, b = i * around + j, (i + 1) * around + j
    faces = np.concatenate((np.stack((a, b, b + 1), 1), np.stack((a, b + 1, a + 1), 1)))
    uv = np.stack((phi.ravel() * radius_m[0], theta.ravel() * radius_m[1]), 1)
    return Solid(vertices, faces, uv, texture)


def table(size_m: tuple[float, float, float], texture: str) -> list[Solid]:
    w, h, d = size_m
    leg = box((0.06, h, 0.06), texture)
    legs = [leg.moved((x * (w / 2 - 0.05), 0, z * (d / 2 - 0.05))) for x in (-1, 1) for z in (-1, 1)]
    return [box((w, 0.05, d), texture).moved((0, h - 0.05, 0)), *legs]


def chair(texture: str) -> list[Solid]:
    legs = [box((0.04, 0.45, 0.04), texture).moved((x * 0.19, 0, z * 0.19)) for x in (-1, 1) for z in (-1, 1)]
    return [
        box((0.44, 0.05, 0.44), texture).moved((0, 0.45, 0)),
        box((0.44, 0.45, 0.04), texture).moved((0, 0.5, -0.2)),
        *legs,
    ]


def bench(texture: str) -> list[Solid]:
    slats = [box((1.5, 0.04, 0.12), texture).moved((0, 0.43, z)) for z in (-0.14, 0.0, 0.14)]
    back = [box((1.5, 0.11, 0.04), texture).moved((0, y, -0.24)) for y in (0.58, 0.74)]
    feet = [
        box((0.06, 0.85 if z < 0 else 0.43, 0.06), texture).moved((x, 0, z))
        for x in (-0.65, 0.65)
        for z in (-0.22, 0.18)
    ]
    return [*slats, *back, *feet]


def fence(length_m: float, height_m: float, texture: str) -> list[Solid]:
    posts = [
        box((0.07, height_m, 0.03), texture).moved((x, 0, 0)) for x in np.arange(-length_m / 2, length_m / 2, 0.16)
    ]
    rails = [box((length_m, 0.06, 0.03), texture).moved((0, y * height_m, -0.03)) for y in (0.25, 0.8)]
    return [*posts, *rails]


def tree(rng: np.random.Generator) -> list[Solid]:
    height = rng.uniform(1.8, 3.2)
    trunk = cylinder(rng.uniform(0.10, 0.25), height, "bark", 0.09)
    crown = []
    for _ in range(int(rng.integers(3, 6))):
        r = rng.uniform(0.7, 1.5)
        crown.append(
            bush((r, r * 0.8, r), "foliage", rng).moved(
                rng.uniform((-0.9, height - 0.9, -0.9), (0.9, height + 0.9, 0.9))
            )
        )
    return [trunk, *crown]


def potted_plant(height_m: float, rng: np.random.Generator) -> list[Solid]:
    leaves = bush((0.3, height_m / 2, 0.3), "foliage", rng)
    return [cylinder(0.16, 0.35, "painted"), leaves.moved((0, 0.3, 0))]


def car() -> list[Solid]:
    wheels = [box((0.6, 0.6, 1.7), "asphalt").moved((x, 0, 0)) for x in (-1.3, 1.3)]
    body = box((4.2, 0.65, 1.7), "painted").moved((0, 0.3, 0))
    return [body, box((2.2, 0.5, 1.5), "facade").moved((-0.2, 0.95, 0)), *wheels]
