"""The world around people: streets, parks, yards and rooms, their light, and occluders before the
camera.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np

from eval3dpw.synth import textures
from fitting.camera import Camera


@dataclass(frozen=True)
class Solid:
    vertices_m: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3]
    uv_m: np.ndarray  # [V, 2] metres on the texture
    texture: str  # a key of textures.TEXTURES
    casts_shadow: bool = True

    def moved(self, shift_m: np.ndarray | tuple[float, float, float], yaw: float = 0.0) -> "Solid":
        """Rotated about the vertical, then moved."""
        c = np.cos(yaw)
        s = np.sin(yaw)
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
    """The ground, y = 0."""
    corners = np.array([(-1, 0, 1), (1, 0, 1), (1, 0, -1), (-1, 0, -1)]) * half_m
    return Solid(
        corners, np.array([[0, 1, 2], [0, 2, 3]]), corners[:, [0, 2]], texture, casts_shadow=False
    )


def grid_faces(rows: int, columns: int) -> np.ndarray:
    """Triangles [F, 3] between points [rows * columns] of a grid."""
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
    """A ball with a ragged surface, standing on y = 0."""
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
    """A chair or a bench."""
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


def _surface(rng: np.random.Generator, *choices: str) -> str:
    return str(rng.choice(choices))


# What stands around and in the way, by kind; of things of any size `wide` and `high` are metres.
PROPS: dict[str, Callable[[np.random.Generator, float, float], list[Solid]]] = {
    "bush": lambda rng, wide, high: [bush((wide * 0.6, high / 2, 0.4), "foliage", rng)],
    "tree": lambda rng, wide, high: tree(rng),
    "bench": lambda rng, wide, high: seat(1.5, "planks"),
    "fence": lambda rng, wide, high: fence(2 * wide, high, _surface(rng, "planks", "painted")),
    "pole": lambda rng, wide, high: [
        cylinder(wide / 8, 3.5, _surface(rng, "bark", "concrete", "painted"))
    ],
    "bin": lambda rng, wide, high: [cylinder(0.28, high, "painted")],
    "block": lambda rng, wide, high: [
        box((wide, high, 0.5), _surface(rng, "planks", "painted", "concrete"))
    ],
    "shop": lambda rng, wide, high: [box((1.4, 2.0, 0.6), "posters")],
    "car": lambda rng, wide, high: car(),
    "table": lambda rng, wide, high: table(
        (wide + 0.3, high * 0.9, 0.6), _surface(rng, "planks", "painted")
    ),
    "chair": lambda rng, wide, high: seat(0.44, _surface(rng, "planks", "painted")),
    "shelf": lambda rng, wide, high: [
        box((wide, high, 0.4), _surface(rng, "planks", "posters", "painted"))
    ],
    "pillar": lambda rng, wide, high: [box((wide / 4, 2.7, 0.25), "plaster")],
    "plant": lambda rng, wide, high: [
        cylinder(0.16, 0.35, "painted"),
        bush((0.3, high / 2, 0.3), "foliage", rng),
    ],
}


SceneKind = Literal["street", "park", "yard", "room"]
SCENE_KINDS: tuple[SceneKind, ...] = ("street", "park", "yard", "room")
OcclusionLevel = Literal["none", "some", "heavy"]
OCCLUSION_LEVELS: tuple[OcclusionLevel, ...] = ("none", "some", "heavy")
# Share of all keypoints to hide, and of one person's at most; by bounding boxes, so the true share
# is a little less.
HIDDEN_SHARE: dict[OcclusionLevel, tuple[float, float]] = {
    "none": (0.0, 0.0),
    "some": (0.12, 0.4),
    "heavy": (0.32, 0.62),
}
INDOOR_OCCLUDERS = ("table", "chair", "shelf", "pillar", "plant")
OUTDOOR_OCCLUDERS = ("bush", "bench", "fence", "pole", "block", "bin")
_TRIES = 120


@dataclass(frozen=True)
class Light:
    """The light of a scene: one sun or lamp, and the sky. Linear red, green, blue."""

    towards_sun: np.ndarray  # [3] unit vector in the world, y up
    sun: np.ndarray  # [3]
    sky: np.ndarray  # [3] from above
    ground: np.ndarray  # [3] from below
    softness_px: float  # half the width of a shadow's edge, in pixels of the shadow map


@dataclass(frozen=True)
class ClearArea:
    """The ground that a scene leaves free: where people walk, and the view from the camera."""

    paths_m: np.ndarray  # [n, 2] x, z of all people at all times
    cameras_m: np.ndarray  # [n, 2] x, z of the camera at all times

    @property
    def center_m(self) -> np.ndarray:
        return (self.paths_m.min(0) + self.paths_m.max(0)) / 2

    @property
    def behind(self) -> np.ndarray:
        """Unit x, z away from the first camera."""
        away = self.center_m - self.cameras_m[0]
        return away / np.linalg.norm(away)

    @property
    def azimuth(self) -> float:
        """Radians, from the people to the first camera."""
        return float(np.arctan2(-self.behind[0], -self.behind[1]))

    @property
    def aside(self) -> np.ndarray:
        return np.array([self.behind[1], -self.behind[0]])

    def deepest_m(self) -> float:
        """How far people walk behind their centre."""
        return float(((self.paths_m - self.center_m) @ self.behind).max())

    def is_free(self, place_m: np.ndarray, margin_m: float) -> bool:
        """Whether an object of this radius blocks neither a path nor the view."""
        if np.linalg.norm(self.paths_m - place_m, axis=1).min() < margin_m + 0.5:
            return False
        along = np.linspace(0, 1, 9)[:, None, None]
        views = self.cameras_m[::10] + along * (self.center_m - self.cameras_m[::10])
        return bool(np.linalg.norm(views.reshape(-1, 2) - place_m, axis=1).min() > margin_m + 0.7)


@dataclass(frozen=True)
class Scene:
    solids: list[Solid]  # the first is the ground
    light: Light
    sky: np.ndarray  # [h, 2 h, 3] float32 linear, around the world: x is azimuth, y is elevation


def build_scene(kind: SceneKind, area: ClearArea, rng: np.random.Generator) -> Scene:
    grounds, backdrop, (least, most), props = SCENES[kind]
    solids = [floor(60, _surface(rng, *grounds)), *backdrop(area, rng)]
    solids += _scattered(area, rng, int(rng.integers(least, most)), props)
    light = draw_light(rng, area.azimuth, indoors=kind == "room")
    return Scene(solids, light, _sky(light, rng))


def _houses(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    houses = []
    line = rng.uniform(2.5, 9) + area.deepest_m()
    along = -24.0
    yaw = area.azimuth + rng.normal(0, 0.25)
    while along < 24:
        wide = rng.uniform(5, 12)
        high = rng.uniform(5, 14)
        spot = (
            area.center_m
            + (line + 4 + rng.uniform(0, 0.6)) * area.behind
            + (along + wide / 2) * area.aside
        )
        front = _surface(rng, "facade", "facade", "bricks", "plaster")
        houses.append(
            box((wide, high, 8), front, casts_shadow=False).moved((spot[0], 0, spot[1]), yaw)
        )
        along += wide + (rng.uniform(1, 5) if rng.random() < 0.3 else 0)
    return houses


def _far_trees(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    trees = []
    for _ in range(int(rng.integers(6, 14))):
        spot = area.center_m + rng.uniform(14, 26) * area.behind + rng.uniform(-22, 22) * area.aside
        size = rng.uniform(2.5, 4.5)
        trees.append(bush((size, size * 0.8, size), "foliage", rng).moved((spot[0], -0.5, spot[1])))
    return trees


def _wall(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    spot = area.center_m + (area.deepest_m() + rng.uniform(1.2, 4.5) + 0.2) * area.behind
    wall = box(
        (30, rng.uniform(2.0, 6.0), 0.4),
        _surface(rng, "bricks", "concrete", "plaster", "facade"),
        False,
    )
    return [wall.moved((spot[0], 0, spot[1]), area.azimuth + rng.normal(0, 0.15))]


def _four_walls(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    """Around people and camera, with a ceiling, and furniture and images against one of them."""
    frame = np.stack((area.aside, area.behind))
    local = np.concatenate((area.paths_m, area.cameras_m)) @ frame.T
    low = local.min(0) - rng.uniform(0.8, 2.0, 2)
    high = local.max(0) + rng.uniform(0.8, 2.2, 2)
    middle = (low + high) / 2 @ frame
    wide, deep = high - low
    walls = _surface(rng, "plaster", "plaster", "bricks", "planks")
    tall = rng.uniform(2.5, 3.4)
    back = box((wide + 0.4, tall, 0.2), walls, False)
    side = box((0.2, tall, deep + 0.4), walls, False)
    solids = [back.moved((0, 0, sign * (deep / 2 + 0.1))) for sign in (-1, 1)]
    solids += [side.moved((sign * (wide / 2 + 0.1), 0, 0)) for sign in (-1, 1)]
    solids.append(box((wide + 0.4, 0.1, deep + 0.4), "plaster", False).moved((0, tall, 0)))
    for _ in range(int(rng.integers(2, 6))):
        x = rng.uniform(-wide / 2, wide / 2)
        w = rng.uniform(0.5, 1.6)
        h = rng.uniform(0.4, 2.1)
        lift = 1.2 if h < 1.0 and rng.random() < 0.5 else 0.0
        thick = 0.05 if lift else 0.3
        thing = box((w, h, thick), _surface(rng, "posters", "planks", "painted", "facade"), False)
        solids.append(thing.moved((x, lift, -deep / 2 + thick / 2)))
    return [solid.moved((middle[0], 0, middle[1]), area.azimuth) for solid in solids]


Backdrop = Callable[[ClearArea, np.random.Generator], list[Solid]]
# The ground's textures, what is behind the people, how many things stand around, and which.
SCENES: dict[SceneKind, tuple[tuple[str, ...], Backdrop, tuple[int, int], tuple[str, ...]]] = {
    "street": (("asphalt", "paving"), _houses, (2, 6), ("car", "pole", "tree", "bin", "shop")),
    "park": (
        ("grass", "grass", "paving"),
        _far_trees,
        (5, 11),
        ("tree", "tree", "bush", "bench", "fence"),
    ),
    "yard": (
        ("paving", "concrete", "tiles", "asphalt"),
        _wall,
        (2, 7),
        ("bin", "bush", "pole", "bench", "shop", "tree"),
    ),
    "room": (("planks", "tiles", "planks"), _four_walls, (0, 1), ("chair",)),
}


def _scattered(
    area: ClearArea, rng: np.random.Generator, count: int, kinds: tuple[str, ...]
) -> list[Solid]:
    """Random objects behind and beside the people, where the ground is free."""
    objects: list[Solid] = []
    for _ in range(8 * count):
        if count == 0:
            break
        spot = area.center_m + rng.uniform(0.5, 9) * area.behind + rng.uniform(-7, 7) * area.aside
        kind = kinds[rng.integers(len(kinds))]
        sizes = rng.uniform(0.5, 1.5), rng.uniform(0.7, 1.2)
        if area.is_free(spot, 1.4 if kind == "car" else 0.6):
            objects += [
                part.moved((spot[0], 0, spot[1]), rng.uniform(-np.pi, np.pi))
                for part in PROPS[kind](rng, *sizes)
            ]
            count -= 1
    return objects


def _sky(light: Light, rng: np.random.Generator) -> np.ndarray:
    """Blue to white towards the horizon, with clouds, bright around the sun."""
    height = 256  # and twice as wide
    elevation = (np.arange(height) + 0.5) / height * np.pi - np.pi / 2  # row 0 is straight up
    up = np.clip(-np.sin(elevation), 0, 1)[:, None]
    blue = np.array([0.22, 0.42, 0.85])
    pale = np.array([0.75, 0.85, 0.95])
    clear = pale + (blue - pale) * (up**0.6)[..., None]
    # The noise is square: two copies side by side go around the horizon
    clouds = np.concatenate([textures.tileable_noise(height, 4, rng, 6, stretch=(1, 2))] * 2, 1)
    cover = np.clip(clouds * rng.uniform(1, 3) + rng.uniform(-0.6, 0.8), 0, 1)[..., None]
    sky = clear * (1 - cover) + cover * np.array([0.9, 0.92, 0.95]) * (
        0.8 + 0.3 * clouds[..., None]
    )
    sky = sky * (light.sky.mean() + 0.35 * light.sun.mean()) * 1.3
    return np.maximum(sky, 0.05).astype(np.float32)


def assign_textures(
    objects: list[Solid], rng: np.random.Generator
) -> tuple[textures.Atlas, list[int]]:
    """An atlas with two tiles of every kind in use, and the tile of each solid; neighbours of one
    kind share a tile.
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


