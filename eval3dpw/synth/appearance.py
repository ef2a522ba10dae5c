"""Colour the surface of a person: skin, face, hair, cloth and shoes.

Coordinates are those of the open body at rest (`outfits.py`).
"""

from collections.abc import Callable

import numpy as np

from eval3dpw.synth import textures
from eval3dpw.synth.outfits import Fabric, Outfit

BODY, EYE, HAIR, SKIRT = range(4)  # kinds of surface
CHANNELS = 6  # of an appearance: linear red, green, blue; and a vector to add to the normal
HEAD = 15
_NECK = 12
_FEET = (7, 8, 10, 11)
_LEGS = (1, 2, 4, 5, 7, 8, 10, 11)


def soft_step(value: np.ndarray, edge: float | np.ndarray, width_m: float = 0.004) -> np.ndarray:
    """Return 0 below `edge`, 1 above, linear over `width_m` in between."""
    return np.clip((value - edge) / width_m + 0.5, 0, 1)


def coverage(
    points: np.ndarray, bone: np.ndarray, outfit: Outfit, width_m: float = 0.004
) -> dict[str, np.ndarray]:
    """Return how much hair, top, bottom, socks and shoes cover each point [n, 3] of the mean body.

    Values [n] are 0 or 1, in between at edges, by the lengths of the outfit. bone [n]: the joint
    with the largest skinning weight.
    """
    x, y, z = points.T
    arm = np.abs(x)  # distance along the arm
    head = bone == HEAD
    foot = np.isin(bone, _FEET)
    neck = np.isin(bone, (HEAD, _NECK))
    torso = soft_step(y, outfit.hem_y_m, width_m) * soft_step(
        _from_neck(points), outfit.neckline_m, width_m
    )
    covers_torso = torso * ~(neck & (y > 0.5))
    top = (
        covers_torso
        * (1 - soft_step(arm, outfit.sleeve_end_m, width_m))
        * ~np.isin(bone, _LEGS[2:])
    )
    below_waist = ~(y > 0.14) & (arm < 0.4)
    bottom = below_waist * soft_step(y, outfit.leg_end_y_m, width_m) * (1 - top)
    shoes = foot * (1 - soft_step(y, -0.885 - 0.02 * (z > 0.03), width_m))
    socks = (np.isin(bone, _LEGS) & (y < -0.6)) * (1 - soft_step(y, -0.82, width_m))
    return {
        "hair": head * _scalp(x, y, z),
        "top": top,
        "bottom": bottom,
        "socks": socks,
        "shoes": shoes,
    }


def _from_neck(points: np.ndarray) -> np.ndarray:
    """Return the distance from the neck's root; a ball of it, a little lower in front, is the
    opening.
    """
    x, y, z = points.T
    return np.sqrt(x**2 + ((y - 0.475) / 1.15) ** 2 + (z - 0.045) ** 2)


