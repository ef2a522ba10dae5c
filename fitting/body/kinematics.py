"""Rotations, and forward kinematics of the 24-joint tree that every body here shares.

Joints and points are in metres, in the body's own frame (x to the body's left, y up, z to the
front) until a translation is added. A pose holds each joint's rotation relative to its parent.

For a joint j with parent p, rest position J and local rotation R,

    G_j = G_p R_j,    P_j = P_p + G_p (J_j - J_p),    G_0 = R_0,  P_0 = J_0,

so a point x attached to bone j alone goes to P_j + G_j (x - J_j).

Rotations are axis-angle vectors, matrices, unit quaternions (x, y, z, w) and SPIN's six numbers.

`Fingers` are a layer on top of the 24 joints: 15 joints a hand in SMPL-H's order, where its wrist
is. With fingers a body has SMPL-H's 52 joints: the first 22 of the body, then those of both hands;
the two `hand` joints of the 24, which turn all fingers at once, are left out. A finger's pose is
relative to the flat hand of the T-pose, as in SMPL-H, so a pose of zeros is a flat hand.

A finger bends about few axes: both ways at its first and second joint, one way at the third, 25
angles a hand. Its `flexion` turns it towards the palm (the thumb: towards its pad), its `spread`
turns it within the palm; at the second joint only the thumb has some.
"""

from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record")
JOINT_NAMES = (
    "pelvis",
    "left_hip",
    "right_hip",
    "spine1",
    "left_knee",
    "right_knee",
    "spine2",
    "left_ankle",
    "right_ankle",
    "spine3",
    "left_foot",
    "right_foot",
    "neck",
    "left_collar",
    "right_collar",
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hand",
    "right_hand",
)
# For each joint its counterpart on the other side.
MIRROR = tuple(
    JOINT_NAMES.index(name.replace("left", "?").replace("right", "left").replace("?", "right"))
    for name in JOINT_NAMES
)
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
JOINT_COUNT = len(PARENTS)
# Whose lengths are stated: name -> the joints at both ends.
SEGMENTS = {
    f"{side}_{name}": (JOINT_NAMES.index(f"{side}_{upper}"), JOINT_NAMES.index(f"{side}_{lower}"))
    for side in ("left", "right")
    for name, upper, lower in (
        ("thigh", "hip", "knee"),
        ("shin", "knee", "ankle"),
        ("upper_arm", "shoulder", "elbow"),
        ("forearm", "elbow", "wrist"),
    )
} | {"trunk": (JOINT_NAMES.index("pelvis"), JOINT_NAMES.index("neck"))}


class Placement(NamedTuple):
    """Where the bones are, for T frames."""

    rotation: Tensor  # [T, 24, 3, 3] G, from the rest pose to the posed body
    joints: Tensor  # [T, 24, 3] P, metres
    rest_joints: Tensor  # [24, 3] or [T, 24, 3] J, metres


