"""Smooth noise: over space for surfaces, over time for a camera held in a hand."""

import numpy as np
from scipy.ndimage import map_coordinates


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
