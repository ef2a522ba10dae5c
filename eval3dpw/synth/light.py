"""Draw the light of a scene and its sky."""

from dataclasses import dataclass

import numpy as np

from eval3dpw.synth import textures


@dataclass(frozen=True)
class Light:
    """The light of a scene: one sun or lamp, and the sky. Linear red, green, blue."""

    towards_sun: np.ndarray  # [3] unit vector in the world, y up
    sun: np.ndarray  # [3]
    sky: np.ndarray  # [3] from above
    ground: np.ndarray  # [3] from below
    softness_px: float  # half the width of a shadow's edge, in pixels of the shadow map


def draw_sky(light: Light, rng: np.random.Generator) -> np.ndarray:
    """Draw a sky from blue to white towards the horizon, with clouds, bright around the sun."""
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


def draw_light(rng: np.random.Generator, azimuth: float, indoors: bool) -> Light:
    """Draw a sun from anywhere but straight behind the people, an overcast sky, or a lamp.

    Indoors, light is also reflected by the walls.
    """
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
