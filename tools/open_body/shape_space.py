"""The mean body, its principal directions of shape, and where the joints are inside it."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from tools.open_body.people import Population
from tools.open_body.skeleton import FLIP, JOINT_MIRROR, Rigged

DIRECTIONS = 16


@dataclass(frozen=True)
class ShapeSpace:
    """A body for every shape vector; left and right alike."""

    template: np.ndarray  # [v, 3] metres
    directions: np.ndarray  # [v, 3, S] metres per standard deviation
    joint_regressor: np.ndarray  # [24, v] rest-pose joints from rest-pose vertices
    faces: np.ndarray  # [f, 3]
    mirror: np.ndarray  # [v] the vertex on the other side


def find(
    rigged: Rigged,
    population: Population,
    stays: np.ndarray,
    faces: np.ndarray,
    mirror: np.ndarray,
    observed: np.ndarray,
) -> ShapeSpace:
    """Principal components of the population, of its surface rather than of its vertices.

    `stays` [v] are the vertices to use and `mirror` [v] their mirror images among them; `seen` [v]
    marks those that may serve to find joints.
    """
    bodies = rigged.vertices[:, stays].astype(np.float64)
    bodies = 0.5 * (bodies + bodies[:, mirror] * FLIP)
    joints = rigged.joints.astype(float)
    joints = 0.5 * (joints + joints[:, JOINT_MIRROR] * FLIP)
    template = bodies.mean(0)
    directions = _principal_directions(
        bodies - template, _vertex_areas(template, faces), population
    )
    regressor = joint_regressor(bodies, joints, JOINT_MIRROR, template, mirror, observed)
    return ShapeSpace(template, directions, regressor, faces, mirror)


def _vertex_areas(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
    total = np.zeros(len(vertices))
    for corner in range(3):
        np.add.at(total, faces[:, corner], area / 3)
    return total


def _principal_directions(
    offsets: np.ndarray, areas: np.ndarray, population: Population
) -> np.ndarray:
    """Return the displacement [v, 3, S] for one standard deviation of each direction; more is
    taller, or else heavier.
    """
    people = len(offsets)
    weighted = (offsets * np.sqrt(areas / areas.sum())[None, :, None]).reshape(people, -1)
    _, vectors = np.linalg.eigh(weighted @ weighted.T)
    scores = vectors[:, ::-1][:, :DIRECTIONS] * np.sqrt(people)  # of unit variance
    directions = (offsets.reshape(people, -1).T @ scores / people).reshape(-1, 3, DIRECTIONS)
    for number in range(DIRECTIONS):
        by_height = np.corrcoef(scores[:, number], population.height_m)[0, 1]
        by_mass = np.corrcoef(scores[:, number], population.mass_kg)[0, 1]
        if (by_height if abs(by_height) > abs(by_mass) else by_mass) < 0:
            directions[:, :, number] *= -1
    return directions


def joint_regressor(
    bodies: np.ndarray,
    joints: np.ndarray,
    joint_mirror: np.ndarray,
    template: np.ndarray,
    mirror: np.ndarray,
    observed: np.ndarray,
    reach_m: float = 0.30,
) -> np.ndarray:
    """Return sparse, non-negative rows [j, v] that sum to one and find the joints [P, j, 3] of
    every third person.
    """
    mean_joints = joints.mean(0)
    regressor = np.zeros((len(joint_mirror), len(template)))
    for joint, second in enumerate(joint_mirror):
        if second < joint:
            continue
        near = _surrounding(mean_joints[joint], template, observed, reach_m)
        if second == joint:
            near = np.unique(np.concatenate([near, mirror[near]]))
        regressor[joint, near] = _weights(joints[::3, joint], bodies[::3, near])
        if second == joint:
            regressor[joint] = 0.5 * (regressor[joint] + regressor[joint][mirror])
        else:
            regressor[second] = regressor[joint][mirror]
    regressor[regressor < 1e-4] = 0
    return regressor / regressor.sum(1, keepdims=True)


def _surrounding(
    point: np.ndarray, template: np.ndarray, observed: np.ndarray, reach_m: float
) -> np.ndarray:
    """Return vertices on all sides of a point: the nearest 40 within reach in each of 60 random
    directions.
    """
    directions = np.random.default_rng(0).normal(size=(60, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    offset = template - point
    distance = np.linalg.norm(offset, axis=1)
    towards = np.argmax((offset / (distance[:, None] + 1e-9)) @ directions.T, 1)
    result: set[int] = set()
    for direction in range(len(directions)):
        near = np.nonzero((towards == direction) & (distance < reach_m) & observed)[0]
        result.update(near[np.argsort(distance[near])[:40]].tolist())
    return np.array(sorted(result))


def _weights(targets: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """Non-negative weights w that sum to one and bring sum_v w_v x_v near the targets [P, 3], with
    x [P, v, 3].

    As they sum to one, w minimises w' G w with G the second moments of x - target; w is
    proportional to the solution of min |L' w - L^-1 1| with G + 11' = L L', which is a plain
    non-negative least-squares problem.
    """
    offset = (
        vertices.transpose(0, 2, 1).reshape(-1, vertices.shape[1]) - targets.reshape(-1)[:, None]
    )
    size = offset.shape[1]
    moments = offset.T @ offset / len(offset) + 3e-8 * np.eye(size) + np.ones((size, size))
    root = np.linalg.cholesky(moments + 1e-12 * np.eye(size))
    weights, _ = nnls(root.T, np.linalg.solve(root, np.ones(size)))
    return weights / weights.sum()
