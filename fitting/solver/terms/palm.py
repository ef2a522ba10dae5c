"""The palm of a hand that is seen: wrist, knuckles and the thumb's base, which hang on the wrist without bending.

They are evidence for the wrist's bend and for the forearm's twist, which no keypoint of the body shows. Pixels alone
leave open whether a palm leans towards the camera or away from it; the hand network's 3D landmarks say which, as
differences of depth along the line of sight.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import PARENTS, WRISTS
from fitting.keypoints.hands import PALM, SeenHands
from fitting.solver.terms.reprojection import Reprojection, project, projection_rows
from fitting.solver.terms.term import Blocks, Term, Window, geman_mcclure
from fitting.solver.unknowns import MOVED_JOINTS, POSE, STEP_SIZE, TRANSLATION, cross_matrix

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
    offset: Tensor  # [2, 6, 3] metres in the T-pose, from the wrist's joint
    offset_shapedirs: Tensor  # [2, 6, 3, S]

    @classmethod
    def of(cls, seen: SeenHands | None, keypoints: Reprojection, body: Body, shape_size: int) -> "Palm | None":
        """Of hands that are seen by the camera of the keypoints."""
        if seen is None or not bool(seen.seen.any()):
            return None
        fingers, palm = body.with_fingers(), [0, *PALM]
        flat = fingers.flat_points(body.rest_joints)
        directions = []  # linear in the shape: differences are exact
        for one in torch.eye(body.shape_size)[:shape_size]:
            rest = body.rest_joints + body.rest_joint_shapedirs @ one.to(body.dtype)
            directions.append((fingers.flat_points(rest, one.to(body.dtype)) - flat)[:, palm])
        offset = (flat + fingers.offsets)[:, palm]
        along = torch.stack(directions, -1) if directions else offset.new_zeros(*offset.shape, 0)
        return cls(
            keypoints.focal_px, keypoints.center_px, seen.xy_px[:, :, palm], seen.weight[:, :, palm],
            seen.depth_m[:, :, palm], seen.depth_weight, seen.line, offset, along,
        )  # fmt: skip

    def _points(self, window: Window) -> Tensor:
        """[T, 2, 6, 3] metres in the camera frame."""
        wrists = list(WRISTS)
        offset = self.offset + torch.einsum("hkcs,...s->...hkc", self.offset_shapedirs, window.state.shape)
        offset = offset.expand(len(window.state), *self.offset.shape)
        turned = torch.einsum("thij,thkj->thki", window.geometry.placement.rotation[:, wrists], offset)
        return window.geometry.joints[:, wrists].unsqueeze(2) + turned

    def _residuals(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Whitened pixels [T, 12, 2] and depths [T, 12]; those of wrists are zero."""
        flat = points.flatten(1, 2)
        pixels = project(flat, self.focal_px, self.center_px) - self.xy_px.flatten(1, 2)
        away = torch.einsum("thkc,thc->thk", points - points[:, :, :1], self.line)
        depth = self.depth_weight.sqrt().unsqueeze(-1) * (away - self.depth_m)
        return self.weight.sqrt().flatten(1).unsqueeze(-1) * pixels, depth.flatten(1)

    def cost(self, window: Window) -> Tensor:
        pixels, depth = self._residuals(self._points(window))
        rho, _ = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))
        return (rho.sum(-1) + depth.square().sum(-1)) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        points = self._points(window)
        pixels, depth = self._residuals(points)
        slope = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))[1].sqrt()
        rows = projection_rows(points.flatten(1, 2), self.focal_px)
        rows = rows * (slope * self.weight.flatten(1).sqrt())[..., None, None]
        line = self.depth_weight.sqrt().unsqueeze(-1) * self.line

        def stacked(point: Tensor) -> Tensor:
            """Of pixels and depths, from [T, 2, 6, 3, 63 or S]."""
            deeper = torch.einsum("thc,thkcd->thkd", line, point - point[:, :, :1])
            return torch.cat(((rows @ point.flatten(1, 2)).flatten(1, 2), deeper.flatten(1, 2)), 1)

        step, shape = self._jacobians(points, window)
        residual = torch.cat(((pixels * slope.unsqueeze(-1)).flatten(1), depth), 1)
        blocks.add_rows(residual, stacked(step), stacked(shape))

    def _jacobians(self, points: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """By the step [T, 2, 6, 3, 63] and by the shape [T, 2, 6, 3, S]: joints above turn the points."""
        geometry = window.geometry
        step = points.new_zeros(*points.shape, STEP_SIZE)
        for side, joint in enumerate(WRISTS):
            while joint >= 0:
                place = MOVED_JOINTS.index(joint)
                arm = geometry.joints[:, joint, None] - points[:, side]
                by_joint = cross_matrix(arm) @ geometry.axis_jacobian[:, place].unsqueeze(1)
                step[:, side, :, :, : POSE.stop].unflatten(-1, (-1, 3))[..., place, :] = by_joint
                joint = PARENTS[joint]
        step[..., TRANSLATION] = torch.eye(3, dtype=points.dtype)
        turned = torch.einsum("thij,hkjs->thkis", geometry.placement.rotation[:, list(WRISTS)], self.offset_shapedirs)
        return step, window.joint_shape_jacobian[:, list(WRISTS)].unsqueeze(2) + turned
