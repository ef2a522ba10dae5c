"""The light of a scene: one sun or lamp, the sky around, and what falls into shadow."""

from dataclasses import dataclass

import cv2
import numpy as np

from fitting.render.raster import visibility

MAP_SIZE = 512  # pixels of the shadow map's side
SKY_MAP_SIZE = 128


@dataclass(frozen=True)
class Light:
    """Linear light, red, green, blue."""

    towards_sun: np.ndarray  # [3] unit vector in the world, y up
    sun: np.ndarray  # [3]
    sky: np.ndarray  # [3] from above
    ground: np.ndarray  # [3] from below
    softness_px: float  # half the width of a shadow's edge, in pixels of the shadow map


@dataclass(frozen=True)
class Shadows:
    """What the sun sees, and what stands between the ground and the sky."""

    to_map: np.ndarray  # [3, 4] world metres -> pixel x, pixel y, nearness to the sun (0..1)
    nearness: np.ndarray  # [MAP_SIZE, MAP_SIZE] float32; 0 where nothing is
    roof: np.ndarray  # [SKY_MAP_SIZE, SKY_MAP_SIZE] float32 share of the sky that things near the ground take away
    roof_origin_m: np.ndarray  # [2] x, z of its first pixel
    roof_px_per_m: float


def outdoors(rng: np.random.Generator, azimuth: float) -> Light:
    """Sun from anywhere but straight behind the people, or an overcast sky."""
    overcast = rng.random() < 0.35
    warm = rng.uniform(0, 1)
    strength = rng.uniform(0.15, 0.5) if overcast else rng.uniform(1.2, 2.6)
    sun = strength * np.array([1.0, 0.97 - 0.12 * warm, 0.90 - 0.30 * warm])
    sky = (rng.uniform(0.7, 1.1) if overcast else rng.uniform(0.35, 0.65)) * np.array([0.92, 0.98, 1.08])
    towards = _towards(azimuth + rng.uniform(-2.4, 2.4), rng.uniform(0.45, 1.25))
    return Light(towards, sun, sky, 0.35 * sky * (1.05, 1, 0.85), 8.0 if overcast else rng.uniform(0.8, 2.5))


def indoors(rng: np.random.Generator, azimuth: float) -> Light:
    """A lamp or window, and much light from the walls."""
    warm = rng.uniform(0, 1)
    color = np.array([1.0, 0.96 - 0.12 * warm, 0.92 - 0.35 * warm])
    towards = _towards(azimuth + rng.uniform(-2.0, 2.0), rng.uniform(0.7, 1.4))
    return Light(towards, rng.uniform(0.3, 0.9) * color, rng.uniform(0.4, 0.7) * color, 0.3 * color, rng.uniform(4, 12))


def _towards(azimuth: float, elevation: float) -> np.ndarray:
    return np.array([np.sin(azimuth) * np.cos(elevation), np.sin(elevation), np.cos(azimuth) * np.cos(elevation)])


def cast(vertices_m: np.ndarray, faces: np.ndarray, light: Light, center_m: np.ndarray, radius_m: float) -> Shadows:
    """Shadows of the given triangles (world) on all that lies within a radius of the centre."""
    forward = light.towards_sun
    right = np.cross((0.0, 1.0, 0.0), forward)
    right /= np.linalg.norm(right)
    frame = np.stack((right, np.cross(right, forward), forward))  # x right, y down seen from the sun, towards the sun
    scale = MAP_SIZE / (2 * radius_m)
    rows = frame * np.array([[scale], [scale], [1 / (4 * radius_m)]])
    offset = -rows @ center_m + (MAP_SIZE / 2, MAP_SIZE / 2, 0.5)
    seen = vertices_m @ rows.T + offset
    _, nearness = visibility(
        np.ascontiguousarray(seen[:, :2]), np.ascontiguousarray(seen[:, 2]), faces, MAP_SIZE, MAP_SIZE, False
    )
    origin, px_per_m = center_m[[0, 2]] - radius_m, SKY_MAP_SIZE / (2 * radius_m)
    return Shadows(
        np.column_stack((rows, offset)), nearness, _roof(vertices_m, faces, origin, px_per_m), origin, px_per_m
    )


def _roof(vertices_m: np.ndarray, faces: np.ndarray, origin_m: np.ndarray, px_per_m: float) -> np.ndarray:
    """Seen from above: what hangs low takes more of the sky from the ground below it."""
    plan = np.ascontiguousarray((vertices_m[:, [0, 2]] - origin_m) * px_per_m)
    lowness = np.ascontiguousarray(1 / (1 + np.clip(vertices_m[:, 1], 0, None) * 3))
    _, low = visibility(plan, lowness, faces, SKY_MAP_SIZE, SKY_MAP_SIZE, False)
    near = cv2.GaussianBlur(low, (0, 0), 0.10 * px_per_m)
    wide = cv2.GaussianBlur(low, (0, 0), 0.40 * px_per_m)
    return np.clip(0.8 * near + 0.8 * wide, 0, 0.8).astype(np.float32)
