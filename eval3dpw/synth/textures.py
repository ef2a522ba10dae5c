"""Random surface textures: seamless tiles in linear light, with mipmaps."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates


def linear_rgb(color: tuple[float, ...] | np.ndarray) -> np.ndarray:
    """An sRGB colour, 0..255 -> linear light, 0..1."""
    return (np.asarray(color, np.float64) / 255) ** 2.2


def value_noise(points: np.ndarray, cell_m: float | tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """Noise -1..1 at points [n, 3]: random numbers on a lattice with cells of this size, interpolated linearly."""
    lattice = rng.uniform(-1, 1, (24, 24, 24)).astype(np.float32)
    cell = points / np.asarray(cell_m) + rng.uniform(0, 24, 3)
    return map_coordinates(lattice, cell.T, order=1, mode="grid-wrap")


def fractal_noise(points: np.ndarray, cell_m: float, rng: np.random.Generator, count: int = 3) -> np.ndarray:
    """The sum of ever finer and weaker value noise, about -1..1."""
    layers = (value_noise(points, cell_m / 2**k, rng) / 2**k for k in range(count))
    return sum(layers, np.zeros(len(points))) / (2 - 2.0 ** (1 - count))


def tileable_noise(
    size: int, cells: int, rng: np.random.Generator, count: int = 5, stretch: tuple[int, int] = (1, 1)
) -> np.ndarray:
    """An image [size, size] of noise about -1..1 that repeats without a seam; `stretch` the coarsest cells (y, x)."""
    y, x = np.mgrid[:size, :size].astype(np.float32) / size
    total = np.zeros((size, size), np.float32)
    for k in range(count):
        grid = (max(cells * 2**k // stretch[0], 1), max(cells * 2**k // stretch[1], 1))
        lattice = rng.uniform(-1, 1, grid).astype(np.float32)
        total += map_coordinates(lattice, (y * grid[0], x * grid[1]), order=1, mode="grid-wrap") / 2**k
    return total / (2 - 2.0 ** (1 - count))


class SmoothNoise:
    """A smooth random path around zero, defined at any time: a sum of sines with random phases."""

    def __init__(self, rng: np.random.Generator, hertz: tuple[float, float], fps: float, axes: int = 3) -> None:
        self._speed = 2 * np.pi * rng.uniform(*hertz, (5, axes)) / fps  # radians per frame
        self._phase = rng.uniform(0, 2 * np.pi, (5, axes))

    def at(self, frame: float) -> np.ndarray:
        """[axes], with a spread of about 1."""
        return np.sin(self._speed * frame + self._phase).sum(0) * np.sqrt(2 / 5)


SIZE = 256  # pixels of a tile's side
LEVELS = 8  # of the mipmaps, down to 2 pixels
_CENTER = np.mgrid[:SIZE, :SIZE].astype(np.float32) / SIZE


@dataclass(frozen=True)
class Atlas:
    """Tiles in one flat array; level l of tile k starts at `start[k, l]` and is SIZE >> l pixels wide."""

    texels: np.ndarray  # [N, 3] float32 linear
    start: np.ndarray  # [K, LEVELS] int64
    meters: np.ndarray  # [K] how much of the world one tile covers


def _mix(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    return low + np.clip(share, 0, 1)[..., None] * (high - low)


def _random_color(rng: np.random.Generator, *choices: tuple[int, int, int]) -> np.ndarray:
    color = linear_rgb(choices[rng.integers(len(choices))])
    return color * np.exp(rng.normal(0, 0.15, 3) * 0.5 + rng.normal(0, 0.15))


def _rough(base: np.ndarray, rng: np.random.Generator, cells: int, strength: float) -> np.ndarray:
    bumps = strength * tileable_noise(SIZE, cells, rng) + 0.4 * strength * rng.normal(0, 1, (SIZE, SIZE))
    return base * np.exp(bumps)[..., None]


Texture = Callable[[np.random.Generator], tuple[np.ndarray, float]]


def _even(meters: float, cells: int, strength: float, *colors: tuple[int, int, int]) -> Texture:
    return lambda rng: (_rough(_random_color(rng, *colors) * np.ones((SIZE, SIZE, 1)), rng, cells, strength), meters)


def _grass(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    dark, light = _random_color(rng, (70, 92, 40), (92, 100, 50)), _random_color(rng, (110, 126, 66), (140, 134, 84))
    return _rough(_mix(dark, light, 0.5 + tileable_noise(SIZE, 4, rng)), rng, 32, 0.7), 4.0


def _blocks(
    rng: np.random.Generator, across: int, rows: int, offset: float, joint: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bricks or slabs: brightness [SIZE, SIZE] of each, and where the joints are."""
    y, x = _CENTER
    row = np.floor(y * rows).astype(int)
    along = x * across + offset * (row % 2)
    value = rng.normal(0, spread, (rows, across))[row, np.floor(along).astype(int) % across]
    edge = np.minimum(np.minimum(along % 1, 1 - along % 1) / across, np.minimum(y * rows % 1, 1 - y * rows % 1) / rows)
    return value, edge < joint


