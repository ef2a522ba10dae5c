"""Keypoints and joints of posed bodies, with closed-form derivatives by every unknown.

A small world-frame rotation w of joint i turns every term below it about P_i (`fitting.body.body`).
The unknowns are axis-angle vectors: theta -> theta + d turns the joint by w = G_parent J_l(theta)
d, with J_l the left Jacobian of the rotation group; the root is turned by w itself. With M_i =
G_parent J_l,

    dq_k / d_i = -[arm_ki]_x M_i,
    arm_ki = sum_{e of k, at or below i} (c_e P_j + G_j m_e - c_e P_i).

Pose correctives take part in q but not in its derivative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fitting.body.attached_points import AttachedPoints
from fitting.body.body import Body
from fitting.body.fingers import with_tensors_to
from fitting.body.kinematics import JOINT_COUNT, PARENTS, Placement, tree
from fitting.body.params import BodyParams
from fitting.body.reading import join_reading
from fitting.solver.unknowns import (
    BODY_JOINTS,
    MOVED_JOINTS,
    POSE,
    STEP_SIZE,
    TRANSLATION,
    State,
    from_params,
    to_params,
)


def left_jacobian(theta: Tensor) -> Tensor:
    """J_l of axis-angle vectors [..., 3] -> [..., 3, 3]: exp(theta + d) = exp(J_l d) exp(theta) to
    first order. J_l = I + (1 - cos t)/t^2 K + (t - sin t)/t^3 K^2, with a series where t is
    small."""
    squared = theta.square().sum(-1)
    small = squared < 1e-2
    safe = torch.where(small, torch.ones_like(squared), squared)
    angle = safe.sqrt()
    first = torch.where(small, 0.5 - squared / 24 + squared**2 / 720, (1 - angle.cos()) / safe)
    second = torch.where(
        small, 1 / 6 - squared / 120 + squared**2 / 5040, (angle - angle.sin()) / (safe * angle)
    )
    outer = theta.unsqueeze(-1) * theta.unsqueeze(-2)
    scale = 1 - second * squared
    eye = torch.eye(3, dtype=theta.dtype, device=theta.device)
    return (
        scale[..., None, None] * eye
        + second[..., None, None] * outer
        + first[..., None, None] * cross_matrix(theta)
    )


def cross_matrix(v: Tensor) -> Tensor:
    """Return the matrix [v]_x of vectors [..., 3] -> [..., 3, 3], with [v]_x u = v x u."""
    x, y, z = v.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))


class BonePoints:
    """K points on bones, and how they move with the unknowns."""

    def __init__(self, points: AttachedPoints, shape_size: int) -> None:
        moved = torch.tensor(MOVED_JOINTS)
        path = tree(points.gather.dtype, points.gather.device)[1].bool()
        terms = points.gather.bool()[:, None] & path[points.bone][:, moved].T  # [K, 20, E]
        self.points = points
        self.shapedirs = points.offset_shapedirs[..., :shape_size]
        self.point, self.moved = terms.any(-1).nonzero(
            as_tuple=True
        )  # [N] points, and joints that move them
        self.joint = moved[self.moved]
        self.terms = terms[self.point, self.moved].to(points.gather)  # [N, E]
        self.share = self.terms @ points.coefficient  # [N]

    def select(self, numbers: Sequence[int]) -> tuple["BonePoints", Tensor]:
        """Select points by their numbers; also return which terms belong to them, [E]."""
        gather = self.points.gather[list(numbers)]
        used = gather.any(0)
        points = self.points
        part = AttachedPoints(
            points.bone[used],
            points.coefficient[used],
            points.offset[used],
            points.offset_shapedirs[used],
            None,
            gather[:, used],
        )
        return BonePoints(part, self.shapedirs.shape[-1]), used

    def step_jacobian(self, posed: "Posed", carried: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return rows [B, K, R, 3] times dq/dstep [B, K, 3, 63] as [B, K, R, 63].

        carried [B, E, 3] is where the terms are. Without rows, dq/dstep itself is returned. The
        product avoids the large dq/dstep, since u^T (-[a]_x) M = (a x u)^T M for every row u.
        """
        if rows is None:
            rows = torch.eye(3, dtype=carried.dtype).expand(
                len(carried), len(self.points.gather), 3, 3
            )
        arm = (
            self.terms @ carried - self.share[:, None] * posed.placement.joints[:, self.joint]
        )  # [B, N, 3]
        row = rows[:, self.point]  # [B, N, R, 3]
        moment = torch.linalg.cross(arm.unsqueeze(2).expand_as(row), row)
        out = rows.new_zeros(*rows.shape[:3], STEP_SIZE)
        by_joint = (
            out[..., : POSE.stop].unflatten(-1, (-1, 3)).permute(0, 1, 3, 2, 4)
        )  # [B, K, 20, R, 3] view
        by_joint[:, self.point, self.moved] = moment @ posed.axis_jacobian[:, self.moved]
        out[..., TRANSLATION] = rows
        return out

    def shape_jacobian(self, posed: "Posed") -> Tensor:
        """Return dq/dshape, [B, K, 3, S]."""
        bone = self.points.bone
        on_bone = posed.placement.rotation[:, bone] @ self.shapedirs
        on_bone = (
            on_bone + self.points.coefficient[:, None, None] * posed.joint_shape_jacobian[:, bone]
        )
        return torch.einsum("ke,becs->bkcs", self.points.gather, on_bone)

    def to(self, dtype: torch.dtype) -> "BonePoints":
        return BonePoints(with_tensors_to(self.points, dtype, None), self.shapedirs.shape[-1])


