"""Build the solids of a scene: boxes, cylinders, furniture, plants and cars, with their
textures.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np

from eval3dpw.synth import textures


@dataclass(frozen=True)
class Solid:
    vertices_m: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3]
    uv_m: np.ndarray  # [V, 2] metres on the texture
    texture: str  # a key of textures.TEXTURES
    casts_shadow: bool = True

    def moved(self, shift_m: np.ndarray | tuple[float, float, float], yaw: float = 0.0) -> "Solid":
        """Return the solid rotated about the vertical, then moved."""
        c = np.cos(yaw)
        s = np.sin(yaw)
        rotation = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
        return replace(self, vertices_m=self.vertices_m @ rotation.T + np.asarray(shift_m))


def box(size_m: tuple[float, float, float], texture: str, casts_shadow: bool = True) -> Solid:
    """Build a box of width, height and depth that stands on y = 0 around the vertical axis."""
    w, h, d = size_m
    sides = (  # corner, along u, along v: counter-clockwise from outside
        ((-w / 2, 0, d / 2), (w, 0, 0), (0, h, 0)),
        ((w / 2, 0, -d / 2), (-w, 0, 0), (0, h, 0)),
        ((w / 2, 0, d / 2), (0, 0, -d), (0, h, 0)),
        ((-w / 2, 0, -d / 2), (0, 0, d), (0, h, 0)),
        ((-w / 2, h, d / 2), (w, 0, 0), (0, 0, -d)),
        ((-w / 2, 0, -d / 2), (w, 0, 0), (0, 0, d)),
    )
    vertices = []
    uv = []
    for corner, u, v in sides:
        for a, b in ((0, 0), (1, 0), (1, 1), (0, 1)):
            vertices.append(np.add(corner, np.multiply(a, u) + np.multiply(b, v)))
            uv.append((a * np.linalg.norm(u), b * np.linalg.norm(v)))
    faces = np.concatenate(
        [[[4 * k, 4 * k + 1, 4 * k + 2], [4 * k, 4 * k + 2, 4 * k + 3]] for k in range(6)]
    )
    return Solid(np.array(vertices), faces, np.array(uv), texture, casts_shadow)


def floor(half_m: float, texture: str) -> Solid:
    """Build the ground, y = 0."""
    corners = np.array([(-1, 0, 1), (1, 0, 1), (1, 0, -1), (-1, 0, -1)]) * half_m
    return Solid(
        corners, np.array([[0, 1, 2], [0, 2, 3]]), corners[:, [0, 2]], texture, casts_shadow=False
    )


def grid_faces(rows: int, columns: int) -> np.ndarray:
    """Return triangles [F, 3] between points [rows * columns] of a grid."""
    i, j = np.mgrid[: rows - 1, : columns - 1].reshape(2, -1)
    a = i * columns + j
    b = (i + 1) * columns + j
    return np.concatenate((np.stack((a, b, b + 1), 1), np.stack((a, b + 1, a + 1), 1)))


def cylinder(
    radius_m: float, height_m: float, texture: str, top_radius_m: float | None = None
) -> Solid:
    angle = np.linspace(0, 2 * np.pi, 17)
    rings = [
        (0.0, height_m),
        (radius_m if top_radius_m is None else top_radius_m, height_m),
        (radius_m, 0.0),
    ]
    vertices = np.array([(r * np.sin(a), y, r * np.cos(a)) for r, y in rings for a in angle])
    uv = np.array([(a * radius_m, y + radius_m - r) for r, y in rings for a in angle])
    return Solid(vertices, grid_faces(3, 17), uv, texture)


def bush(radius_m: tuple[float, float, float], texture: str, rng: np.random.Generator) -> Solid:
    """Build a ball with a ragged surface that stands on y = 0."""
    polar, around = 25, 37
    theta, phi = np.meshgrid(
        np.linspace(0, np.pi, polar), np.linspace(0, 2 * np.pi, around), indexing="ij"
    )
    ball = np.stack(
        (np.sin(theta) * np.sin(phi), np.cos(theta), np.sin(theta) * np.cos(phi)), -1
    ).reshape(-1, 3)
    ragged = (
        1
        + 0.3 * textures.fractal_noise(ball, 0.6, rng)
        + 0.28 * textures.value_noise(ball, 0.13, rng)
    )
    vertices = (ball * ragged[:, None] + (0, 1, 0)) * radius_m
    uv = np.stack((phi.ravel() * radius_m[0], theta.ravel() * radius_m[1]), 1)
    return Solid(vertices, grid_faces(polar, around), uv, texture)


def table(size_m: tuple[float, float, float], texture: str) -> list[Solid]:
    w, h, d = size_m
    leg = box((0.06, h, 0.06), texture)
    legs = [
        leg.moved((x * (w / 2 - 0.05), 0, z * (d / 2 - 0.05))) for x in (-1, 1) for z in (-1, 1)
    ]
    return [box((w, 0.05, d), texture).moved((0, h - 0.05, 0)), *legs]


def seat(wide_m: float, texture: str) -> list[Solid]:
    """Build a chair or a bench."""
    return [
        *table((wide_m, 0.47, 0.44), texture),
        box((wide_m, 0.35, 0.04), texture).moved((0, 0.52, -0.2)),
    ]


def fence(length_m: float, height_m: float, texture: str) -> list[Solid]:
    post = box((0.07, height_m, 0.03), texture)
    posts = [post.moved((x, 0, 0)) for x in np.arange(-length_m / 2, length_m / 2, 0.16)]
    rails = [
        box((length_m, 0.06, 0.03), texture).moved((0, y * height_m, -0.03)) for y in (0.25, 0.8)
    ]
    return [*posts, *rails]


def tree(rng: np.random.Generator) -> list[Solid]:
    height = rng.uniform(1.8, 3.2)
    trunk = cylinder(rng.uniform(0.10, 0.25), height, "bark", 0.09)
    crown = []
    for _ in range(int(rng.integers(3, 6))):
        r = rng.uniform(0.7, 1.5)
        leaves = bush((r, r * 0.8, r), "foliage", rng)
        crown.append(
            leaves.moved(rng.uniform((-0.9, height - 0.9, -0.9), (0.9, height + 0.9, 0.9)))
        )
    return [trunk, *crown]


def car() -> list[Solid]:
    wheels = [box((0.6, 0.6, 1.7), "asphalt").moved((x, 0, 0)) for x in (-1.3, 1.3)]
    body = box((4.2, 0.65, 1.7), "painted").moved((0, 0.3, 0))
    return [body, box((2.2, 0.5, 1.5), "facade").moved((-0.2, 0.95, 0)), *wheels]


def pick_texture(rng: np.random.Generator, *choices: str) -> str:
    return str(rng.choice(choices))


# What stands around and in the way, by kind; of things of any size `wide` and `high` are metres.
PROPS: dict[str, Callable[[np.random.Generator, float, float], list[Solid]]] = {
    "bush": lambda rng, wide, high: [bush((wide * 0.6, high / 2, 0.4), "foliage", rng)],
    "tree": lambda rng, wide, high: tree(rng),
    "bench": lambda rng, wide, high: seat(1.5, "planks"),
    "fence": lambda rng, wide, high: fence(2 * wide, high, pick_texture(rng, "planks", "painted")),
    "pole": lambda rng, wide, high: [
        cylinder(wide / 8, 3.5, pick_texture(rng, "bark", "concrete", "painted"))
    ],
    "bin": lambda rng, wide, high: [cylinder(0.28, high, "painted")],
    "block": lambda rng, wide, high: [
        box((wide, high, 0.5), pick_texture(rng, "planks", "painted", "concrete"))
    ],
    "shop": lambda rng, wide, high: [box((1.4, 2.0, 0.6), "posters")],
    "car": lambda rng, wide, high: car(),
    "table": lambda rng, wide, high: table(
        (wide + 0.3, high * 0.9, 0.6), pick_texture(rng, "planks", "painted")
    ),
    "chair": lambda rng, wide, high: seat(0.44, pick_texture(rng, "planks", "painted")),
    "shelf": lambda rng, wide, high: [
        box((wide, high, 0.4), pick_texture(rng, "planks", "posters", "painted"))
    ],
    "pillar": lambda rng, wide, high: [box((wide / 4, 2.7, 0.25), "plaster")],
    "plant": lambda rng, wide, high: [
        cylinder(0.16, 0.35, "painted"),
        bush((0.3, high / 2, 0.3), "foliage", rng),
    ],
}


def assign_textures(
    objects: list[Solid], rng: np.random.Generator
) -> tuple[textures.Atlas, list[int]]:
    """Return an atlas with two tiles of every kind in use, and the tile of each solid.

    Neighbours of one kind share a tile.
    """
    kinds = sorted({solid.texture for solid in objects})
    tiles = [textures.TEXTURES[kind](rng) for kind in kinds for _ in range(2)]
    texels = []
    start = np.zeros((len(tiles), textures.LEVELS), np.int64)
    count = 0
    for k, (image, _) in enumerate(tiles):
        level: np.ndarray = np.clip(image, 0.003, 0.95).astype(np.float32)
        for shrunk in range(textures.LEVELS):
            start[k, shrunk] = count
            texels.append(level.reshape(-1, 3))
            count += len(texels[-1])
            level = cv2.resize(level, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    atlas = textures.Atlas(
        np.concatenate(texels), start, np.array([metres for _, metres in tiles], np.float64)
    )
    chosen: list[int] = []
    for number, solid in enumerate(objects):
        like_before = number > 0 and objects[number - 1].texture == solid.texture
        chosen.append(
            chosen[-1] if like_before else 2 * kinds.index(solid.texture) + int(rng.integers(2))
        )
    return atlas, chosen
