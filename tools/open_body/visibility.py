"""How much of the sky each skin vertex sees. The inside of the mouth sees none and needs no detail."""

import numpy as np
import trimesh

from tools.open_body.assets import SKIN_VERTICES, Assets
from tools.open_body.phenotype import Macro, Phenotypes

DIRECTIONS = 64


def visible_directions(assets: Assets, phenotypes: Phenotypes) -> np.ndarray:
    """Return how many of 64 random directions are free of the average body, [13380]."""
    skin = phenotypes.vertices(Macro())[:SKIN_VERTICES]
    quads = assets.quads("body")
    mesh = trimesh.Trimesh(
        skin, np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]), process=False
    )
    directions = np.random.default_rng(0).normal(size=(DIRECTIONS, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    free = np.zeros(SKIN_VERTICES)
    for direction in directions:
        facing = mesh.vertex_normals @ direction > 0.05
        start = skin[facing] + mesh.vertex_normals[facing] * 1e-4
        hit = mesh.ray.intersects_any(start, np.repeat(direction[None], facing.sum(), 0))
        free[np.nonzero(facing)[0][~hit]] += 1
    return free
