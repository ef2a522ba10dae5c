"""Random surface textures: seamless tiles in linear light, with mipmaps."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates


def linear_rgb(color: tuple[float, ...] | np.ndarray) -> np.ndarray:
    """Turn an sRGB colour, 0..255, into linear light, 0..1."""
    return (np.asarray(color, np.float64) / 255) ** 2.2


def value_noise(
    points: np.ndarray, cell_m: float | tuple[float, float, float], rng: np.random.Generator
) -> np.ndarray:
    """Noise -1..1 at points [n, 3]: random numbers on a lattice with cells of this size,
    interpolated linearly.
    """
    lattice = rng.uniform(-1, 1, (24, 24, 24)).astype(np.float32)
    cell = points / np.asarray(cell_m) + rng.uniform(0, 24, 3)
    return map_coordinates(lattice, cell.T, order=1, mode="grid-wrap")


def fractal_noise(
    points: np.ndarray, cell_m: float, rng: np.random.Generator, count: int = 3
) -> np.ndarray:
    """Return the sum of ever finer and weaker value noise, about -1..1."""
    layers = (value_noise(points, cell_m / 2**k, rng) / 2**k for k in range(count))
    return sum(layers, np.zeros(len(points))) / (2 - 2.0 ** (1 - count))


def tileable_noise(
    size: int,
    cells: int,
    rng: np.random.Generator,
    count: int = 5,
    stretch: tuple[int, int] = (1, 1),
) -> np.ndarray:
    """Return an image [size, size] of noise about -1..1 that repeats without a seam; `stretch` the
    coarsest cells (y, x).
    """
    y, x = np.mgrid[:size, :size].astype(np.float32) / size
    total = np.zeros((size, size), np.float32)
    for k in range(count):
        grid = (max(cells * 2**k // stretch[0], 1), max(cells * 2**k // stretch[1], 1))
        lattice = rng.uniform(-1, 1, grid).astype(np.float32)
        total += (
            map_coordinates(lattice, (y * grid[0], x * grid[1]), order=1, mode="grid-wrap") / 2**k
        )
    return total / (2 - 2.0 ** (1 - count))


class SmoothNoise:
    """A smooth random path around zero, defined at any time: a sum of sines with random phases."""

    def __init__(
        self, rng: np.random.Generator, hertz: tuple[float, float], fps: float, axes: int = 3
    ) -> None:
        self._speed = 2 * np.pi * rng.uniform(*hertz, (5, axes)) / fps  # radians per frame
        self._phase = rng.uniform(0, 2 * np.pi, (5, axes))

    def at(self, frame: float) -> np.ndarray:
        """Return noise at points along these axes, with a spread of about 1."""
        return np.sin(self._speed * frame + self._phase).sum(0) * np.sqrt(2 / 5)


SIZE = 256  # pixels of a tile's side
LEVELS = 8  # of the mipmaps, down to 2 pixels
_CENTER = np.mgrid[:SIZE, :SIZE].astype(np.float32) / SIZE


@dataclass(frozen=True)
class Atlas:
    """Tiles in one flat array; level l of tile k starts at `start[k, l]` and is SIZE >> l pixels
    wide.
    """

    texels: np.ndarray  # [N, 3] float32 linear
    start: np.ndarray  # [K, LEVELS] int64
    meters: np.ndarray  # [K] how much of the world one tile covers


def _mix(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    return low + np.clip(share, 0, 1)[..., None] * (high - low)


def _random_color(rng: np.random.Generator, *choices: tuple[int, int, int]) -> np.ndarray:
    color = linear_rgb(choices[rng.integers(len(choices))])
    return color * np.exp(rng.normal(0, 0.15, 3) * 0.5 + rng.normal(0, 0.15))


Texture = Callable[
    [np.random.Generator], tuple[np.ndarray, float]
]  # -> a tile, and how much of the world it covers
Colors = tuple[tuple[int, int, int], ...]  # one of them is drawn


def _rough(
    base: np.ndarray,
    rng: np.random.Generator,
    cells: int,
    strength: float,
    stretch: tuple[int, int] = (1, 1),
) -> np.ndarray:
    bumps = tileable_noise(SIZE, cells, rng, stretch=stretch) + 0.4 * rng.normal(0, 1, (SIZE, SIZE))
    return base * np.exp(strength * bumps)[..., None]


def _even(
    meters: float,
    cells: int,
    strength: float,
    *colors: tuple[int, int, int],
    stretch: tuple[int, int] = (1, 1),
) -> Texture:
    """Paint one colour with bumps."""
    plain = np.ones((SIZE, SIZE, 1))
    return lambda rng: (
        _rough(_random_color(rng, *colors) * plain, rng, cells, strength, stretch),
        meters,
    )


def _mottled(meters: float, cells: int, strength: float, darks: Colors, lights: Colors) -> Texture:
    """Paint leaves of two colours."""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, float]:
        dark = _random_color(rng, *darks)
        light = _random_color(rng, *lights)
        return _rough(
            _mix(dark, light, 0.45 + 1.1 * tileable_noise(SIZE, cells, rng)), rng, 32, strength
        ), meters

    return make


def _laid(
    meters: float,
    blocks: tuple[int, int],
    offset: float,
    joint: float,
    joint_shade: float,
    spread: float,
    cells: int,
    strength: float,
    *colors: tuple[int, int, int],
    stretch: tuple[int, int] = (1, 1),
) -> Texture:
    """Bricks, slabs or boards, (rows, across), each of its own brightness, with joints of
    another.
    """
    rows, across = blocks

    def make(rng: np.random.Generator) -> tuple[np.ndarray, float]:
        y, x = _CENTER
        row = np.floor(y * rows).astype(int)
        along = x * across + offset * (row % 2)
        down = y * rows
        value = rng.normal(0, spread, (rows, across))[row, np.floor(along).astype(int) % across]
        edge = np.minimum(
            np.minimum(along % 1, 1 - along % 1) / across, np.minimum(down % 1, 1 - down % 1) / rows
        )
        base = _rough(
            _random_color(rng, *colors) * np.exp(value)[..., None], rng, cells, strength, stretch
        )
        return np.where((edge < joint)[..., None], base * joint_shade, base), meters

    return make


def _facade(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Two floors of windows."""
    paints = (196, 184, 160), (170, 120, 96), (150, 152, 156), (214, 206, 190), (186, 150, 120)
    wall, _ = _even(6.0, 6, 0.15, *paints)(rng)
    y, x = _CENTER
    across = int(rng.integers(2, 4))
    u = x * across % 1
    v = y * 2 % 1
    wide = rng.uniform(0.22, 0.36)
    high = rng.uniform(0.24, 0.36)
    frame = (np.abs(u - 0.5) < wide) & (np.abs(v - 0.5) < high)
    glass = (
        (np.abs(u - 0.5) < wide - 0.03)
        & (np.abs(v - 0.5) < high - 0.03)
        & (np.abs(u - 0.5) > 0.015)
    )
    sky = 0.35 + 0.5 * tileable_noise(SIZE, 3, rng)
    shine = _mix(linear_rgb((40, 50, 60)), linear_rgb((150, 170, 190)), sky)
    image = np.where(frame[..., None], linear_rgb((220, 218, 212)) * rng.uniform(0.2, 1), wall)
    return np.where(glass[..., None], shine, image), 6.0


