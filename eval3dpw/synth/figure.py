"""A dressed person as one surface: the body with clothes that stand off it, hair, and perhaps a skirt.

The truth is the body underneath; what is drawn is this. Clothes ride on the same bones as the skin they cover.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from eval3dpw.synth import cloth, noise
from eval3dpw.synth.outfit import Outfit
from eval3dpw.synth.regions import Place, cover
from fitting.body import Body
from fitting.body.body import skin
from fitting.body.kinematics import Placement
from fitting.render.shading import vertex_normals

STEPS = 3  # every face carries the colours of a lattice of this many steps along its edges
_HEAD, _PELVIS, _LEFT_HIP, _RIGHT_HIP = 15, 0, 1, 2
_CENTER_OF_HEAD = np.array([0.0, 0.60, 0.045])


@dataclass(frozen=True)
class Figure:
    """What to draw of one person."""

    rest: Tensor  # [3, V] metres, dressed and of this person's shape, in the T-pose
    weights: Tensor  # [24, V]
    faces: np.ndarray  # [F, 3] int32
    paint: np.ndarray  # [F, (STEPS + 1)^2, 6] float32: see cloth.CHANNELS
    body_vertices: int  # the first of the V are the body's own, in its order

    def posed(self, placement: Placement, translation: Tensor) -> np.ndarray:
        """[T, V, 3] float32 metres."""
        return (skin(self.rest, self.weights, placement).mT + translation[:, None]).numpy()


@dataclass(frozen=True)
class _Extra:
    """Something worn that is not a part of the body's surface."""

    rest_m: np.ndarray  # [n, 3] on the mean body
    faces: np.ndarray  # [m, 3]
    weights: np.ndarray  # [n, 24]
    kind: int  # cloth.HAIR or cloth.SKIRT


def dress(body: Body, shape: Tensor, outfit: Outfit, rng: np.random.Generator) -> Figure:
    mean, weights = body.v_template.numpy(), body.weights.numpy()
    faces = body.faces.numpy().astype(np.int32)
    eyes = _eyeballs(faces, len(mean))
    stand_off = _thickness(Place(mean, weights.argmax(1)), outfit, rng) * ~eyes
    normals = _smooth_normals(mean, faces)
    dressed = mean + stand_off[:, None] * normals
    parts = [dressed]
    all_weights, all_faces = [weights], [faces]
    kinds = [np.where(eyes[faces[:, 0]], cloth.EYE, cloth.BODY)]  # of faces
    shape_source = [np.arange(len(mean))]
    for extra in _extras(outfit, rng):
        all_faces.append(extra.faces + sum(map(len, parts)))
        parts.append(extra.rest_m)
        all_weights.append(extra.weights)
        kinds.append(np.full(len(extra.faces), extra.kind))
        shape_source.append(cKDTree(mean).query(extra.rest_m)[1])
    by_shape = torch.einsum("vcs,s->vc", body.shapedirs[:, :, : len(shape)], shape).numpy()
    whole = np.concatenate(parts) + by_shape[np.concatenate(shape_source)]
    face_array, weight_array = np.concatenate(all_faces).astype(np.int32), np.concatenate(all_weights)
    # Where paint goes is read off the body as it stands unshaped; the extras' places are their own.
    unshaped = np.concatenate([mean, *parts[1:]])
    return Figure(
        rest=torch.from_numpy(whole.T.astype(np.float32).copy()),
        weights=torch.from_numpy(weight_array.T.astype(np.float32).copy()),
        faces=face_array,
        paint=_paint(unshaped, weight_array.argmax(1), face_array, np.concatenate(kinds), outfit, rng),
        body_vertices=len(mean),
    )


def lattice() -> np.ndarray:
    """[(STEPS + 1)^2, 3] places in a face; entry i (STEPS + 1) + j is (i, j, rest) / STEPS."""
    i, j = np.mgrid[: STEPS + 1, : STEPS + 1].reshape(2, -1) / STEPS
    inside = np.stack((i, j, np.maximum(1 - i - j, 0)), 1)
    return inside / inside.sum(1, keepdims=True)  # rounding can lead a step beyond the far edge: back onto it


