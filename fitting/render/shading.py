"""Light the surface of a body.

Lights hang at the camera (x right, y down, z forward), so a body looks the same wherever it walks.
Colours are made linear, lit, and encoded again, so that light adds up as it does in the world.
"""

import math
from functools import lru_cache

import numpy as np

from fitting.render.compiled import compiled

# Told apart by people with any colour vision, and light enough to show the shading.
PALETTE = np.array(
    [
        (0.47, 0.67, 0.93),  # sky
        (0.96, 0.60, 0.45),  # coral
        (0.55, 0.80, 0.60),  # leaf
        (0.95, 0.80, 0.45),  # sand
        (0.73, 0.62, 0.90),  # lilac
        (0.40, 0.76, 0.78),  # lagoon
        (0.93, 0.62, 0.76),  # rose
        (0.76, 0.72, 0.66),  # stone
    ]
)

_GAMMA = 2.2
_SKY, _GROUND = 0.30, 0.10  # light from above and from below
_LAMPS = (  # towards the lamp, strength
    ((-0.60, -0.75, -0.65), 0.80),  # key, over the left shoulder
    ((0.85, 0.05, -0.55), 0.20),  # fill, from the right
    ((0.35, -0.45, 0.80), 0.30),  # rim, from behind: draws the outline
)


def shade(normals: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Return lit colours [V, 3] 0..255, for unit normals [V, 3] in the camera frame and surface
    colours [V, 3] or [3] 0..1.
    """
    upward = (1 - normals[:, 1]) / 2
    light = _GROUND + (_SKY - _GROUND) * upward
    for towards, strength in _LAMPS:
        direction = np.asarray(towards, np.float32) / np.float32(np.linalg.norm(towards))
        light = light + strength * np.maximum(normals @ direction, 0)
    linear = np.asarray(colors, np.float32) ** _GAMMA * light[:, None]
    return (255 * np.clip(linear, 0, 1) ** (1 / _GAMMA)).astype(np.float32)


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return unit normals [V, 3] float32 of a mesh [V, 3] with counter-clockwise faces [F, 3]: face
    normals weighted by area.
    """
    sums = np.zeros((len(vertices), 3))
    normals = np.empty((len(vertices), 3), np.float32)
    _vertex_normals(vertices, faces, sums, normals)
    return normals


@compiled
def _vertex_normals(
    vertices: np.ndarray, faces: np.ndarray, sums: np.ndarray, normals: np.ndarray
) -> None:
    for f in range(faces.shape[0]):
        a = faces[f, 0]
        b = faces[f, 1]
        c = faces[f, 2]
        ax = vertices[a, 0]
        ay = vertices[a, 1]
        az = vertices[a, 2]
        ux = vertices[b, 0] - ax
        uy = vertices[b, 1] - ay
        uz = vertices[b, 2] - az
        vx = vertices[c, 0] - ax
        vy = vertices[c, 1] - ay
        vz = vertices[c, 2] - az
        x = uy * vz - uz * vy
        y = uz * vx - ux * vz
        z = ux * vy - uy * vx
        for corner in (a, b, c):
            sums[corner, 0] += x
            sums[corner, 1] += y
            sums[corner, 2] += z
    for i in range(sums.shape[0]):
        x = sums[i, 0]
        y = sums[i, 1]
        z = sums[i, 2]
        length = math.sqrt(x * x + y * y + z * z)
        length = length if length > 0 else 1.0
        normals[i, 0] = x / length
        normals[i, 1] = y / length
        normals[i, 2] = z / length


def soften_normals(normals: np.ndarray, faces: np.ndarray, rounds: int) -> np.ndarray:
    """Average unit normals [V, 3] with their neighbours' this many times, so that light runs over
    small detail.

    Each round, a vertex with n neighbours takes 1 + n times its own normal and twice each of
    theirs.
    """
    if not faces.size or not rounds:
        return normals
    first, neighbour = _neighbours_of(faces.astype(np.int32).tobytes(), len(normals))
    for _ in range(rounds):
        before = normals
        normals = np.empty_like(normals)
        _soften(before, first, neighbour, normals)
    return normals


@compiled
def _soften(
    normals: np.ndarray, first: np.ndarray, neighbour: np.ndarray, smoothed: np.ndarray
) -> None:
    # a plain 2 would make it float64
    unit = np.float32(1)
    two = np.float32(2)
    for i in range(normals.shape[0]):
        x = np.float32(0)
        y = np.float32(0)
        z = np.float32(0)
        for e in range(first[i], first[i + 1]):
            j = neighbour[e]
            x = x + normals[j, 0]
            y = y + normals[j, 1]
            z = z + normals[j, 2]
        own_weight = unit + np.float32(first[i + 1] - first[i])
        x = two * x + own_weight * normals[i, 0]
        y = two * y + own_weight * normals[i, 1]
        z = two * z + own_weight * normals[i, 2]
        scale = unit / np.sqrt(max(x * x + y * y + z * z, np.float32(1e-30)))
        smoothed[i, 0] = x * scale
        smoothed[i, 1] = y * scale
        smoothed[i, 2] = z * scale


@lru_cache(maxsize=4)
def _neighbours_of(faces: bytes, vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the neighbours of each vertex begin [V + 1], and all neighbours, for the bytes of
    faces [F, 3] int32. People share a mesh, and so do frames.
    """
    triangles = np.frombuffer(faces, np.int32).reshape(-1, 3)
    first = np.zeros(vertices + 1, np.uint32)
    neighbour = np.empty(triangles.size, np.uint32)
    _neighbours(triangles, first, np.empty_like(first), neighbour)
    return first, neighbour


@compiled
def _neighbours(
    faces: np.ndarray, first: np.ndarray, place: np.ndarray, neighbour: np.ndarray
) -> None:
    """Fill first [V + 1] (zeros before) and neighbour [3 F]: those of vertex i are
    neighbour[first[i] : first[i + 1]]. A face names of each corner the next one. Around a vertex of
    a closed surface these are all its neighbours. Unsigned numbers: no index counts from the
    end."""
    for f in range(faces.shape[0]):
        for k in range(3):
            first[faces[f, k] + 1] += 1
    for i in range(first.shape[0] - 1):
        first[i + 1] += first[i]
        place[i] = first[i]
    for f in range(faces.shape[0]):
        for k in range(3):
            corner = faces[f, k]
            neighbour[place[corner]] = faces[f, (k + 1) % 3]
            place[corner] += 1
