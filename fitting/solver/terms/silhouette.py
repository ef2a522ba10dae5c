"""The rim of the body lies on the outline of the person.

Outlines come from `pose2d.masks`; they tell how thick people are.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import tree
from fitting.solver.jacobian import Posed
from fitting.solver.terms.reprojection import Reprojection, project, projection_rows
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure
from fitting.solver.unknowns import MOVED_JOINTS, POSE, STEP_SIZE, TRANSLATION

# Of a person's outline, metres (bench/masks.py). What covers the skin of trunk, legs and arms (by
# the joints that move them) is this thick on average, and with this deviation between people;
# within a person, a body that reaches beyond its outline is worse than an outline outside of the
# body.
GARMENTS = ((0, 3, 6, 9, 12, 13, 14), (1, 2, 4, 5), (16, 17, 18, 19))
CLOTHES_M = (0.010, 0.008, 0.004)
CLOTHES_UNSURE_M = 0.012
BODY_OUTSIDE_M = 0.005
CLOTHES_STD_M = 0.010
# stds at which a point of the outline counts half of its square: bags, skirts, another's arm
OUTLINE_ROBUST = 6.0
OUTLINE_INDEPENDENT = 96.0  # so many points of an outline err independently of each other
FARTHEST_RIM_M = 0.15  # from a point of the outline to its rim
LEAST_ALONG = 0.5  # cosine between their normals
# Hair, shoes and fingers are no girth: vertices that these joints move most are not compared.
NOT_COMPARED = (7, 8, 10, 11, 15, 20, 21, 22, 23)
_COVER_PX = 160  # longer side of the image in which it is seen what the body covers


@dataclass(frozen=True)
class Silhouette(Term):
    """Pull vertices on the rim of the body to the points of the person's outline that they belong
    to.

    The gap between them along the outline's normal, less what clothes take, is a residual with two
    deviations: clothes lie outside of the body, so a body beyond its outline costs more than an
    outline beyond the body. A rim's vertex moves along the rim as the body turns, which changes the
    gap in second order only, so vertices are matched once per search (`matched`).
    """

    PER_FRAME = (
        "focal_px",
        "center_px",
        "vertex",
        "xy_px",
        "normal",
        "m_per_px",
        "covered",
        "clothes_m",
        "weight",
    )

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    vertex: Tensor  # [T, N] numbers
    xy_px: Tensor  # [T, N, 2] pixels of a perfect lens
    normal: Tensor  # [T, N, 2] unit vectors to the outside
    m_per_px: Tensor  # [T, N] at the vertex, when it was found
    covered: Tensor  # [T, N, 3] by each of GARMENTS
    clothes_m: Tensor  # [T, N] by which the outline is expected outside
    weight: Tensor  # [T, N] 0: no vertex belongs to the point

    @classmethod
    def matched(
        cls, keypoints: Reprojection, xy_px: Tensor, normal: Tensor, vertices: Tensor, body: Body
    ) -> Self:
        """Match outlines [T, N, 2] (NaN: no point) with the mesh [T, V, 3] in the camera of the
        keypoints.
        """
        matches = [
            _rim_of(points, out, image, z, body, float(focal[0]))
            for points, out, image, z, focal in zip(
                xy_px.double().numpy(),
                normal.double().numpy(),
                project(vertices, keypoints.focal_px, keypoints.center_px).double().numpy(),
                vertices[..., 2].double().numpy(),
                keypoints.focal_px,
                strict=True,
            )
        ]
        vertex, has_vertex = (
            torch.from_numpy(np.stack(part)) for part in zip(*matches, strict=True)
        )
        m_per_px = torch.take_along_dim(vertices[..., 2], vertex, 1) / keypoints.focal_px[:, :1]
        weight = OUTLINE_INDEPENDENT / xy_px.shape[1] * has_vertex.to(xy_px.dtype)
        covered = torch.stack([body.weights[:, list(joints)].sum(1) for joints in GARMENTS], -1)[
            vertex
        ]
        clothes_m = covered @ covered.new_tensor(CLOTHES_M)
        finite_xy_px = torch.nan_to_num(xy_px)
        return cls(
            keypoints.focal_px,
            keypoints.center_px,
            vertex,
            finite_xy_px,
            normal,
            m_per_px,
            covered,
            clothes_m,
            weight,
        )

    def with_thicker_garment(self, garment: int) -> Self:
        """Return the term with one garment thicker by a deviation."""
        return replace(
            self, clothes_m=self.clothes_m + CLOTHES_UNSURE_M * self.covered[..., garment]
        )

    def _carried(self, posed: Posed) -> tuple[Tensor, Tensor]:
        """Return where each bone would carry the vertices [T, N, 24, 3], and the bones' shares [T,
        N, 24].
        """
        body = posed.jacobian.body
        state = posed.state
        placement = posed.placement
        size = posed.jacobian.body_directions
        rest_vertices = body.v_template[self.vertex] + torch.einsum(
            "tncs,ts->tnc",
            body.shapedirs[self.vertex][..., :size],
            state.shape[..., :size].expand(len(state), -1),
        )
        feature = body.pose_feature(state.rotation)
        if body.posedirs is not None and feature is not None:
            rest_vertices = rest_vertices + torch.einsum(
                "tncp,tp->tnc", body.posedirs[self.vertex], feature
            )
        joints = body.rest_joints + torch.einsum(
            "jcs,ts->tjc", posed.jacobian.rest_shapedirs, state.shape.expand(len(state), -1)
        )
        turned = torch.einsum(
            "tjcd,tnjd->tnjc", placement.rotation, rest_vertices[:, :, None] - joints[:, None]
        )
        return placement.joints[:, None] + turned, body.weights[self.vertex]

    def _residual(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gap between body and outline [T, N] in stds, positive where the outline lies
        outside, and 1 / std per metre.
        """
        away_px = ((self.xy_px - project(points, self.focal_px, self.center_px)) * self.normal).sum(
            -1
        )
        gap = away_px * self.m_per_px - self.clothes_m
        per_m = torch.where(gap < 0, 1 / BODY_OUTSIDE_M, 1 / CLOTHES_STD_M).to(gap.dtype)
        return gap * per_m, per_m

    def cost(self, posed: Posed) -> Tensor:
        carried, share = self._carried(posed)
        points = (share[..., None] * carried).sum(2) + posed.state.translation[:, None]
        residual, _ = self._residual(points)
        rho, _ = geman_mcclure(residual.square(), OUTLINE_ROBUST**2)
        return (self.weight * rho).sum(-1) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        jacobian = posed.jacobian
        placement = posed.placement
        carried, share = self._carried(posed)
        points = (share[..., None] * carried).sum(2) + posed.state.translation[:, None]
        residual, per_m = self._residual(points)
        _, slope = geman_mcclure(residual.square(), OUTLINE_ROBUST**2)
        root = (self.weight * slope).sqrt()
        row = torch.einsum("tnp,tnpc->tnc", self.normal, projection_rows(points, self.focal_px))
        row = row * (-root * per_m * self.m_per_px)[..., None]
        moved = list(MOVED_JOINTS)
        under = share[..., None] * tree(points.dtype, points.device)[1][:, moved]  # [T, N, 24, 20]
        arm = torch.einsum("tnjc,tnjm->tnmc", carried, under)
        arm = arm - under.sum(2)[..., None] * placement.joints[:, None, moved]
        moment = torch.linalg.cross(arm, row[:, :, None].expand_as(arm))
        step = row.new_zeros(*row.shape[:2], STEP_SIZE)
        step[..., : POSE.stop] = torch.einsum(
            "tnmc,tmcd->tnmd", moment, posed.axis_jacobian
        ).flatten(2)
        step[..., TRANSLATION] = row
        on_bone = share[..., None] * torch.einsum(
            "tnc,tjcd->tnjd", row, placement.rotation
        )  # [T, N, 24, 3]
        shape = torch.einsum(
            "tnd,tnds->tns",
            on_bone.sum(2),
            jacobian.body.shapedirs[self.vertex][..., : jacobian.body_directions],
        )
        shape = jacobian.pad_readings(shape)
        shape = shape - torch.einsum("tnjd,jds->tns", on_bone, jacobian.rest_shapedirs)
        shape = shape + torch.einsum("tnj,tnc,tjcs->tns", share, row, posed.joint_shape_jacobian)
        equations.add_rows(root * residual, step, shape)


