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
from fitting.body.body_inputs import check_shape, pose_matrices
from fitting.body.fingers import Fingers, with_tensors_to
from fitting.body.kinematics import JOINT_COUNT, Placement, forward_kinematics
from fitting.body.params import BodyOutput, BodyParams
from fitting.body.reading import reading_terms
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
    # [V, 3, P] metres per unit of (R - I) of joints 1, 2, ..; None when all are zero
    posedirs: Tensor | None
    J_regressor: Tensor  # [24, V] rest-pose joints from rest-pose vertices; wrong on posed ones
    weights: Tensor  # [V, 24] skinning weights
    faces: Tensor  # [F, 3] vertex numbers, counter-clockwise seen from outside
    keypoint_joints: Tensor  # [26, 24] share of the posed joints in each keypoint
    keypoint_vertices: Tensor  # [26, V] share of the posed vertices
    h36m_regressor: Tensor | None = None  # [17, V] Human3.6M joints from posed vertices
    # vertices by name: "nose", "LHeel", ..
    vertex_picks: dict[str, int] = field(default_factory=dict)
    fingers: Fingers | None = None  # None: the file knows none (SMPL)
    given_reading: AttachedPoints | None = None  # None: `reading_terms` follow from the joints

    rest_joints: Tensor = field(init=False)  # [24, 3] metres at zero shape
    rest_joint_shapedirs: Tensor = field(init=False)  # [24, 3, S]
    keypoint_terms: AttachedPoints = field(init=False)  # the keypoints as terms on bones
    reading_terms: AttachedPoints = field(init=False)  # from the keypoints to where they are read
    rows: Rows = field(init=False)  # the mesh, for `mesh`

    def __post_init__(self) -> None:
        def derive(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        derive("rest_joints", self.J_regressor @ self.v_template)
        derive(
            "rest_joint_shapedirs", torch.einsum("jv,vcs->jcs", self.J_regressor, self.shapedirs)
        )
        derive("keypoint_terms", self.points(self.keypoint_joints, self.keypoint_vertices))
        derive("reading_terms", self.given_reading or reading_terms(self.rest_joints))
        derive("rows", mesh_rows(self.v_template, self.shapedirs, self.posedirs, self.weights))

    def __call__(
        self,
        pose: ArrayLike,
        shape: ArrayLike | None = None,
        translation: ArrayLike | None = None,
        vertices: bool = False,
        size: ArrayLike | None = None,
        hands: ArrayLike | None = None,
        reading: ArrayLike | None = None,
    ) -> BodyOutput:
        """Place the body in T frames.

        pose: axis-angle [T, 24, 3] or [T, 72] in radians, or matrices [T, 24, 3, 3]. shape: [S] for
        all frames or [T, S]; a shorter one gives the leading directions; None is the mean body.
        translation: [T, 3] metres; None is none. size: [] or [1] for all frames or [T], multiplies
        the posed body before it is moved; None is 1. hands: axis-angle [T, 30, 3] of SMPL-H's
        finger joints; None leaves the hands to the 24 joints. reading: [R] or [T, R] moves the
        keypoints to where they are read (`fitting.body.reading`); None leaves them on the body.
        """
        rotation = pose_matrices(self._tensor(pose, "pose"))
        frames = len(rotation)
        if shape is None:
            shape = self.v_template.new_zeros(self.shape_size)
        shape = check_shape(self._tensor(shape, "shape"), frames, self.shape_size)
        placement = self.placement(rotation, shape)
        feature = self.pose_feature(rotation)
        joints = placement.joints
        keypoints = self.keypoint_terms.place(
            placement, self.keypoint_terms.moments(shape, feature)
        )
        if reading is not None:
            keypoints = keypoints + self._reading_shift(placement, reading)
        mesh_placement = placement
        points = None
        if hands is not None:
            fingers = self._tensor(hands, "hands", (frames, 30, 3))
            mesh_placement = self.with_fingers().placement(placement, fingers, shape)
            points = self.with_fingers().points(mesh_placement, shape)
        mesh = self.mesh(mesh_placement, shape, feature) if vertices else None
        if size is not None:
            scale = self._tensor(size, "size", (), (1,), (frames,)).reshape(-1, 1, 1)
            if not bool((scale > 0).all()):
                raise UserError(f"size must be above 0; got {float(scale.min()):g}.")
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
        """Place the body in the frames of `BodyParams`."""
        parts = [params]
        if len(params) > BLOCK:
            parts = [params.rows(block) for block in blocks(len(params))]
        placed = [
            self(
                part.pose,
                part.shape,
                part.translation,
                vertices,
                part.size,
                part.hands,
                part.reading,
            )
            for part in parts
        ]
        return placed[0] if len(placed) == 1 else BodyOutput.concat(placed)

    def _reading_shift(self, placement: Placement, reading: ArrayLike) -> Tensor:
        """Return the way [T, 26, 3] from the body's keypoints to where they are read."""
        terms = self.reading_terms
        frames = len(placement.joints)
        count = terms.offset_shapedirs.shape[-1]
        values = self._tensor(reading, "reading", (count,), (frames, count))
        return terms.place(placement, terms.moments(values, None))

    def height_m(self, shape: ArrayLike) -> float:
        """Return the height of a shape [S] at rest, from the soles to the top of the head, before
        any size.
        """
        directions = self.shapedirs[:, 1, : len(shape)]
        vertex_heights = self.v_template[:, 1] + directions @ self._tensor(shape, "shape")
        return float(vertex_heights.max() - vertex_heights.min())

    def height_std_m(self, shape_covariance: Tensor) -> float:
        """Return one standard deviation of the height, for a covariance [S, S] of the shape."""

        def height(rest_vertices: np.ndarray) -> np.ndarray:
            return np.ptp(rest_vertices[:, 1], keepdims=True)

        mean_shape = np.zeros(len(shape_covariance))
        _, deviations = self._measure(height, mean_shape, shape_covariance)
        return float(deviations[0])

    def segments_m(
        self,
        shape: ArrayLike,
        pairs: Sequence[tuple[int, int]],
        shape_covariance: Tensor | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances [N] of pairs of joints in the rest pose, and their deviations (NaN
        without a covariance).
        """
        first, second = np.array(pairs).T

        def lengths(rest_vertices: np.ndarray) -> np.ndarray:
            joints = self.J_regressor.numpy() @ rest_vertices
            return np.linalg.norm(joints[second] - joints[first], axis=1)

        return self._measure(lengths, shape, shape_covariance)

    def girths_m(
        self, shape: ArrayLike, shape_covariance: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the girths [4] of chest, waist, hip and left thigh at rest (GIRTHS), with a
        straight tape, and their deviations (NaN without a covariance).
        """
        import cv2

        faces = self.faces.numpy()
        arms = self.weights[:, ARM_JOINTS].sum(1).numpy()
        faces = faces[(arms[faces] < 0.5).all(1)]
        ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])

        def girths(rest_vertices: np.ndarray) -> np.ndarray:
            joints = (self.J_regressor.numpy() @ rest_vertices)[:, 1]
            lengths = []
            for above, below, share in GIRTHS.values():
                level = joints[above] + share * (joints[below] - joints[above])
                a = rest_vertices[ends[:, 0]]
                b = rest_vertices[ends[:, 1]]
                cut = (a[:, 1] - level) * (b[:, 1] - level) < 0
                if below in (4, 5):  # one leg of two
                    cut &= (a[:, 0] > 0) & (b[:, 0] > 0)
                a = a[cut]
                b = b[cut]
                cut_points = a + ((level - a[:, 1]) / (b[:, 1] - a[:, 1]))[:, None] * (b - a)
                outline = cv2.convexHull(np.ascontiguousarray(cut_points[:, ::2], np.float32))
                lengths.append(cv2.arcLength(outline, True))
            return np.array(lengths)

        return self._measure(girths, shape, shape_covariance)

    def _measure(
        self,
        measure: Callable[[np.ndarray], np.ndarray],
        shape: ArrayLike,
        covariance: Tensor | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Measure the vertices [V, 3] of a shape [S] at rest; return the values and their
        deviations by finite differences.
        """

        def measure_shape(shape: Tensor) -> np.ndarray:
            directions = self.shapedirs[..., : len(shape)]
            return measure((self.v_template + directions @ shape.to(self.dtype)).numpy())

        shape = self._tensor(shape, "shape").double()
        measured = measure_shape(shape)
        if covariance is None:
            return measured, np.full_like(measured, np.nan)
        steps = 0.5 * torch.eye(len(shape), dtype=shape.dtype)[: len(covariance)]
        slope = np.stack(
            [measure_shape(shape + step) - measure_shape(shape - step) for step in steps], 1
        )
        variance = np.einsum("gs,sr,gr->g", slope, covariance.double().numpy(), slope)
        return measured, np.sqrt(variance.clip(0))

    def volume_m3(self, shape: ArrayLike) -> float:
        """Return the volume of a shape [S] at rest, before any size."""
        shape = self._tensor(shape, "shape")
        rest_vertices = (self.v_template + self.shapedirs[..., : len(shape)] @ shape).double()
        a, b, c = rest_vertices[self.faces.T.long()]
        return float((a * torch.linalg.cross(b, c)).sum() / 6)

    # The steps of a call, for code that needs them one by one. They check nothing.

    def placement(self, rotation: Tensor, shape: Tensor) -> Placement:
        """Return where the bones are, for local rotations [T, 24, 3, 3] and a shape [S] or
        [T, S].
        """
        rest_joints = self.rest_joints + torch.einsum(
            "jcs,...s->...jc", self.rest_joint_shapedirs, shape
        )
        return forward_kinematics(rotation, rest_joints)

    def pose_feature(self, rotation: Tensor) -> Tensor | None:
        """Return R - I of the joints that have pose correctives, [T, P]; None for a body without
        correctives.
        """
        if self.posedirs is None:
            return None
        last = self.posedirs.shape[-1] // 9
        identity = torch.eye(3, dtype=self.dtype, device=self.device)
        return (rotation[:, 1 : last + 1] - identity).flatten(1)

    def with_fingers(self) -> Fingers:
        """Return the fingers; raise UserError for a body without them."""
        if self.fingers is None:
            raise UserError(
                f"a body of {self.name} has no fingers: use the open body, SMPL-H or SMPL-X."
            )
        return self.fingers

    def mesh(self, placement: Placement, shape: Tensor, pose_feature: Tensor | None) -> Tensor:
        """Return all vertices, [T, V, 3] metres, for a placement of 24 joints or of 52 with
        fingers.

        A few frames are computed at a time, so that intermediate tensors stay small.
        """
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
            rest_vertices = template + (shape if shape.ndim == 1 else shape[frames]) @ by_shape
            if by_pose is not None and pose_feature is not None:
                rest_vertices = rest_vertices + pose_feature[frames] @ by_pose
            if by_finger is not None and finger_feature is not None:
                rest_vertices = rest_vertices + finger_feature[frames] @ by_finger
            posed = skin(rest_vertices.unflatten(-1, (3, -1)), weights, of_frames)
            parts.append(posed.transpose(1, 2))
        return torch.cat(parts)

    def points(self, joint_part: Tensor, vertex_part: Tensor) -> AttachedPoints:
        """Attach points to the bones that are weighted sums of posed joints [K, 24] and vertices
        [K, V].
        """
        used = (vertex_part != 0).any(0).nonzero().squeeze(1)
        # of point k: vertex v on bone j
        share = torch.einsum("kv,vj->kvj", vertex_part[:, used], self.weights[used])
        on_bone = share.sum(1)
        point, bone = ((joint_part != 0) | (on_bone != 0)).nonzero(as_tuple=True)
        share = share[point, :, bone]  # [E, v]
        weight = on_bone[point, bone]
        # sum_v share (x_v - J): a moment about the bone's own joint, taken over the vertices once.
        offset = share @ self.v_template[used] - weight[:, None] * self.rest_joints[bone]
        by_shape = torch.einsum("ev,vcs->ecs", share, self.shapedirs[used])
        by_shape = by_shape - weight[:, None, None] * self.rest_joint_shapedirs[bone]
        by_pose = None
        if self.posedirs is not None:
            by_pose = torch.einsum("ev,vcp->ecp", share, self.posedirs[used])
        number = torch.arange(len(joint_part), device=point.device)
        gather = (number[:, None] == point).to(self.dtype)
        coefficient = joint_part[point, bone] + weight
        return AttachedPoints(bone, coefficient, offset, by_shape, by_pose, gather)

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> "Body":
        """Return the body in another precision or on another device, with its derived tensors."""
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

    def _tensor(self, value: ArrayLike, name: str, *sizes: tuple[int, ...]) -> Tensor:
        """Convert a value to a finite tensor of one of the sizes, if any are named."""
        tensor = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        if sizes and tuple(tensor.shape) not in sizes:
            expected = " or ".join(str(list(size)) for size in sizes)
            raise UserError(f"{name} has size {list(tensor.shape)}; expected {expected}.")
        # One pass over the sum first: any NaN or infinity survives it, and it costs a tenth of
        # looking at each.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise UserError(f"{name} holds NaN or infinity; every number must be finite.")
        return tensor
