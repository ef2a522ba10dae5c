"""A population: random adults with plausible heights and weights, each in the T-pose."""

from dataclasses import dataclass, replace

import numpy as np

from tools.open_body.assets import SKIN_VERTICES, Assets
from tools.open_body.phenotype import DETAILS, Macro, Phenotypes, detail_pair
from tools.open_body.tpose import TPose

_DENSITY = 985.0  # kg per cubic metre


@dataclass(frozen=True)
class Population:
    """P people."""

    vertices: np.ndarray  # [P, n, 3] metres, T-pose
    bone_heads: np.ndarray  # [P, bones, 3] metres
    bones: list[str]
    height_m: np.ndarray  # [P]
    mass_kg: np.ndarray  # [P]


def sample(assets: Assets, phenotypes: Phenotypes, count: int, seed: int = 0) -> Population:
    """`count` random people, always the same ones."""
    rng = np.random.default_rng(seed)
    pose = TPose(assets, phenotypes)
    skin = _skin_triangles(assets)
    vertices = np.zeros((count, len(assets.kept), 3), np.float32)
    heads = np.zeros((count, len(pose.bones), 3), np.float32)
    heights = np.zeros(count)
    masses = np.zeros(count)
    for person in range(count):
        mesh, heights[person], masses[person] = _person(rng, phenotypes, skin, assets.kept)
        vertices[person], heads[person] = pose(mesh)
    return Population(vertices, heads, pose.bones, heights, masses)


def _person(
    rng: np.random.Generator, phenotypes: Phenotypes, skin: np.ndarray, selected: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Return one mesh [19158, 3] with its height and mass."""
    male = rng.random() < 0.5
    spread = abs(rng.normal(0, 0.12))
    gender = float(np.clip(1 - spread if male else spread, 0, 1))
    height = float(
        np.clip(rng.normal(1.76, 0.072) if male else rng.normal(1.63, 0.066), 1.42, 2.05)
    )
    mass_index = float(np.clip(np.exp(rng.normal(np.log(24.0), 0.16)), 16.5, 40))
    macro = Macro(
        gender=gender,
        age=rng.uniform(0, 0.65),
        muscle=np.clip(rng.normal(0.55 if male else 0.42, 0.2), 0, 1),
        proportion=rng.uniform(0.25, 1),
        race=rng.dirichlet([1, 1, 1]),
        cup=np.clip(rng.normal(0.5, 0.22), 0, 1),
        firmness=np.clip(rng.normal(0.5, 0.2), 0, 1),
    )
    average = 1.721 * gender + 1.586 * (1 - gender)  # what MakeHuman's height 0.5 means
    reach = 0.72 if height > average else 0.367
    macro = replace(macro, height=np.clip(0.5 + (height - average) / (reach * 2), 0.05, 0.95))
    details = {}
    for folder, name, sides, deviation in DETAILS:
        amount = np.clip(rng.normal(0, deviation), -1, 1)
        for less, upper in detail_pair(folder, name, sides):
            details[less if amount < 0 else upper] = abs(amount)

    by_weight = _WeightLine(phenotypes, macro, details)

    def at(weight: float) -> tuple[np.ndarray, float]:
        """Return the mesh of that weight at the wanted height, and its mass."""
        mesh = by_weight(weight)
        mesh = mesh * (height / np.ptp(mesh[:SKIN_VERTICES, 1]))
        return mesh, _volume(mesh[selected], skin) * _DENSITY

    low = -0.2
    high = 2.2
    for _ in range(9):  # the weight that gives the wanted body mass index
        middle = (low + high) / 2
        if at(middle)[1] / height**2 < mass_index:
            low = middle
        else:
            high = middle
    mesh, mass = at((low + high) / 2)
    return mesh, height, mass


class _WeightLine:
    """Meshes of one person along MakeHuman's weight, carried on past its end, where muscle gives
    way to fat.
    """

    def __init__(self, phenotypes: Phenotypes, macro: Macro, details: dict[str, float]) -> None:
        softer = replace(macro, muscle=max(0, macro.muscle - 0.35))
        self._thin, self._average, self._heavy, self._beyond = (
            phenotypes.vertices(replace(person_part, weight=weight), details)
            for person_part, weight in ((macro, 0.0), (macro, 0.5), (macro, 1.0), (softer, 1.25))
        )

    def __call__(self, weight: float) -> np.ndarray:
        if weight < 0.5:
            return self._average + (2 * weight - 1) * (self._average - self._thin)
        if weight < 1:
            return self._average + (2 * weight - 1) * (self._heavy - self._average)
        return self._heavy + (weight - 1) * (self._beyond - self._heavy)


def _skin_triangles(assets: Assets) -> np.ndarray:
    quads = assets.kept_quads
    triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    return triangles[(triangles < SKIN_VERTICES).all(1)]


def _volume(vertices: np.ndarray, triangles: np.ndarray) -> float:
    a, b, c = (vertices[triangles[:, corner]] for corner in range(3))
    return np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6