def _rim_of(
    points: np.ndarray,
    out: np.ndarray,
    image: np.ndarray,
    z: np.ndarray,
    body: Body,
    focal_px: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rim's vertex that each point of an outline [N, 2] with normals [N, 2] belongs to,
    and whether there is one. The body's vertices are at image [V, 2], z metres away [V].
    """
    import cv2  # a fit without outlines does not need it

    faces, edges, sides = _edges(body)
    a, b, c = (image[faces[:, corner]] for corner in range(3))
    front = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0] < 0
    between = front[sides[:, 0]] != front[sides[:, 1]]
    rim = edges[between]
    inner = faces[np.where(front[sides[:, 0]], sides[:, 0], sides[:, 1])[between]]
    along = image[rim[:, 1]] - image[rim[:, 0]]
    normal = np.stack([along[:, 1], -along[:, 0]], 1)
    inside = image[inner].mean(1) - image[rim].mean(1)
    normal *= np.where((normal * inside).sum(1) > 0, -1, 1)[:, None]
    normal /= np.maximum(np.linalg.norm(normal, axis=1), 1e-9)[:, None]
    # What the body covers: points on its triangles, closer to each other than the pixels of a small
    # image.
    low = image.min(0)
    scale = _COVER_PX / max(float((image.max(0) - low).max()), 1e-6)
    spots = np.concatenate([image, (a + b + c) / 3, (a + b) / 2, (b + c) / 2, (c + a) / 2])
    x, y = np.round((spots - low) * scale).astype(int).T + 4
    cover = np.zeros((_COVER_PX + 9, _COVER_PX + 9), np.uint8)
    cover[y, x] = 1
    covered = cv2.morphologyEx(cover, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8)) > 0
    middle = image[rim].mean(1)
    x, y = np.round((middle - low) * scale + 2.5 * normal).astype(int).T + 4
    compared = ~np.isin(body.weights.argmax(1).numpy(), NOT_COMPARED)[rim].any(1)
    outer = ~covered[y.clip(0, len(cover) - 1), x.clip(0, len(cover) - 1)]
    rim = rim[outer]
    normal = normal[outer]
    middle = middle[outer]
    compared = compared[outer]
    is_point = np.isfinite(points).all(1)
    if not len(rim) or not is_point.any():
        return np.zeros(len(points), np.int64), np.zeros(len(points), bool)
    away = np.linalg.norm(np.nan_to_num(points)[:, None] - middle, axis=-1)
    away[out @ normal.T < LEAST_ALONG] = np.inf
    nearest = away.argmin(1)
    m_per_px = z[rim[nearest, 0]] / focal_px
    belongs = is_point & (away.min(1) * m_per_px < FARTHEST_RIM_M) & compared[nearest]
    ends = np.linalg.norm(np.nan_to_num(points)[:, None] - image[rim[nearest]], axis=-1)
    return rim[nearest, ends.argmin(1)], belongs


@lru_cache(maxsize=1)
def _edges(body: Body) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return faces [F, 3], edges of a closed surface [E, 2], and the two faces at each edge
    [E, 2].
    """
    faces = body.faces.to(torch.int64).numpy()
    ends = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), 1)
    face = np.tile(np.arange(len(faces)), 3)
    order = np.lexsort(ends.T)
    ends = ends[order]
    face = face[order]
    first = np.flatnonzero((ends[:-1] == ends[1:]).all(1))
    return faces, ends[first], np.stack([face[first], face[first + 1]], 1)
