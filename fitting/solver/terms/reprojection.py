"""Keypoints are where they are seen: whitened pixels, under a robust loss or the stated error
distribution.

`Palm`: wrist, knuckles and the thumb's base of a hand that is seen, which hang on the wrist without
bending. They are evidence for the wrist's bend and for the forearm's twist, which no keypoint of
the body shows. Pixels alone leave open whether a palm leans towards the camera or away from it; the
hand network's 3D landmarks say which, as differences of depth along the line of sight.

`Silhouette`: people end where their outlines are (`pose2d.masks`), which says how thick they are.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.body import AttachedPoints
from fitting.body.kinematics import WRISTS, tree
from fitting.camera import NEAREST_KEYPOINT_M
from fitting.keypoints.observed import PALM, SeenHands
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure
from fitting.solver.unknowns import MOVED_JOINTS, POSE, STEP_SIZE, TRANSLATION, BonePoints, Posed

# stds at which a keypoint counts half of its square; bench/weighting.py compares it with 1000
ROBUST_SCALE = 5.0


def project(points_cam: Tensor, focal_px: Tensor, center_px: Tensor) -> Tensor:
    """Camera-frame points [T, K, 3] metres -> pixels [T, K, 2], focal and center [T, 2]; z is at
    least 0.1 m.
    """
    z = points_cam[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    return points_cam[..., :2] / z * focal_px.unsqueeze(1) + center_px.unsqueeze(1)


def projection_rows(points_cam: Tensor, focal_px: Tensor) -> Tensor:
    """d pixels / d point, [T, K, 2, 3]."""
    z = points_cam[..., 2].clamp(min=NEAREST_KEYPOINT_M)
    fx, fy = (focal_px[:, None, axis] / z for axis in (0, 1))
    zero = torch.zeros_like(z)
    gx = -fx * points_cam[..., 0] / z
    gy = -fy * points_cam[..., 1] / z
    return torch.stack((fx, zero, gx, zero, fy, gy), -1).unflatten(-1, (2, 3))


def mixture_loss(squared: Tensor, weight: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """-2 log of a mixture of plane Gaussians, less its value at 0 [..], and its slopes along x and
    y [.., 2].

    squared: residuals along x and y, [.., 2]; weight [.., M]; precision along x and y, [.., M, 2].
    The slopes are the mean precisions under the responsibilities r_m = P(component m | residual),
    so a step of iteratively reweighted least squares is a step of expectation-maximisation, which
    never raises the cost.
    """
    x, y = precision.unbind(-1)
    at_zero = weight.log() + (x * y).log() / 2
    exponent = at_zero - (x * squared[..., :1] + y * squared[..., 1:]) / 2
    rho = 2 * (torch.logsumexp(at_zero, -1) - torch.logsumexp(exponent, -1))
    responsible = exponent.softmax(-1)
    return rho, torch.stack([(responsible * x).sum(-1), (responsible * y).sum(-1)], -1)


def robust_scale(weight: Tensor, std_px: Tensor, stds: float = ROBUST_SCALE) -> Tensor:
    """c^2 of each keypoint [T, K]: so many of its own stds, in the units of its whitened residual."""
    return (stds**2 * weight * std_px.square()).clamp(min=1e-12)


@dataclass(frozen=True)
class Reprojection(Term):
    """Of the keypoints that one camera sees."""

    PER_FRAME = (
        "focal_px",
        "center_px",
        "xy_px",
        "weight",
        "robust",
        "mixture_weight",
        "mixture_precision",
    )

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 26, 2] pixels of a perfect lens
    weight: Tensor  # [T, 26] 1 / px^2
    robust: Tensor  # [T, 26] c^2 of Geman-McClure, in the units of weight * px^2
    # The stated error distribution of each keypoint instead of `robust`: weights of Gaussians, [T,
    # K, M], and their precisions along x and y in the units of `weight`, [T, K, M, 2].
    mixture_weight: Tensor | None = None
    mixture_precision: Tensor | None = None
    # Of a camera beside the one in whose frame the body is: x_camera = rotation x_body + offset.
    # None: it is that one.
    rotation: Tensor | None = None  # [3, 3]
    offset_m: Tensor | None = None  # [3]

    def in_camera(self, points: Tensor) -> Tensor:
        """Points [T, K, 3] of the body's frame in this camera's."""
        if self.rotation is None or self.offset_m is None:
            return points
        return points @ self.rotation.mT + self.offset_m

    @property
    def used(self) -> Tensor:
        """[T, 26] keypoints that count."""
        return self.weight > 0

    @property
    def without_tails(self) -> "Reprojection":
        """Every keypoint with the one Gaussian of its expected OKS, for the first part of a search:
        a mixture's heavy tails would let go of good keypoints that the start happens to be far
        from."""
        return replace(self, mixture_weight=None, mixture_precision=None)

    def distance_px(self, points: Tensor) -> Tensor:
        """[T, 26] from the image of points [T, 26, 3] to the keypoints."""
        return (project(self.in_camera(points), self.focal_px, self.center_px) - self.xy_px).norm(
            dim=-1
        )

    def behind(self, points: Tensor) -> Tensor:
        """[T] whether a keypoint that counts would be behind the camera."""
        return ((self.in_camera(points)[..., 2] < NEAREST_KEYPOINT_M) & self.used).any(-1)

    def residual(self, points: Tensor) -> Tensor:
        """sqrt(weight) (projection - keypoint), [T, K, 2]: stds under `precision` weighting."""
        seen = project(self.in_camera(points), self.focal_px, self.center_px)
        return self.weight.sqrt().unsqueeze(-1) * (seen - self.xy_px)

    def loss(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """What whitened residuals [T, K, 2] count, -2 log likelihood up to a constant [T, K], and
        the slopes by the square along each axis, [T, K, 2] or, where they are equal, [T, K, 1]."""
        if self.mixture_weight is None or self.mixture_precision is None:
            rho, slope = geman_mcclure(residual.square().sum(-1), self.robust)
            return rho, slope.unsqueeze(-1)
        return mixture_loss(residual.square(), self.mixture_weight, self.mixture_precision)

    def cost(self, posed: Posed) -> Tensor:
        rho, _ = self.loss(self.residual(posed.keypoints))
        return (rho.sum(-1) / 2).masked_fill(self.behind(posed.keypoints), torch.inf)

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        points = posed.keypoints
        jacobian = posed.jacobian
        residual = self.residual(points)
        root_slope = self.loss(residual)[1].sqrt()
        rows = projection_rows(self.in_camera(points), self.focal_px)
        rows = rows * (root_slope * self.weight.sqrt().unsqueeze(-1)).unsqueeze(-1)
        if self.rotation is not None:
            rows = rows @ self.rotation
        step = jacobian.keypoints.step_jacobian(posed, posed.carried, rows)
        shape = rows @ jacobian.keypoints.shape_jacobian(posed)
        equations.add_rows(
            (residual * root_slope).flatten(1), step.flatten(1, 2), shape.flatten(1, 2)
        )


ROBUST = 3.0  # stds at which a knuckle counts half of its square


@dataclass(frozen=True)
class Palm(Term):
    """Six points of each hand, the wrist first."""

    PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "depth_m", "depth_weight", "line")

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 2, 6, 2] pixels of a perfect lens
    weight: Tensor  # [T, 2, 6] 1 / px^2; 0: not seen
    depth_m: Tensor  # [T, 2, 6] along the line of sight, from the wrist
    depth_weight: Tensor  # [T, 2] 1 / m^2
    line: Tensor  # [T, 2, 3] unit vectors of the line of sight
    on_wrists: BonePoints  # the 12 points

    @classmethod
    def of(
        cls, seen: SeenHands | None, keypoints: Reprojection, body: Body, shape_size: int
    ) -> "Palm | None":
        """Of hands that are seen by the camera of the keypoints."""
        if seen is None or not bool(seen.seen.any()):
            return None
        fingers = body.with_fingers()
        palm = [0, *PALM]
        flat = fingers.flat_points(body.rest_joints)
        directions = []  # linear in the shape: differences are exact
        for one in torch.eye(body.shape_size)[:shape_size]:
            rest = body.rest_joints + body.rest_joint_shapedirs @ one.to(body.dtype)
            directions.append((fingers.flat_points(rest, one.to(body.dtype)) - flat)[:, palm])
        offset = (flat + fingers.offsets)[:, palm].flatten(0, 1)
        along = (
            torch.stack(directions, -1).flatten(0, 1)
            if directions
            else offset.new_zeros(*offset.shape, 0)
        )
        wrist = torch.tensor(WRISTS).repeat_interleave(len(palm))
        each = torch.eye(len(wrist), dtype=offset.dtype)
        points = AttachedPoints(wrist, torch.ones_like(each[0]), offset, along, None, each)
        return cls(
            keypoints.focal_px,
            keypoints.center_px,
            seen.xy_px[:, :, palm],
            seen.weight[:, :, palm],
            seen.depth_m[:, :, palm],
            seen.depth_weight,
            seen.line,
            BonePoints(points, shape_size),
        )

    def _carried(self, posed: Posed) -> Tensor:
        """[T, 12, 3] metres in the camera frame, before the translation."""
        points = self.on_wrists.points
        return points.carried(posed.placement, points.moments(posed.state.shape, None))

    def _points(self, posed: Posed) -> Tensor:
        """[T, 2, 6, 3] metres in the camera frame."""
        return (self._carried(posed) + posed.state.translation[:, None]).unflatten(1, (2, -1))

    def _residuals(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Whitened pixels [T, 12, 2] and depths [T, 12]; those of wrists are zero."""
        flat = points.flatten(1, 2)
        pixels = project(flat, self.focal_px, self.center_px) - self.xy_px.flatten(1, 2)
        away = torch.einsum("thkc,thc->thk", points - points[:, :, :1], self.line)
        depth = self.depth_weight.sqrt().unsqueeze(-1) * (away - self.depth_m)
        return self.weight.sqrt().flatten(1).unsqueeze(-1) * pixels, depth.flatten(1)

    def cost(self, posed: Posed) -> Tensor:
        pixels, depth = self._residuals(self._points(posed))
        rho, _ = geman_mcclure(pixels.square().sum(-1), ROBUST**2)
        return (rho.sum(-1) + depth.square().sum(-1)) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        points = self._points(posed)
        pixels, depth = self._residuals(points)
        slope = geman_mcclure(pixels.square().sum(-1), ROBUST**2)[1].sqrt()
        rows = projection_rows(points.flatten(1, 2), self.focal_px)
        rows = rows * (slope * self.weight.flatten(1).sqrt())[..., None, None]
        line = self.depth_weight.sqrt().unsqueeze(-1) * self.line

        def stacked(point: Tensor) -> Tensor:
            """Of pixels and depths, from [T, 2, 6, 3, 63 or S]."""
            deeper = torch.einsum("thc,thkcd->thkd", line, point - point[:, :, :1])
            return torch.cat(((rows @ point.flatten(1, 2)).flatten(1, 2), deeper.flatten(1, 2)), 1)

        step = self.on_wrists.step_jacobian(posed, self._carried(posed)).unflatten(1, (2, -1))
        shape = self.on_wrists.shape_jacobian(posed).unflatten(1, (2, -1))
        residual = torch.cat(((pixels * slope.unsqueeze(-1)).flatten(1), depth), 1)
        equations.add_rows(residual, stacked(step), stacked(shape))


