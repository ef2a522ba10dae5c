"""People in the world frame (y up, ground at 0, metres): motion, shape and position, and their clothed meshes."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from eval3dpw.synth import outfit as outfits
from eval3dpw.synth import textures
from eval3dpw.synth.motion import Clip, rotated
from eval3dpw.synth.outfit import Outfit, SurfacePoints, coverage
from fitting.body import Body
from fitting.body.body import skin
from fitting.body.kinematics import Placement, rotation_matrices
from fitting.render.draw import vertex_normals

BETAS = 10  # as many as 3DPW's files hold
LATTICE_STEPS = 3  # every face stores its appearance on a lattice of this many steps along its edges
_PELVIS, _LEFT_HIP, _RIGHT_HIP, _UPPER_SPINE, _HEAD = 0, 1, 2, 9, 15
_CENTER_OF_HEAD = np.array([0.0, 0.60, 0.045])


@dataclass(frozen=True)
class SyntheticPerson:
    clip: str
    shape: Tensor  # [10]
    pose: Tensor  # [T, 24, 3] axis-angle, the root in the world
    translation: Tensor  # [T, 3]
    joints: Tensor  # [T, 24, 3]
    keypoints: Tensor  # [T, 26, 3] Halpe's; the first 17 are COCO's
    placement: Placement  # before size and translation
    size: float = 1.0  # multiplies the whole body about the origin, before the translation: children

    @property
    def path(self) -> np.ndarray:
        """[T, 2] x, z of the pelvis."""
        return self.joints[:, 0, ::2].numpy()


def draw_shape(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.clip(rng.normal(0, 1, BETAS), -2.2, 2.2).astype(np.float32))


def person_from_clip(body: Body, clip: Clip, shape: Tensor, first: int, count: int, yaw: float) -> SyntheticPerson:
    """Some frames of a clip, rotated by `yaw`, feet on the ground, the path centred on the origin."""
    piece = rotated(Clip(clip.name, clip.pose[first : first + count], clip.root_m[first : first + count]), yaw)
    leg_ratio = leg_length(body, shape) / leg_length(body, torch.zeros(BETAS))
    translation = (
        piece.root_m * leg_ratio - body.placement(torch.eye(3).expand(1, 24, 3, 3), _padded(body, shape)).joints[0, 0]
    )
    middle = (translation.amin(0) + translation.amax(0)) / 2
    posed = body(piece.pose, _padded(body, shape), translation, vertices=True).vertices
    assert posed is not None
    lowest = torch.quantile(posed[..., 1].amin(1), 0.1)  # not the minimum: one odd frame must not lift the body
    shift = torch.stack((middle[0], lowest, middle[2]))
    return sized_person(body, clip.name, piece.pose, shape, translation - shift)


def sized_person(
    body: Body, clip: str, pose: Tensor, shape: Tensor, translation: Tensor, size: float = 1.0
) -> SyntheticPerson:
    """As posed, with every point of the body multiplied by `size` before it is moved."""
    output = body(pose, _padded(body, shape))
    placement = body.placement(rotation_matrices(pose), _padded(body, shape))
    joints, keypoints = (size * points + translation[:, None] for points in (output.joints, output.keypoints))
    return SyntheticPerson(clip, shape, pose, translation, joints, keypoints, placement, size)


def moved(body: Body, person: SyntheticPerson, shift_m: Tensor) -> SyntheticPerson:
    """The same person elsewhere: shift_m [3] or [T, 3]."""
    return sized_person(body, person.clip, person.pose, person.shape, person.translation + shift_m, person.size)


def moved_to(body: Body, person: SyntheticPerson, x: float, z: float) -> SyntheticPerson:
    """Moved along the floor."""
    return moved(body, person, torch.tensor([x, 0.0, z], dtype=torch.float32))


def _padded(body: Body, shape: Tensor) -> Tensor:
    """The shape with zeros for the body's other directions."""
    return torch.cat((shape, shape.new_zeros(body.shape_size - len(shape))))


