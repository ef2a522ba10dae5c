"""What the solver moves: rotations, translation and shape, and how a step changes them.

Toes and hands (joints 10, 11, 22, 23) move no other joint and no COCO keypoint, so nothing measures them: they stay as
guessed. A step therefore has 63 numbers per frame,

    [0:3]   root: R_0 <- exp(w) R_0, radians in the camera frame,
    [3:60]  the 19 joints of BODY_JOINTS: added to their axis-angle vectors,
    [60:63] translation: added, metres,

and one number per direction of shape.

Joint limits are ranges of those axis-angle numbers. Axes at rest (T-pose): x to the body's left, y up, z to the front.
A bent knee turns about +x; a bent left elbow about -y, a bent right one about +y; an arm let down turns its shoulder
about -z (left) or +z (right). The limits are soft: a number beyond its range costs (`terms.priors`).

`BodyJacobian`: keypoints and joints, and their derivatives with respect to every unknown, in closed form. A small
world-frame rotation w of joint i turns every term below it about P_i (`fitting.body.body`). The unknowns are axis-angle
vectors: theta -> theta + d turns the joint by w = G_parent J_l(theta) d, with J_l the left Jacobian of the rotation
group; the root is turned by w itself. With M_i = G_parent J_l,

    dq_k / d_i = -[arm_ki]_x M_i,    arm_ki = sum_{e of k, at or below i} (c_e P_j + G_j m_e - c_e P_i).

Pose correctives take part in q but not in its derivative."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fitting.body import Body, BodyParams
from fitting.body.kinematics import (
    JOINT_COUNT,
    JOINT_NAMES,
    PARENTS,
    Placement,
    matrix_to_axis_angle,
    nearest_rotation,
    rotation_matrices,
)
from pose2d.base.table import Table, column

BODY_JOINTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
MOVED_JOINTS = (0, *BODY_JOINTS)  # a step turns these
POSE = slice(3, 3 + 3 * len(BODY_JOINTS))
TRANSLATION = slice(POSE.stop, POSE.stop + 3)
STEP_SIZE = TRANSLATION.stop
SHAPE_SIZE = 10  # leading directions that are fitted; the finer ones move keypoints by a few millimetres only


@dataclass(frozen=True)
class State(Table):
    """Values of the unknowns for B frames."""

    TENSORS = True
    root: Tensor = column((3, 3), "f", "turns the body into the camera frame")  # [B, 3, 3]
    theta: Tensor = column((24, 3), "f", "axis-angle; row 0 is not used", unit="rad")  # [B, 24, 3]
    translation: Tensor = column((3,), "f", "in the camera frame", unit="m")  # [B, 3]
    shape: Tensor = column(("directions",), "f", "one for all frames, or one for each")  # [S] or [B, S]

    @property
    def shared_shape(self) -> bool:
        return self.shape.ndim == 1

    @property
    def rotation(self) -> Tensor:
        """Local rotations, [B, 24, 3, 3]."""
        return torch.cat((self.root.unsqueeze(1), rotation_matrices(self.theta[:, 1:])), 1)

    @property
    def body_pose(self) -> Tensor:
        """Axis-angle of BODY_JOINTS, [B, 57], the variables of the pose prior."""
        return self.theta[:, BODY_JOINTS].flatten(1)

    def moved(self, step: Tensor, shape_step: Tensor) -> "State":
        """After a step [B, 63] and a change of shape as large as `shape`."""
        theta = self.theta.clone()
        theta[:, BODY_JOINTS] += step[:, POSE].unflatten(1, (-1, 3))
        return State(
            rotation_matrices(step[:, :3]) @ self.root,
            theta,
            self.translation + step[:, TRANSLATION],
            self.shape + shape_step,
        )

    def to(self, dtype: torch.dtype) -> "State":
        return State(*(value.to(dtype) for value in vars(self).values()))

    def where(self, choice: Tensor, other: "State") -> "State":
        """This state in the frames where `choice` [B] is true, the other one elsewhere; a shape per frame."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return State(*(torch.where(choice.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


