"""The body: pose, shape and translation -> joints, keypoints and, if wanted, the mesh.

Every body has the 24 joints of `fitting.body.kinematics`, whichever file it came from, and Halpe's
26 keypoints, the first 17 of which are COCO's.

Keypoints need no mesh. A skinned vertex with weights w_j goes to sum_j w_j (P_j + G_j (x - J_j)),
and a keypoint is a weighted sum of such vertices and of joints. Both sums can be taken once, before
any pose is known: keypoint k is then exactly

    q_k = sum_e [ c_e P_j(e) + G_j(e) m_e ]
    m_e = offset_e + offset_shapedirs_e . shape + offset_posedirs_e . (R - I)

over a few terms e, each attached to one bone j(e), however many vertices its definition names. The
moments m_e are linear in the shape, so derivatives have closed forms. For a small world-frame
rotation w of joint i, every term on a bone at or below i turns about P_i,

    dq_k = w x sum_{e: j(e) at or below i} [ c_e P_j + G_j m_e - c_e P_i ],

`kinematics.tree` says which bones those are, and

    dq_k / dshape = sum_e [ c_e dP_j / dshape + G_j offset_shapedirs_e ].

`offset_posedirs` is None for a body without pose correctives, such as the embedded one. Where it
exists the rotations also enter through m_e; that part of the derivative is G_j offset_posedirs_e .
dR."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fitting.body.attached_points import AttachedPoints
from fitting.body.fingers import Fingers, with_tensors_to
from fitting.body.kinematics import JOINT_COUNT, Placement, forward_kinematics
from fitting.body.params import BodyOutput, BodyParams
from fitting.body.rotations import rotation_matrices
from fitting.body.skinning import FRAMES_AT_A_TIME, Rows, mesh_rows, skin
from pose2d.base.errors import UserError
from pose2d.base.table import BLOCK, blocks

ArrayLike = Tensor | np.ndarray
# Where girths are measured: so far from the height of one joint to that of another.
GIRTHS = {"chest": (9, 9, 0.0), "waist": (3, 6, 0.2), "hip": (1, 1, 0.0), "thigh": (1, 4, 0.25)}
ARM_JOINTS = (16, 17, 18, 19, 20, 21, 22, 23)


@dataclass(frozen=True, eq=False, repr=False)
class Body:
    """A body as plain tensors. Call it: `body(pose, shape, translation, vertices=True)`."""

    name: str  # "open", "SMPL", "SMPL-H" or "SMPL-X"
    v_template: Tensor  # [V, 3] metres, T-pose: x to the body's left, y up, z to the front
    shapedirs: Tensor  # [V, 3, S] metres per standard deviation
    posedirs: (
        Tensor | None
    )  # [V, 3, P] metres per unit of (R - I) of joints 1, 2, ..; None when all are zero
    J_regressor: Tensor  # [24, V] rest-pose joints from rest-pose vertices; wrong on posed ones
    weights: Tensor  # [V, 24] skinning weights
    faces: Tensor  # [F, 3] vertex numbers, counter-clockwise seen from outside
    keypoint_joints: Tensor  # [26, 24] share of the posed joints in each keypoint
    keypoint_vertices: Tensor  # [26, V] share of the posed vertices
    h36m_regressor: Tensor | None = None  # [17, V] Human3.6M joints from posed vertices
    vertex_picks: dict[str, int] = field(
        default_factory=dict
    )  # vertices by name: "nose", "LHeel", ..
    fingers: Fingers | None = None  # None: the file knows none (SMPL)

    rest_joints: Tensor = field(init=False)  # [24, 3] metres at zero shape
    rest_joint_shapedirs: Tensor = field(init=False)  # [24, 3, S]
    keypoint_terms: AttachedPoints = field(init=False)  # the keypoints as terms on bones
    rows: Rows = field(init=False)  # the mesh, for `mesh`

    def __post_init__(self) -> None:
        def derive(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        derive("rest_joints", self.J_regressor @ self.v_template)
        derive(
            "rest_joint_shapedirs", torch.einsum("jv,vcs->jcs", self.J_regressor, self.shapedirs)
        )
        derive("keypoint_terms", self.points(self.keypoint_joints, self.keypoint_vertices))
        derive("rows", mesh_rows(self.v_template, self.shapedirs, self.posedirs, self.weights))

    def __call__(
        self,
        pose: ArrayLike,
        shape: ArrayLike | None = None,
        translation: ArrayLike | None = None,
        vertices: bool = False,
        size: ArrayLike | None = None,
        hands: ArrayLike | None = None,
    ) -> BodyOutput:
        """Place the body in T frames.

        pose: axis-angle [T, 24, 3] or [T, 72] in radians, or matrices [T, 24, 3, 3]. shape: [S] for
        all frames or [T, S]; a shorter one gives the leading directions; None is the mean body.
        translation: [T, 3] metres; None is none. size: [] or [1] for all frames or [T], multiplies
        the posed body before it is moved; None is 1. hands: axis-angle [T, 30, 3] of SMPL-H's
        finger joints; None leaves the hands to the 24 joints.
        """
        rotation = _pose_matrices(self._tensor(pose, "pose"))
        frames = len(rotation)
        given = (
            self.v_template.new_zeros(self.shape_size)
            if shape is None
            else self._tensor(shape, "shape")
        )
        shape = _checked_shape(given, frames, self.shape_size)
        placement = self.placement(rotation, shape)
        feature = self.pose_feature(rotation)
        joints = placement.joints
        keypoints = self.keypoint_terms.place(
            placement, self.keypoint_terms.moments(shape, feature)
        )
        whole, points = placement, None
        if hands is not None:
            fingers = self._tensor(hands, "hands", (frames, 30, 3))
            whole = self.with_fingers().placement(placement, fingers, shape)
            points = self.with_fingers().points(whole, shape)
        mesh = self.mesh(whole, shape, feature) if vertices else None
        if size is not None:
            scale = self._tensor(size, "size", (), (1,), (frames,)).reshape(-1, 1, 1)
            if not bool((scale > 0).all()):
                raise UserError("size has a number that is not above 0.")
            joints = scale * joints
            keypoints = scale * keypoints
            points = None if points is None else scale.unsqueeze(-1) * points
            mesh = None if mesh is None else mesh.mul_(scale)
        if translation is not None:
            shift = self._tensor(translation, "translation", (frames, 3), (1, 3)).unsqueeze(1)
            joints = joints + shift
            keypoints = keypoints + shift
            points = None if points is None else points + shift.unsqueeze(1)
            mesh = None if mesh is None else mesh.add_(shift)
        return BodyOutput(joints, keypoints, mesh, points)

    def at(self, params: BodyParams, vertices: bool = False) -> BodyOutput:
        """The same for `BodyParams`."""
        parts = (
            [params.rows(some) for some in blocks(len(params))] if len(params) > BLOCK else [params]
        )
        placed = [
            self(one.pose, one.shape, one.translation, vertices, one.size, one.hands)
            for one in parts
        ]
        return placed[0] if len(placed) == 1 else BodyOutput.concat(placed)

    def height_m(self, shape: ArrayLike) -> float:
        """From the soles to the top of the head of one shape [S] in its rest pose, before any size."""
        rest = self.v_template[:, 1] + self.shapedirs[:, 1, : len(shape)] @ self._tensor(
            shape, "shape"
        )
        return float(rest.max() - rest.min())

    def height_std_m(self, shape_covariance: Tensor) -> float:
        """One standard deviation of the height, for a covariance [S, S] of the shape."""
        mean = np.zeros(len(shape_covariance))
        return float(
            self._measured(lambda rest: np.ptp(rest[:, 1], keepdims=True), mean, shape_covariance)[
                1
            ][0]
        )

    def segments_m(
        self,
        shape: ArrayLike,
        pairs: Sequence[tuple[int, int]],
        shape_covariance: Tensor | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """[N] distances of pairs of joints in the rest pose, and their deviations (NaN without a
        covariance).
        """
        first, second = np.array(pairs).T

        def lengths(rest: np.ndarray) -> np.ndarray:
            joints = self.J_regressor.numpy() @ rest
            return np.linalg.norm(joints[second] - joints[first], axis=1)

        return self._measured(lengths, shape, shape_covariance)

    def girths_m(
        self, shape: ArrayLike, shape_covariance: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """[4] round chest, waist, hip and left thigh at rest (GIRTHS), tape held straight, and
        their deviations (NaN without a covariance)."""
        import cv2

        faces = self.faces.numpy()
        arms = self.weights[:, ARM_JOINTS].sum(1).numpy()
        faces = faces[(arms[faces] < 0.5).all(1)]
        ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])

        def girths(rest: np.ndarray) -> np.ndarray:
            joints = (self.J_regressor.numpy() @ rest)[:, 1]
            lengths = []
            for above, below, share in GIRTHS.values():
                level = joints[above] + share * (joints[below] - joints[above])
                a = rest[ends[:, 0]]
                b = rest[ends[:, 1]]
                cut = (a[:, 1] - level) * (b[:, 1] - level) < 0
                if below in (4, 5):  # one leg of two
                    cut &= (a[:, 0] > 0) & (b[:, 0] > 0)
                a = a[cut]
                b = b[cut]
                met = a + ((level - a[:, 1]) / (b[:, 1] - a[:, 1]))[:, None] * (b - a)
                around = cv2.convexHull(np.ascontiguousarray(met[:, ::2], np.float32))
                lengths.append(cv2.arcLength(around, True))
            return np.array(lengths)

        return self._measured(girths, shape, shape_covariance)

    def _measured(
        self,
        measure: Callable[[np.ndarray], np.ndarray],
        shape: ArrayLike,
        covariance: Tensor | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is measured on the vertices [V, 3] of a shape [S] at rest, and its deviations, by
        differences.
        """

        def of(some: Tensor) -> np.ndarray:
            return measure(
                (self.v_template + self.shapedirs[..., : len(some)] @ some.to(self.dtype)).numpy()
            )

        shape = self._tensor(shape, "shape").double()
        measured = of(shape)
        if covariance is None:
            return measured, np.full_like(measured, np.nan)
        steps = 0.5 * torch.eye(len(shape), dtype=shape.dtype)[: len(covariance)]
        slope = np.stack([of(shape + step) - of(shape - step) for step in steps], 1)
        return measured, np.sqrt(
            np.einsum("gs,sr,gr->g", slope, covariance.double().numpy(), slope).clip(0)
        )

    def volume_m3(self, shape: ArrayLike) -> float:
        """Of one shape [S] at rest, before any size."""
        shape = self._tensor(shape, "shape")
        rest = (self.v_template + self.shapedirs[..., : len(shape)] @ shape).double()
        a, b, c = rest[self.faces.T.long()]
        return float((a * torch.linalg.cross(b, c)).sum() / 6)

    # The steps, for code that takes them apart. They check nothing.

    def placement(self, rotation: Tensor, shape: Tensor) -> Placement:
        """Where the bones are for local rotations [T, 24, 3, 3] and a shape [S] or [T, S]."""
        rest = self.rest_joints + torch.einsum("jcs,...s->...jc", self.rest_joint_shapedirs, shape)
        return forward_kinematics(rotation, rest)

    def pose_feature(self, rotation: Tensor) -> Tensor | None:
        """R - I of the joints that the pose correctives know, [T, P]; None for a body without
        correctives.
        """
        if self.posedirs is None:
            return None
        last = self.posedirs.shape[-1] // 9
        return (
            rotation[:, 1 : last + 1] - torch.eye(3, dtype=self.dtype, device=self.device)
        ).flatten(1)

    def with_fingers(self) -> Fingers:
        """The fingers, or a word for those whose body has none."""
        if self.fingers is None:
            raise UserError(
                f"a body of {self.name} has no fingers: use the open body, SMPL-H or SMPL-X."
            )
        return self.fingers

    def mesh(self, placement: Placement, shape: Tensor, pose_feature: Tensor | None) -> Tensor:
        """All vertices, [T, V, 3] metres, of the 24 joints or of the 52 with fingers; a few frames
        at a time, so that what lies between stays small."""
        template, by_shape, by_pose, weights = self.rows
        finger_feature = by_finger = None
        if placement.joints.shape[1] != JOINT_COUNT:
            fingers = self.with_fingers()
            template, by_shape, by_finger, weights = fingers.rows
            finger_feature = None if by_finger is None else fingers.pose_feature(placement)
        parts = []
        for first in range(0, max(len(placement.rotation), 1), FRAMES_AT_A_TIME):
            frames = slice(first, first + FRAMES_AT_A_TIME)
            of_frames = Placement(*(p[frames] if p.ndim > 2 else p for p in placement))
            rest = template + (shape if shape.ndim == 1 else shape[frames]) @ by_shape
            if by_pose is not None and pose_feature is not None:
                rest = rest + pose_feature[frames] @ by_pose
            if by_finger is not None and finger_feature is not None:
                rest = rest + finger_feature[frames] @ by_finger
            posed = skin(rest.unflatten(-1, (3, -1)), weights, of_frames)
            parts.append(posed.transpose(1, 2))
        return torch.cat(parts)

    def points(self, joint_part: Tensor, vertex_part: Tensor) -> AttachedPoints:
        """Any points that are weighted sums of posed joints [K, 24] and vertices [K, V], attached
        to the bones.
        """
        used = (vertex_part != 0).any(0).nonzero().squeeze(1)
        share = torch.einsum(
            "kv,vj->kvj", vertex_part[:, used], self.weights[used]
        )  # of point k: vertex v on bone j
        on_bone = share.sum(1)
        point, bone = ((joint_part != 0) | (on_bone != 0)).nonzero(as_tuple=True)
        share = share[point, :, bone]  # [E, v]
        weight = on_bone[point, bone]
        # sum_v share (x_v - J): a moment about the bone's own joint, taken over the vertices once.
        offset = share @ self.v_template[used] - weight[:, None] * self.rest_joints[bone]
        by_shape = torch.einsum("ev,vcs->ecs", share, self.shapedirs[used])
        by_shape = by_shape - weight[:, None, None] * self.rest_joint_shapedirs[bone]
        by_pose = (
            None
            if self.posedirs is None
            else torch.einsum("ev,vcp->ecp", share, self.posedirs[used])
        )
        gather = (torch.arange(len(joint_part), device=point.device)[:, None] == point).to(
            self.dtype
        )
        return AttachedPoints(
            bone, joint_part[point, bone] + weight, offset, by_shape, by_pose, gather
        )

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> "Body":
        """The same body in another precision or on another device; derived tensors are made again."""
        return with_tensors_to(self, dtype, device)

    def __repr__(self) -> str:
        size = f"{len(self.v_template)} vertices, {self.shape_size} shape directions"
        return f"Body({self.name!r}, {size}, {self.dtype}, {self.device})"

    @property
    def dtype(self) -> torch.dtype:
        return self.v_template.dtype

    @property
    def device(self) -> torch.device:
        return self.v_template.device

    @property
    def shape_size(self) -> int:
        """S, the number of shape directions."""
        return self.shapedirs.shape[-1]

    def _tensor(self, value: ArrayLike, what: str, *sizes: tuple[int, ...]) -> Tensor:
        """Finite, and of one of the sizes, if any are named."""
        tensor = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        if sizes and tuple(tensor.shape) not in sizes:
            expected = " or ".join(str(list(size)) for size in sizes)
            raise UserError(f"{what} has size {list(tensor.shape)}; expected {expected}.")
        # One pass over the sum first: any NaN or infinity survives it, and it costs a tenth of
        # looking at each.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise UserError(f"{what} holds NaN or infinity; every number must be finite.")
        return tensor


