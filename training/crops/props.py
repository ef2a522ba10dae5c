"""Put things into hands and before people."""

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from eval3dpw.synth.solids import Solid, box, bush, cylinder, table


def held(at_m: np.ndarray, rng: np.random.Generator) -> Solid:
    """Return a stick, box, ball or telephone at a hand."""
    texture = str(rng.choice(["painted", "planks", "posters", "bark", "concrete"]))
    kind = rng.integers(4)
    if kind == 0:
        length = rng.uniform(0.3, 1.3)
        solid = cylinder(rng.uniform(0.008, 0.03), length, texture)
        grip = length * rng.uniform(0.05, 0.5)
    elif kind == 1:
        size = rng.uniform(0.06, 0.4, 3)
        solid = box(tuple(size), texture)
        grip = size[1] * rng.uniform(0, 1)
    elif kind == 2:
        radius = rng.uniform(0.04, 0.16)
        solid = bush((radius, radius, radius), texture, rng)
        grip = radius
    else:
        height = rng.uniform(0.1, 0.18)
        solid = box((rng.uniform(0.05, 0.1), height, 0.012), texture)
        grip = height * 0.4
    turn = Rotation.random(random_state=int(rng.integers(2**31))).as_matrix()
    return replace(solid, vertices_m=(solid.vertices_m - (0, grip, 0)) @ turn.T + at_m)


def in_front(
    pelvis_m: np.ndarray, ahead: np.ndarray, side: np.ndarray, rng: np.random.Generator
) -> list[Solid]:
    """Return furniture, a post or a bush between person and camera."""
    texture = str(rng.choice(["painted", "planks", "concrete", "posters", "foliage"]))
    high = rng.uniform(0.4, 1.1)
    kind = rng.integers(4)
    if kind == 0:
        parts = [box((rng.uniform(0.3, 1.2), high, 0.3), texture)]
    elif kind == 1:
        parts = table((rng.uniform(0.6, 1.5), high * 0.9, 0.5), texture)
    elif kind == 2:
        parts = [cylinder(rng.uniform(0.04, 0.2), 2.5, texture)]
    else:
        parts = [bush((0.4, high / 2, 0.3), "foliage", rng)]
    place_m = pelvis_m * (1, 0, 1) - ahead * rng.uniform(0.35, 1.0) + side * rng.uniform(-0.6, 0.6)
    yaw = float(np.arctan2(ahead[0], ahead[2]) + rng.normal(0, 0.3))
    return [part.moved(place_m, yaw) for part in parts]


def bar_between(left_m: np.ndarray, right_m: np.ndarray, rng: np.random.Generator) -> Solid:
    """Return a bar, club or racket handle that runs through both hands [3]."""
    along = right_m - left_m
    length = rng.uniform(0.5, 1.6)
    if np.linalg.norm(along) < 0.12:  # hands on one grip: any direction
        along = rng.normal(size=3)
    along = along / np.linalg.norm(along)
    texture = str(rng.choice(["painted", "planks", "bark"]))
    bar = cylinder(rng.uniform(0.008, 0.025), length, texture)
    turn = Rotation.align_vectors(along[None], np.array([[0.0, 1.0, 0.0]]))[0].as_matrix()
    middle = (left_m + right_m) / 2
    shift = length * rng.uniform(0.3, 0.7)
    return replace(bar, vertices_m=(bar.vertices_m - (0, shift, 0)) @ turn.T + middle)
