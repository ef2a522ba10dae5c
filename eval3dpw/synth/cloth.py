"""The colour of every point of a dressed person, and how folds tilt the surface there."""

from collections.abc import Callable

import numpy as np

from eval3dpw.synth import noise
from eval3dpw.synth.outfit import Cloth, Outfit
from eval3dpw.synth.regions import Place, cover, step

BODY, EYE, HAIR, SKIRT = range(4)  # kinds of surface
CHANNELS = 6  # linear red, green, blue; and a vector to add to the normal


def paint(place: Place, kind: np.ndarray, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    """[n, 6]: what is seen at each point; `kind` [n] tells BODY from EYE and from HAIR and SKIRT worn beside it."""
    covered, points = cover(place, outfit), place.rest_m
    hair, skirt = np.maximum(covered.hair, kind == HAIR), (kind == SKIRT).astype(float)

    color = _skin(place, outfit, rng)
    _put(color, covered.socks, points, lambda p: np.tile(outfit.socks, (len(p), 1)))
    _put(color, np.maximum(covered.bottom, skirt), points, lambda p: _fabric(p, outfit.bottom, rng))
    _put(color, covered.top, points, lambda p: _top(p, outfit, rng))
    _put(color, covered.shoes, points, lambda p: _shoes(p, outfit))
    _put(color, hair, points, lambda p: _hair(p, outfit, rng))
    _put(color, (kind == EYE).astype(float), points, _eyeballs)

    tilt = np.zeros((len(points), 3))
    loose = covered.top * outfit.top.folds + np.maximum(covered.bottom, skirt) * outfit.bottom.folds
    _put(tilt, loose, points, lambda p: _folds(p, rng))
    _put(tilt, hair, points, lambda p: _strands(p, rng))
    return np.concatenate((np.clip(color, 0.002, 0.95), tilt), 1).astype(np.float32)


def _put(under: np.ndarray, share: np.ndarray, points: np.ndarray, over: Callable[[np.ndarray], np.ndarray]) -> None:
    """Lay something over what is there, in place; worked out only where it covers anything."""
    where = share > 0
    under[where] = _over(under[where], share[where], over(points[where]))


def _over(under: np.ndarray, share: np.ndarray, color: np.ndarray) -> np.ndarray:
    return under + share[:, None] * (color - under)


def _skin(place: Place, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    points = place.rest_m
    color = np.asarray(outfit.skin) * np.exp(0.10 * noise.octaves(points, 0.05, rng))[:, None]
    knuckles = np.isin(place.bone, (20, 21, 22, 23)) * 0.12
    color = color * (1 - knuckles[:, None] * np.array([0.2, 0.8, 0.8]))
    head = place.bone == 15
    color[head] = _face(points[head], color[head], outfit)
    return color


def _face(points: np.ndarray, color: np.ndarray, outfit: Outfit) -> np.ndarray:
    """Brows, lids, lips, nostrils, cheeks, and the shade under brows and jaw that make a face a face."""
    x, y, z = points.T
    side = np.abs(x)
    front = z > 0.08

    def spot(cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
        return front * np.clip(1.5 - 1.5 * np.hypot((side - cx) / rx, (y - cy) / ry) ** 2, 0, 1)

    skin, hair = np.asarray(outfit.skin), np.asarray(outfit.hair)
    color = _over(color, 0.35 * spot(0.042, 0.567, 0.022, 0.02), skin * (1.1, 0.7, 0.65))  # cheeks
    color = _over(color, 0.55 * spot(0.030, 0.612, 0.021, 0.014), skin * 0.45)  # the hollow of the eye
    color = _over(color, 0.9 * spot(0.032, 0.632, 0.022, 0.0055), hair * 0.6 + 0.005)  # brow
    color = _over(color, 0.8 * spot(0.030, 0.6165, 0.016, 0.0035), skin * 0.12)  # upper lid
    color = _over(color, 0.8 * spot(0.008, 0.562, 0.0055, 0.004), skin * 0.12)  # nostril
    color = _over(color, 0.25 * spot(0.018, 0.565, 0.006, 0.012), skin * 0.5)  # wing of the nose
    color = _over(color, 0.75 * spot(0.0, 0.535, 0.026, 0.0075), skin * (0.75, 0.32, 0.32))  # lips
    color = _over(color, 0.8 * spot(0.0, 0.5355, 0.024, 0.002), skin * 0.15)  # between them
    under_jaw = (1 - step(y, 0.50, 0.03)) * step(z, 0.04, 0.03)
    color = _over(color, 0.45 * under_jaw, skin * 0.4)
    ear_hole = (side > 0.066) & (np.hypot(y - 0.592, z - 0.058) < 0.009)
    color = _over(color, 0.7 * ear_hole, skin * 0.2)
    chin = (1 - step(y, 0.548, 0.012)) * step(z, 0.07, 0.03) * (1 - 0.8 * spot(0.0, 0.535, 0.024, 0.01))
    return _over(color, outfit.beard * chin, hair)


def _eyeballs(points: np.ndarray) -> np.ndarray:
    """White with an iris in front."""
    from_axis = np.hypot(np.abs(points[:, 0]) - 0.0305, points[:, 1] - 0.612)
    iris = 1 - step(from_axis, 0.0062, 0.002)
    return _over(np.full((len(points), 3), 0.55), iris, np.array([0.03, 0.02, 0.012]))


def _top(points: np.ndarray, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    color = _fabric(points, outfit.top, rng)
    x, y, z = points.T
    if outfit.open_front:
        under = (np.abs(x) < 0.045 + 0.03 * np.clip(y, 0, 0.3) / 0.3) & (z > 0.0)
        color = np.where(under[:, None], np.asarray(outfit.top.second) * 0.5 + 0.3, color)
    from_neck = np.sqrt(x**2 + ((y - 0.475) / 1.15) ** 2 + (z - 0.045) ** 2)
    collar = 1 - step(from_neck, outfit.neckline_m + 0.02)
    cuffs = step(np.abs(x), outfit.sleeve_end_m - 0.015) + (1 - step(y, outfit.hem_y_m + 0.012))
    return color * (1 - 0.35 * np.clip(collar + cuffs, 0, 1))[:, None]


def _fabric(points: np.ndarray, cloth: Cloth, rng: np.random.Generator) -> np.ndarray:
    x, y, z = points.T
    around = x + 0.7 * z  # so that upright stripes also run on the sides
    second = {
        "plain": lambda: np.zeros(len(points)),
        "stripes": lambda: _bars(np.where(np.abs(x) > 0.2, np.abs(x), y), cloth.period_m),
        "upright stripes": lambda: _bars(around, cloth.period_m),
        "checks": lambda: (
            0.5 * _bars(around, cloth.period_m) + 0.5 * _bars(np.where(np.abs(x) > 0.2, x, y), cloth.period_m)
        ),
        "blotches": lambda: step(noise.octaves(points, cloth.period_m, rng), 0.05, 0.15),
        "print": lambda: _print(points, rng),
        "panels": lambda: ((np.abs(x) > 0.19) | (y < 0.06)).astype(float),
    }[cloth.pattern]()
    color = _over(np.tile(cloth.color, (len(points), 1)), second, np.asarray(cloth.second))
    worn = 0.12 * noise.octaves(points, 0.15, rng) + 0.10 * noise.in_space(points, 0.008, rng)
    creases = -0.35 * cloth.folds * np.clip(1 - 5 * np.abs(_fold_height(points, rng)), 0, 1)
    return color * np.exp(worn + creases)[:, None]


def _bars(along: np.ndarray, period_m: float) -> np.ndarray:
    return step(np.abs((along / period_m) % 1 - 0.5), 0.28, 0.06)


def _print(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An image on the chest: a few shapes in a square."""
    x, y, z = points.T
    inside = (np.abs(x) < 0.10) & (np.abs(y - 0.24) < 0.10) & (z > 0)
    return inside * step(noise.in_space(points, 0.05, rng), 0, 0.1)


def _fold_height(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Creases run along arms and across the trunk, roughly; -1..1."""
    stretched = np.where(np.abs(points[:, :1]) > 0.2, (0.05, 0.10, 0.10), (0.11, 0.05, 0.11))
    bent = points / stretched + 0.8 * np.stack([noise.in_space(points, 0.12, rng) for _ in range(3)], 1)
    return noise.in_space(bent, 1.0, rng)


def _folds(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    wide = np.stack([_fold_height(points, rng) for _ in range(3)], 1)
    return 0.55 * wide + 0.15 * np.stack([noise.in_space(points, 0.02, rng) for _ in range(3)], 1)


def _shoes(points: np.ndarray, outfit: Outfit) -> np.ndarray:
    _, y, z = points.T
    color = np.where((y < -0.963)[:, None], np.asarray(outfit.sole), np.asarray(outfit.shoes))
    laces = (z > 0.0) & (z < 0.07) & (y > -0.945) & (np.sin(z * 450) > 0.2)
    return np.where(laces[:, None], color * 0.4 + 0.25, color)


def _hair(points: np.ndarray, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    locks = noise.in_space(points, (0.006, 0.05, 0.012), rng) + 0.6 * noise.in_space(points, 0.02, rng)
    return np.asarray(outfit.hair) * np.exp(0.45 * locks)[:, None]


def _strands(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 0.5 * np.stack([noise.in_space(points, (0.008, 0.06, 0.015), rng) for _ in range(3)], 1)
