"""The palm of a hand that is seen: its knuckles and the thumb's base, which hang on the wrist without bending.

They are evidence for the wrist's bend and for the forearm's twist, which no keypoint of the body shows. Pixels alone
leave open whether a palm leans towards the camera or away from it; the hand network's 3D landmarks say which, as
differences of depth along the line of sight.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.fingers import WRISTS
from fitting.body.kinematics import PARENTS
from fitting.keypoints.hands import PALM, SeenHands
from fitting.solver.terms.reprojection import Reprojection, project, projection_rows
from fitting.solver.terms.term import Blocks, Term, Window, geman_mcclure
from fitting.solver.unknowns import MOVED_JOINTS, POSE, STEP_SIZE, TRANSLATION, cross_matrix

ROBUST = 3.0  # stds at which a knuckle counts half of its square


@dataclass(frozen=True)
class Palm(Term):
    """Five points of each hand."""

    PER_FRAME = ("focal_px", "center_px", "xy_px", "weight", "depth_m", "depth_weight", "line")

    focal_px: Tensor  # [T, 2]
    center_px: Tensor  # [T, 2]
    xy_px: Tensor  # [T, 2, 5, 2] pixels of a perfect lens
    weight: Tensor  # [T, 2, 5] 1 / px^2; 0: not seen
    depth_m: Tensor  # [T, 2, 5] along the line of sight, from the wrist
    depth_weight: Tensor  # [T, 2] 1 / m^2
    line: Tensor  # [T, 2, 3] unit vectors of the line of sight
    offset: Tensor  # [2, 5, 3] metres in the T-pose, from the wrist
    offset_shapedirs: Tensor  # [2, 5, 3, S]

    @classmethod
    def of(cls, seen: SeenHands | None, keypoints: Reprojection, body: Body, shape_size: int) -> "Palm | None":
        """Of hands that are seen by the camera of the keypoints."""
        if seen is None or not bool(seen.seen.any()):
            return None
        fingers, palm = body.with_fingers(), list(PALM)
        offset = fingers.flat_points(body.rest_joints)[:, palm]
        directions = []  # linear in the shape: differences are exact
        for one in torch.eye(body.shape_size)[:shape_size]:
            rest = body.rest_joints + body.rest_joint_shapedirs @ one.to(body.dtype)
            directions.append(fingers.flat_points(rest, one.to(body.dtype))[:, palm] - offset)
        along = torch.stack(directions, -1) if directions else offset.new_zeros(*offset.shape, 0)
        return cls(
            keypoints.focal_px, keypoints.center_px, seen.xy_px[:, :, palm], seen.weight[:, :, palm],
            seen.depth_m[:, :, palm], seen.depth_weight, seen.line, offset, along,
        )  # fmt: skip

    def _points(self, window: Window) -> Tensor:
        """[T, 2, 5, 3] metres in the camera frame."""
        wrists = list(WRISTS)
        offset = self.offset + torch.einsum("hkcs,...s->...hkc", self.offset_shapedirs, window.state.shape)
        offset = offset.expand(len(window.state), *self.offset.shape)
        turned = torch.einsum("thij,thkj->thki", window.geometry.placement.rotation[:, wrists], offset)
        return window.geometry.joints[:, wrists].unsqueeze(2) + turned

    def _residuals(self, points: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Whitened pixels [T, 10, 2] and depths [T, 10]."""
        flat = points.flatten(1, 2)
        pixels = project(flat, self.focal_px, self.center_px) - self.xy_px.flatten(1, 2)
        away = torch.einsum("thkc,thc->thk", points - window.geometry.joints[:, list(WRISTS)].unsqueeze(2), self.line)
        depth = self.depth_weight.sqrt().unsqueeze(-1) * (away - self.depth_m)
        return self.weight.sqrt().flatten(1).unsqueeze(-1) * pixels, depth.flatten(1)

    def cost(self, window: Window) -> Tensor:
        pixels, depth = self._residuals(self._points(window), window)
        rho, _ = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))
        return (rho.sum(-1) + depth.square().sum(-1)) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        points = self._points(window)
        pixels, depth = self._residuals(points, window)
        slope = geman_mcclure(pixels.square().sum(-1), pixels.new_tensor(ROBUST**2))[1].sqrt()
        rows = projection_rows(points.flatten(1, 2), self.focal_px)
        rows = rows * (slope * self.weight.flatten(1).sqrt())[..., None, None]
        step, shape = (part.flatten(1, 2) for part in self._jacobians(points, window))  # [T, 10, 3, 63 or S]
        joints = window.jacobian.joint_step_jacobian(window.geometry)[:, list(WRISTS)].repeat_interleave(5, 1)
        shapes = window.joint_shape_jacobian[:, list(WRISTS)].repeat_interleave(5, 1)
        line = (self.depth_weight.sqrt().unsqueeze(-1) * self.line).repeat_interleave(5, 1)

        def stacked(point: Tensor, wrist: Tensor) -> Tensor:
            return torch.cat(((rows @ point).flatten(1, 2), torch.einsum("tkc,tkcd->tkd", line, point - wrist)), 1)

        residual = torch.cat(((pixels * slope.unsqueeze(-1)).flatten(1), depth), 1)
        blocks.add_rows(residual, stacked(step, joints), stacked(shape, shapes))

    def _jacobians(self, points: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """By the step [T, 2, 5, 3, 63] and by the shape [T, 2, 5, 3, S]: joints above turn the points."""
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