def _paint(
    rest_m: np.ndarray, bone: np.ndarray, faces: np.ndarray, kinds: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    places = lattice()
    points = np.einsum("pk,fkc->fpc", places, rest_m[faces])
    nearest = places.argmax(1)  # the bone changes half-way
    bones = bone[faces[:, nearest]]
    of_face = np.broadcast_to(kinds[:, None], bones.shape).ravel()
    place = Place(points.reshape(-1, 3), bones.ravel())
    seen = cloth.paint(place, of_face, outfit, rng)
    return seen.reshape(len(faces), len(places), cloth.CHANNELS)


def _eyeballs(faces: np.ndarray, count: int) -> np.ndarray:
    """[V] true for the small pieces that are not joined to the skin."""
    edges = np.concatenate((faces[:, :2], faces[:, 1:]))
    joined = coo_matrix((np.ones(len(edges)), edges.T), shape=(count, count))
    _, piece = connected_components(joined, directed=False)
    return piece != np.bincount(piece).argmax()


def _smooth_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Normals averaged over neighbours, so that cloth does not follow every fold of the skin."""
    normals = vertex_normals(vertices, faces).astype(np.float64)
    edges = np.concatenate((faces[:, :2], faces[:, 1:], faces[:, ::2]))
    for _ in range(4):
        total = normals.copy()
        np.add.at(total, edges[:, 0], normals[edges[:, 1]])
        np.add.at(total, edges[:, 1], normals[edges[:, 0]])
        normals = total / np.linalg.norm(total, axis=1, keepdims=True)
    return normals


def _thickness(place: Place, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    """[V] metres between the skin and what covers it."""
    covered = cover(place, outfit, width_m=0.012)
    x, y, _ = place.rest_m.T
    # Loose cloth hangs: more air at the hem, at cuffs and round the waist than on the shoulders.
    hangs = np.interp(y, (outfit.hem_y_m, 0.15, 0.32, 0.40), (1.5, 1.2, 0.7, 0.35))
    sleeve = np.interp(np.abs(x), (0.17, 0.24, 0.66), (0.4, 1.0, 1.0))
    top = outfit.top.thickness_m * np.where(np.abs(x) > 0.2, sleeve, hangs)
    bottom = outfit.bottom.thickness_m * np.interp(y, (-0.9, -0.5, -0.2, 0.1), (1.5, 1.1, 0.7, 0.3))
    uneven = 1 + 0.35 * noise.octaves(place.rest_m, 0.10, rng)
    cloth_m = (covered.top * (top + 0.004) + covered.bottom * bottom) * uneven
    tousled = 1 + 0.5 * noise.octaves(place.rest_m, 0.04, rng)
    crown = np.clip((y - 0.55) / 0.1, 0.35, 1)
    return cloth_m + covered.hair * outfit.hair_thickness_m * tousled * crown + covered.shoes * 0.009


def _extras(outfit: Outfit, rng: np.random.Generator) -> list[_Extra]:
    extras = []
    if outfit.hair_falls_to_m is not None:
        extras.append(_long_hair(outfit, outfit.hair_falls_to_m, rng))
    if outfit.skirt_end_y_m is not None:
        extras.append(_skirt(outfit, outfit.skirt_end_y_m, rng))
    return extras


def _sheet(rows: int, columns: int) -> np.ndarray:
    """Faces of a grid of points, both sides, so that it is seen from inside as well."""
    i, j = np.mgrid[: rows - 1, : columns - 1].reshape(2, -1)
    a, b, c, d = i * columns + j, i * columns + j + 1, (i + 1) * columns + j, (i + 1) * columns + j + 1
    front = np.concatenate((np.stack((a, b, c), 1), np.stack((b, d, c), 1)))
    return np.concatenate((front, front[:, ::-1]))


def _ragged(rng: np.random.Generator, count: int) -> np.ndarray:
    """Numbers -1..1, each like its neighbours."""
    return np.convolve(rng.uniform(-1, 1, count), np.ones(3) / 3, mode="same")


def _long_hair(outfit: Outfit, ends_y_m: float, rng: np.random.Generator) -> _Extra:
    """A curtain round the back and sides of the head."""
    rows, columns = 14, 25
    angle = np.linspace(-0.62, 0.62, columns) * np.pi  # 0 is straight back
    y = np.linspace(0.665, ends_y_m, rows)[:, None] + 0.012 * _ragged(rng, columns)
    thickness = outfit.hair_thickness_m + 0.004
    round_head = np.sqrt(np.clip(1 - ((y - 0.60) / 0.135) ** 2, 0.0, 1))
    wide = np.where(y > 0.60, 0.076 * round_head, 0.076 + 0.10 * np.clip(0.60 - y, 0, 0.2)) + thickness
    deep = np.where(y > 0.60, 0.092 * round_head, 0.092 - 0.05 * np.clip(0.60 - y, 0, 0.2)) + thickness
    x, z = wide * np.sin(angle), _CENTER_OF_HEAD[2] - deep * np.cos(angle)
    points = np.stack(np.broadcast_arrays(x, y, z), -1).reshape(-1, 3)
    weights = np.zeros((len(points), 24))
    hangs = np.clip((0.5 - points[:, 1]) / 0.2, 0, 1)  # the ends rest on the shoulders
    weights[:, _HEAD], weights[:, 9] = 1 - 0.6 * hangs, 0.6 * hangs
    return _Extra(points, _sheet(rows, columns), weights, cloth.HAIR)


def _skirt(outfit: Outfit, ends_y_m: float, rng: np.random.Generator) -> _Extra:
    """A cone from the waist; each side follows its thigh, the middle lies between."""
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
    weights[:, _LEFT_HIP], weights[:, _RIGHT_HIP] = follows * left, follows * (1 - left)
    return _Extra(points, _sheet(rows, columns), weights, cloth.SKIRT)