def from_params(params: BodyParams, shape_size: int = SHAPE_SIZE, dtype: torch.dtype = torch.float32) -> State:
    """The state of given parameters; rotations by more than half a turn become the shorter ones the other way."""
    pose = params.pose.detach().to(dtype).reshape(-1, JOINT_COUNT, 3)
    theta = matrix_to_axis_angle(rotation_matrices(pose))
    shape = params.shape.detach().to(dtype)[..., :shape_size]
    shape = torch.nn.functional.pad(shape, (0, shape_size - shape.shape[-1]))
    return State(rotation_matrices(pose[:, 0]), theta, params.translation.detach().to(dtype), shape)


def to_params(state: State) -> BodyParams:
    """The parameters of a state."""
    pose = state.theta.clone()
    pose[:, 0] = matrix_to_axis_angle(nearest_rotation(state.root))
    return BodyParams(pose, state.shape, state.translation)


# Ranges of textbooks on joint motion (goniometry), widened by hand where one bone of this tree does the work of several
# (spine, collar, wrist); not tuned. Degrees about x, y, z; left side. The right side is its mirror image: x stays, y
# and z change sign.
_DEGREES = {
    "left_hip": ((-130, 40), (-60, 60), (-45, 75)), "left_knee": ((-10, 150), (-25, 25), (-20, 20)),
    "left_ankle": ((-40, 60), (-45, 45), (-40, 40)), "spine1": ((-30, 60), (-30, 30), (-30, 30)),
    "spine2": ((-30, 45), (-30, 30), (-30, 30)), "spine3": ((-30, 45), (-30, 30), (-30, 30)),
    "neck": ((-60, 60), (-60, 60), (-45, 45)), "head": ((-45, 45), (-60, 60), (-45, 45)),
    "left_collar": ((-30, 30), (-40, 40), (-35, 45)), "left_shoulder": ((-110, 110), (-130, 110), (-110, 120)),
    "left_elbow": ((-120, 120), (-155, 5), (-60, 60)), "left_wrist": ((-120, 120), (-60, 60), (-90, 90)),
}  # fmt: skip


def _range(name: str) -> tuple[tuple[float, float], ...]:
    if name in _DEGREES:
        return _DEGREES[name]
    x, y, z = _DEGREES[name.replace("right", "left")]
    return x, (-y[1], -y[0]), (-z[1], -z[0])


