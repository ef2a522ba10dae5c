"""Build the clothed meshes of people: cloth that stands off the skin, hair and skirts.

Coordinates are those of the open body at rest (`outfits.py`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix, eye
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from eval3dpw.synth import textures
from eval3dpw.synth.appearance import (
    BODY,
    CHANNELS,
    EYE,
    HAIR,
    HEAD,
    SKIRT,
    coverage,
    surface_appearance,
)
from eval3dpw.synth.outfits import Outfit
from eval3dpw.synth.solids import grid_faces
from fitting.body import Body
from fitting.body.kinematics import Placement
from fitting.body.skinning import skin
from fitting.render.shading import vertex_normals

LATTICE_STEPS = (
    3  # every face stores its appearance on a lattice of this many steps along its edges
)
_PELVIS = 0
_LEFT_HIP = 1
_RIGHT_HIP = 2
_UPPER_SPINE = 9
_CENTER_OF_HEAD = np.array([0.0, 0.60, 0.045])


@dataclass(frozen=True)
class ClothedBody:
    """Hold one person as rendered: the body with clothes that stand off it, hair, and perhaps a
    skirt.

    The truth is the body underneath. Clothes are skinned to the same joints as the skin they cover.
    """

    rest: Tensor  # [3, V] metres, clothed and of this person's shape, in the T-pose
    weights: Tensor  # [24, V]
    faces: np.ndarray  # [F, 3] int32
    appearance: np.ndarray  # [F, (LATTICE_STEPS + 1)^2, CHANNELS] float32
    body_vertices: int  # the first of the V are the body's own, in its order

    def posed(self, placement: Placement, translation: Tensor, size: float = 1.0) -> np.ndarray:
        """Return vertices [T, V, 3] float32 in metres."""
        bare = skin(self.rest, self.weights, placement).mT
        return ((bare if size == 1.0 else size * bare) + translation[:, None]).numpy()


def clothed_body(
    body: Body, shape: Tensor, outfit: Outfit, rng: np.random.Generator
) -> ClothedBody:
    """Dress a body of this shape in an outfit."""
    mean = body.v_template.numpy()
    weights = body.weights.numpy()
    faces = body.faces.numpy().astype(np.int32)
    # [V] true for the small components that are not connected to the skin.
    count = len(mean)
    edges = np.concatenate((faces[:, :2], faces[:, 1:], faces[:, ::2]))
    joined = coo_matrix((np.ones(len(edges)), edges.T), shape=(count, count))
    _, piece = connected_components(joined, directed=False)
    eyes = piece != np.bincount(piece).argmax()
    stand_off = _clothing_thickness_m(mean, weights.argmax(1), outfit, rng) * ~eyes
    normals = vertex_normals(mean, faces).astype(np.float64)
    around = joined + joined.T + eye(count)
    for _ in range(
        4
    ):  # averaged over neighbours, so that cloth does not follow every fold of the skin
        normals = around @ normals
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    parts = [mean + stand_off[:, None] * normals]
    all_weights = [weights]
    all_faces = [faces]
    kinds = [np.where(eyes[faces[:, 0]], EYE, BODY)]  # of faces
    shape_source = [np.arange(len(mean))]
    worn = []  # meshes that are no part of the body's surface
    if outfit.hair_falls_to_m is not None:
        worn.append((*_long_hair(outfit, outfit.hair_falls_to_m, rng), HAIR))
    if outfit.skirt_end_y_m is not None:
        worn.append((*_skirt(outfit.skirt_end_y_m, rng), SKIRT))
    for points, grid, its_weights, kind in worn:
        all_faces.append(grid + sum(map(len, parts)))
        parts.append(points)
        all_weights.append(its_weights)
        kinds.append(np.full(len(grid), kind))
        shape_source.append(cKDTree(mean).query(points)[1])
    by_shape = torch.einsum("vcs,s->vc", body.shapedirs[:, :, : len(shape)], shape).numpy()
    rest_vertices = np.concatenate(parts) + by_shape[np.concatenate(shape_source)]
    face_array = np.concatenate(all_faces).astype(np.int32)
    weight_array = np.concatenate(all_weights)
    # Garments are placed by the mean body's coordinates, whatever the person's shape.
    unshaped = np.concatenate([mean, *parts[1:]])
    # [n^2, 3] barycentric coordinates with n = LATTICE_STEPS + 1; row i n + j is (i, j, ..) /
    # LATTICE_STEPS.
    i, j = np.mgrid[: LATTICE_STEPS + 1, : LATTICE_STEPS + 1].reshape(2, -1) / LATTICE_STEPS
    places = np.stack((i, j, np.maximum(1 - i - j, 0)), 1)
    places = places / places.sum(
        1, keepdims=True
    )  # rounding can place a corner beyond the far edge
    bones = weight_array.argmax(1)[
        face_array[:, places.argmax(1)]
    ]  # [F, n^2] the bone changes half-way
    surface = np.einsum("pk,fkc->fpc", places, unshaped[face_array]).reshape(-1, 3)
    of_face = np.broadcast_to(np.concatenate(kinds)[:, None], bones.shape).ravel()
    return ClothedBody(
        rest=torch.from_numpy(rest_vertices.T.astype(np.float32).copy()),
        weights=torch.from_numpy(weight_array.T.astype(np.float32).copy()),
        faces=face_array,
        appearance=surface_appearance(surface, bones.ravel(), of_face, outfit, rng).reshape(
            *bones.shape, CHANNELS
        ),
        body_vertices=len(mean),
    )


def _clothing_thickness_m(
    points: np.ndarray, bone: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    """Return the distance [V] in metres between the skin and what covers it."""
    covered = coverage(points, bone, outfit, width_m=0.012)
    x, y, _ = points.T
    # Loose cloth hangs: more air at the hem, at cuffs and round the waist than on the shoulders.
    hangs = np.interp(y, (outfit.hem_y_m, 0.15, 0.32, 0.40), (1.5, 1.2, 0.7, 0.35))
    sleeve = np.interp(np.abs(x), (0.17, 0.24, 0.66), (0.4, 1.0, 1.0))
    top = outfit.top.thickness_m * np.where(np.abs(x) > 0.2, sleeve, hangs)
    bottom = outfit.bottom.thickness_m * np.interp(y, (-0.9, -0.5, -0.2, 0.1), (1.5, 1.1, 0.7, 0.3))
    unevenness = 1 + 0.35 * textures.fractal_noise(points, 0.10, rng)
    cloth_m = (covered["top"] * (top + 0.004) + covered["bottom"] * bottom) * unevenness
    tousled = 1 + 0.5 * textures.fractal_noise(points, 0.04, rng)
    crown = np.clip((y - 0.55) / 0.1, 0.35, 1)
    return (
        cloth_m
        + covered["hair"] * outfit.hair_thickness_m * tousled * crown
        + covered["shoes"] * 0.009
    )


def _two_sided_grid(rows: int, columns: int) -> np.ndarray:
    """Return the faces of a grid of points on both sides, so that it shows from inside as well."""
    front = grid_faces(rows, columns)
    return np.concatenate((front, front[:, ::-1]))


def _long_hair(
    outfit: Outfit, ends_y_m: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build a curtain of hair round the back and sides of the head.

    Returns points [n, 3] on the mean body, faces [m, 3] and weights [n, 24].
    """
    rows, columns = 14, 25
    angle = np.linspace(-0.62, 0.62, columns) * np.pi  # 0 is straight back
    uneven = np.convolve(rng.uniform(-1, 1, columns), np.ones(3) / 3, mode="same")
    y = np.linspace(0.665, ends_y_m, rows)[:, None] + 0.012 * uneven
    thickness = outfit.hair_thickness_m + 0.004
    round_head = np.sqrt(np.clip(1 - ((y - 0.60) / 0.135) ** 2, 0.0, 1))
    wide = (
        np.where(y > 0.60, 0.076 * round_head, 0.076 + 0.10 * np.clip(0.60 - y, 0, 0.2)) + thickness
    )
    deep = (
        np.where(y > 0.60, 0.092 * round_head, 0.092 - 0.05 * np.clip(0.60 - y, 0, 0.2)) + thickness
    )
    x = wide * np.sin(angle)
    z = _CENTER_OF_HEAD[2] - deep * np.cos(angle)
    points = np.stack(np.broadcast_arrays(x, y, z), -1).reshape(-1, 3)
    weights = np.zeros((len(points), 24))
    hangs = np.clip((0.5 - points[:, 1]) / 0.2, 0, 1)  # the ends rest on the shoulders
    weights[:, HEAD] = 1 - 0.6 * hangs
    weights[:, _UPPER_SPINE] = 0.6 * hangs
    return points, _two_sided_grid(rows, columns), weights