def _posters(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Paint rectangles of many colours: shelves of books, shop fronts, images on a wall."""
    image = np.ones((SIZE, SIZE, 3)) * _random_color(rng, (70, 60, 52), (200, 196, 190))
    for row in range(0, SIZE - 20, 40):
        column = 0
        while column < SIZE - 8:
            wide = int(rng.integers(6, 40))
            top = row + int(rng.integers(0, 14))
            color = rng.uniform(0.02, 0.5) * np.exp(rng.normal(0, 0.3, 3))
            image[top : row + 37, column : column + wide - 1] = color
            column += wide
    return image, 2.2


_WOOD: Colors = ((150, 104, 66), (186, 146, 100), (96, 62, 42), (206, 180, 146))
_PAINTS: Colors = (
    (150, 40, 36),
    (36, 66, 120),
    (56, 110, 70),
    (200, 170, 60),
    (60, 62, 66),
    (196, 196, 190),
    (110, 70, 130),
    (70, 140, 140),
)
_WALLS: Colors = (
    (222, 216, 204),
    (200, 205, 208),
    (214, 196, 160),
    (180, 196, 184),
    (206, 180, 170),
    (120, 140, 160),
)
TEXTURES: dict[str, Texture] = {
    "asphalt": _even(3.0, 4, 0.35, (92, 92, 94), (120, 118, 114), (70, 70, 74)),
    "concrete": _even(3.0, 3, 0.28, (150, 150, 148), (122, 120, 116)),
    "plaster": _even(3.0, 3, 0.10, *_WALLS),
    "painted": _even(2.0, 3, 0.08, *_PAINTS),  # metal or lacquer: cars, bins, cupboards
    "bark": _even(0.8, 24, 0.6, (92, 74, 58), (120, 108, 92), stretch=(8, 1)),
    "grass": _mottled(4.0, 4, 0.7, ((70, 92, 40), (92, 100, 50)), ((110, 126, 66), (140, 134, 84))),
    "foliage": _mottled(
        1.0, 20, 0.2, ((30, 48, 22), (44, 54, 26)), ((96, 126, 58), (124, 130, 60), (140, 110, 50))
    ),
    "paving": _laid(
        2.4,
        (4, 4),
        0.5,
        0.006,
        0.4,
        0.12,
        8,
        0.2,
        (160, 154, 144),
        (136, 130, 124),
        (170, 150, 128),
    ),
    "bricks": _laid(
        1.5, (20, 6), 0.5, 0.006, 1.7, 0.2, 16, 0.25, (150, 78, 58), (170, 110, 84), (120, 70, 60)
    ),
    "planks": _laid(1.6, (10, 2), 0.5, 0.0025, 0.35, 0.18, 32, 0.2, *_WOOD, stretch=(1, 16)),
    "tiles": _laid(
        1.6,
        (4, 4),
        0.0,
        0.005,
        0.5,
        0.05,
        8,
        0.06,
        (210, 205, 196),
        (180, 176, 170),
        (110, 106, 104),
    ),
    "facade": _facade,
    "posters": _posters,
}