def ranges(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Lowest and highest axis-angle numbers of BODY_JOINTS, each [57] radians."""
    table = torch.tensor([_range(JOINT_NAMES[joint]) for joint in BODY_JOINTS], dtype=dtype) * (math.pi / 180)
    return table[..., 0].flatten(), table[..., 1].flatten()


def left_jacobian(theta: Tensor) -> Tensor:
    """J_l of axis-angle vectors [..., 3] -> [..., 3, 3]: exp(theta + d) = exp(J_l d) exp(theta) to first order. J_l = I
    + (1 - cos t)/t^2 K + (t - sin t)/t^3 K^2, with a series where t is small."""
    squared = theta.square().sum(-1)
    small = squared < 1e-2
    safe = torch.where(small, torch.ones_like(squared), squared)
    angle = safe.sqrt()
    first = torch.where(small, 0.5 - squared / 24 + squared**2 / 720, (1 - angle.cos()) / safe)
    second = torch.where(small, 1 / 6 - squared / 120 + squared**2 / 5040, (angle - angle.sin()) / (safe * angle))
    outer = theta.unsqueeze(-1) * theta.unsqueeze(-2)
    scale = 1 - second * squared
    eye = torch.eye(3, dtype=theta.dtype, device=theta.device)
    return scale[..., None, None] * eye + second[..., None, None] * outer + first[..., None, None] * cross_matrix(theta)


def cross_matrix(v: Tensor) -> Tensor:
    """[v]_x, [..., 3] -> [..., 3, 3]: [v]_x u = v x u."""
    x, y, z = v.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))


def _above() -> Tensor:
    """[24, 24] true where the second joint lies strictly above the first."""
    above = torch.zeros(JOINT_COUNT, JOINT_COUNT, dtype=torch.bool)
    for joint in range(1, JOINT_COUNT):
        above[joint] = above[PARENTS[joint]]
        above[joint, PARENTS[joint]] = True
    return above


@dataclass(frozen=True)
class Geometry:
    """The posed body and what its derivatives are made of."""

    keypoints: Tensor  # [B, 26, 3] metres in the camera frame
    joints: Tensor  # [B, 24, 3] metres in the camera frame
    placement: Placement  # of the body before the translation
    terms: Tensor  # [B, E, 3] c_e P_j + G_j m_e
    axis_jacobian: Tensor  # [B, 20, 3, 3] M_i of MOVED_JOINTS; empty without derivatives


class BodyJacobian:
    """A body's forward kinematics and derivatives with respect to the unknowns of `fitting.solver.unknowns`."""

    def __init__(self, body: Body, shape_size: int) -> None:
        self.body = body
        points = body.keypoint_terms
        above = _above()
        carries = above | torch.eye(JOINT_COUNT, dtype=torch.bool)
        moved = torch.tensor(MOVED_JOINTS)
        self.carries = carries.to(body.dtype)  # [24, 24] 1 where the second joint moves the first
        terms = points.gather.bool()[:, None] & carries[points.bone][:, moved].T  # [26, 20, E]
        self.pair_point, self.pair_moved = terms.any(-1).nonzero(
            as_tuple=True
        )  # [N] keypoints, and joints that move them
        self.pair_joint = moved[self.pair_moved]
        self.pair_terms = terms[self.pair_point, self.pair_moved].to(body.dtype)  # [N, E]
        self.pair_share = self.pair_terms @ points.coefficient  # [N]
        self.joint_child, self.joint_moved = above[:, moved].nonzero(as_tuple=True)  # joints moved by joints
        self.joint_parent = moved[self.joint_moved]
        self.offset_shapedirs = points.offset_shapedirs[..., :shape_size]
        self.rest_shapedirs = body.rest_joint_shapedirs[..., :shape_size]
        self.shape_size = shape_size
        # Derivative of the body's size: the mean length of the bones, relative to that at zero shape.
        bone = body.rest_joints[1:] - body.rest_joints[list(PARENTS[1:])]
        bone_shapedirs = self.rest_shapedirs[1:] - self.rest_shapedirs[list(PARENTS[1:])]
        length = bone.norm(dim=-1)
        self.size_gradient = torch.einsum("jc,jcs->s", bone / length[:, None], bone_shapedirs) / length.sum()  # [S]

    def size(self, shape: Tensor) -> Tensor:
        """The body's size relative to that of the mean body, for a shape [S], kept away from zero."""
        return (1 + self.size_gradient @ shape).clamp(min=0.3)

    @cached_property
    def _parent_of_moved(self) -> Tensor:
        return torch.tensor([PARENTS[joint] for joint in MOVED_JOINTS[1:]])

    def place(self, state: State, derivatives: bool = True) -> Geometry:
        """Forward kinematics, and what the derivatives need."""
        body, points = self.body, self.body.keypoint_terms
        rotation = state.rotation
        shape = torch.nn.functional.pad(state.shape, (0, body.shape_size - self.shape_size))
        placement = body.placement(rotation, shape)
        moments = points.moments(shape, body.pose_feature(rotation))
        turned = (placement.rotation[:, points.bone] @ moments.unsqueeze(-1)).squeeze(-1)
        terms = torch.addcmul(turned, points.coefficient.unsqueeze(-1), placement.joints[:, points.bone])
        shift = state.translation.unsqueeze(1)
        axis_jacobian = terms.new_empty(0)
        if derivatives:
            local = placement.rotation[:, self._parent_of_moved] @ left_jacobian(state.theta[:, MOVED_JOINTS[1:]])
            eye = torch.eye(3, dtype=terms.dtype).expand(len(state), 1, 3, 3)
            axis_jacobian = torch.cat((eye, local), 1)
        return Geometry(points.gather @ terms + shift, placement.joints + shift, placement, terms, axis_jacobian)

    def keypoint_step_jacobian(self, geometry: Geometry, rows: Tensor, points: Sequence[int] | None = None) -> Tensor:
        """Rows [B, K, R, 3] times dq/dstep [B, K, 3, 63] -> [B, K, R, 63], without the large middle, of all keypoints
        or of some. u^T (-[a]_x) M = (a x u)^T M for every row u."""
        count = len(self.body.keypoint_joints)
        place = torch.full((count,), -1)
        place[list(range(count) if points is None else points)] = torch.arange(rows.shape[1])
        pairs = (place[self.pair_point] >= 0).nonzero().squeeze(1)
        point = place[self.pair_point[pairs]]
        joints, moved = geometry.placement.joints[:, self.pair_joint[pairs]], self.pair_moved[pairs]
        arm = self.pair_terms[pairs] @ geometry.terms - self.pair_share[pairs, None] * joints  # [B, N, 3]
        row = rows[:, point]  # [B, N, R, 3]
        moment = torch.linalg.cross(arm.unsqueeze(2).expand_as(row), row)
        return _step_jacobian(rows, point, moved, moment @ geometry.axis_jacobian[:, moved])

    def joint_step_jacobian(self, geometry: Geometry) -> Tensor:
        """dP/dstep, [B, 24, 3, 63]."""
        joints = geometry.placement.joints
        arm = joints[:, self.joint_child] - joints[:, self.joint_parent]  # [B, N, 3]
        value = cross_matrix(-arm) @ geometry.axis_jacobian[:, self.joint_moved]
        rows = torch.eye(3, dtype=joints.dtype).expand(*joints.shape, 3)
        return _step_jacobian(rows, self.joint_child, self.joint_moved, value)

    def joint_shape_jacobian(self, geometry: Geometry) -> Tensor:
        """dP/dshape, [B, 24, 3, S]: offsets of the rest pose, turned and added up along the tree."""
        rotation = geometry.placement.rotation
        rest = self.rest_shapedirs
        offset = rest[1:] - rest[list(PARENTS[1:])]
        turned = rotation[:, list(PARENTS[1:])] @ offset  # [B, 23, 3, S]
        moved = [rest[0].expand(len(rotation), -1, -1)]
        for joint in range(1, JOINT_COUNT):
            moved.append(moved[PARENTS[joint]] + turned[:, joint - 1])
        return torch.stack(moved, 1)

    def keypoint_shape_jacobian(
        self, geometry: Geometry, joint_shape_jacobian: Tensor, points: Sequence[int] | None = None
    ) -> Tensor:
        """dq/dshape, [B, K, 3, S], of all keypoints or of some."""
        of_all = self.body.keypoint_terms
        gather = of_all.gather if points is None else of_all.gather[list(points)]
        terms = gather.any(0).nonzero().squeeze(1)
        bone = of_all.bone[terms]
        on_bone = geometry.placement.rotation[:, bone] @ self.offset_shapedirs[terms]
        on_bone = on_bone + of_all.coefficient[terms, None, None] * joint_shape_jacobian[:, bone]
        return torch.einsum("ke,becs->bkcs", gather[:, terms], on_bone)


def _step_jacobian(rows: Tensor, point: Tensor, moved: Tensor, value: Tensor) -> Tensor:
    """[B, K, R, 63]: `value` [B, N, R, 3] where joints `moved` [N] turn points [N], and rows [B, K, R, 3] that the
    translation moves."""
    out = rows.new_zeros(*rows.shape[:3], STEP_SIZE)
    by_joint = out[..., : POSE.stop].unflatten(-1, (-1, 3)).permute(0, 1, 3, 2, 4)  # [B, K, 20, R, 3] view
    by_joint[:, point, moved] = value
    out[..., TRANSLATION] = rows
    return out