def draw_light(rng: np.random.Generator, azimuth: float, indoors: bool) -> Light:
    """Sun from anywhere but straight behind the people, or an overcast sky; a lamp or window, and
    light reflected by the walls."""
    overcast = not indoors and rng.random() < 0.35
    warm = rng.uniform(0, 1)
    color = np.array([1.0, 0.97 - 0.12 * warm, 0.90 - 0.30 * warm])
    blue = np.array([0.92, 0.98, 1.08])
    # Strength of the sun or lamp and of what comes from above, the softness of shadows, and the
    # elevation.
    sun, above, soft, high = (
        ((0.3, 0.9), (0.4, 0.7), (4, 12), (0.7, 1.4))
        if indoors
        else ((0.15, 0.5), (0.7, 1.1), (8, 8), (0.45, 1.25))
        if overcast
        else ((1.2, 2.6), (0.35, 0.65), (0.8, 2.5), (0.45, 1.25))
    )
    sky = rng.uniform(*above) * (color if indoors else blue)
    a = azimuth + rng.uniform(-2.4, 2.4)
    elevation = rng.uniform(*high)
    towards = np.array(
        [np.sin(a) * np.cos(elevation), np.sin(elevation), np.cos(a) * np.cos(elevation)]
    )
    return Light(
        towards, rng.uniform(*sun) * color, sky, 0.4 * sky * (1.05, 1, 0.85), rng.uniform(*soft)
    )


