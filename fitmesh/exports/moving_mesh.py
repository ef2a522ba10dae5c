"""A person's mesh from row to row, skinned a few rows at a time."""

import numpy as np

from fitmesh.result import Person, Result

ROWS_AT_A_TIME = 16  # 16 meshes of 6,800 vertices are 1.3 MB


class MovingMesh:
    """Meshes of one person by row. Cheap when rows are asked for in order; memory does not grow with the track."""

    def __init__(self, result: Result, person: Person) -> None:
        self._result, self._person = result, person
        self._first, self._vertices_m = 0, np.zeros((0, 0, 3), np.float32)
        self._weights = result.body.weights.numpy()  # [V, 24]

    def vertices_m(self, row: int) -> np.ndarray:
        """[V, 3] camera frame."""
        if not self._first <= row < self._first + len(self._vertices_m):
            self._first = row
            params = self._result.params(self._person, slice(row, row + ROWS_AT_A_TIME))
            posed = self._result.body.at(params, vertices=True)
            assert posed.vertices is not None
            self._vertices_m = posed.vertices.numpy()
        return self._vertices_m[row - self._first]

    def seen(self, row: int) -> np.ndarray:
        """[V] how much of what carries each vertex was observed, 0 to 1."""
        return np.clip(self._weights @ self._person.joint_observed[row].astype(np.float32), 0, 1)
