"""Light on a surface: per-vertex normals and colours that read well over a photograph.

Lights hang at the camera (x right, y down, z forward), so a body looks the same wherever it walks. Colours are
made linear, lit, and encoded again, so that light adds up as it does in the world.
"""

import numba
import numpy as np

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
    """Unit normals [V, 3] in the camera frame, surface colours [V, 3] or [3] 0..1 -> lit colours [V, 3] 0..255."""
    upward = (1 - normals[:, 1]) / 2
    light = _GROUND + (_SKY - _GROUND) * upward
    for towards, strength in _LAMPS:
        direction = np.asarray(towards, np.float32) / np.float32(np.linalg.norm(towards))
        light = light + strength * np.maximum(normals @ direction, 0)
    linear = np.asarray(colors, np.float32) ** _GAMMA * light[:, None]
    return (255 * np.clip(linear, 0, 1) ** (1 / _GAMMA)).astype(np.float32)


@numba.njit(cache=True, nogil=True)
def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """[V, 3] and [F, 3] counter-clockwise -> unit normals [V, 3] float32: face normals weighted by area."""
    normals = np.zeros((vertices.shape[0], 3), np.float64)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ux, uy, uz = (
            vertices[b, 0] - vertices[a, 0],
            vertices[b, 1] - vertices[a, 1],
            vertices[b, 2] - vertices[a, 2],
        )
        vx, vy, vz = (
            vertices[c, 0] - vertices[a, 0],
            vertices[c, 1] - vertices[a, 1],
            vertices[c, 2] - vertices[a, 2],
        )
        x, y, z = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        for corner in (a, b, c):
            normals[corner, 0] += x
            normals[corner, 1] += y
            normals[corner, 2] += z
    for i in range(normals.shape[0]):
        length = np.sqrt(normals[i, 0] ** 2 + normals[i, 1] ** 2 + normals[i, 2] ** 2)
        if length > 0:
            normals[i] /= length
    return normals.astype(np.float32)


@numba.njit(cache=True, nogil=True)
def softened(normals: np.ndarray, faces: np.ndarray, rounds: int) -> np.ndarray:
    """Unit normals [V, 3] averaged with their neighbours' so many times: light that runs over small detail.

    Each round, a vertex with n neighbours takes 1 + n times its own normal and twice each of theirs.
    """
    first, neighbour = _neighbours(faces, normals.shape[0])
    one, two = np.float32(1), np.float32(2)  # a plain 2 would make it float64
    for _ in range(rounds if neighbour.size else 0):
        smoothed = np.empty_like(normals)
        for i in range(normals.shape[0]):
            x, y, z = np.float32(0), np.float32(0), np.float32(0)
            for e in range(first[i], first[i + 1]):
                j = neighbour[e]
                x, y, z = x + normals[j, 0], y + normals[j, 1], z + normals[j, 2]
            own = one + np.float32(first[i + 1] - first[i])
            x, y, z = two * x + own * normals[i, 0], two * y + own * normals[i, 1], two * z + own * normals[i, 2]
            scale = one / np.sqrt(max(x * x + y * y + z * z, np.float32(1e-30)))
            smoothed[i, 0], smoothed[i, 1], smoothed[i, 2] = x * scale, y * scale, z * scale
        normals = smoothed
    return normals


@numba.njit(cache=True, nogil=True)
def _neighbours(faces: np.ndarray, vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """first [V + 1], neighbour [3 F]: those of vertex i are neighbour[first[i] : first[i + 1]].

    A face names of each corner the next one. Around a vertex of a closed surface these are all its neighbours.
    """
    first = np.zeros(vertices + 1, np.uint32)
    for f in range(faces.shape[0]):
        for k in range(3):
            first[faces[f, k] + 1] += 1
    for i in range(vertices):
        first[i + 1] += first[i]
    place, neighbour = first.copy(), np.empty(faces.size, np.uint32)  # unsigned: no index counts from the end
    for f in range(faces.shape[0]):
        for k in range(3):
            corner = faces[f, k]
            neighbour[place[corner]] = faces[f, (k + 1) % 3]
            place[corner] += 1
    return first, neighbour