@cache
def tree(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Parents of joints 1 to 23 [23], and the path [24, 24] from the root: path[j, i] is 1 if i is
    j or above it; made once for each kind of number and device."""
    path = torch.eye(JOINT_COUNT, dtype=dtype, device=device)
    for joint, parent in enumerate(PARENTS[1:], 1):
        path[joint] += path[parent]
    return torch.tensor(PARENTS[1:], device=device), path


def rotation_matrices(axis_angle: Tensor) -> Tensor:
    """Rodrigues' formula, [..., 3] radians -> [..., 3, 3]; smooth through the zero rotation.

    R = I + a K + b K^2 with K the cross-product matrix of the vector itself, a = sin(t) / t and
    b = (1 - cos t) / t^2 = (sin(t/2) / (t/2))^2 / 2, both by sinc, which knows its limit at zero.
    """
    # The tiny constant keeps the gradient of the norm finite at zero, far below any real angle's
    # rounding.
    angle = (axis_angle.square().sum(-1) + torch.finfo(axis_angle.dtype).tiny).sqrt()
    a = torch.sinc(angle / torch.pi)
    b = torch.sinc(angle / (2 * torch.pi)).square() / 2
    x, y, z = axis_angle.unbind(-1)
    ax = a * x
    ay = a * y
    az = a * z
    bx = b * x
    by = b * y
    xy = bx * y
    xz = bx * z
    yz = by * z
    xx = bx * x
    yy = by * y
    zz = b * z * z
    return torch.stack(
        (
            1 - yy - zz,
            xy - az,
            xz + ay,
            xy + az,
            1 - xx - zz,
            yz - ax,
            xz - ay,
            yz + ax,
            1 - xx - yy,
        ),
        -1,
    ).unflatten(-1, (3, 3))


def about_axis(axis: int, angle: Tensor) -> Tensor:
    """Turns [..., 3, 3] about x, y or z (0, 1, 2) by angles [...] radians."""
    return rotation_matrices(
        angle[..., None] * torch.eye(3, dtype=angle.dtype, device=angle.device)[axis]
    )


def shortest_turn(source: Tensor, target: Tensor) -> Tensor:
    """The rotations [..., 3, 3] that take directions [..., 3] to others, which must not be
    opposite.
    """
    axis = torch.linalg.cross(source, target)
    sine = axis.norm(dim=-1, keepdim=True)
    angle = torch.atan2(sine, (source * target).sum(-1, keepdim=True))
    return rotation_matrices(axis / sine.clamp(min=torch.finfo(sine.dtype).tiny) * angle)


def rotate(rotation: Tensor, vector: Tensor) -> Tensor:
    """Rotations [..., 3, 3] times vectors [..., 3]; faster than a product of many tiny matrices."""
    first, second, third = rotation.unbind(-1)
    x, y, z = vector.unsqueeze(-2).unbind(-1)
    return torch.addcmul(torch.addcmul(first * x, second, y), third, z)


def forward_kinematics(rotation: Tensor, rest_joints: Tensor) -> Placement:
    """Local rotations [T, 24, 3, 3] and rest joints [24, 3] or [T, 24, 3] -> where every bone is.

    Rotations go down the tree; a joint's position is then the sum of the turned bones above it.
    """
    parents, path = tree(rotation.dtype, rotation.device)
    local = rotation.unbind(1)
    turned = [local[0]]
    for joint, parent in enumerate(PARENTS[1:], 1):
        turned.append(turned[parent] @ local[joint])
    world = torch.stack(turned, 1)

    root = rest_joints[..., :1, :]
    bone = rest_joints[..., 1:, :] - rest_joints.index_select(-2, parents)
    steps = rotate(world.index_select(1, parents), bone)
    steps = torch.cat((root.expand(len(rotation), 1, 3), steps), 1)
    return Placement(world, path @ steps, rest_joints)


def matrix_to_axis_angle(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 3] radians, of at most half a turn."""
    return quaternion_to_axis_angle(matrix_to_quaternion(matrix))


def matrix_to_quaternion(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 4]. Every row of 4 q q^T is a multiple of q; the one with the largest
    diagonal is used.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(-1) for row in matrix.unbind(-2))
    rows = torch.stack(
        (
            torch.stack((1 + xx - yy - zz, yx + xy, zx + xz, zy - yz), -1),
            torch.stack((yx + xy, 1 + yy - zz - xx, zy + yz, xz - zx), -1),
            torch.stack((zx + xz, zy + yz, 1 + zz - xx - yy, yx - xy), -1),
            torch.stack((zy - yz, xz - zx, yx - xy, 1 + xx + yy + zz), -1),
        ),
        -2,
    )
    largest = rows.diagonal(dim1=-2, dim2=-1).argmax(-1, keepdim=True).unsqueeze(-1)
    row = rows.gather(-2, largest.expand(*largest.shape[:-1], 4)).squeeze(-2)
    return row / row.norm(dim=-1, keepdim=True)


def quaternion_to_axis_angle(quaternion: Tensor) -> Tensor:
    """Unit quaternions [..., 4] -> [..., 3] radians, of at most half a turn."""
    quaternion = torch.where(quaternion[..., 3:] > 0, quaternion, -quaternion)
    vector = quaternion[..., :3]
    half = torch.atan2(vector.norm(dim=-1), quaternion[..., 3])
    small = half < _series_below(half)
    ratio = half / torch.where(small, torch.ones_like(half), half.sin())
    ratio = torch.where(small, 1 + half**2 / 6 + 7 * half**4 / 360, ratio)  # half / sin(half)
    return (2 * ratio).unsqueeze(-1) * vector


