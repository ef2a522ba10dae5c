"""COCO, Halpe and Human3.6M keypoints as sparse sums of vertices that hold on posed bodies.

A regressor fitted at rest is wrong by centimetres at bent hips. These are fitted on random people
in random poses against the joints of forward kinematics. Points that are fixed to one bone, such as
toes and heels, are a few vertices of that bone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, nnls

from tools.open_body.posing import apply, blend, bone_transforms, reach, rotation
from tools.open_body.shape_space import ShapeSpace
from tools.open_body.skeleton import JOINT_NAMES, NUMBER, PARENTS

Recipe = dict[
    str, float
]  # shares of joints, or of picked vertices; "eyeball" is the middle of the left one

_POSES = 420
_TRAINING = 0.75
_SHAPE_DIRECTIONS = 10
_CANDIDATES = 420
_CARRIED = 0.8  # least skinning weight on the bone of the vertices that a landmark is made of


def _outer_hip(side: str) -> Recipe:
    """Return the anatomical hip, which people mark; SMPL's hips are drawn in to 85 % of its
    distance from the middle.
    """
    second = "right" if side == "left" else "left"
    return {f"{side}_hip": 1 + 0.15 / 1.7, f"{second}_hip": -0.15 / 1.7}


_SIDES = ("left", "right")
COCO17: list[Recipe] = [
    {"nose": 1},
    {"left_eyeball": 0.5, "leye": 0.5},
    {"right_eyeball": 0.5, "reye": 0.5},
    {"lear": 1},
    {"rear": 1},
    *({f"{side}_{joint}": 1.0} for joint in ("shoulder", "elbow", "wrist") for side in _SIDES),
    *(_outer_hip(side) for side in _SIDES),
    *({f"{side}_{joint}": 1.0} for joint in ("knee", "ankle") for side in _SIDES),
]
COCO17_MIRROR = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]
H36M17: list[Recipe] = [
    {"left_hip": 0.5, "right_hip": 0.5},
    _outer_hip("right"),
    {"right_knee": 1},
    {"right_ankle": 1},
    _outer_hip("left"),
    {"left_knee": 1},
    {"left_ankle": 1},
    {"spine1": 0.35, "spine2": 0.65},
    {"neck": 0.85, "spine3": 0.15},
    {"nose": 0.5, "head": 0.5},
    {"headtop": 1},
    {"left_shoulder": 1},
    {"left_elbow": 1},
    {"left_wrist": 1},
    {"right_shoulder": 1},
    {"right_elbow": 1},
    {"right_wrist": 1},
]
H36M17_MIRROR = [0, 4, 5, 6, 1, 2, 3, 7, 8, 9, 10, 14, 15, 16, 11, 12, 13]


@dataclass(frozen=True)
class Landmark:
    """A point that is fixed to one bone, by its place beside the bone's joint on the mean body at
    rest.
    """

    bone: str
    offset_m: tuple[float, float, float]  # to the body's left, up, to the front


def _on_both_feet(bone: str, outwards_m: float, up_m: float, front_m: float) -> list[Landmark]:
    return [
        Landmark(f"left_{bone}", (outwards_m, up_m, front_m)),
        Landmark(f"right_{bone}", (-outwards_m, up_m, front_m)),
    ]


# Halpe-26 after COCO's 17. Head top, neck, toes and heels are where RTMPose-s puts them on rendered
# people, which is inside the outline and not at the tips: bench/keypoint_offsets.py measures it,
# docs/body.md has the table.
HALPE26_EXTRA: list[Recipe | Landmark] = [
    Landmark("head", (0.0, 0.137, 0.007)),  # head top
    {"neck": 0.8, "head": 0.2},  # neck, under the chin and not between the shoulders
    {"left_hip": 0.5, "right_hip": 0.5},  # pelvis
    *_on_both_feet(
        "foot", -0.015, -0.011, 0.041
    ),  # big toes; 8 mm higher would be in the shoe, above the bare foot
    *_on_both_feet("foot", 0.037, -0.011, 0.013),  # small toes, likewise
    *_on_both_feet("ankle", 0.005, -0.026, -0.027),  # heels
]
HALPE26_EXTRA_MIRROR = [0, 1, 2, 4, 3, 6, 5, 8, 7]


class PosedPeople:
    """Random shapes in random poses, as meshes and joints, and regressors fitted on them."""

    def __init__(
        self,
        rng: np.random.Generator,
        space: ShapeSpace,
        weights: np.ndarray,  # [v, 24]
        correctives: np.ndarray,  # [v, 3, 207]
        observed: np.ndarray,  # [v] vertices that may be used
        picks: dict[str, int],
        left_eyeball: np.ndarray,  # vertex numbers
    ) -> None:
        self._space = space
        self._weights = weights
        self._seen = observed
        self._picks = picks
        self._eyeballs = {"left_eyeball": left_eyeball, "right_eyeball": space.mirror[left_eyeball]}
        self._meshes = np.zeros((_POSES, len(weights), 3), np.float32)
        self._joints = np.zeros((_POSES, 24, 3))
        for number in range(_POSES):
            shape = rng.normal(size=_SHAPE_DIRECTIONS)
            remaining = space.template + space.directions[:, :, :_SHAPE_DIRECTIONS] @ shape
            rotations = _random_rotations(rng)
            transforms, self._joints[number] = bone_transforms(
                rotations, space.joint_regressor @ remaining
            )
            corrected = remaining + correctives @ (rotations[1:] - np.eye(3)).ravel()
            self._meshes[number] = apply(blend(weights, transforms), corrected)

    def regressor(self, recipes: Sequence[Recipe | Landmark], mirror: list[int]) -> np.ndarray:
        """Return one row [K, v] for each recipe; left and right alike."""
        rows = np.stack([self._at(r) if isinstance(r, Landmark) else self._row(r) for r in recipes])
        return 0.5 * (rows + rows[mirror][:, self._space.mirror])

    def _at(self, landmark: Landmark) -> np.ndarray:
        """At most four vertices of the bone around the place: of all sums of vertices that give it,
        the one with the least sum of weighted squared distances (the corners of the place's
        Delaunay tetrahedron)."""
        joint = NUMBER[landmark.bone]
        place = self._space.joint_regressor[joint] @ self._space.template + landmark.offset_m
        candidates = np.nonzero((self._weights[:, joint] > _CARRIED) & self._seen)[0]
        corners = self._space.template[candidates]
        result = linprog(
            ((corners - place) ** 2).sum(1),
            A_eq=np.vstack([corners.T, np.ones(len(corners))]),
            b_eq=np.append(place, 1.0),
            method="highs-ds",
        )
        if result.status != 0:
            raise ValueError(f"{landmark} does not lie between vertices of its bone")
        row = np.zeros(len(self._weights))
        row[candidates] = result.x
        return row

    def _row(self, recipe: Recipe) -> np.ndarray:
        row = np.zeros(len(self._weights))
        if all(name in NUMBER for name in recipe):
            candidates = self._candidates(recipe)
            row[candidates] = self._fitted(recipe, candidates)
            return row
        for name, share in recipe.items():
            if name in NUMBER:
                row += share * self._space.joint_regressor[NUMBER[name]]
            elif name in self._eyeballs:
                row[self._eyeballs[name]] += share / len(self._eyeballs[name])
            else:
                row[self._picks[name]] += share
        return row

    def _candidates(self, recipe: Recipe) -> np.ndarray:
        """Visible vertices near the point that hang on its joints or their neighbours in the tree."""
        joints = self._space.joint_regressor @ self._space.template
        place = sum(share * joints[NUMBER[name]] for name, share in recipe.items())
        distance = np.linalg.norm(self._space.template - place, axis=1)
        own = {NUMBER[name] for name in recipe}
        related = (
            own | {PARENTS[joint] for joint in own} | {j for j in range(24) if PARENTS[j] in own}
        )
        hangs = self._weights[:, sorted(joint for joint in related if joint >= 0)].sum(1) > 0.5
        near = np.nonzero(hangs & self._seen & (distance < 0.24))[0]
        return near if len(near) <= _CANDIDATES else near[np.argsort(distance[near])[:_CANDIDATES]]

    def _fitted(self, recipe: Recipe, candidates: np.ndarray) -> np.ndarray:
        """Non-negative weights that sum to one; see `shape_space` for why this is non-negative
        least squares.
        """
        target = sum(share * self._joints[:, NUMBER[name]] for name, share in recipe.items())
        vertices = (
            self._meshes[:, candidates]
            .astype(float)
            .transpose(0, 2, 1)
            .reshape(-1, len(candidates))
        )
        offset = (vertices - target.reshape(-1)[:, None])[: int(_POSES * 3 * _TRAINING)]
        size = len(candidates)
        moments = offset.T @ offset / len(offset) + np.ones((size, size)) + 1e-6 * np.eye(size)
        root = np.linalg.cholesky(moments)
        weights, _ = nnls(root.T, np.linalg.solve(root, np.ones(size)))
        return weights / weights.sum()


def _random_rotations(rng: np.random.Generator) -> np.ndarray:
    """Draw rotations [24, 3, 3] with each joint somewhere in its reach, a quarter of them at rest."""
    rotations = np.repeat(np.eye(3)[None], 24, 0)
    for joint in range(1, 24):
        least, most = reach(joint)
        vector = rng.uniform(least, most) * rng.choice([0, 0.5, 1.0], p=[0.25, 0.35, 0.4])
        if JOINT_NAMES[joint].startswith("right"):
            vector = vector * [1, -1, -1]
        rotations[joint] = rotation(vector)
    return rotations