class BodyJacobian:
    """A body, and what its derivatives with respect to the unknowns are made of.

    reads: keypoints are where networks read them (`fitting.body.reading`), not the body's own. The
    readings are unknowns after the directions of shape, which move neither joints nor mesh.
    """

    def __init__(self, body: Body, body_directions: int, reads: bool = False) -> None:
        self.body = body
        self.body_directions = body_directions
        self.reads = reads
        self.readings = body.reading_terms.offset_shapedirs.shape[-1] if reads else 0
        self.shape_size = body_directions + self.readings
        self.rest_shapedirs = self.pad_readings(body.rest_joint_shapedirs[..., :body_directions])
        points = body.keypoint_terms
        if reads:
            points = join_reading(points, body.reading_terms, body_directions)
        self.keypoints = BonePoints(points, self.shape_size)
        every_joint = torch.eye(JOINT_COUNT, dtype=body.dtype)
        no_vertices = body.v_template.new_zeros(1, len(body.v_template))
        self.joints = BonePoints(body.points(every_joint, no_vertices.expand(JOINT_COUNT, -1)), 0)
        # Derivative of the body's size: the mean length of the bones, relative to that at zero
        # shape.
        bone = body.rest_joints[1:] - body.rest_joints[list(PARENTS[1:])]
        bone_shapedirs = self.rest_shapedirs[1:] - self.rest_shapedirs[list(PARENTS[1:])]
        length = bone.norm(dim=-1)
        self.size_gradient = (
            torch.einsum("jc,jcs->s", bone / length[:, None], bone_shapedirs) / length.sum()
        )  # [S]

    def pad_readings(self, directions: Tensor) -> Tensor:
        """Return derivatives [.., S] by the body's shape with zeros for the readings."""
        return torch.nn.functional.pad(directions, (0, self.readings))

    def state(self, params: BodyParams) -> State:
        """Return the state of these parameters."""
        return from_params(params, self.body_directions, self.readings)

    def params(self, state: State) -> BodyParams:
        """Return the parameters of a state."""
        return to_params(state, self.readings)

    def size(self, shape: Tensor) -> Tensor:
        """Return the size of a shape [S] relative to the mean body, bounded away from zero."""
        return (1 + self.size_gradient @ shape).clamp(min=0.3)