def _scalp(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return where hair grows: above a line from the forehead, around the ears, to the nape."""
    forehead = 0.672 - 2.2 * np.abs(x) ** 2
    temples = np.interp(z, (0.06, 0.085, 0.115, 0.14), (0.555, 0.60, 0.645, 0.0))
    line = np.where(z > 0.125, forehead, np.maximum(temples, 0))
    line = np.where(
        z < 0.06, np.interp(z, (-0.04, 0.02, 0.035, 0.06), (0.50, 0.51, 0.56, 0.555)), line
    )
    ear = (np.abs(x) > 0.068) & (y < 0.632) & (y > 0.55) & (z > 0.02) & (z < 0.085)
    return soft_step(y, line, 0.012) * ~ear


def surface_appearance(
    points: np.ndarray, bone: np.ndarray, kind: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    """Return [n, CHANNELS] at points of the surface.

    kind [n]: BODY or EYE, or HAIR and SKIRT for meshes of their own.
    """
    covered = coverage(points, bone, outfit)
    noise = textures.value_noise
    hair = np.maximum(covered["hair"], kind == HAIR)
    bottom = np.maximum(covered["bottom"], kind == SKIRT)

    def locks(p: np.ndarray) -> np.ndarray:
        shade = noise(p, (0.006, 0.05, 0.012), rng) + 0.6 * noise(p, 0.02, rng)
        return np.asarray(outfit.hair) * np.exp(0.45 * shade)[:, None]

    def folds(p: np.ndarray) -> np.ndarray:
        wide = np.stack([_fold_height(p, rng) for _ in range(3)], 1)
        return 0.55 * wide + 0.15 * np.stack([noise(p, 0.02, rng) for _ in range(3)], 1)

    def strands(p: np.ndarray) -> np.ndarray:
        return 0.5 * np.stack([noise(p, (0.008, 0.06, 0.015), rng) for _ in range(3)], 1)

    color = _skin(points, bone, outfit, rng)
    normal_offset = np.zeros((len(points), 3))
    loose = covered["top"] * outfit.top.folds + bottom * outfit.bottom.folds
    layers: tuple[tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]], ...] = (
        (color, covered["socks"], lambda p: np.tile(outfit.socks, (len(p), 1))),
        (color, bottom, lambda p: _fabric(p, outfit.bottom, rng)),
        (color, covered["top"], lambda p: _top(p, outfit, rng)),
        (color, covered["shoes"], lambda p: _shoes(p, outfit)),
        (color, hair, locks),
        (color, (kind == EYE).astype(float), _eyeballs),
        (normal_offset, loose, folds),
        (normal_offset, hair, strands),
    )
    for under, share, over in layers:  # computed only where there is some of it
        covered_points = share > 0
        under[covered_points] = _blend(
            under[covered_points], share[covered_points], over(points[covered_points])
        )
    return np.concatenate((np.clip(color, 0.002, 0.95), normal_offset), 1).astype(np.float32)


def _blend(under: np.ndarray, share: np.ndarray, color: np.ndarray) -> np.ndarray:
    return under + share[:, None] * (color - under)


def _skin(
    points: np.ndarray, bone: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    color = (
        np.asarray(outfit.skin) * np.exp(0.10 * textures.fractal_noise(points, 0.05, rng))[:, None]
    )
    head = bone == HEAD
    color[head] = _face(points[head], color[head], outfit)
    return color


def _face(points: np.ndarray, color: np.ndarray, outfit: Outfit) -> np.ndarray:
    """Add brows, lids, lips, nostrils, cheeks, and the shade under brows and jaw."""
    x, y, z = points.T
    side = np.abs(x)
    front = z > 0.08

    def spot(cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
        return front * np.clip(1.5 - 1.5 * np.hypot((side - cx) / rx, (y - cy) / ry) ** 2, 0, 1)

    skin = np.asarray(outfit.skin)
    hair = np.asarray(outfit.hair)
    under_jaw = (1 - soft_step(y, 0.50, 0.03)) * soft_step(z, 0.04, 0.03)
    ear_hole = (side > 0.066) & (np.hypot(y - 0.592, z - 0.058) < 0.009)
    chin = (
        (1 - soft_step(y, 0.548, 0.012))
        * soft_step(z, 0.07, 0.03)
        * (1 - 0.8 * spot(0.0, 0.535, 0.024, 0.01))
    )
    for share, over in (
        (0.35 * spot(0.042, 0.567, 0.022, 0.02), skin * (1.1, 0.7, 0.65)),  # cheeks
        (0.55 * spot(0.030, 0.612, 0.021, 0.014), skin * 0.45),  # the hollow of the eye
        (0.9 * spot(0.032, 0.632, 0.022, 0.0055), hair * 0.6 + 0.005),  # brow
        (0.8 * spot(0.030, 0.6165, 0.016, 0.0035), skin * 0.12),  # upper lid
        (0.8 * spot(0.008, 0.562, 0.0055, 0.004), skin * 0.12),  # nostril
        (0.25 * spot(0.018, 0.565, 0.006, 0.012), skin * 0.5),  # wing of the nose
        (0.75 * spot(0.0, 0.535, 0.026, 0.0075), skin * (0.75, 0.32, 0.32)),  # lips
        (0.8 * spot(0.0, 0.5355, 0.024, 0.002), skin * 0.15),  # between them
        (0.45 * under_jaw, skin * 0.4),
        (0.7 * ear_hole, skin * 0.2),
        (outfit.beard * chin, hair),
    ):
        color = _blend(color, share, over)
    return color


def _eyeballs(points: np.ndarray) -> np.ndarray:
    """Return white with an iris in front."""
    from_axis = np.hypot(np.abs(points[:, 0]) - 0.0305, points[:, 1] - 0.612)
    iris = 1 - soft_step(from_axis, 0.0062, 0.002)
    return _blend(np.full((len(points), 3), 0.55), iris, np.array([0.03, 0.02, 0.012]))


def _top(points: np.ndarray, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    color = _fabric(points, outfit.top, rng)
    x, y, z = points.T
    if outfit.open_front:
        under = (np.abs(x) < 0.045 + 0.03 * np.clip(y, 0, 0.3) / 0.3) & (z > 0.0)
        color = np.where(under[:, None], np.asarray(outfit.top.second) * 0.5 + 0.3, color)
    collar = 1 - soft_step(_from_neck(points), outfit.neckline_m + 0.02)
    cuffs = soft_step(np.abs(x), outfit.sleeve_end_m - 0.015) + (
        1 - soft_step(y, outfit.hem_y_m + 0.012)
    )
    return color * (1 - 0.35 * np.clip(collar + cuffs, 0, 1))[:, None]


def _fabric(points: np.ndarray, fabric: Fabric, rng: np.random.Generator) -> np.ndarray:
    x, y, z = points.T
    around = x + 0.7 * z  # so that upright stripes also run on the sides
    second = {
        "plain": lambda: np.zeros(len(points)),
        "stripes": lambda: _bars(np.where(np.abs(x) > 0.2, np.abs(x), y), fabric.period_m),
        "upright stripes": lambda: _bars(around, fabric.period_m),
        "checks": lambda: (
            0.5 * _bars(around, fabric.period_m)
            + 0.5 * _bars(np.where(np.abs(x) > 0.2, x, y), fabric.period_m)
        ),
        "blotches": lambda: soft_step(
            textures.fractal_noise(points, fabric.period_m, rng), 0.05, 0.15
        ),
        "print": lambda: (  # a square on the chest
            ((np.abs(x) < 0.10) & (np.abs(y - 0.24) < 0.10) & (z > 0))
            * soft_step(textures.value_noise(points, 0.05, rng), 0, 0.1)
        ),
        "panels": lambda: ((np.abs(x) > 0.19) | (y < 0.06)).astype(float),
    }[fabric.pattern]()
    color = _blend(np.tile(fabric.color, (len(points), 1)), second, np.asarray(fabric.second))
    worn = 0.12 * textures.fractal_noise(points, 0.15, rng) + 0.10 * textures.value_noise(
        points, 0.008, rng
    )
    creases = -0.35 * fabric.folds * np.clip(1 - 5 * np.abs(_fold_height(points, rng)), 0, 1)
    return color * np.exp(worn + creases)[:, None]


def _bars(along: np.ndarray, period_m: float) -> np.ndarray:
    return soft_step(np.abs((along / period_m) % 1 - 0.5), 0.28, 0.06)


def _fold_height(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return creases in -1..1 that run roughly along arms and across the trunk."""
    stretched = np.where(np.abs(points[:, :1]) > 0.2, (0.05, 0.10, 0.10), (0.11, 0.05, 0.11))
    bent = points / stretched + 0.8 * np.stack(
        [textures.value_noise(points, 0.12, rng) for _ in range(3)], 1
    )
    return textures.value_noise(bent, 1.0, rng)


def _shoes(points: np.ndarray, outfit: Outfit) -> np.ndarray:
    _, y, z = points.T
    color = np.where((y < -0.963)[:, None], np.asarray(outfit.sole), np.asarray(outfit.shoes))
    laces = (z > 0.0) & (z < 0.07) & (y > -0.945) & (np.sin(z * 450) > 0.2)
    return np.where(laces[:, None], color * 0.4 + 0.25, color)
