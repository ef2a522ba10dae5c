"""Palms lie where the hand network shows them.

Wrist, knuckles and the base of the thumb hang on the wrist without bending. They are evidence for
the bend of the wrist and the twist of the forearm, which no keypoint of the body shows. Pixels
alone leave open whether a palm leans towards the camera or away from it; the hand network's 3D
landmarks resolve this, as differences of depth along the line of sight.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.attached_points import AttachedPoints
from fitting.body.fingers import WRISTS
from fitting.keypoints.hands import PALM, HandObservations
from fitting.solver.jacobian import BodyJacobian, BonePoints, Posed
from fitting.solver.terms.reprojection import Reprojection, project, projection_rows
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure

ROBUST = 3.0  # stds at which a knuckle counts half of its square


@dataclass(frozen=True)
class Palm(Term):
    """Pull the wrist and five points of each palm to the hand keypoints, the wrist first."""

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
        cls, hands: HandObservations | None, keypoints: Reprojection, jacobian: BodyJacobian
    ) -> "Palm | None":
        """Return the term for the hands that the camera of the keypoints shows, or None without
        any.
        """
        if hands is None or not bool(hands.visible.any()):
            return None
        body = jacobian.body
        fingers = body.with_fingers()
        palm = [0, *PALM]
        flat = fingers.flat_points(body.rest_joints)
        directions = []  # linear in the shape: differences are exact
        for direction in torch.eye(body.shape_size)[: jacobian.body_directions]:
            joints = body.rest_joints + body.rest_joint_shapedirs @ direction.to(body.dtype)
            directions.append(
                (fingers.flat_points(joints, direction.to(body.dtype)) - flat)[:, palm]
            )
        offset = (flat + fingers.offsets)[:, palm].flatten(0, 1)
        along = offset.new_zeros(*offset.shape, 0)
        if directions:
            along = torch.stack(directions, -1).flatten(0, 1)
        along = jacobian.pad_readings(along)
        wrist = torch.tensor(WRISTS).repeat_interleave(len(palm))
        identity = torch.eye(len(wrist), dtype=offset.dtype)
        points = AttachedPoints(wrist, torch.ones_like(identity[0]), offset, along, None, identity)
        return cls(
            keypoints.focal_px,
            keypoints.center_px,
            hands.xy_px[:, :, palm],
            hands.weight[:, :, palm],
            hands.depth_m[:, :, palm],
            hands.depth_weight,
            hands.line,
            BonePoints(points, jacobian.shape_size),
        )

    def _carried(self, posed: Posed) -> Tensor:
        """Return the points [T, 12, 3] in metres in the camera frame, before the translation."""
        points = self.on_wrists.points
        return points.carried(posed.placement, points.moments(posed.state.shape, None))

    def _points(self, posed: Posed) -> Tensor:
        """Return the points [T, 2, 6, 3] in metres in the camera frame."""
        return (self._carried(posed) + posed.state.translation[:, None]).unflatten(1, (2, -1))

    def _residuals(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return whitened pixels [T, 12, 2] and depths [T, 12]; the depths of wrists are zero."""
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
            """Return the derivatives of pixels and depths from those of the points [T, 2, 6, 3, 63
            or S].
            """
            deeper = torch.einsum("thc,thkcd->thkd", line, point - point[:, :, :1])
            return torch.cat(((rows @ point.flatten(1, 2)).flatten(1, 2), deeper.flatten(1, 2)), 1)

        step = self.on_wrists.step_jacobian(posed, self._carried(posed)).unflatten(1, (2, -1))
        shape = self.on_wrists.shape_jacobian(posed).unflatten(1, (2, -1))
        residual = torch.cat(((pixels * slope.unsqueeze(-1)).flatten(1), depth), 1)
        equations.add_rows(residual, stacked(step), stacked(shape))