def _paving(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    n = int(rng.integers(3, 7))
    value, joints = _blocks(rng, n, n, rng.choice([0, 0.5]), 0.006, 0.12)
    color = _random_color(rng, (160, 154, 144), (136, 130, 124), (170, 150, 128))
    base = _rough(color * np.exp(value)[..., None], rng, 8, 0.2)
    return np.where(joints[..., None], base * 0.4, base), 2.4


def _bricks(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    value, joints = _blocks(rng, 6, 20, 0.5, 0.006, 0.2)
    color = _random_color(rng, (150, 78, 58), (170, 110, 84), (120, 70, 60))
    base = _rough(color * np.exp(value)[..., None], rng, 16, 0.25)
    return np.where(joints[..., None], _random_color(rng, (190, 184, 174)) * 0.8, base), 1.5


def _planks(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    value, joints = _blocks(rng, 2, 10, 0.5, 0.0025, 0.18)
    grain = tileable_noise(SIZE, 32, rng, 3, stretch=(1, 16))
    color = _random_color(rng, (150, 104, 66), (186, 146, 100), (96, 62, 42), (206, 180, 146))
    base = color * np.exp(value + 0.25 * grain)[..., None]
    return np.where(joints[..., None], base * 0.35, base), 1.6


def _carpet(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    y, x = _CENTER
    pattern = 0.5 + 0.5 * np.sin(2 * np.pi * x * rng.integers(1, 5)) * np.sin(2 * np.pi * y * rng.integers(1, 5))
    ground = _random_color(rng, (130, 60, 54), (74, 86, 110), (150, 140, 120), (90, 96, 80))
    return _rough(_mix(ground, ground * rng.uniform(0.6, 1.6), pattern > 0.6), rng, 48, 0.3), 1.5


def _tiles(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    value, joints = _blocks(rng, 4, 4, 0, 0.005, 0.05)
    y, x = _CENTER
    board = (np.floor(x * 4) + np.floor(y * 4)) % 2 * (rng.random() < 0.4)
    base = _random_color(rng, (210, 205, 196), (180, 176, 170)) * np.exp(value - 0.9 * board)[..., None]
    return np.where(joints[..., None], base * 0.5, _rough(base, rng, 8, 0.06)), 1.6


def _facade(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Two floors of windows."""
    paints = (196, 184, 160), (170, 120, 96), (150, 152, 156), (214, 206, 190), (186, 150, 120)
    wall, _ = _even(6.0, 6, 0.15, *paints)(rng)
    y, x = _CENTER
    across = int(rng.integers(2, 4))
    u, v = x * across % 1, y * 2 % 1
    wide, high = rng.uniform(0.22, 0.36), rng.uniform(0.24, 0.36)
    frame = (np.abs(u - 0.5) < wide) & (np.abs(v - 0.5) < high)
    glass = (np.abs(u - 0.5) < wide - 0.03) & (np.abs(v - 0.5) < high - 0.03) & (np.abs(u - 0.5) > 0.015)
    panes = rng.uniform(0.3, 1.4, (2, across))[np.floor(y * 2).astype(int), np.floor(x * across).astype(int)]
    sky = 0.35 + 0.5 * tileable_noise(SIZE, 3, rng)
    shine = _mix(linear_rgb((40, 50, 60)), linear_rgb((150, 170, 190)), sky) * panes[..., None]
    image = np.where(frame[..., None], linear_rgb((220, 218, 212)) * rng.uniform(0.2, 1), wall)
    return np.where(glass[..., None], shine, image), 6.0


def _foliage(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    leaves = tileable_noise(SIZE, 20, rng, 3)
    dark = _random_color(rng, (30, 48, 22), (44, 54, 26))
    light = _random_color(rng, (96, 126, 58), (124, 130, 60), (140, 110, 50))
    return _mix(dark, light, 0.4 + 1.2 * leaves), 1.0


def _bark(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    color = _random_color(rng, (92, 74, 58), (120, 108, 92))
    return color * np.exp(0.6 * tileable_noise(SIZE, 24, rng, 3, stretch=(8, 1)))[..., None], 0.8


def _painted(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Metal or lacquer in any colour: cars, bins, cupboards."""
    color = rng.uniform(0.02, 0.5) * np.exp(rng.normal(0, 0.3, 3))
    return _rough(np.clip(color, 0.01, 0.8) * np.ones((SIZE, SIZE, 1)), rng, 3, 0.08), 2.0


def _posters(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Rectangles of many colours: shelves of books, shop fronts, images on a wall."""
    image = np.ones((SIZE, SIZE, 3)) * _random_color(rng, (70, 60, 52), (200, 196, 190))
    row = 0
    while row < SIZE - 20:
        high, column = int(rng.integers(24, 64)), 0
        while column < SIZE - 8:
            wide = int(rng.integers(6, 40))
            top = row + int(rng.integers(0, high // 3))
            color = rng.uniform(0.02, 0.5) * np.exp(rng.normal(0, 0.3, 3))
            image[top : row + high - 3, column : column + wide - 1] = color
            column += wide
        row += high
    return image, 2.2


_MADE = (_grass, _paving, _bricks, _planks, _carpet, _tiles, _facade, _foliage, _bark, _painted, _posters)
TEXTURES: dict[str, Texture] = {make.__name__[1:]: make for make in _MADE} | {
    "asphalt": _even(3.0, 4, 0.35, (92, 92, 94), (120, 118, 114), (70, 70, 74)),
    "concrete": _even(3.0, 3, 0.28, (150, 150, 148), (122, 120, 116)),
    "plaster": _even(
        3.0, 3, 0.10, (222, 216, 204), (200, 205, 208), (214, 196, 160), (180, 196, 184), (206, 180, 170),
        (120, 140, 160),
    ),
}  # fmt: skip
