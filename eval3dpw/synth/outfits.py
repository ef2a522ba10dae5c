"""Draw what people wear and look like.

Lengths are positions on the open body at rest (metres). At rest the body stands in a T: arms along x
(shoulder 0.18, elbow 0.43, wrist 0.67), y up from the pelvis at 0 (hip -0.08, knee -0.48, ankle
-0.90, neck 0.47, chin 0.49, crown 0.72), z to the front.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval3dpw.synth.textures import linear_rgb

Pattern = Literal["plain", "stripes", "upright stripes", "checks", "blotches", "print", "panels"]
Color = tuple[float, float, float]  # linear red, green, blue 0..1


@dataclass(frozen=True)
class Fabric:
    color: Color
    second: Color  # of the pattern
    pattern: Pattern
    period_m: float  # of stripes, checks and blotches
    thickness_m: float  # how far it stands off the skin
    folds: float  # strength of the creases, 0..1


@dataclass(frozen=True)
class Outfit:
    skin: Color
    hair: Color
    hair_thickness_m: float
    hair_falls_to_m: float | None  # y where long hair ends; None: short
    beard: float  # 0..1
    top: Fabric
    sleeve_end_m: float  # |x| where sleeves end
    hem_y_m: float  # y where the top ends
    neckline_m: float  # radius of the opening for the neck
    open_front: bool  # a jacket over something lighter
    bottom: Fabric
    leg_end_y_m: float  # y where trousers end
    skirt_end_y_m: float | None  # y where a skirt ends; None: trousers only
    shoes: Color
    sole: Color
    socks: Color


_SKINS = (
    (232, 190, 165),
    (222, 170, 140),
    (205, 150, 118),
    (180, 125, 92),
    (150, 98, 70),
    (110, 72, 52),
    (84, 54, 40),
)
_HAIRS = (
    (22, 18, 16),
    (40, 27, 20),
    (62, 42, 28),
    (92, 64, 40),
    (150, 112, 68),
    (120, 62, 34),
    (128, 124, 120),
)
_CLOTHES = (
    (28, 30, 36),
    (60, 64, 70),
    (120, 122, 124),
    (205, 205, 200),
    (235, 232, 224),
    (30, 44, 84),
    (58, 92, 150),
    (110, 150, 190),
    (150, 32, 36),
    (196, 70, 48),
    (44, 86, 56),
    (96, 112, 66),
    (190, 160, 60),
    (120, 84, 54),
    (176, 150, 116),
    (120, 60, 110),
    (214, 140, 156),
    (40, 110, 112),
)
_TROUSERS = (
    (24, 26, 32),
    (40, 52, 84),
    (62, 82, 122),
    (90, 112, 146),
    (70, 68, 66),
    (120, 108, 88),
    (168, 148, 116),
    (46, 52, 40),
    (100, 100, 104),
    (190, 186, 176),
    (84, 58, 42),
)
_SHOES = (
    (24, 22, 22),
    (60, 42, 30),
    (120, 84, 56),
    (216, 214, 208),
    (60, 64, 72),
    (150, 40, 40),
    (40, 60, 110),
)


def draw_outfit(rng: np.random.Generator) -> Outfit:
    """Draw clothes, shoes, skin and hair of one person."""
    shirt = _draw_fabric(rng, _CLOTHES, plain=0.4, thickest_m=0.030)
    legs = _draw_fabric(rng, _TROUSERS, plain=0.85, thickest_m=0.026)
    short_legs = rng.random() < 0.25
    skirt = rng.random() < 0.12
    long_hair = rng.random() < 0.4
    return Outfit(
        skin=_varied(rng, _SKINS, 0.06),
        hair=_varied(rng, _HAIRS, 0.15),
        hair_thickness_m=rng.uniform(0.006, 0.028),
        hair_falls_to_m=rng.uniform(0.33, 0.52) if long_hair else None,
        beard=0.0 if long_hair or rng.random() < 0.7 else rng.uniform(0.3, 0.8),
        top=shirt,
        sleeve_end_m=float(rng.choice([0.24, 0.33, 0.36, 0.42, 0.64, 0.655, 0.66])),
        hem_y_m=rng.uniform(-0.16, 0.0),
        neckline_m=rng.uniform(0.065, 0.115),
        open_front=rng.random() < 0.2,
        bottom=legs,
        leg_end_y_m=rng.uniform(-0.52, -0.26) if short_legs or skirt else rng.uniform(-0.93, -0.87),
        skirt_end_y_m=rng.uniform(-0.62, -0.34) if skirt else None,
        shoes=_varied(rng, _SHOES, 0.1),
        sole=_varied(rng, ((230, 228, 220), (40, 38, 36)), 0.1),
        socks=_varied(rng, ((230, 230, 228), (40, 40, 44)), 0.1),
    )


def _draw_fabric(
    rng: np.random.Generator,
    colors: tuple[tuple[int, int, int], ...],
    plain: float,
    thickest_m: float,
) -> Fabric:
    patterns: tuple[Pattern, ...] = (
        "stripes",
        "upright stripes",
        "checks",
        "blotches",
        "print",
        "panels",
    )
    return Fabric(
        color=_varied(rng, colors, 0.2),
        second=_varied(rng, _CLOTHES, 0.2),
        pattern="plain" if rng.random() < plain else patterns[rng.integers(len(patterns))],
        period_m=rng.uniform(0.03, 0.12),
        thickness_m=rng.uniform(0.006, thickest_m),
        folds=rng.uniform(0.3, 1.0),
    )


def _varied(
    rng: np.random.Generator, colors: tuple[tuple[int, int, int], ...], spread: float
) -> Color:
    """Draw one of the colours with a random change of hue and brightness."""
    color = linear_rgb(colors[rng.integers(len(colors))]) * np.exp(
        rng.normal(0, spread, 3) + rng.normal(0, spread)
    )
    r, g, b = np.clip(color, 0.005, 0.9)
    return float(r), float(g), float(b)
