"""What people wear and look like, and their clothed meshes.

An outfit says what a person wears and looks like; its lengths are positions on the open body at
rest (metres). At rest the body stands in a T: arms along x (shoulder 0.18, elbow 0.43, wrist 0.67),
y up from the pelvis at 0 (hip -0.08, knee -0.48, ankle -0.90, neck 0.47, chin 0.49, crown 0.72), z
to the front."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.sparse import coo_matrix, eye
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from eval3dpw.synth import textures
from eval3dpw.synth.surroundings import grid_faces
from eval3dpw.synth.textures import linear_rgb
from fitting.body import Body
from fitting.body.body import skin
from fitting.body.kinematics import Placement
from fitting.render.draw import vertex_normals

LATTICE_STEPS = (
    3  # every face stores its appearance on a lattice of this many steps along its edges
)
_PELVIS = 0
_LEFT_HIP = 1
_RIGHT_HIP = 2
_UPPER_SPINE = 9
_CENTER_OF_HEAD = np.array([0.0, 0.60, 0.045])
BODY, EYE, HAIR, SKIRT = range(4)  # kinds of surface
CHANNELS = 6  # of an appearance: linear red, green, blue; and a vector to add to the normal
_HEAD = 15
_NECK = 12
_FEET = (7, 8, 10, 11)
_LEGS = (1, 2, 4, 5, 7, 8, 10, 11)

Pattern = Literal["plain", "stripes", "upright stripes", "checks", "blotches", "print", "panels"]
Color = tuple[float, float, float]  # linear red, green, blue 0..1


@dataclass(frozen=True)
class Fabric:
    color: Color
    second: Color  # of the pattern
    pattern: Pattern
    period_m: float  # of stripes, checks and blotches
    thickness_m: float  # how far it stands off the skin
    folds: float  # strength of the creases, 0..1


@dataclass(frozen=True)
class Outfit:
    skin: Color
    hair: Color
    hair_thickness_m: float
    hair_falls_to_m: float | None  # y where long hair ends; None: short
    beard: float  # 0..1
    top: Fabric
    sleeve_end_m: float  # |x| where sleeves end
    hem_y_m: float  # y where the top ends
    neckline_m: float  # radius of the opening for the neck
    open_front: bool  # a jacket over something lighter
    bottom: Fabric
    leg_end_y_m: float  # y where trousers end
    skirt_end_y_m: float | None  # y where a skirt ends; None: trousers only
    shoes: Color
    sole: Color
    socks: Color


_SKINS = (
    (232, 190, 165),
    (222, 170, 140),
    (205, 150, 118),
    (180, 125, 92),
    (150, 98, 70),
    (110, 72, 52),
    (84, 54, 40),
)
_HAIRS = (
    (22, 18, 16),
    (40, 27, 20),
    (62, 42, 28),
    (92, 64, 40),
    (150, 112, 68),
    (120, 62, 34),
    (128, 124, 120),
)
_CLOTHES = (
    (28, 30, 36),
    (60, 64, 70),
    (120, 122, 124),
    (205, 205, 200),
    (235, 232, 224),
    (30, 44, 84),
    (58, 92, 150),
    (110, 150, 190),
    (150, 32, 36),
    (196, 70, 48),
    (44, 86, 56),
    (96, 112, 66),
    (190, 160, 60),
    (120, 84, 54),
    (176, 150, 116),
    (120, 60, 110),
    (214, 140, 156),
    (40, 110, 112),
)
_TROUSERS = (
    (24, 26, 32),
    (40, 52, 84),
    (62, 82, 122),
    (90, 112, 146),
    (70, 68, 66),
    (120, 108, 88),
    (168, 148, 116),
    (46, 52, 40),
    (100, 100, 104),
    (190, 186, 176),
    (84, 58, 42),
)
_SHOES = (
    (24, 22, 22),
    (60, 42, 30),
    (120, 84, 56),
    (216, 214, 208),
    (60, 64, 72),
    (150, 40, 40),
    (40, 60, 110),
)


def draw_outfit(rng: np.random.Generator) -> Outfit:
    shirt = _draw_fabric(rng, _CLOTHES, plain=0.4, thickest_m=0.030)
    legs = _draw_fabric(rng, _TROUSERS, plain=0.85, thickest_m=0.026)
    short_legs = rng.random() < 0.25
    skirt = rng.random() < 0.12
    long_hair = rng.random() < 0.4
    return Outfit(
        skin=_varied(rng, _SKINS, 0.06),
        hair=_varied(rng, _HAIRS, 0.15),
        hair_thickness_m=rng.uniform(0.006, 0.028),
        hair_falls_to_m=rng.uniform(0.33, 0.52) if long_hair else None,
        beard=0.0 if long_hair or rng.random() < 0.7 else rng.uniform(0.3, 0.8),
        top=shirt,
        sleeve_end_m=float(rng.choice([0.24, 0.33, 0.36, 0.42, 0.64, 0.655, 0.66])),
        hem_y_m=rng.uniform(-0.16, 0.0),
        neckline_m=rng.uniform(0.065, 0.115),
        open_front=rng.random() < 0.2,
        bottom=legs,
        leg_end_y_m=rng.uniform(-0.52, -0.26) if short_legs or skirt else rng.uniform(-0.93, -0.87),
        skirt_end_y_m=rng.uniform(-0.62, -0.34) if skirt else None,
        shoes=_varied(rng, _SHOES, 0.1),
        sole=_varied(rng, ((230, 228, 220), (40, 38, 36)), 0.1),
        socks=_varied(rng, ((230, 230, 228), (40, 40, 44)), 0.1),
    )


def _draw_fabric(
    rng: np.random.Generator,
    colors: tuple[tuple[int, int, int], ...],
    plain: float,
    thickest_m: float,
) -> Fabric:
    patterns: tuple[Pattern, ...] = (
        "stripes",
        "upright stripes",
        "checks",
        "blotches",
        "print",
        "panels",
    )
    return Fabric(
        color=_varied(rng, colors, 0.2),
        second=_varied(rng, _CLOTHES, 0.2),
        pattern="plain" if rng.random() < plain else patterns[rng.integers(len(patterns))],
        period_m=rng.uniform(0.03, 0.12),
        thickness_m=rng.uniform(0.006, thickest_m),
        folds=rng.uniform(0.3, 1.0),
    )


def _varied(
    rng: np.random.Generator, colors: tuple[tuple[int, int, int], ...], spread: float
) -> Color:
    """One of the colours with a random change of hue and brightness."""
    color = linear_rgb(colors[rng.integers(len(colors))]) * np.exp(
        rng.normal(0, spread, 3) + rng.normal(0, spread)
    )
    r, g, b = np.clip(color, 0.005, 0.9)
    return float(r), float(g), float(b)


def soft_step(value: np.ndarray, at: float | np.ndarray, width_m: float = 0.004) -> np.ndarray:
    """0 below `at`, 1 above, linear over `width_m` in between."""
    return np.clip((value - at) / width_m + 0.5, 0, 1)


def coverage(
    points: np.ndarray, bone: np.ndarray, outfit: Outfit, width_m: float = 0.004
) -> dict[str, np.ndarray]:
    """How much of each point [n, 3] of the mean body hair, top, bottom, socks and shoes cover, by
    the places that the outfit's lengths name: 0 or 1 [n], in between at edges. bone [n]: the joint
    with the largest skinning weight."""
    x, y, z = points.T
    arm = np.abs(x)  # distance along the arm
    head = bone == _HEAD
    foot = np.isin(bone, _FEET)
    neck = np.isin(bone, (_HEAD, _NECK))
    torso = soft_step(y, outfit.hem_y_m, width_m) * soft_step(
        _from_neck(points), outfit.neckline_m, width_m
    )
    covers_torso = torso * ~(neck & (y > 0.5))
    top = (
        covers_torso
        * (1 - soft_step(arm, outfit.sleeve_end_m, width_m))
        * ~np.isin(bone, _LEGS[2:])
    )
    below_waist = ~(y > 0.14) & (arm < 0.4)
    bottom = below_waist * soft_step(y, outfit.leg_end_y_m, width_m) * (1 - top)
    shoes = foot * (1 - soft_step(y, -0.885 - 0.02 * (z > 0.03), width_m))
    socks = (np.isin(bone, _LEGS) & (y < -0.6)) * (1 - soft_step(y, -0.82, width_m))
    return {
        "hair": head * _scalp(x, y, z),
        "top": top,
        "bottom": bottom,
        "socks": socks,
        "shoes": shoes,
    }


def _from_neck(points: np.ndarray) -> np.ndarray:
    """The opening for the neck is a ball around its root, a little lower in front."""
    x, y, z = points.T
    return np.sqrt(x**2 + ((y - 0.475) / 1.15) ** 2 + (z - 0.045) ** 2)


def _scalp(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Where hair grows: above a line from the forehead, around the ears, to the nape."""
    forehead = 0.672 - 2.2 * np.abs(x) ** 2
    temples = np.interp(z, (0.06, 0.085, 0.115, 0.14), (0.555, 0.60, 0.645, 0.0))
    line = np.where(z > 0.125, forehead, np.maximum(temples, 0))
    line = np.where(
        z < 0.06, np.interp(z, (-0.04, 0.02, 0.035, 0.06), (0.50, 0.51, 0.56, 0.555)), line
    )
    ear = (np.abs(x) > 0.068) & (y < 0.632) & (y > 0.55) & (z > 0.02) & (z < 0.085)
    return soft_step(y, line, 0.012) * ~ear


