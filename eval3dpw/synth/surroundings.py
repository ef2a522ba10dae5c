"""The world around people: streets, parks, yards and rooms, their light, and occluders before the camera."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval3dpw.synth import noise, solids, textures
from eval3dpw.synth.outfit import linear_rgb
from eval3dpw.synth.solids import Solid
from fitting.camera import Camera

SceneKind = Literal["street", "park", "yard", "room", "photo"]
SCENE_KINDS: tuple[SceneKind, ...] = ("street", "park", "yard", "room")
OcclusionLevel = Literal["none", "some", "heavy"]
OCCLUSION_LEVELS: tuple[OcclusionLevel, ...] = ("none", "some", "heavy")
# Share of all keypoints to hide, and of one person's at most; by bounding boxes, so the true share is a little less.
HIDDEN_SHARE: dict[OcclusionLevel, tuple[float, float]] = {
    "none": (0.0, 0.0),
    "some": (0.12, 0.4),
    "heavy": (0.32, 0.62),
}
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
class Backdrop:
    """What is seen where no surface is: a sky or a photograph."""

    image: np.ndarray  # [h, w, 3] float32 linear
    frame: np.ndarray  # [3, 3] world direction -> the image's own right, down, forward
    focal_px: float  # of a photograph; 0 for a sky, which wraps around: x is azimuth, y is elevation


@dataclass(frozen=True)
class ClearArea:
    """The ground that a scene leaves free: where people walk, and the view from the camera."""

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
    """Everything but the people."""

    solids: list[Solid]  # the first is the ground
    light: Light
    backdrop: Backdrop
    ground_is_photo: bool


def build_scene(kind: SceneKind, area: ClearArea, rng: np.random.Generator) -> Scene:
    builder: dict[SceneKind, Callable[[ClearArea, np.random.Generator], list[Solid]]] = {
        "street": _street,
        "park": _park,
        "yard": _yard,
        "room": _room,
    }
    objects = builder[kind](area, rng)
    light = (indoor_light if kind == "room" else outdoor_light)(rng, area.azimuth)
    return Scene(objects, light, _sky(light, rng), ground_is_photo=False)


def photo_scene(
    photo: np.ndarray, area: ClearArea, world_to_cam: np.ndarray, focal_px: float, rng: np.random.Generator
) -> Scene:
    """People before a photograph [h, w, 3] uint8 RGB, whose lower part serves as the ground."""
    backdrop = Backdrop(linear_rgb(photo).astype(np.float32), world_to_cam[:3, :3].copy(), focal_px)
    light = outdoor_light(rng, area.azimuth)
    return Scene([solids.floor(60, "concrete")], light, backdrop, ground_is_photo=True)


def _street(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    objects = [solids.floor(60, str(rng.choice(["asphalt", "paving"])))]
    line, along = rng.uniform(2.5, 9) + area.deepest_m(), -24.0
    yaw = np.arctan2(-area.behind[0], -area.behind[1]) + rng.normal(0, 0.25)
    while along < 24:
        wide, high = rng.uniform(5, 12), rng.uniform(5, 14)
        spot = area.center_m + (line + 4 + rng.uniform(0, 0.6)) * area.behind + (along + wide / 2) * area.aside
        front = str(rng.choice(["facade", "facade", "bricks", "plaster"]))
        objects.append(solids.box((wide, high, 8), front, casts_shadow=False).moved((spot[0], 0, spot[1]), yaw))
        along += wide + (rng.uniform(1, 5) if rng.random() < 0.3 else 0)
    objects += _scattered(area, rng, int(rng.integers(2, 6)), ("car", "pole", "tree", "bin", "shop"))
    return objects


def _park(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    objects = [solids.floor(60, str(rng.choice(["grass", "grass", "paving"])))]
    for _ in range(int(rng.integers(6, 14))):  # trees far away
        spot = area.center_m + rng.uniform(14, 26) * area.behind + rng.uniform(-22, 22) * area.aside
        size = rng.uniform(2.5, 4.5)
        objects.append(solids.bush((size, size * 0.8, size), "foliage", rng).moved((spot[0], -0.5, spot[1])))
    return objects + _scattered(area, rng, int(rng.integers(5, 11)), ("tree", "tree", "bush", "bench", "fence"))


def _yard(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    objects = [solids.floor(60, str(rng.choice(["paving", "concrete", "tiles", "asphalt"])))]
    yaw = np.arctan2(-area.behind[0], -area.behind[1]) + rng.normal(0, 0.15)
    spot = area.center_m + (area.deepest_m() + rng.uniform(1.2, 4.5) + 0.2) * area.behind
    surface = str(rng.choice(["bricks", "concrete", "plaster", "facade"]))
    wall = solids.box((30, rng.uniform(2.0, 6.0), 0.4), surface, casts_shadow=False)
    objects.append(wall.moved((spot[0], 0, spot[1]), yaw))
    return objects + _scattered(area, rng, int(rng.integers(2, 7)), ("bin", "bush", "pole", "bench", "shop", "tree"))


def _room(area: ClearArea, rng: np.random.Generator) -> list[Solid]:
    everything = np.concatenate((area.paths_m, area.cameras_m))
    frame = np.stack((area.aside, area.behind))
    local = everything @ frame.T
    low, high = local.min(0) - rng.uniform(0.8, 2.0, 2), local.max(0) + rng.uniform(0.8, 2.2, 2)
    middle, (wide, deep) = (low + high) / 2 @ frame, high - low
    yaw = np.arctan2(-area.behind[0], -area.behind[1])
    walls = str(rng.choice(["plaster", "plaster", "bricks", "planks"]))
    tall = rng.uniform(2.5, 3.4)
    objects = [solids.floor(60, str(rng.choice(["planks", "carpet", "tiles", "planks"])))]
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
    return objects + [s.moved((middle[0], 0, middle[1]), yaw) for s in (*sides, *against_wall)]


def _scattered(area: ClearArea, rng: np.random.Generator, count: int, kinds: tuple[str, ...]) -> list[Solid]:
    """Random objects behind and beside the people, where the ground is free."""
    objects: list[Solid] = []
    for _ in range(8 * count):
        if count == 0:
            break
        spot = area.center_m + rng.uniform(0.5, 9) * area.behind + rng.uniform(-7, 7) * area.aside
        kind = kinds[rng.integers(len(kinds))]
        if area.is_free(spot, 1.4 if kind == "car" else 0.6):
            objects += [part.moved((spot[0], 0, spot[1]), rng.uniform(-np.pi, np.pi)) for part in _prop(kind, rng)]
            count -= 1
    return objects


def _prop(kind: str, rng: np.random.Generator) -> list[Solid]:
    """A random object of a kind that `_scattered` is given."""
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


def _sky(light: Light, rng: np.random.Generator) -> Backdrop:
    """Blue to white towards the horizon, with clouds, bright around the sun."""
    height = 256  # and twice as wide
    elevation = (np.arange(height) + 0.5) / height * np.pi - np.pi / 2  # row 0 is straight up
    up = np.clip(-np.sin(elevation), 0, 1)[:, None]
    blue, pale = np.array([0.22, 0.42, 0.85]), np.array([0.75, 0.85, 0.95])
    clear = pale + (blue - pale) * (up**0.6)[..., None]
    # The noise is square: two copies side by side go around the horizon
    clouds = np.concatenate([noise.tileable_noise(height, 4, rng, 6, stretch=(1, 2))] * 2, 1)
    cover = np.clip(clouds * rng.uniform(1, 3) + rng.uniform(-0.6, 0.8), 0, 1)[..., None]
    sky = clear * (1 - cover) + cover * np.array([0.9, 0.92, 0.95]) * (0.8 + 0.3 * clouds[..., None])
    sky = sky * (light.sky.mean() + 0.35 * light.sun.mean()) * 1.3
    return Backdrop(np.maximum(sky, 0.05).astype(np.float32), np.diag([1.0, -1.0, 1.0]), 0.0)


def assign_textures(objects: list[Solid], rng: np.random.Generator) -> tuple[textures.Atlas, list[int]]:
    """An atlas with two tiles of every kind in use, and the tile of each solid; neighbours of one kind share a tile."""
    kinds = sorted({solid.texture for solid in objects})
    tiles = [textures.draw_texture(kind, rng) for kind in kinds for _ in range(2)]
    chosen: list[int] = []
    for number, solid in enumerate(objects):
        like_before = number > 0 and objects[number - 1].texture == solid.texture
        chosen.append(chosen[-1] if like_before else 2 * kinds.index(solid.texture) + int(rng.integers(2)))
    return textures.build_atlas(tiles), chosen


def outdoor_light(rng: np.random.Generator, azimuth: float) -> Light:
    """Sun from anywhere but straight behind the people, or an overcast sky."""
    overcast = rng.random() < 0.35
    warm = rng.uniform(0, 1)
    strength = rng.uniform(0.15, 0.5) if overcast else rng.uniform(1.2, 2.6)
    sun = strength * np.array([1.0, 0.97 - 0.12 * warm, 0.90 - 0.30 * warm])
    sky = (rng.uniform(0.7, 1.1) if overcast else rng.uniform(0.35, 0.65)) * np.array([0.92, 0.98, 1.08])
    towards = _towards(azimuth + rng.uniform(-2.4, 2.4), rng.uniform(0.45, 1.25))
    return Light(towards, sun, sky, 0.35 * sky * (1.05, 1, 0.85), 8.0 if overcast else rng.uniform(0.8, 2.5))


def indoor_light(rng: np.random.Generator, azimuth: float) -> Light:
    """A lamp or window, and light reflected by the walls."""
    warm = rng.uniform(0, 1)
    color = np.array([1.0, 0.96 - 0.12 * warm, 0.92 - 0.35 * warm])
    towards = _towards(azimuth + rng.uniform(-2.0, 2.0), rng.uniform(0.7, 1.4))
    return Light(towards, rng.uniform(0.3, 0.9) * color, rng.uniform(0.4, 0.7) * color, 0.3 * color, rng.uniform(4, 12))


def _towards(azimuth: float, elevation: float) -> np.ndarray:
    return np.array([np.sin(azimuth) * np.cos(elevation), np.sin(elevation), np.cos(azimuth) * np.cos(elevation)])


# Occluders.


@dataclass(frozen=True)
class ViewedKeypoints:
    """The keypoints to hide in part, at some of the frames."""

    keypoints_m: np.ndarray  # [T, P, 17, 3] in the world
    world_to_cam: np.ndarray  # [T, 4, 4]
    camera: Camera

    def covered_by(self, objects: list[Solid]) -> np.ndarray:
        """[T, P, 17] whether the bounding box of these solids in the image covers a keypoint."""
        corners = self._project(np.concatenate([solid.vertices_m for solid in objects])[None])  # [T, n, 2]
        points = self._project(self.keypoints_m.reshape(len(self.keypoints_m), -1, 3))
        low, high = corners.min(1)[:, None], corners.max(1)[:, None]
        return ((points > low) & (points < high)).all(-1).reshape(self.keypoints_m.shape[:-1])

    def _project(self, points_m: np.ndarray) -> np.ndarray:
        """[T or 1, n, 3] -> pixels [T, n, 2]."""
        rotation, shift = self.world_to_cam[:, :3, :3], self.world_to_cam[:, None, :3, 3]
        points_m = np.broadcast_to(points_m, (len(rotation), *points_m.shape[1:]))
        in_cam = np.einsum("tij,tnj->tni", rotation, points_m) + shift
        return in_cam[..., :2] / np.maximum(in_cam[..., 2:], 0.05) * self.camera.focal_px + self.camera.center_px


def place_occluders(
    level: OcclusionLevel, area: ClearArea, viewed: ViewedKeypoints, kind: SceneKind, rng: np.random.Generator
) -> list[Solid]:
    """Solids between the camera and the people until enough keypoints are hidden, but never too many of one person."""
    if level == "none":
        return []
    enough, most = HIDDEN_SHARE[level]
    hidden: np.ndarray = np.zeros(viewed.keypoints_m.shape[:-1], bool)
    objects: list[Solid] = []
    cameras = -np.einsum("tji,tj->ti", viewed.world_to_cam[:, :3, :3], viewed.world_to_cam[:, :3, 3])[:, ::2]
    for _ in range(_TRIES):
        frame, person = int(rng.integers(len(hidden))), int(rng.integers(hidden.shape[1]))
        place, camera = viewed.keypoints_m[frame, person, 11:13, ::2].mean(0), cameras[frame]  # between the hips
        apart = np.linalg.norm(camera - place)
        towards = (camera - place) / apart
        parts, half_depth = _occluder(level, kind, rng)
        nearer = rng.uniform(0.5, 1.1) + half_depth
        spot = place + nearer * towards + rng.uniform(-0.3, 0.3) * np.array([towards[1], -towards[0]])
        yaw = np.arctan2(towards[0], towards[1]) + rng.normal(0, 0.25)
        parts = [part.moved((spot[0], 0, spot[1]), yaw) for part in parts]
        clear = np.linalg.norm(area.paths_m - spot, axis=1).min() > 0.42 + half_depth
        far_from_lens = np.linalg.norm(area.cameras_m - spot, axis=1).min() > 1.0 + half_depth
        if not (clear and far_from_lens and nearer < 0.6 * apart):
            continue
        with_it = hidden | viewed.covered_by(parts)
        if with_it.mean((0, 2)).max() <= most and with_it.sum() > hidden.sum():
            hidden, objects = with_it, objects + parts
        if hidden.mean() >= enough:
            break
    return objects


def _occluder(level: OcclusionLevel, kind: SceneKind, rng: np.random.Generator) -> tuple[list[Solid], float]:
    """A random object and half of its depth."""
    high = rng.uniform(0.75, 1.15) if level == "heavy" else rng.uniform(0.45, 0.85)
    wide = rng.uniform(0.5, 1.2)
    surface = str(rng.choice(["planks", "painted", "concrete", "painted"]))
    shelf = str(rng.choice(["planks", "posters", "painted"]))
    post = str(rng.choice(["bark", "concrete", "painted"]))
    indoor: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: (solids.table((wide + 0.3, high * 0.9, 0.6), surface), 0.3),
        lambda: (solids.chair(surface), 0.25),
        lambda: ([solids.box((wide, high, 0.4), shelf)], 0.2),
        lambda: ([solids.box((wide / 4, 2.7, 0.25), "plaster")], 0.15),
        lambda: (solids.potted_plant(high, rng), 0.3),
    ]
    outdoor: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: ([solids.bush((wide * 0.6, high / 2, 0.4), "foliage", rng)], 0.4),
        lambda: (solids.bench("planks"), 0.3),
        lambda: (solids.fence(2 * wide, high, surface), 0.1),
        lambda: ([solids.cylinder(wide / 8, 3.2, post)], 0.12),
        lambda: ([solids.box((wide, high, 0.5), surface)], 0.25),
        lambda: ([solids.cylinder(0.28, high, "painted")], 0.28),
    ]
    choices = indoor if kind == "room" else outdoor
    return choices[rng.integers(len(choices))]()
