"""Project triangles into the image; triangles that cross the near plane are cut there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fitting.camera import Camera
from fitting.camera.distortion import valid_radius
from fitting.camera.pinhole import NEAR_PLANE_M


@dataclass(frozen=True)
class Screen:
    """Projected triangles. Those cut at the near plane come last, each with three vertices of its
    own.
    """

    xy_px: np.ndarray  # [V', 2] float64; NaN for a vertex that no triangle uses
    # [V'] float64, 1 / metres: affine across a triangle in the image, as depth is not
    inverse_depth: np.ndarray
    faces: np.ndarray  # [F', 3] int32
    parent: np.ndarray  # [F'] int32 the given face that each triangle is (a part of)
    # [P, 3, 3] corners of the last P triangles in barycentric coordinates of their parent
    part: np.ndarray

    def interpolate(self, values: np.ndarray, given_faces: np.ndarray) -> np.ndarray:
        """Interpolate values at the given vertices [V, C] to the vertices of this screen
        [V', C].
        """
        if not len(self.part):
            return values
        corners = values[given_faces[self.parent[-len(self.part) :]]]  # [P, 3, C]
        cut = np.einsum("pij,pjc->pic", self.part, corners).reshape(-1, values.shape[1])
        return np.concatenate((values, cut.astype(values.dtype)))

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return the part of an image that the triangles can touch, with a pixel's margin: left,
        top, right, bottom.

        Right and bottom are exclusive, as in slices; all are 0 when nothing is visible.
        """
        x, y = self.xy_px.T.copy()  # NumPy takes ten times as long along the other axis
        left = np.fmin.reduce(x, initial=np.inf)
        top = np.fmin.reduce(y, initial=np.inf)
        right = np.fmax.reduce(x, initial=-np.inf)
        bottom = np.fmax.reduce(y, initial=-np.inf)
        if not right >= left:
            return 0, 0, 0, 0
        left = min(max(left - 1, 0), width)
        top = min(max(top - 1, 0), height)
        right = min(max(right + 2, 0), width)
        bottom = min(max(bottom + 2, 0), height)
        return math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)


def project_triangles(vertices_cam: np.ndarray, faces: np.ndarray, camera: Camera) -> Screen:
    """Project triangles, given vertices [V, 3] in metres in the camera frame and faces [F, 3], into
    the image.
    """
    vertices = vertices_cam.astype(np.float64)
    parent = np.arange(len(faces), dtype=np.int32)
    part = np.zeros((0, 3, 3))
    front = vertices[:, 2] > NEAR_PLANE_M
    if not front.all():
        vertices, faces, parent, part = _cut_at_near_plane(vertices, faces, front)
    # Cut vertices lie at NEAR_PLANE_M, give or take.
    z = np.where(vertices[:, 2] > NEAR_PLANE_M / 2, vertices[:, 2], np.nan)
    xy_px = camera.project(torch.from_numpy(vertices)).numpy()
    if camera.distortion:  # beyond this the lens formula would fold the scene back into the image
        folded = np.hypot(vertices[:, 0], vertices[:, 1]) > valid_radius(camera.distortion) * z
        xy_px[folded] = np.nan
    return Screen(xy_px, 1 / z, faces, parent, part)


def join_screens(screens: Sequence[Screen]) -> Screen:
    """Put all triangles on one screen for painting; which of them were cut is no longer known."""
    first = np.cumsum([0, *(len(screen.xy_px) for screen in screens[:-1])], dtype=np.int32)
    faces = np.concatenate(
        [screen.faces + start for screen, start in zip(screens, first, strict=True)]
    )
    xy_px, inverse_depth = (
        np.concatenate([getattr(s, name) for s in screens]) for name in ("xy_px", "inverse_depth")
    )
    return Screen(
        xy_px, inverse_depth, faces, np.arange(len(faces), dtype=np.int32), np.zeros((0, 3, 3))
    )


def _cut_at_near_plane(
    vertices: np.ndarray, faces: np.ndarray, front: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Keep what is in front; cut a crossing triangle into one (one corner in front) or two (two
    corners).
    """
    in_front = front[faces]  # [F, 3]
    count = in_front.sum(axis=1)
    owners = []
    parts = []
    for corners_in_front, lone_is_front in ((1, True), (2, False)):
        owner = np.flatnonzero(count == corners_in_front)
        lone = (in_front[owner] == lone_is_front).argmax(axis=1)
        order = (lone[:, None] + np.arange(3)) % 3  # the lone corner first; winding kept
        z = np.take_along_axis(vertices[faces[owner], 2], order, axis=1)
        corner = np.eye(3)[order]  # [N, 3, 3] the corners a, b, c themselves
        # where edges a-b and a-c meet the plane
        t = (NEAR_PLANE_M - z[:, :1]) / (z[:, 1:] - z[:, :1])
        ab, ac = (
            (1 - t[:, i, None]) * corner[:, 0] + t[:, i, None] * corner[:, i + 1] for i in (0, 1)
        )
        if lone_is_front:
            triangles = [(corner[:, 0], ab, ac)]
        else:
            triangles = [(ab, corner[:, 1], corner[:, 2]), (ab, corner[:, 2], ac)]
        for triangle in triangles:
            owners.append(owner)
            parts.append(np.stack(triangle, axis=1))
    owner = np.concatenate(owners)
    part = np.concatenate(parts)
    cut = np.einsum("pij,pjk->pik", part, vertices[faces[owner]]).reshape(-1, 3)
    uncut = np.flatnonzero(count == 3)
    new_faces = np.arange(len(cut)).reshape(-1, 3) + len(vertices)
    all_faces, parent = (
        np.concatenate(parts_to_join).astype(np.int32)
        for parts_to_join in ((faces[uncut], new_faces), (uncut, owner))
    )
    return np.concatenate((vertices, cut)), all_faces, parent, part
