"""The mesh as a surface: neighbours, smoothing, normals."""

import numpy as np
import scipy.sparse as sparse


class Surface:
    """Faces [f, 3] over a fixed number of vertices."""

    def __init__(self, faces: np.ndarray, vertices: int) -> None:
        self._faces = faces
        sides = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
        edges = np.unique(np.sort(sides, 1), axis=0)
        pair = np.concatenate([edges, edges[:, ::-1]])
        adjacent = sparse.coo_matrix(
            (np.ones(len(pair)), pair.T), shape=(vertices, vertices)
        ).tocsr()
        count = np.asarray(adjacent.sum(1)).ravel()
        self.neighbour_mean = sparse.diags(1 / count) @ adjacent  # [v, v]
        self._one_neighbour = adjacent.indices[adjacent.indptr[:-1]]  # [v]

    def normals(self, vertices: np.ndarray) -> np.ndarray:
        """Return unit normals [v, 3], faces weighted by their area."""
        a, b, c = (vertices[self._faces[:, corner]] for corner in range(3))
        normal = np.cross(b - a, c - a)
        total = np.zeros_like(vertices)
        for corner in range(3):
            np.add.at(total, self._faces[:, corner], normal)
        return total / (np.linalg.norm(total, axis=1, keepdims=True) + 1e-12)

    def frames(self, vertices: np.ndarray) -> np.ndarray:
        """Return an orthonormal frame [v, 3, 3] at every vertex, turning with the surface; axes in
        columns.
        """
        normal = self.normals(vertices)
        along = vertices[self._one_neighbour] - vertices
        along -= (along * normal).sum(1, keepdims=True) * normal
        along /= np.linalg.norm(along, axis=1, keepdims=True) + 1e-12
        return np.stack([normal, along, np.cross(normal, along)], 2)


class DeltaMush:
    """Repairs a skinned mesh: smooth it, then put back the detail that smoothing takes from the
    rest pose.
    """

    def __init__(
        self, surface: Surface, remaining: np.ndarray, fixed: np.ndarray, rounds: int = 8
    ) -> None:
        self._surface = surface
        self._rounds = rounds
        self._fixed = fixed
        smooth = self._smooth(remaining)
        self._detail = np.einsum("nij,ni->nj", surface.frames(smooth), remaining - smooth)
        self._detail[fixed] = 0

    def _smooth(self, vertices: np.ndarray) -> np.ndarray:
        for _ in range(self._rounds):
            vertices = 0.3 * vertices + 0.7 * (self._surface.neighbour_mean @ vertices)
        return vertices

    def __call__(self, posed: np.ndarray) -> np.ndarray:
        smooth = self._smooth(posed)
        repaired = smooth + np.einsum("nij,nj->ni", self._surface.frames(smooth), self._detail)
        repaired[self._fixed] = posed[self._fixed]
        return repaired