def leg_length(body: Body, shape: Tensor) -> float:
    joints = body.rest_joints + torch.einsum("jcs,s->jc", body.rest_joint_shapedirs, _padded(body, shape))
    return sum(float((joints[a] - joints[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8)))


@dataclass(frozen=True)
class ClothedBody:
    """One person as rendered: the body with clothes that stand off it, hair, and perhaps a skirt. The truth is the body
    underneath. Clothes are skinned to the same joints as the skin they cover."""

    rest: Tensor  # [3, V] metres, clothed and of this person's shape, in the T-pose
    weights: Tensor  # [24, V]
    faces: np.ndarray  # [F, 3] int32
    appearance: np.ndarray  # [F, (LATTICE_STEPS + 1)^2, CHANNELS] float32, see outfit.py
    body_vertices: int  # the first of the V are the body's own, in its order

    def posed(self, placement: Placement, translation: Tensor, size: float = 1.0) -> np.ndarray:
        """[T, V, 3] float32 metres."""
        bare = skin(self.rest, self.weights, placement).mT
        return ((bare if size == 1.0 else size * bare) + translation[:, None]).numpy()


def clothed_body(body: Body, shape: Tensor, outfit: Outfit, rng: np.random.Generator) -> ClothedBody:
    mean, weights = body.v_template.numpy(), body.weights.numpy()
    faces = body.faces.numpy().astype(np.int32)
    # [V] true for the small components that are not connected to the skin.
    count = len(mean)
    edges = np.concatenate((faces[:, :2], faces[:, 1:]))
    joined = coo_matrix((np.ones(len(edges)), edges.T), shape=(count, count))
    _, piece = connected_components(joined, directed=False)
    eyes = piece != np.bincount(piece).argmax()
    stand_off = _clothing_thickness_m(SurfacePoints(mean, weights.argmax(1)), outfit, rng) * ~eyes
    normals = _smooth_normals(mean, faces)
    parts = [mean + stand_off[:, None] * normals]
    all_weights, all_faces = [weights], [faces]
    kinds = [np.where(eyes[faces[:, 0]], outfits.EYE, outfits.BODY)]  # of faces
    shape_source = [np.arange(len(mean))]
    worn = []  # meshes that are no part of the body's surface
    if outfit.hair_falls_to_m is not None:
        worn.append((*_long_hair(outfit, outfit.hair_falls_to_m, rng), outfits.HAIR))
    if outfit.skirt_end_y_m is not None:
        worn.append((*_skirt(outfit.skirt_end_y_m, rng), outfits.SKIRT))
    for points, grid, its_weights, kind in worn:
        all_faces.append(grid + sum(map(len, parts)))
        parts.append(points)
        all_weights.append(its_weights)
        kinds.append(np.full(len(grid), kind))
        shape_source.append(cKDTree(mean).query(points)[1])
    by_shape = torch.einsum("vcs,s->vc", body.shapedirs[:, :, : len(shape)], shape).numpy()
    whole = np.concatenate(parts) + by_shape[np.concatenate(shape_source)]
    face_array, weight_array = np.concatenate(all_faces).astype(np.int32), np.concatenate(all_weights)
    # Garments are placed by the mean body's coordinates, whatever the person's shape.
    unshaped = np.concatenate([mean, *parts[1:]])
    # [n^2, 3] barycentric coordinates with n = LATTICE_STEPS + 1; row i n + j is (i, j, ..) / LATTICE_STEPS.
    i, j = np.mgrid[: LATTICE_STEPS + 1, : LATTICE_STEPS + 1].reshape(2, -1) / LATTICE_STEPS
    places = np.stack((i, j, np.maximum(1 - i - j, 0)), 1)
    places = places / places.sum(1, keepdims=True)  # rounding can place a corner beyond the far edge
    bones = weight_array.argmax(1)[face_array[:, places.argmax(1)]]  # [F, n^2] the bone changes half-way
    surface = SurfacePoints(np.einsum("pk,fkc->fpc", places, unshaped[face_array]).reshape(-1, 3), bones.ravel())
    of_face = np.broadcast_to(np.concatenate(kinds)[:, None], bones.shape).ravel()
    return ClothedBody(
        rest=torch.from_numpy(whole.T.astype(np.float32).copy()),
        weights=torch.from_numpy(weight_array.T.astype(np.float32).copy()),
        faces=face_array,
        appearance=outfits.surface_appearance(surface, of_face, outfit, rng).reshape(*bones.shape, outfits.CHANNELS),
        body_vertices=len(mean),
    )


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


def _clothing_thickness_m(surface: SurfacePoints, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    """[V] metres between the skin and what covers it."""
    covered = coverage(surface, outfit, width_m=0.012)
    x, y, _ = surface.rest_m.T
    # Loose cloth hangs: more air at the hem, at cuffs and round the waist than on the shoulders.
    hangs = np.interp(y, (outfit.hem_y_m, 0.15, 0.32, 0.40), (1.5, 1.2, 0.7, 0.35))
    sleeve = np.interp(np.abs(x), (0.17, 0.24, 0.66), (0.4, 1.0, 1.0))
    top = outfit.top.thickness_m * np.where(np.abs(x) > 0.2, sleeve, hangs)
    bottom = outfit.bottom.thickness_m * np.interp(y, (-0.9, -0.5, -0.2, 0.1), (1.5, 1.1, 0.7, 0.3))
    unevenness = 1 + 0.35 * textures.fractal_noise(surface.rest_m, 0.10, rng)
    cloth_m = (covered.top * (top + 0.004) + covered.bottom * bottom) * unevenness
    tousled = 1 + 0.5 * textures.fractal_noise(surface.rest_m, 0.04, rng)
    crown = np.clip((y - 0.55) / 0.1, 0.35, 1)
    return cloth_m + covered.hair * outfit.hair_thickness_m * tousled * crown + covered.shoes * 0.009


def _two_sided_grid(rows: int, columns: int) -> np.ndarray:
    """Faces of a grid of points, both sides, so that it is seen from inside as well."""
    i, j = np.mgrid[: rows - 1, : columns - 1].reshape(2, -1)
    a, b, c, d = i * columns + j, i * columns + j + 1, (i + 1) * columns + j, (i + 1) * columns + j + 1
    front = np.concatenate((np.stack((a, b, c), 1), np.stack((b, d, c), 1)))
    return np.concatenate((front, front[:, ::-1]))


def _long_hair(outfit: Outfit, ends_y_m: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A curtain round the back and sides of the head: points [n, 3] on the mean body, faces [m, 3], weights [n, 24]."""
    rows, columns = 14, 25
    angle = np.linspace(-0.62, 0.62, columns) * np.pi  # 0 is straight back
    uneven = np.convolve(rng.uniform(-1, 1, columns), np.ones(3) / 3, mode="same")
    y = np.linspace(0.665, ends_y_m, rows)[:, None] + 0.012 * uneven
    thickness = outfit.hair_thickness_m + 0.004
    round_head = np.sqrt(np.clip(1 - ((y - 0.60) / 0.135) ** 2, 0.0, 1))
    wide = np.where(y > 0.60, 0.076 * round_head, 0.076 + 0.10 * np.clip(0.60 - y, 0, 0.2)) + thickness
    deep = np.where(y > 0.60, 0.092 * round_head, 0.092 - 0.05 * np.clip(0.60 - y, 0, 0.2)) + thickness
    x, z = wide * np.sin(angle), _CENTER_OF_HEAD[2] - deep * np.cos(angle)
    points = np.stack(np.broadcast_arrays(x, y, z), -1).reshape(-1, 3)
    weights = np.zeros((len(points), 24))
    hangs = np.clip((0.5 - points[:, 1]) / 0.2, 0, 1)  # the ends rest on the shoulders
    weights[:, _HEAD], weights[:, _UPPER_SPINE] = 1 - 0.6 * hangs, 0.6 * hangs
    return points, _two_sided_grid(rows, columns), weights


def _skirt(ends_y_m: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A cone from the waist; each side follows its thigh, the middle follows both."""
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
    return points, _two_sided_grid(rows, columns), weights
