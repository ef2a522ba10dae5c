"""What renderers are tried on."""

import numpy as np

from fitting.camera import Camera

SMALL = Camera.from_focal(10.0, (8, 6), (0.0, 0.0))  # a point (x, y, 1) lands on pixel (10 x, 10 y)
TOY = Camera.from_focal((60.0, 55.0), (64, 48), (30.0, 25.0))


def at(*corners: tuple[float, float, float]) -> np.ndarray:
    """Points that SMALL sees at pixel (u, v) with depth z."""
    return np.array([(u * z / 10, v * z / 10, z) for u, v, z in corners])


def sphere(
    center: tuple[float, float, float], radius: float, rings: int = 24
) -> tuple[np.ndarray, np.ndarray]:
    """A closed ball, counter-clockwise from outside."""
    theta = np.linspace(0, np.pi, rings + 1)
    phi = np.arange(2 * rings) * np.pi / rings
    x = np.outer(np.sin(theta), np.cos(phi))
    y = np.outer(np.sin(theta), np.sin(phi))
    grid = np.stack((x, y, np.outer(np.cos(theta), np.ones_like(phi))), axis=-1)
    i, j = np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij")
    a = i * 2 * rings + j
    b = i * 2 * rings + (j + 1) % (2 * rings)
    c = a + 2 * rings
    d = b + 2 * rings
    faces = np.concatenate(
        (np.stack((a, c, d), -1).reshape(-1, 3), np.stack((a, d, b), -1).reshape(-1, 3))
    )
    return grid.reshape(-1, 3) * radius + center, faces.astype(np.int32)
