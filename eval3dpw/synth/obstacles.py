"""What stands in the way of the view: furniture, bushes, posts, bins."""

from collections.abc import Callable

import numpy as np

from eval3dpw.synth import solids
from eval3dpw.synth.scene import Ground, Kind, Level
from eval3dpw.synth.solids import Solid


def put(level: Level, ground: Ground, pelvises_m: np.ndarray, kind: Kind, rng: np.random.Generator) -> list[Solid]:
    """Things between the camera and people. pelvises_m [T, P, 2] x, z; the camera's places are the ground's [T, 2]."""
    wanted = {"none": 0, "some": int(rng.integers(1, 3)), "heavy": int(rng.integers(2, 5))}[level]
    things: list[Solid] = []
    for _ in range(30 * wanted):
        if wanted == 0:
            break
        frame, person = int(rng.integers(len(pelvises_m))), int(rng.integers(pelvises_m.shape[1]))
        place, camera = pelvises_m[frame, person], ground.cameras_m[frame]
        apart = np.linalg.norm(camera - place)
        towards = (camera - place) / apart
        thing, half_depth = _obstacle(level, kind, rng)
        nearer = rng.uniform(0.5, 1.1) + half_depth
        spot = place + nearer * towards + rng.uniform(-0.3, 0.3) * np.array([towards[1], -towards[0]])
        clear = np.linalg.norm(ground.paths_m - spot, axis=1).min() > 0.42 + half_depth
        far_from_lens = np.linalg.norm(ground.cameras_m - spot, axis=1).min() > 1.0 + half_depth
        if clear and far_from_lens and nearer < 0.6 * apart:
            yaw = np.arctan2(towards[0], towards[1]) + rng.normal(0, 0.25)
            things += [part.moved((spot[0], 0, spot[1]), yaw) for part in thing]
            wanted -= 1
    return things


def _obstacle(level: Level, kind: Kind, rng: np.random.Generator) -> tuple[list[Solid], float]:
    """Something to stand behind, and half of its depth."""
    high = rng.uniform(0.75, 1.15) if level == "heavy" else rng.uniform(0.45, 0.85)
    wide = rng.uniform(0.5, 1.2)
    surface = str(rng.choice(["planks", "painted", "concrete", "painted"]))
    shelf = str(rng.choice(["planks", "posters", "painted"]))
    post = str(rng.choice(["bark", "concrete", "painted"]))
    indoors: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: (solids.table((wide + 0.3, high * 0.9, 0.6), surface), 0.3),
        lambda: (solids.chair(surface), 0.25),
        lambda: ([solids.box((wide, high, 0.4), shelf)], 0.2),
        lambda: ([solids.box((wide / 4, 2.7, 0.25), "plaster")], 0.15),
        lambda: (solids.potted_plant(high, rng), 0.3),
    ]
    outdoors: list[Callable[[], tuple[list[Solid], float]]] = [
        lambda: ([solids.bush((wide * 0.6, high / 2, 0.4), "foliage", rng)], 0.4),
        lambda: (solids.bench("planks"), 0.3),
        lambda: (solids.fence(2 * wide, high, surface), 0.1),
        lambda: ([solids.cylinder(wide / 8, 3.2, post)], 0.12),
        lambda: ([solids.box((wide, high, 0.5), surface)], 0.25),
        lambda: ([solids.cylinder(0.28, high, "painted")], 0.28),
    ]
    choices = indoors if kind == "room" else outdoors
    return choices[rng.integers(len(choices))]()