def _pose_matrices(pose: Tensor) -> Tensor:
    """A pose in any of its three forms -> matrices [T, 24, 3, 3]."""
    size = tuple(pose.shape[1:])
    if size == (JOINT_COUNT, 3, 3):
        return pose
    if size in ((JOINT_COUNT * 3,), (JOINT_COUNT, 3)):
        return rotation_matrices(pose.reshape(-1, JOINT_COUNT, 3))
    raise UserError(
        f"pose has size {list(pose.shape)}; expected axis-angle [T, 24, 3] or [T, 72], or matrices [T, 24, 3, 3], "
        "for T frames (one frame is T = 1)."
    )


def _checked_shape(value: Tensor, frames: int, directions: int) -> Tensor:
    """A shape for all frames [S] or for each [T, S], filled up with zeros to all directions."""
    rows_fit = value.ndim == 1 or (value.ndim == 2 and len(value) in (1, frames))
    if (
        not rows_fit or not min(1, directions) <= value.shape[-1] <= directions
    ):  # a fixed body has none
        raise UserError(
            f"shape has size {list(value.shape)}; expected [S] or [T, S] for T = {frames} frames, with S at most "
            f"{directions}, the number of this body's shape directions."
        )
    if value.ndim == 2 and len(value) == 1:
        value = value[0]  # one body for all frames
    missing = directions - value.shape[-1]
    return torch.nn.functional.pad(value, (0, missing)) if missing else value