def surface_appearance(
    points: np.ndarray, bone: np.ndarray, kind: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    """[n, CHANNELS] at points of the surface; `kind` [n] is BODY, EYE, or HAIR and SKIRT for meshes
    of their own.
    """
    covered = coverage(points, bone, outfit)
    noise = textures.value_noise
    hair = np.maximum(covered["hair"], kind == HAIR)
    bottom = np.maximum(covered["bottom"], kind == SKIRT)

    def locks(p: np.ndarray) -> np.ndarray:
        shade = noise(p, (0.006, 0.05, 0.012), rng) + 0.6 * noise(p, 0.02, rng)
        return np.asarray(outfit.hair) * np.exp(0.45 * shade)[:, None]

    def folds(p: np.ndarray) -> np.ndarray:
        wide = np.stack([_fold_height(p, rng) for _ in range(3)], 1)
        return 0.55 * wide + 0.15 * np.stack([noise(p, 0.02, rng) for _ in range(3)], 1)

    def strands(p: np.ndarray) -> np.ndarray:
        return 0.5 * np.stack([noise(p, (0.008, 0.06, 0.015), rng) for _ in range(3)], 1)

    color = _skin(points, bone, outfit, rng)
    normal_offset = np.zeros((len(points), 3))
    loose = covered["top"] * outfit.top.folds + bottom * outfit.bottom.folds
    layers: tuple[tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]], ...] = (
        (color, covered["socks"], lambda p: np.tile(outfit.socks, (len(p), 1))),
        (color, bottom, lambda p: _fabric(p, outfit.bottom, rng)),
        (color, covered["top"], lambda p: _top(p, outfit, rng)),
        (color, covered["shoes"], lambda p: _shoes(p, outfit)),
        (color, hair, locks),
        (color, (kind == EYE).astype(float), _eyeballs),
        (normal_offset, loose, folds),
        (normal_offset, hair, strands),
    )
    for under, share, over in layers:  # computed only where there is some of it
        where = share > 0
        under[where] = _blend(under[where], share[where], over(points[where]))
    return np.concatenate((np.clip(color, 0.002, 0.95), normal_offset), 1).astype(np.float32)