# Of a person's outline, metres (bench/masks.py). What covers the skin of trunk, legs and arms (by
# the joints that move them) is this thick on average, and with this deviation between people;
# within a person, a body that reaches beyond its outline is worse than an outline outside of the
# body.
GARMENTS = ((0, 3, 6, 9, 12, 13, 14), (1, 2, 4, 5), (16, 17, 18, 19))
CLOTHES_M = (0.010, 0.008, 0.004)
CLOTHES_UNSURE_M = 0.012
BODY_OUTSIDE_M, CLOTHES_STD_M = 0.005, 0.010
# stds at which a point of the outline counts half of its square: bags, skirts, another's arm
OUTLINE_ROBUST = 6.0
OUTLINE_INDEPENDENT = 96.0  # so many points of an outline err independently of each other
FARTHEST_RIM_M, LEAST_ALONG = (
    0.15,
    0.5,
)  # from a point of the outline to its rim; cosine between their normals
# Hair, shoes and fingers are no girth: vertices that these joints move most are not compared.
NOT_COMPARED = (7, 8, 10, 11, 15, 20, 21, 22, 23)
_COVER_PX = 160  # longer side of the image in which it is seen what the body covers


@dataclass(frozen=True)
class Silhouette(Term):
    """Vertices on the rim of the body, each with the point of the person's outline that it belongs
    to.

    The gap between them along the outline's normal, less what clothes take, is a residual with two
    deviations: clothes lie outside of the body, so a body beyond its outline costs more than an
    outline beyond the body. A rim's vertex moves along the rim as the body turns, which changes the
    gap in second order only: vertices are found once a search (`matched`).
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
        """Of outlines [T, N, 2] (NaN: no point), for the mesh [T, V, 3] in the camera of the
        keypoints.
        """
        found = [
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
        vertex, belongs = (torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True))
        m_per_px = torch.take_along_dim(vertices[..., 2], vertex, 1) / keypoints.focal_px[:, :1]
        weight = OUTLINE_INDEPENDENT / xy_px.shape[1] * belongs.to(xy_px.dtype)
        covered = torch.stack([body.weights[:, list(joints)].sum(1) for joints in GARMENTS], -1)[
            vertex
        ]
        clothes_m = covered @ covered.new_tensor(CLOTHES_M)
        known = torch.nan_to_num(xy_px)
        return cls(
            keypoints.focal_px,
            keypoints.center_px,
            vertex,
            known,
            normal,
            m_per_px,
            covered,
            clothes_m,
            weight,
        )

    def thicker(self, garment: int) -> Self:
        """With one garment thicker by a deviation."""
        return replace(
            self, clothes_m=self.clothes_m + CLOTHES_UNSURE_M * self.covered[..., garment]
        )

    def _carried(self, posed: Posed) -> tuple[Tensor, Tensor]:
        """[T, N, 24, 3] where each bone would carry the vertices, and the bones' shares [T, N, 24]."""
        body = posed.jacobian.body
        state = posed.state
        placement = posed.placement
        size = posed.jacobian.shape_size
        rest = body.v_template[self.vertex] + torch.einsum(
            "tncs,ts->tnc",
            body.shapedirs[self.vertex][..., :size],
            state.shape.expand(len(state), -1),
        )
        feature = body.pose_feature(state.rotation)
        if body.posedirs is not None and feature is not None:
            rest = rest + torch.einsum("tncp,tp->tnc", body.posedirs[self.vertex], feature)
        joints = body.rest_joints + torch.einsum(
            "jcs,ts->tjc", posed.jacobian.rest_shapedirs, state.shape.expand(len(state), -1)
        )
        turned = torch.einsum(
            "tjcd,tnjd->tnjc", placement.rotation, rest[:, :, None] - joints[:, None]
        )
        return placement.joints[:, None] + turned, body.weights[self.vertex]

    def _residual(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """[T, N] stds between body and outline, positive where the outline lies outside, and 1 /
        std per metre.
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
            jacobian.body.shapedirs[self.vertex][..., : jacobian.shape_size],
        )
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
    """For each point of an outline [N, 2] with normals [N, 2] the vertex of the rim that it belongs
    to, and whether there is one; of a body whose vertices are at image [V, 2], z metres away
    [V]."""
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
    known = np.isfinite(points).all(1)
    if not len(rim) or not known.any():
        return np.zeros(len(points), np.int64), np.zeros(len(points), bool)
    away = np.linalg.norm(np.nan_to_num(points)[:, None] - middle, axis=-1)
    away[out @ normal.T < LEAST_ALONG] = np.inf
    nearest = away.argmin(1)
    m_per_px = z[rim[nearest, 0]] / focal_px
    belongs = known & (away.min(1) * m_per_px < FARTHEST_RIM_M) & compared[nearest]
    ends = np.linalg.norm(np.nan_to_num(points)[:, None] - image[rim[nearest]], axis=-1)
    return rim[nearest, ends.argmin(1)], belongs


@lru_cache(maxsize=1)
def _edges(body: Body) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Faces [F, 3], edges of a closed surface [E, 2], and the two faces at each [E, 2]."""
    faces = body.faces.to(torch.int64).numpy()
    ends = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), 1)
    face = np.tile(np.arange(len(faces)), 3)
    order = np.lexsort(ends.T)
    ends = ends[order]
    face = face[order]
    first = np.flatnonzero((ends[:-1] == ends[1:]).all(1))
    return faces, ends[first], np.stack([face[first], face[first + 1]], 1)