def axis_angle_to_quaternion(axis_angle: Tensor) -> Tensor:
    """[..., 3] radians -> unit quaternions [..., 4]."""
    half = axis_angle.norm(dim=-1) / 2
    small = half < _series_below(half)
    ratio = half.sin() / torch.where(small, torch.ones_like(half), half)
    ratio = torch.where(small, 1 - half**2 / 6 + half**4 / 120, ratio)  # sin(half) / half
    return torch.cat(((ratio / 2).unsqueeze(-1) * axis_angle, half.cos().unsqueeze(-1)), -1)


def _series_below(angle: Tensor) -> float:
    """Angles below this are so small that three terms of a series are exact; 0.14 in float32."""
    return 2 * torch.finfo(angle.dtype).eps ** (1 / 6)


def quaternion_to_matrix(quaternion: Tensor) -> Tensor:
    """Unit quaternions [..., 4] -> [..., 3, 3]."""
    return rotation_matrices(quaternion_to_axis_angle(quaternion))


def quaternion_product(first: Tensor, second: Tensor) -> Tensor:
    """The quaternion [..., 4] of the second rotation followed by the first."""
    first, second = torch.broadcast_tensors(first, second)
    v = first[..., :3]
    w = first[..., 3:]
    u = second[..., :3]
    s = second[..., 3:]
    vector = w * u + s * v + torch.linalg.cross(v, u)
    return torch.cat((vector, w * s - (v * u).sum(-1, keepdim=True)), -1)


def euler_zyx_to_matrix(angles: Tensor) -> Tensor:
    """Angles about z, y and x [..., 3] radians -> Rz Ry Rx, [..., 3, 3]."""
    z, y, x = angles.unbind(-1)
    return about_axis(2, z) @ about_axis(1, y) @ about_axis(0, x)


def nearest_rotation(matrix: Tensor) -> Tensor:
    """The rotation [..., 3, 3] nearest to a matrix (orthogonal Procrustes), by a float64 SVD."""
    left, _, right = torch.linalg.svd(matrix.double())
    sign = torch.linalg.det(left @ right).sign()
    left = torch.cat((left[..., :2], left[..., 2:] * sign[..., None, None]), -1)
    return (left @ right).to(matrix.dtype)


def rot6d_to_matrix(six: Tensor) -> Tensor:
    """[..., 6] -> [..., 3, 3]: six numbers are a 3x2 matrix row by row, made orthonormal by
    Gram-Schmidt.
    """
    first, second = six.unflatten(-1, (3, 2)).unbind(-1)
    x = first / first.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    y = second - (x * second).sum(-1, keepdim=True) * x
    y = y / y.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return torch.stack((x, y, torch.linalg.cross(x, y)), -1)


def matrix_to_rot6d(matrix: Tensor) -> Tensor:
    """[..., 3, 3] -> [..., 6]: the first two columns, interleaved."""
    return matrix[..., :2].flatten(-2)


