"""The world around people: streets, parks, yards and rooms, and what stands in the way of the view."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval3dpw.synth import light as lights
from eval3dpw.synth import noise, solids, textures
from eval3dpw.synth.light import Light
from eval3dpw.synth.outfit import linear
from eval3dpw.synth.pixels import Far
from eval3dpw.synth.solids import Solid

Kind = Literal["street", "park", "yard", "room", "photo"]
BUILT: tuple[Kind, ...] = ("street", "park", "yard", "room")
Level = Literal["none", "some", "heavy"]
LEVELS: tuple[Level, ...] = ("none", "some", "heavy")


@dataclass(frozen=True)
class Ground:
    """What the scene has to leave room for."""

    paths_m: np.ndarray  # [n, 2] x, z of all people at all times
    cameras_m: np.ndarray  # [n, 2] x, z of the camera at all times
    azimuth: float  # from the people to the camera

    @property
    def center_m(self) -> np.ndarray:
        return (self.paths_m.min(0) + self.paths_m.max(0)) / 2

    @property
    def behind(self) -> np.ndarray:
        """Unit x, z away from the camera."""
        return -np.array([np.sin(self.azimuth), np.cos(self.azimuth)])

    @property
    def aside(self) -> np.ndarray:
        return np.array([self.behind[1], -self.behind[0]])

    def deepest_m(self) -> float:
        """How far people go behind their centre."""
        return float(((self.paths_m - self.center_m) @ self.behind).max())

    def is_free(self, place_m: np.ndarray, margin_m: float) -> bool:
        """Whether a thing of this radius would stand in nobody's way and not in the view."""
        if np.linalg.norm(self.paths_m - place_m, axis=1).min() < margin_m + 0.5:
            return False
        along = np.linspace(0, 1, 9)[:, None, None]
        views = self.cameras_m[::10] + along * (self.center_m - self.cameras_m[::10])
        return bool(np.linalg.norm(views.reshape(-1, 2) - place_m, axis=1).min() > margin_m + 0.7)


@dataclass(frozen=True)
class Scene:
    """Everything but people."""

    solids: list[Solid]  # the first is the ground
    light: Light
    far: Far
    ground_is_photo: bool


def build(kind: Kind, ground: Ground, rng: np.random.Generator) -> Scene:
    builder: dict[Kind, Callable[[Ground, np.random.Generator], list[Solid]]] = {
        "street": _street,
        "park": _park,
        "yard": _yard,
        "room": _room,
    }
    things = builder[kind](ground, rng)
    light = (lights.indoors if kind == "room" else lights.outdoors)(rng, ground.azimuth)
    return Scene(things, light, _sky(light, rng), ground_is_photo=False)


def before_photograph(
    photo: np.ndarray, ground: Ground, world_to_cam: np.ndarray, focal_px: float, rng: np.random.Generator
) -> Scene:
    """People before a photograph [h, w, 3] uint8 RGB, whose lower part is taken for the ground."""
    far = Far(linear(photo).astype(np.float32), world_to_cam[:3, :3].copy(), focal_px)
    light = lights.outdoors(rng, ground.azimuth)
    return Scene([solids.floor(60, "concrete")], light, far, ground_is_photo=True)


def _street(ground: Ground, rng: np.random.Generator) -> list[Solid]:
    things = [solids.floor(60, str(rng.choice(["asphalt", "paving"])))]
    line, along = rng.uniform(2.5, 9) + ground.deepest_m(), -24.0
    turn = np.arctan2(-ground.behind[0], -ground.behind[1]) + rng.normal(0, 0.25)
    while along < 24:
        wide, high = rng.uniform(5, 12), rng.uniform(5, 14)
        spot = ground.center_m + (line + 4 + rng.uniform(0, 0.6)) * ground.behind + (along + wide / 2) * ground.aside
        front = str(rng.choice(["facade", "facade", "bricks", "plaster"]))
        things.append(solids.box((wide, high, 8), front, casts=False).moved((spot[0], 0, spot[1]), turn))
        along += wide + (rng.uniform(1, 5) if rng.random() < 0.3 else 0)
    things += _strewn(ground, rng, int(rng.integers(2, 6)), ("car", "pole", "tree", "bin", "shop"))
    return things


def _park(ground: Ground, rng: np.random.Generator) -> list[Solid]:
    things = [solids.floor(60, str(rng.choice(["grass", "grass", "paving"])))]
    for _ in range(int(rng.integers(6, 14))):  # a ring of wood far away
        spot = ground.center_m + rng.uniform(14, 26) * ground.behind + rng.uniform(-22, 22) * ground.aside
        size = rng.uniform(2.5, 4.5)
        things.append(solids.bush((size, size * 0.8, size), "foliage", rng).moved((spot[0], -0.5, spot[1])))
    return things + _strewn(ground, rng, int(rng.integers(5, 11)), ("tree", "tree", "bush", "bench", "fence"))


def _yard(ground: Ground, rng: np.random.Generator) -> list[Solid]:
    things = [solids.floor(60, str(rng.choice(["paving", "concrete", "tiles", "asphalt"])))]
    turn = np.arctan2(-ground.behind[0], -ground.behind[1]) + rng.normal(0, 0.15)
    spot = ground.center_m + (ground.deepest_m() + rng.uniform(1.2, 4.5) + 0.2) * ground.behind
    surface = str(rng.choice(["bricks", "concrete", "plaster", "facade"]))
    wall = solids.box((30, rng.uniform(2.0, 6.0), 0.4), surface, casts=False)
    things.append(wall.moved((spot[0], 0, spot[1]), turn))
    return things + _strewn(ground, rng, int(rng.integers(2, 7)), ("bin", "bush", "pole", "bench", "shop", "tree"))


