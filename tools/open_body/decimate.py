"""Fewer vertices, left and right alike, by collapsing edges onto one of their ends.

The vertices that stay are vertices of the input, so everything that was known of them (weights,
shape, joints) stays true. An edge's cost is the quadric error (squared distance to the planes of
all faces that have been merged into it), averaged over the mean body and a dozen different people,
plus a little for long edges, which keeps triangles even.
"""

import heapq

import numpy as np

from tools.open_body.assets import SKIN_VERTICES
from tools.open_body.skeleton import FLIP, NUMBER, Rigged

_PEOPLE = 12
_EVENNESS = 2e-3
_MOST_NEIGHBOURS = 14
_LEAST_COSINE = 0.35  # of a face's normal before and after
_LEAST_ROUNDNESS = 0.06  # twice the area over the longest side squared


def decimate(
    rigged: Rigged, mirror: np.ndarray, visible: np.ndarray, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers [v] of the `target` vertices that stay, and the faces [f, 3] between them."""
    mesh = _Mesh(rigged, mirror, visible)
    mesh.collapse_to(target)
    stays = np.nonzero(mesh.alive)[0]
    number = np.full(len(mesh.alive), -1)
    number[stays] = np.arange(len(stays))
    faces = np.array([mesh.faces[face] for face in np.nonzero(mesh.face_alive)[0]])
    return stays, number[faces]


class _Mesh:
    """A mesh that is losing vertices, always in mirror-image pairs."""

    def __init__(self, rigged: Rigged, mirror: np.ndarray, visible: np.ndarray) -> None:
        mean = 0.5 * (rigged.mean_vertices + rigged.mean_vertices[mirror] * FLIP)
        bodies = [mean, *rigged.vertices[:_PEOPLE]]
        self.mirror = mirror
        self.mean = mean
        self.homogeneous = np.stack(
            [np.concatenate([body, np.ones((len(mean), 1))], 1) for body in bodies], 1
        )
        self.quadrics = _quadrics(bodies, rigged.triangles)
        self.worth, self.evenness = _importance(rigged.weights, visible)
        self.fixed = np.arange(len(mean)) >= SKIN_VERTICES  # eyeballs
        self.on_middle = mirror == np.arange(len(mean))
        self.alive = np.ones(len(mean), bool)
        self.faces = [list(face) for face in rigged.triangles]
        self.face_alive = np.ones(len(self.faces), bool)
        self.faces_of: list[set[int]] = [set() for _ in mean]
        for number, face in enumerate(self.faces):
            for vertex in face:
                self.faces_of[vertex].add(number)
        self.version = np.zeros(
            len(mean), int
        )  # grows when a vertex's surroundings change: old costs lapse
        self.heap: list[tuple[float, int, int, int, int]] = []

    def collapse_to(self, target: int) -> None:
        for vertex in range(len(self.alive)):
            self._offer(vertex)
        left = len(self.alive)
        while left > target and self.heap:
            _, gone, into, *versions = heapq.heappop(self.heap)
            if not (self.alive[gone] and self.alive[into]):
                continue
            if [self.version[gone], self.version[into]] != versions:
                continue
            other_gone = self.mirror[gone]
            other_into = self.mirror[into]
            if other_gone != gone and other_gone in self._neighbours(gone):
                continue
            if not self._allowed(gone, into):
                continue
            self._collapse(gone, into)
            left -= 1
            if other_gone != gone:
                if not self._allowed(other_gone, other_into):
                    raise RuntimeError(f"vertices {gone} and {other_gone} are no mirror images")
                self._collapse(other_gone, other_into)
                left -= 1
            for centre in {into, other_into}:
                near = self._neighbours(centre) | {centre}
                for vertex in near:
                    self.version[vertex] += 1
                for vertex in near:
                    self._offer(vertex)

    def _neighbours(self, vertex: int) -> set[int]:
        near: set[int] = set()
        for face in self.faces_of[vertex]:
            near.update(self.faces[face])
        near.discard(vertex)
        return near

    def _offer(self, vertex: int) -> None:
        """Put the collapses of a vertex of the left half onto its neighbours on the heap."""
        x = self.mean[vertex, 0]
        if (
            not self.alive[vertex]
            or self.fixed[vertex]
            or x < -1e-6
            or (not self.on_middle[vertex] and x < 0)
        ):
            return
        for into in self._neighbours(vertex):
            if self.on_middle[vertex] and not self.on_middle[into]:
                continue  # a vertex of the mid-line stays on it
            if not self.on_middle[vertex] and not self.on_middle[into] and self.mean[into, 0] < 0:
                continue  # and none crosses it
            versions = self.version[vertex], self.version[into]
            heapq.heappush(self.heap, (self._cost(vertex, into), vertex, into, *versions))

    def _cost(self, gone: int, into: int) -> float:
        quadric = self.quadrics[gone] + self.quadrics[into]
        end = self.homogeneous[into]
        error = np.einsum("si,sij,sj->s", end, quadric, end).mean() * self.worth[gone]
        edge = self.mean[gone] - self.mean[into]
        area = (
            sum(
                np.linalg.norm(_normal(self.mean[self.faces[face]])) for face in self.faces_of[gone]
            )
            / 2
        )
        return error + _EVENNESS * self.evenness[gone] * (edge @ edge) * area

    def _allowed(self, gone: int, into: int) -> bool:
        """Would the surface stay a surface, without folds, slivers or crowded vertices?"""
        if not (self.alive[gone] and self.alive[into]):
            return False
        around = self._neighbours(gone)
        around_end = self._neighbours(into)
        if (
            into not in around
            or len(around & around_end) != 2
            or len(around | around_end) - 2 > _MOST_NEIGHBOURS
        ):
            return False
        for face in self.faces_of[gone]:
            corners = self.faces[face]
            if into in corners:
                continue
            moved = self.mean[[into if vertex == gone else vertex for vertex in corners]]
            before = _normal(self.mean[corners])
            after = _normal(moved)
            length = np.linalg.norm(after)
            if length < 1e-10 or before @ after < _LEAST_COSINE * np.linalg.norm(before) * length:
                return False
            longest = max(np.linalg.norm(moved[corner] - moved[corner - 1]) for corner in range(3))
            if length / (longest**2 + 1e-15) < _LEAST_ROUNDNESS:
                return False
        return True

    def _collapse(self, gone: int, into: int) -> None:
        self.quadrics[into] += self.quadrics[gone]
        for face in list(self.faces_of[gone]):
            corners = self.faces[face]
            if into in corners:
                self.face_alive[face] = False
                for vertex in corners:
                    self.faces_of[vertex].discard(face)
            else:
                corners[corners.index(gone)] = into
                self.faces_of[into].add(face)
        self.faces_of[gone].clear()
        self.alive[gone] = False


def _normal(triangle: np.ndarray) -> np.ndarray:
    return np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])


def _quadrics(bodies: list[np.ndarray], triangles: np.ndarray) -> np.ndarray:
    """Return [n, bodies, 4, 4] the sum over a vertex's faces of area times the outer product of the
    face's plane.
    """
    quadrics = np.zeros((len(bodies[0]), len(bodies), 4, 4))
    for number, body in enumerate(bodies):
        a, b, c = (body[triangles[:, corner]] for corner in range(3))
        normal = np.cross(b - a, c - a)
        area = np.linalg.norm(normal, axis=1)
        normal = normal / (area[:, None] + 1e-15)
        plane = np.concatenate([normal, -(normal * a).sum(1, keepdims=True)], 1)
        quadric = np.einsum("ni,nj->nij", plane, plane) * area[:, None, None]
        for corner in range(3):
            np.add.at(quadrics[:, number], triangles[:, corner], quadric)
    return quadrics


def _importance(weights: np.ndarray, visible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how much a vertex's error counts, and how much the evenness of its triangles does;
    both [n].
    """
    worth = np.ones(len(weights))
    worth[:SKIN_VERTICES] = np.where(visible == 0, 0.03, np.where(visible < 6, 0.4, 1.0))
    share = weights / weights.sum(1, keepdims=True)
    entropy = -(share * np.log(share + 1e-9)).sum(1)
    bends = np.clip(entropy / 0.69, 0, 1)  # where several bones pull, loops of edges are needed
    crowded = np.zeros(
        len(weights), bool
    )  # MakeHuman's fingers and toes are finer than 24 joints can use
    for joint in ("hand", "foot"):
        crowded |= sum(weights[:, NUMBER[f"{side}_{joint}"]] for side in ("left", "right")) > 0.5
    return worth, worth * (1 + 1.5 * bends) * np.where(crowded, 0.35, 1)