FINGERS = ("index", "middle", "pinky", "ring", "thumb")  # SMPL-H's order
WRISTS = (20, 21)
BODY_JOINTS = 22
FINGER_JOINTS = tuple(
    f"{side}_{finger}{k}" for side in ("left", "right") for finger in FINGERS for k in (1, 2, 3)
)
JOINT_NAMES_52 = (*JOINT_NAMES[:BODY_JOINTS], *FINGER_JOINTS)
PARENTS_52 = (
    *PARENTS[:BODY_JOINTS],
    *(WRISTS[j // 15] if j % 3 == 0 else BODY_JOINTS + j - 1 for j in range(30)),
)
TO_MEDIAPIPE = (4, 0, 1, 3, 2)  # thumb, index, middle, ring, little among FINGERS
DOF_JOINT = (0, 0, 1, 1, 2)  # of a finger's five angles: which of its joints they turn
# The thumb's pad faces this much across the palm and the rest out of it, degrees: as on the open
# body, whose thumb is flat where nail and pad are.
THUMB_TURN_DEG = 55.0
# Where the hand network shows its 21 keypoints on a left hand of the open body, from joints and
# tips, in millimetres along the T-pose's axes, turning with the bone before: on rendered hands, by
# `bench/fingers.py --offsets`, to 0.5 mm. It shows the wrist nearer to the fingers than it turns,
# knuckles deeper in the palm, tips inside the fingers.
OPEN_KEYPOINTS_MM = (
    (13.8, -2.9, -3.6),
    *((0.1, -12.5, 6.4), (0.7, -4.6, -2.2), (0.1, -1.3, -5.1), (-4.7, 1.6, -6.3)),
    *((4.1, -3.6, -0.4), (1.6, -5.3, -0.2), (2.6, -3.7, -0.1), (-6.2, -1.5, -2.5)),
    *((3.3, -6.8, 1.3), (-0.2, -4.9, 1.7), (-1.6, -2.8, 1.2), (-7.9, 0.7, 1.2)),
    *((2.7, -8.6, -0.9), (0.6, -6.0, 0.1), (-0.3, -5.1, -0.1), (-9.4, -2.9, 1.9)),
    *((4.9, -7.5, -0.9), (1.4, -4.4, -0.4), (1.5, -3.7, -2.1), (-4.4, -2.0, -0.7)),
)


Rows = tuple[Tensor, Tensor, Tensor | None, Tensor]


def mesh_rows(
    v_template: Tensor, shapedirs: Tensor, posedirs: Tensor | None, weights: Tensor
) -> Rows:
    """As `Body.mesh` wants them, all x, then all y, then all z: template [3 V], shape [S, 3 V],
    correctives [P, 3 V]; weights [24 or 52, V]."""
    by_shape, by_pose = (
        None if d is None else torch.einsum("vcn->ncv", d).flatten(1) for d in (shapedirs, posedirs)
    )
    assert by_shape is not None
    return v_template.T.flatten(), by_shape, by_pose, weights.T.contiguous()


@dataclass(frozen=True, eq=False, repr=False)
class Fingers:
    """The fingers of one body, at zero shape and its directions, in the flat hand of the T-pose."""

    v_template: Tensor  # [V, 3] metres; the body's own, but for the hands
    shapedirs: Tensor  # [V, 3, S]
    weights: Tensor  # [V, 52] skinning weights
    rest_joints: Tensor  # [30, 3] metres
    rest_joint_shapedirs: Tensor  # [30, 3, S]
    tips: Tensor  # [10] vertices at the fingers' ends, in the order of the fingers
    # [2, 21, 3] metres in the T-pose, from joints and tips to where the hand network shows them
    offsets: Tensor
    posedirs: Tensor | None = (
        None  # [V, 3, 270] metres per unit of (R - I) of the finger joints; None: none
    )

    @cached_property
    def rows(self) -> Rows:
        return mesh_rows(self.v_template, self.shapedirs, self.posedirs, self.weights)

    def rest(self, shape: Tensor) -> tuple[Tensor, Tensor]:
        """Joints [2, 5, 3, 3] and tips [2, 5, 3] of a shape [S] in the T-pose."""
        directions = self.rest_joint_shapedirs[..., : len(shape)]
        joints = self.rest_joints + directions @ shape
        tips = self.v_template[self.tips] + self.shapedirs[self.tips][..., : len(shape)] @ shape
        return joints.unflatten(0, (2, 5, 3)), tips.unflatten(0, (2, 5))

    def flat_points(self, rest_joints: Tensor, shape: Tensor | None = None) -> Tensor:
        """[2, 21, 3] wrist, joints and tips of flat hands from the wrist; rest_joints [24, 3]: of
        the same shape.
        """
        joints, tips = self.rest(self.v_template.new_zeros(0) if shape is None else shape)
        wrists = rest_joints[list(WRISTS)].to(joints).unsqueeze(1)
        fingers = (
            torch.cat((joints, tips.unsqueeze(2)), 2)[:, list(TO_MEDIAPIPE)].flatten(1, 2) - wrists
        )
        return torch.cat((torch.zeros_like(wrists), fingers), 1)

    def placement(self, body: Placement, pose: Tensor, shape: Tensor) -> Placement:
        """All 52 joints of a placed body with finger rotations [T, 30, 3] axis-angle; shape [S] or
        [T, S].
        """
        rest = self.rest_joints + torch.einsum("jcs,...s->...jc", self.rest_joint_shapedirs, shape)
        turn = rotation_matrices(pose).unflatten(1, (10, 3))  # finger, joint
        of_finger = torch.tensor(WRISTS, device=pose.device).repeat_interleave(5)
        above = body.rotation[:, of_finger]
        at = body.joints[:, of_finger]
        before = body.rest_joints[..., of_finger, :]
        joints = []
        turned = []
        for k in range(3):
            here = rest[..., k::3, :]
            at = at + rotate(above, (here - before).expand(len(pose), 10, 3))
            above = above @ turn[:, :, k]
            before = here
            joints.append(at)
            turned.append(above)
        return Placement(
            torch.cat((body.rotation[:, :BODY_JOINTS], torch.stack(turned, 2).flatten(1, 2)), 1),
            torch.cat((body.joints[:, :BODY_JOINTS], torch.stack(joints, 2).flatten(1, 2)), 1),
            torch.cat((body.rest_joints[..., :BODY_JOINTS, :], rest), -2),
        )

    def points(self, placement: Placement, shape: Tensor) -> Tensor:
        """[T, 2, 21, 3] metres: wrist, joints and tips in MediaPipe's order, of a placement of 52
        joints.
        """
        tips = self.v_template[self.tips] + torch.einsum(
            "ncs,...s->...nc", self.shapedirs[self.tips], shape
        )
        last = slice(BODY_JOINTS + 2, None, 3)
        arm = (tips - placement.rest_joints[..., last, :]).expand(len(placement.joints), 10, 3)
        ends = placement.joints[:, last] + rotate(placement.rotation[:, last], arm)
        joints = placement.joints[:, BODY_JOINTS:].unflatten(1, (2, 5, 3))
        fingers = torch.cat((joints, ends.unflatten(1, (2, 5)).unsqueeze(3)), 3)[
            :, :, list(TO_MEDIAPIPE)
        ]
        return torch.cat((placement.joints[:, list(WRISTS)].unsqueeze(2), fingers.flatten(2, 3)), 2)

    def pose_feature(self, placement: Placement) -> Tensor:
        """R - I of the finger joints of a placement of 52 joints, [T, 270]."""
        above = torch.tensor(PARENTS_52[BODY_JOINTS:], device=placement.rotation.device)
        local = placement.rotation[:, above].mT @ placement.rotation[:, BODY_JOINTS:]
        return (local - torch.eye(3, dtype=local.dtype, device=local.device)).flatten(1)

    @cached_property
    def axes(self) -> Tensor:
        """[2, 5, 5, 3] unit vectors in the T-pose that a finger's angles turn about: spread and
        flexion of the first joint, of the second, flexion of the third."""
        joints, tips = self.rest(self.v_template.new_zeros(0))
        along = torch.nn.functional.normalize(tips - joints[:, :, 0], dim=-1)
        across = (
            joints[:, 0, 0] - joints[:, 2, 0]
        )  # from the little finger's knuckle to the index finger's
        palm = torch.linalg.cross(
            along[:, 1], across
        )  # out of the left palm; the right hand is its mirror image
        palm = torch.nn.functional.normalize(palm * palm.new_tensor([[1.0], [-1.0]]), dim=-1)
        turn = torch.deg2rad(palm.new_tensor(THUMB_TURN_DEG))
        pad = turn.cos() * palm - turn.sin() * torch.nn.functional.normalize(across, dim=-1)
        pad = torch.cat((palm.unsqueeze(1).expand(2, 4, 3), pad.unsqueeze(1)), 1)
        flexion = torch.nn.functional.normalize(torch.linalg.cross(along, pad), dim=-1)
        spread = torch.linalg.cross(flexion, along)
        return torch.stack((spread, flexion, spread, flexion, flexion), 2)

    def pose(self, angles: Tensor) -> Tensor:
        """Angles [T, 2, 5, 5] radians -> axis-angle [T, 30, 3]."""
        turns = rotation_matrices(angles.unsqueeze(-1) * self.axes.to(angles))
        joints = torch.stack(
            (
                turns[..., 0, :, :] @ turns[..., 1, :, :],
                turns[..., 2, :, :] @ turns[..., 3, :, :],
                turns[..., 4, :, :],
            ),
            -3,
        )
        return matrix_to_axis_angle(joints.flatten(1, 3))

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> "Fingers":
        """The same fingers in another precision or on another device."""
        return with_tensors_to(self, dtype, device)


def with_tensors_to(
    record: Record, dtype: torch.dtype | None, device: torch.device | str | None
) -> Record:
    """A dataclass with its tensors, and those of its fingers, elsewhere; what it derives is made
    again.
    """
    names = [entry.name for entry in fields(record) if entry.init]  # type: ignore[arg-type]
    given: dict[str, Any] = {name: getattr(record, name) for name in names}
    for name, value in given.items():
        if isinstance(value, Fingers):
            given[name] = value.to(dtype=dtype, device=device)
        elif isinstance(value, Tensor):
            given[name] = value.to(
                device=device, dtype=dtype if value.is_floating_point() else None
            )
    return type(record)(**given)