def _blend(under: np.ndarray, share: np.ndarray, color: np.ndarray) -> np.ndarray:
    return under + share[:, None] * (color - under)


def _skin(
    points: np.ndarray, bone: np.ndarray, outfit: Outfit, rng: np.random.Generator
) -> np.ndarray:
    color = (
        np.asarray(outfit.skin) * np.exp(0.10 * textures.fractal_noise(points, 0.05, rng))[:, None]
    )
    head = bone == _HEAD
    color[head] = _face(points[head], color[head], outfit)
    return color


def _face(points: np.ndarray, color: np.ndarray, outfit: Outfit) -> np.ndarray:
    """Adds brows, lids, lips, nostrils, cheeks, and the shade under brows and jaw."""
    x, y, z = points.T
    side = np.abs(x)
    front = z > 0.08

    def spot(cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
        return front * np.clip(1.5 - 1.5 * np.hypot((side - cx) / rx, (y - cy) / ry) ** 2, 0, 1)

    skin = np.asarray(outfit.skin)
    hair = np.asarray(outfit.hair)
    under_jaw = (1 - soft_step(y, 0.50, 0.03)) * soft_step(z, 0.04, 0.03)
    ear_hole = (side > 0.066) & (np.hypot(y - 0.592, z - 0.058) < 0.009)
    chin = (
        (1 - soft_step(y, 0.548, 0.012))
        * soft_step(z, 0.07, 0.03)
        * (1 - 0.8 * spot(0.0, 0.535, 0.024, 0.01))
    )
    for share, over in (
        (0.35 * spot(0.042, 0.567, 0.022, 0.02), skin * (1.1, 0.7, 0.65)),  # cheeks
        (0.55 * spot(0.030, 0.612, 0.021, 0.014), skin * 0.45),  # the hollow of the eye
        (0.9 * spot(0.032, 0.632, 0.022, 0.0055), hair * 0.6 + 0.005),  # brow
        (0.8 * spot(0.030, 0.6165, 0.016, 0.0035), skin * 0.12),  # upper lid
        (0.8 * spot(0.008, 0.562, 0.0055, 0.004), skin * 0.12),  # nostril
        (0.25 * spot(0.018, 0.565, 0.006, 0.012), skin * 0.5),  # wing of the nose
        (0.75 * spot(0.0, 0.535, 0.026, 0.0075), skin * (0.75, 0.32, 0.32)),  # lips
        (0.8 * spot(0.0, 0.5355, 0.024, 0.002), skin * 0.15),  # between them
        (0.45 * under_jaw, skin * 0.4),
        (0.7 * ear_hole, skin * 0.2),
        (outfit.beard * chin, hair),
    ):
        color = _blend(color, share, over)
    return color


def _eyeballs(points: np.ndarray) -> np.ndarray:
    """White with an iris in front."""
    from_axis = np.hypot(np.abs(points[:, 0]) - 0.0305, points[:, 1] - 0.612)
    iris = 1 - soft_step(from_axis, 0.0062, 0.002)
    return _blend(np.full((len(points), 3), 0.55), iris, np.array([0.03, 0.02, 0.012]))


def _top(points: np.ndarray, outfit: Outfit, rng: np.random.Generator) -> np.ndarray:
    color = _fabric(points, outfit.top, rng)
    x, y, z = points.T
    if outfit.open_front:
        under = (np.abs(x) < 0.045 + 0.03 * np.clip(y, 0, 0.3) / 0.3) & (z > 0.0)
        color = np.where(under[:, None], np.asarray(outfit.top.second) * 0.5 + 0.3, color)
    collar = 1 - soft_step(_from_neck(points), outfit.neckline_m + 0.02)
    cuffs = soft_step(np.abs(x), outfit.sleeve_end_m - 0.015) + (
        1 - soft_step(y, outfit.hem_y_m + 0.012)
    )
    return color * (1 - 0.35 * np.clip(collar + cuffs, 0, 1))[:, None]


def _fabric(points: np.ndarray, fabric: Fabric, rng: np.random.Generator) -> np.ndarray:
    x, y, z = points.T
    around = x + 0.7 * z  # so that upright stripes also run on the sides
    second = {
        "plain": lambda: np.zeros(len(points)),
        "stripes": lambda: _bars(np.where(np.abs(x) > 0.2, np.abs(x), y), fabric.period_m),
        "upright stripes": lambda: _bars(around, fabric.period_m),
        "checks": lambda: (
            0.5 * _bars(around, fabric.period_m)
            + 0.5 * _bars(np.where(np.abs(x) > 0.2, x, y), fabric.period_m)
        ),
        "blotches": lambda: soft_step(
            textures.fractal_noise(points, fabric.period_m, rng), 0.05, 0.15
        ),
        "print": lambda: (  # a square on the chest
            ((np.abs(x) < 0.10) & (np.abs(y - 0.24) < 0.10) & (z > 0))
            * soft_step(textures.value_noise(points, 0.05, rng), 0, 0.1)
        ),
        "panels": lambda: ((np.abs(x) > 0.19) | (y < 0.06)).astype(float),
    }[fabric.pattern]()
    color = _blend(np.tile(fabric.color, (len(points), 1)), second, np.asarray(fabric.second))
    worn = 0.12 * textures.fractal_noise(points, 0.15, rng) + 0.10 * textures.value_noise(
        points, 0.008, rng
    )
    creases = -0.35 * fabric.folds * np.clip(1 - 5 * np.abs(_fold_height(points, rng)), 0, 1)
    return color * np.exp(worn + creases)[:, None]


def _bars(along: np.ndarray, period_m: float) -> np.ndarray:
    return soft_step(np.abs((along / period_m) % 1 - 0.5), 0.28, 0.06)


def _fold_height(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Creases run along arms and across the trunk, roughly; -1..1."""
    stretched = np.where(np.abs(points[:, :1]) > 0.2, (0.05, 0.10, 0.10), (0.11, 0.05, 0.11))
    bent = points / stretched + 0.8 * np.stack(
        [textures.value_noise(points, 0.12, rng) for _ in range(3)], 1
    )
    return textures.value_noise(bent, 1.0, rng)


def _shoes(points: np.ndarray, outfit: Outfit) -> np.ndarray:
    _, y, z = points.T
    color = np.where((y < -0.963)[:, None], np.asarray(outfit.sole), np.asarray(outfit.shoes))
    laces = (z > 0.0) & (z < 0.07) & (y > -0.945) & (np.sin(z * 450) > 0.2)
    return np.where(laces[:, None], color * 0.4 + 0.25, color)


@dataclass(frozen=True)
class ClothedBody:
    """One person as rendered: the body with clothes that stand off it, hair, and perhaps a skirt.
    The truth is the body underneath. Clothes are skinned to the same joints as the skin they
    cover."""

    rest: Tensor  # [3, V] metres, clothed and of this person's shape, in the T-pose
    weights: Tensor  # [24, V]
    faces: np.ndarray  # [F, 3] int32
    appearance: np.ndarray  # [F, (LATTICE_STEPS + 1)^2, CHANNELS] float32
    body_vertices: int  # the first of the V are the body's own, in its order

    def posed(self, placement: Placement, translation: Tensor, size: float = 1.0) -> np.ndarray:
        """[T, V, 3] float32 metres."""
        bare = skin(self.rest, self.weights, placement).mT
        return ((bare if size == 1.0 else size * bare) + translation[:, None]).numpy()


def clothed_body(
    body: Body, shape: Tensor, outfit: Outfit, rng: np.random.Generator
) -> ClothedBody:
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
    whole = np.concatenate(parts) + by_shape[np.concatenate(shape_source)]
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
        rest=torch.from_numpy(whole.T.astype(np.float32).copy()),
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
    """[V] metres between the skin and what covers it."""
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
    """Faces of a grid of points, both sides, so that it is seen from inside as well."""
    front = grid_faces(rows, columns)
    return np.concatenate((front, front[:, ::-1]))


def _long_hair(
    outfit: Outfit, ends_y_m: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A curtain round the back and sides of the head: points [n, 3] on the mean body, faces [m, 3],
    weights [n, 24].
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
    weights[:, _HEAD] = 1 - 0.6 * hangs
    weights[:, _UPPER_SPINE] = 0.6 * hangs
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
    weights[:, _LEFT_HIP] = follows * left
    weights[:, _RIGHT_HIP] = follows * (1 - left)
    return points, _two_sided_grid(rows, columns), weights