def _skirt(ends_y_m: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build a cone from the waist; each side follows its thigh, the middle follows both."""
    rows, columns = 12, 41
    angle = np.linspace(0, 2 * np.pi, columns)
    y = np.linspace(0.06, ends_y_m, rows)[:, None]
    down = (0.06 - y) / 0.5
    flare = 1 + 0.5 * down * rng.uniform(0.3, 1.2)
    pleats = 1 + 0.05 * down * np.sin(angle * rng.integers(8, 15))
    x = (0.15 + 0.05 * np.clip(down * 3, 0, 1)) * flare * pleats * np.sin(angle)
    z = 0.015 + (0.125 + 0.03 * np.clip(down * 3, 0, 1)) * flare * pleats * np.cos(angle)
    points = np.stack(np.broadcast_arrays(x, y, z), -1).reshape(-1, 3)
    left = np.clip(points[:, 0] / 0.24 + 0.5, 0.05, 0.95)
    follows = np.clip((0.02 - points[:, 1]) / 0.30, 0, 0.85)
    weights = np.zeros((len(points), 24))
    weights[:, _PELVIS] = 1 - follows
    weights[:, _LEFT_HIP] = follows * left
    weights[:, _RIGHT_HIP] = follows * (1 - left)
    return points, _two_sided_grid(rows, columns), weights