@dataclass(frozen=True, eq=False)
class Posed:
    """T frames at a state. Positions and derivatives are computed once, when they are first
    used.
    """

    jacobian: BodyJacobian
    state: State  # [T]
    fps: float | None = None  # frames per second; None: frames do not touch each other
    segment: Tensor | None = None  # [T] frames with the same number follow each other; None: all do
    world_rotation: Tensor | None = (
        None  # [T, 3, 3] from each frame's camera to the shot's axes; None: all the same
    )

    @cached_property
    def placement(self) -> Placement:
        """Return where the bones are, before the translation."""
        return self.jacobian.body.placement(self._rotation, self._shape)

    @cached_property
    def _rotation(self) -> Tensor:
        return self.state.rotation

    @cached_property
    def _shape(self) -> Tensor:
        """Return the body's shape, padded with zeros for the directions that are not fitted."""
        directions = self.jacobian.body_directions
        missing = self.jacobian.body.shape_size - directions
        return torch.nn.functional.pad(self.state.shape[..., :directions], (0, missing))

    @cached_property
    def carried(self) -> Tensor:
        """Return the terms of the keypoints, c_e P_j + G_j m_e, [T, E, 3]."""
        points = self.jacobian.keypoints.points
        shape = self.state.shape if self.jacobian.reads else self._shape
        moments = points.moments(shape, self.jacobian.body.pose_feature(self._rotation))
        return points.carried(self.placement, moments)

    @cached_property
    def keypoints(self) -> Tensor:
        """Return the keypoints [T, 26, 3] in metres in each frame's camera."""
        return (
            self.jacobian.keypoints.points.gather @ self.carried
            + self.state.translation.unsqueeze(1)
        )

    @cached_property
    def joints(self) -> Tensor:
        """Return the joints [T, 24, 3] in metres in each frame's camera."""
        return self.placement.joints + self.state.translation.unsqueeze(1)

    @cached_property
    def axis_jacobian(self) -> Tensor:
        """Return M_i of MOVED_JOINTS, [T, 20, 3, 3]."""
        above = [PARENTS[joint] for joint in BODY_JOINTS]
        local = self.placement.rotation[:, above] @ left_jacobian(self.state.theta[:, BODY_JOINTS])
        return torch.cat((torch.eye(3, dtype=local.dtype).expand(len(local), 1, 3, 3), local), 1)

    @cached_property
    def joint_step_jacobian(self) -> Tensor:
        """Return dP/dstep, [T, 24, 3, 63] in each frame's camera."""
        return self.jacobian.joints.step_jacobian(self, self.placement.joints)

    @cached_property
    def joint_shape_jacobian(self) -> Tensor:
        """Return dP/dshape, [T, 24, 3, S] in each frame's camera: offsets of the rest pose, turned
        and summed along the tree.
        """
        rest_shapedirs = self.jacobian.rest_shapedirs
        parents, path = tree(rest_shapedirs.dtype, rest_shapedirs.device)
        turned = self.placement.rotation[:, parents] @ (
            rest_shapedirs[1:] - rest_shapedirs[parents]
        )  # [T, 23, 3, S]
        steps = torch.cat((rest_shapedirs[:1].expand(len(turned), 1, 3, -1), turned), 1)
        return torch.einsum("ji,bics->bjcs", path, steps)

    def to_shot(self, vectors: Tensor) -> Tensor:
        """Turn vectors [T, n, 3] of each frame's camera, or derivatives [T, n, 3, d], to the shot's
        axes, which do not turn.
        """
        if self.world_rotation is None:
            return vectors
        return torch.einsum("tij,tnj...->tni...", self.world_rotation, vectors)

    @cached_property
    def joints_shot(self) -> Tensor:
        """Return the joints [T, 24, 3] in metres in the shot's axes."""
        return self.to_shot(self.joints)

    @cached_property
    def joint_jacobians_shot(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives of the joints by the step [T, 24, 3, 63] and by the shape [T, 24,
        3, S], in the shot's axes.
        """
        return self.to_shot(self.joint_step_jacobian), self.to_shot(self.joint_shape_jacobian)

    def points_shot(self, points: tuple[int, ...]) -> Tensor:
        """Return the keypoints of these numbers in the shot's axes, [T, n, 3]."""
        return self.to_shot(self.keypoints[:, points])

    @cached_property
    def _point_jacobians(self) -> dict[tuple[int, ...], tuple[Tensor, Tensor]]:
        return {}

    def point_jacobians_shot(self, points: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return the derivatives of keypoints by the step [T, n, 3, 63] and by the shape [T, n, 3,
        S], in the shot's axes.
        """
        known_jacobians = self._point_jacobians
        if points not in known_jacobians:
            selected, used = self.jacobian.keypoints.select(points)
            step = selected.step_jacobian(self, self.carried[:, used])
            known_jacobians[points] = (
                self.to_shot(step),
                self.to_shot(selected.shape_jacobian(self)),
            )
        return known_jacobians[points]

    def follows(self, order: int) -> Tensor | float:
        """Return 1 where a difference of this order stays within a segment and 0 elsewhere, [T -
        order, 1].
        """
        if self.segment is None:
            return 1.0
        return (self.segment[order:] == self.segment[:-order]).to(self.state.theta.dtype)[:, None]
