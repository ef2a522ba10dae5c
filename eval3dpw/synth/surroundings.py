"""Build the world around people: streets, parks, yards and rooms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval3dpw.synth.light import Light, draw_light, draw_sky
from eval3dpw.synth.solids import PROPS, Solid, box, bush, floor, pick_texture

SceneKind = Literal["street", "park", "yard", "room"]
SCENE_KINDS: tuple[SceneKind, ...] = ("street", "park", "yard", "room")


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
        """Return how far people walk behind their centre, metres."""
        return float(((self.paths_m - self.center_m) @ self.behind).max())

    def is_free(self, place_m: np.ndarray, margin_m: float) -> bool:
        """Return whether an object of this radius blocks neither a path nor the view."""
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
    solids = [floor(60, pick_texture(rng, *grounds)), *backdrop(area, rng)]
    solids += _scattered(area, rng, int(rng.integers(least, most)), props)
    light = draw_light(rng, area.azimuth, indoors=kind == "room")
    return Scene(solids, light, draw_sky(light, rng))


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
        front = pick_texture(rng, "facade", "facade", "bricks", "plaster")
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
        pick_texture(rng, "bricks", "concrete", "plaster", "facade"),
        False,
    )
    return [wall.moved((spot[0], 0, spot[1]), area.azimuth + rng.normal(0, 0.15))]


def _four_walls(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    """Build walls around people and camera, a ceiling, and furniture and images against one
    wall.
    """
    frame = np.stack((area.aside, area.behind))
    local = np.concatenate((area.paths_m, area.cameras_m)) @ frame.T
    low = local.min(0) - rng.uniform(0.8, 2.0, 2)
    high = local.max(0) + rng.uniform(0.8, 2.2, 2)
    middle = (low + high) / 2 @ frame
    wide, deep = high - low
    walls = pick_texture(rng, "plaster", "plaster", "bricks", "planks")
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
        thing = box(
            (w, h, thick), pick_texture(rng, "posters", "planks", "painted", "facade"), False
        )
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
    """Scatter random objects behind and beside the people, where the ground is free."""
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