def _room(ground: Ground, rng: np.random.Generator) -> list[Solid]:
    everything = np.concatenate((ground.paths_m, ground.cameras_m))
    frame = np.stack((ground.aside, ground.behind))
    local = everything @ frame.T
    low, high = local.min(0) - rng.uniform(0.8, 2.0, 2), local.max(0) + rng.uniform(0.8, 2.2, 2)
    middle, (wide, deep) = (low + high) / 2 @ frame, high - low
    turn = np.arctan2(-ground.behind[0], -ground.behind[1])
    walls = str(rng.choice(["plaster", "plaster", "bricks", "planks"]))
    tall = rng.uniform(2.5, 3.4)
    things = [solids.floor(60, str(rng.choice(["planks", "carpet", "tiles", "planks"])))]
    sides = (
        solids.box((wide + 0.4, tall, 0.2), walls, False).moved((0, 0, -deep / 2 - 0.1)),
        solids.box((wide + 0.4, tall, 0.2), walls, False).moved((0, 0, deep / 2 + 0.1)),
        solids.box((0.2, tall, deep + 0.4), walls, False).moved((-wide / 2 - 0.1, 0, 0)),
        solids.box((0.2, tall, deep + 0.4), walls, False).moved((wide / 2 + 0.1, 0, 0)),
        solids.box((wide + 0.4, 0.1, deep + 0.4), "plaster", False).moved((0, tall, 0)),
    )
    against_wall = []
    for _ in range(int(rng.integers(2, 6))):
        x, w, h = rng.uniform(-wide / 2, wide / 2), rng.uniform(0.5, 1.6), rng.uniform(0.4, 2.1)
        kind = str(rng.choice(["posters", "planks", "painted", "facade"]))
        lift = 1.2 if h < 1.0 and rng.random() < 0.5 else 0.0
        deep_m = 0.05 if lift else 0.3
        against_wall.append(solids.box((w, h, deep_m), kind, False).moved((x, lift, -deep / 2 + deep_m / 2)))
    return things + [s.moved((middle[0], 0, middle[1]), turn) for s in (*sides, *against_wall)]


def _strewn(ground: Ground, rng: np.random.Generator, count: int, kinds: tuple[str, ...]) -> list[Solid]:
    """Things here and there behind and beside people, not in the way."""
    things: list[Solid] = []
    for _ in range(8 * count):
        if count == 0:
            break
        spot = ground.center_m + rng.uniform(0.5, 9) * ground.behind + rng.uniform(-7, 7) * ground.aside
        kind = kinds[rng.integers(len(kinds))]
        if ground.is_free(spot, 1.4 if kind == "car" else 0.6):
            things += [part.moved((spot[0], 0, spot[1]), rng.uniform(-np.pi, np.pi)) for part in _thing(kind, rng)]
            count -= 1
    return things


def _thing(kind: str, rng: np.random.Generator) -> list[Solid]:
    if kind == "tree":
        return solids.tree(rng)
    if kind == "bush":
        r = rng.uniform(0.4, 0.9)
        return [solids.bush((r, r * 0.7, r), "foliage", rng)]
    if kind == "bench":
        return solids.bench("planks")
    if kind == "fence":
        return solids.fence(rng.uniform(2, 4), rng.uniform(0.7, 1.2), "planks")
    if kind == "pole":
        return [solids.cylinder(0.07, 4.0, "concrete")]
    if kind == "bin":
        return [solids.box((0.5, 1.0, 0.5), "painted")]
    if kind == "shop":
        return [solids.box((1.4, 2.0, 0.6), "posters")]
    return solids.car()


def _sky(light: Light, rng: np.random.Generator) -> Far:
    """Blue to white towards the horizon, with clouds, bright around the sun."""
    height = 256  # and twice as wide
    elevation = (np.arange(height) + 0.5) / height * np.pi - np.pi / 2  # row 0 looks up
    up = np.clip(-np.sin(elevation), 0, 1)[:, None]
    blue, pale = np.array([0.22, 0.42, 0.85]), np.array([0.75, 0.85, 0.95])
    clear = pale + (blue - pale) * (up**0.6)[..., None]
    # tile() is square: two halves of it side by side wrap around the horizon twice
    clouds = np.concatenate([noise.tile(height, 4, rng, 6, stretch=(1, 2))] * 2, 1)
    cover = np.clip(clouds * rng.uniform(1, 3) + rng.uniform(-0.6, 0.8), 0, 1)[..., None]
    sky = clear * (1 - cover) + cover * np.array([0.9, 0.92, 0.95]) * (0.8 + 0.3 * clouds[..., None])
    sky = sky * (light.sky.mean() + 0.35 * light.sun.mean()) * 1.3
    return Far(np.maximum(sky, 0.05).astype(np.float32), np.diag([1.0, -1.0, 1.0]), 0.0)


def draw_tiles(things: list[Solid], rng: np.random.Generator) -> tuple[textures.Atlas, list[int]]:
    """Two tiles of every kind needed, and which one each thing has; parts of one thing look alike."""
    kinds = sorted({thing.texture for thing in things})
    tiles = [textures.draw(kind, rng) for kind in kinds for _ in range(2)]
    chosen: list[int] = []
    for number, thing in enumerate(things):
        like_before = number > 0 and things[number - 1].texture == thing.texture
        chosen.append(chosen[-1] if like_before else 2 * kinds.index(thing.texture) + int(rng.integers(2)))
    return textures.atlas(tiles), chosen
