"""Which part of the body a point of its surface belongs to, by its place at rest (see outfit.py for the measures)."""

from dataclasses import dataclass

import numpy as np

from eval3dpw.synth.outfit import Outfit

_HEAD, _NECK, _FEET = 15, 12, (7, 8, 10, 11)
_LEGS = (1, 2, 4, 5, 7, 8, 10, 11)


@dataclass(frozen=True)
class Place:
    """Points of the surface: where they are at rest and which bone moves them most."""

    rest_m: np.ndarray  # [n, 3] on the mean body
    bone: np.ndarray  # [n] 0..23

    @property
    def arm(self) -> np.ndarray:
        """How far out on an arm, |x|."""
        return np.abs(self.rest_m[:, 0])


@dataclass(frozen=True)
class Cover:
    """How much of each garment covers a point: 0 or 1, and in between at edges. All [n]."""

    hair: np.ndarray
    top: np.ndarray
    bottom: np.ndarray
    socks: np.ndarray
    shoes: np.ndarray


def step(value: np.ndarray, at: float | np.ndarray, width_m: float = 0.004) -> np.ndarray:
    """0 below `at`, 1 above, straight in between."""
    return np.clip((value - at) / width_m + 0.5, 0, 1)


def cover(place: Place, outfit: Outfit, width_m: float = 0.004) -> Cover:
    x, y, z = place.rest_m.T
    head, foot = place.bone == _HEAD, np.isin(place.bone, _FEET)
    neck = np.isin(place.bone, (_HEAD, _NECK))
    # The opening for the neck is a ball around its root, a little lower in front.
    from_neck = np.sqrt(x**2 + ((y - 0.475) / 1.15) ** 2 + (z - 0.045) ** 2)
    covers_torso = step(y, outfit.hem_y_m, width_m) * step(from_neck, outfit.neckline_m, width_m) * ~(neck & (y > 0.5))
    top = covers_torso * (1 - step(place.arm, outfit.sleeve_end_m, width_m)) * ~np.isin(place.bone, _LEGS[2:])
    below_waist = ~(y > 0.14) & (place.arm < 0.4)
    bottom = below_waist * step(y, outfit.leg_end_y_m, width_m)
    shoes = foot * (1 - step(y, -0.885 - 0.02 * (z > 0.03), width_m))
    socks = (np.isin(place.bone, _LEGS) & (y < -0.6)) * (1 - step(y, -0.82, width_m))
    return Cover(head * _scalp(x, y, z), top, bottom * (1 - top), socks, shoes)


def _scalp(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Behind the hairline: from the forehead down before the ears, around them, and to the nape."""
    forehead = 0.672 - 2.2 * np.abs(x) ** 2
    temples = np.interp(z, (0.06, 0.085, 0.115, 0.14), (0.555, 0.60, 0.645, 0.0))
    line = np.where(z > 0.125, forehead, np.maximum(temples, 0))
    line = np.where(z < 0.06, np.interp(z, (-0.04, 0.02, 0.035, 0.06), (0.50, 0.51, 0.56, 0.555)), line)
    ear = (np.abs(x) > 0.068) & (y < 0.632) & (y > 0.55) & (z > 0.02) & (z < 0.085)
    return step(y, line, 0.012) * ~ear