def place_occluders(
    level: OcclusionLevel,
    area: ClearArea,
    keypoints_m: np.ndarray,
    world_to_cam: np.ndarray,
    camera: Camera,
    kind: SceneKind,
    rng: np.random.Generator,
) -> list[Solid]:
    """Solids between the camera and the people until enough keypoints are hidden, but never too
    many of one person. keypoints_m [T, P, 17, 3] in the world and world_to_cam [T, 4, 4] at some of
    the frames."""
    if level == "none":
        return []
    enough, most = HIDDEN_SHARE[level]
    hidden: np.ndarray = np.zeros(keypoints_m.shape[:-1], bool)
    objects: list[Solid] = []
    rotation = world_to_cam[:, :3, :3]
    shift = world_to_cam[:, None, :3, 3]

    def project(points_m: np.ndarray) -> np.ndarray:
        """[T or 1, n, 3] -> pixels [T, n, 2]."""
        points_m = np.broadcast_to(points_m, (len(rotation), *points_m.shape[1:]))
        in_cam = np.einsum("tij,tnj->tni", rotation, points_m) + shift
        return (
            in_cam[..., :2] / np.maximum(in_cam[..., 2:], 0.05) * camera.focal_px + camera.center_px
        )

    pixels = project(keypoints_m.reshape(len(keypoints_m), -1, 3))
    cameras = -np.einsum("tji,tj->ti", rotation, shift[:, 0])[:, ::2]
    for _ in range(_TRIES):
        frame = int(rng.integers(len(hidden)))
        person = int(rng.integers(hidden.shape[1]))
        place = keypoints_m[frame, person, 11:13, ::2].mean(0)  # between the hips
        apart = np.linalg.norm(cameras[frame] - place)
        towards = (cameras[frame] - place) / apart
        high = rng.uniform(0.75, 1.15) if level == "heavy" else rng.uniform(0.45, 0.85)
        parts = PROPS[_surface(rng, *(INDOOR_OCCLUDERS if kind == "room" else OUTDOOR_OCCLUDERS))](
            rng, rng.uniform(0.5, 1.2), high
        )
        half_depth = max(float(part.vertices_m[:, 2].max()) for part in parts)
        nearer = rng.uniform(0.5, 1.1) + half_depth
        spot = (
            place + nearer * towards + rng.uniform(-0.3, 0.3) * np.array([towards[1], -towards[0]])
        )
        yaw = np.arctan2(towards[0], towards[1]) + rng.normal(0, 0.25)
        parts = [part.moved((spot[0], 0, spot[1]), yaw) for part in parts]
        clear = np.linalg.norm(area.paths_m - spot, axis=1).min() > 0.42 + half_depth
        far_from_lens = np.linalg.norm(area.cameras_m - spot, axis=1).min() > 1.0 + half_depth
        if not (clear and far_from_lens and nearer < 0.6 * apart):
            continue
        box_px = project(np.concatenate([part.vertices_m for part in parts])[None])  # [T, n, 2]
        low = box_px.min(1)[:, None]
        high = box_px.max(1)[:, None]
        with_it = hidden | ((pixels > low) & (pixels < high)).all(-1).reshape(hidden.shape)
        if with_it.mean((0, 2)).max() <= most and with_it.sum() > hidden.sum():
            hidden = with_it
            objects = objects + parts
        if hidden.mean() >= enough:
            break
    return objects
