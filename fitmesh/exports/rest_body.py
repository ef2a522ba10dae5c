"""A person's body at rest, and its skin as file formats can hold it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fitmesh.result import Person, Result
from fitting import Body
from fitting.body.kinematics import PARENTS

INFLUENCES = 4  # joints a vertex may hang on; what game engines and most importers read
_SAMPLES = 16  # frames of each person in which the reduced skin is compared with the exact one


@dataclass(frozen=True)
class RestBody:
    """One person's T-pose in the body's own frame: x to the body's left, y up, z to the front, metres."""

    joints_m: np.ndarray  # [24, 3]
    vertices_m: np.ndarray  # [V, 3]

    @cached_property
    def offsets_m(self) -> np.ndarray:
        """[24, 3] each joint from its parent; the root's is zero."""
        offsets = self.joints_m - self.joints_m[list(PARENTS)]
        offsets[0] = 0
        return offsets

    @property
    def sole_m(self) -> float:
        """How far the soles are below the lower foot joints."""
        return float(self.joints_m[[10, 11], 1].min() - self.vertices_m[:, 1].min())


@dataclass(frozen=True)
class Skin:
    """Which joints a vertex hangs on, strongest first."""

    joints: np.ndarray  # [V, 4] joint numbers; 0 where the weight is 0
    weights: np.ndarray  # [V, 4] sum to 1


def rest_body(body: Body, shape: np.ndarray) -> RestBody:
    """The shape at rest."""
    still = torch.zeros(1, 24, 3)
    placed = body(still, shape, vertices=True)
    assert placed.vertices is not None
    return RestBody(placed.joints[0].double().numpy(), placed.vertices[0].double().numpy())


def reduced_skin(weights: np.ndarray) -> Skin:
    """The four strongest of [V, 24] weights, scaled to sum to 1 again."""
    order = np.argsort(-weights, axis=1, kind="stable")[:, :INFLUENCES]
    kept = np.take_along_axis(weights, order, 1).astype(np.float64)
    kept /= kept.sum(1, keepdims=True)
    return Skin(np.where(kept > 0, order, 0), kept)


def skin_error_mm(result: Result, people: list[Person], skin: Skin) -> tuple[float, float]:
    """Mean and largest distance between the exact mesh and one posed from the reduced skin without pose correctives.

    Measured on some frames of every person, spread evenly.
    """
    weights = np.zeros(tuple(result.body.weights.shape))
    np.add.at(weights, (np.arange(len(weights))[:, None], skin.joints), skin.weights)
    plain = replace(result.body, posedirs=None, weights=torch.from_numpy(weights).to(result.body.dtype))
    means, largest = [], [0.0]
    for person in people:
        rows = np.unique(np.linspace(0, len(person) - 1, _SAMPLES).round().astype(int))
        params = result.params(person, rows)
        exact, reduced = result.body.at(params, vertices=True).vertices, plain.at(params, vertices=True).vertices
        assert exact is not None
        assert reduced is not None
        distance = 1000 * (exact - reduced).norm(dim=-1)
        means.append(float(distance.mean()))
        largest.append(float(distance.max()))
    return float(np.mean(means)) if means else 0.0, max(largest)
