"""The body: pose, shape and translation -> joints, keypoints and, when asked for, the mesh.

Every body has the 24 joints of `fitting.kinematics`, whichever file it came from, and the 17 COCO keypoints.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fitting.kinematics import JOINT_COUNT, Placement, forward_kinematics, rotation_matrices
from fitting.points import RiddenPoints, ride
from fitting.skinning import skin
from pose2d.errors import UserError

ArrayLike = Tensor | np.ndarray


@dataclass(frozen=True)
class BodyParams:
    """What a fit finds: one person over T frames."""

    pose: Tensor  # [T, 24, 3] axis-angle in radians, each joint relative to its parent; joint 0 turns the whole body
    shape: Tensor  # [S] one body for all frames, or [T, S]; in standard deviations
    translation: Tensor  # [T, 3] metres, added to every point


@dataclass(frozen=True)
class BodyOutput:
    """Where the body is in T frames, in the frame that the translation is given in."""

    joints: Tensor  # [T, 24, 3] metres, posed joints by forward kinematics
    keypoints: Tensor  # [T, 17, 3] metres, COCO-17
    vertices: Tensor | None  # [T, V, 3] metres, or None when not asked for


@dataclass(frozen=True)
class Body:
    """A body as plain tensors. Call it: `body(pose, shape, translation, vertices=True)`."""

    name: str  # "open", "SMPL", "SMPL-H" or "SMPL-X"
    v_template: Tensor  # [V, 3] metres, T-pose: x to the body's left, y up, z to the front
    shapedirs: Tensor  # [V, 3, S] metres per standard deviation
    posedirs: (
        Tensor | None
    )  # [V, 3, P] metres per entry of (R - I) of joints 1, 2, ..; None when all are zero
    J_regressor: Tensor  # [24, V] rest-pose joints from rest-pose vertices; wrong on posed ones
    weights: Tensor  # [V, 24] skinning weights
    faces: Tensor  # [F, 3] vertex numbers, counter-clockwise from outside
    keypoint_joints: Tensor  # [17, 24] share of the posed joints in each COCO keypoint
    keypoint_vertices: Tensor  # [17, V] share of the posed vertices
    h36m_regressor: Tensor | None = None  # [17, V] Human3.6M joints from posed vertices
    vertex_picks: dict[str, int] = field(
        default_factory=dict
    )  # named vertices: "nose", "LHeel", "lindex", ..

    rest_joints: Tensor = field(init=False)  # [24, 3] metres at zero shape
    rest_joints_by_shape: Tensor = field(init=False)  # [24, 3, S]
    keypoint_terms: RiddenPoints = field(init=False)  # the COCO keypoints as terms on bones
    weights_by_bone: Tensor = field(init=False)  # [24, V]

    def __post_init__(self) -> None:
        derive = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        derive("rest_joints", self.J_regressor @ self.v_template)
        derive("rest_joints_by_shape", torch.einsum("jv,vcs->jcs", self.J_regressor, self.shapedirs))
        derive("keypoint_terms", self.points(self.keypoint_joints, self.keypoint_vertices))
        derive("weights_by_bone", self.weights.T.contiguous())

    def __call__(
        self,
        pose: ArrayLike,
        shape: ArrayLike | None = None,
        translation: ArrayLike | None = None,
        vertices: bool = False,
    ) -> BodyOutput:
        """Place the body.

        pose: axis-angle [T, 24, 3] or [T, 72] in radians, or matrices [T, 24, 3, 3].
        shape: [S] for all frames or [T, S]; fewer than S numbers are the leading directions, None is the mean body.
        translation: [T, 3] metres; None is none.
        """
        rotation = self._rotation(pose)
        shape = self._shape(shape, len(rotation))
        shift = self._translation(translation, len(rotation))

        placement = self.placement(rotation, shape)
        feature = self.pose_feature(rotation)
        keypoints = self.keypoint_terms.place(placement, self.keypoint_terms.moments(shape, feature))
        mesh = skin(self.rest_vertices(shape, feature), self.weights_by_bone, placement) if vertices else None
        if shift is None:
            return BodyOutput(placement.joints, keypoints, mesh)
        return BodyOutput(placement.joints + shift, keypoints + shift, None if mesh is None else mesh + shift)

    def of(self, params: BodyParams, vertices: bool = False) -> BodyOutput:
        """The same for parameters that travel together."""
        return self(params.pose, params.shape, params.translation, vertices)

    def placement(self, rotation: Tensor, shape: Tensor) -> Placement:
        """Where the bones are for local rotations [T, 24, 3, 3] and a shape [S] or [T, S]; nothing is checked."""
        rest = self.rest_joints + torch.einsum("jcs,...s->...jc", self.rest_joints_by_shape, shape)
        return forward_kinematics(rotation, rest)

    def pose_feature(self, rotation: Tensor) -> Tensor | None:
        """R - I of the joints that pose correctives listen to, [T, P]; None for a body without correctives."""
        if self.posedirs is None:
            return None
        last = self.posedirs.shape[-1] // 9
        return (rotation[:, 1 : last + 1] - torch.eye(3, dtype=self.dtype, device=self.device)).flatten(1)

    def rest_vertices(self, shape: Tensor, pose_feature: Tensor | None = None) -> Tensor:
        """The mesh before skinning, [3, V], or [T, 3, V] when it differs between frames; metres."""
        rest = self.v_template.T + torch.einsum("vcs,...s->...cv", self.shapedirs, shape)
        if self.posedirs is not None and pose_feature is not None:
            rest = rest + torch.einsum("vcp,tp->tcv", self.posedirs, pose_feature)
        return rest

    def points(self, joint_part: Tensor, vertex_part: Tensor) -> RiddenPoints:
        """Any points that are weighted sums of posed joints [K, 24] and vertices [K, V], ready to ride the bones."""
        return ride(
            joint_part, vertex_part, self.v_template, self.shapedirs, self.posedirs, self.weights,
            self.rest_joints, self.rest_joints_by_shape,
        )  # fmt: skip

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Body":
        """The same body in another precision or on another device."""
        dtype = dtype or self.dtype
        moved = {
            name: value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and name in _GIVEN
        }
        return replace(self, **moved)

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

    def _tensor(self, value: ArrayLike, what: str) -> Tensor:
        tensor = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        if not torch.isfinite(tensor).all():
            raise UserError(
                f"{what} has a number that is not finite (NaN or infinity): nothing can be placed by it."
            )
        return tensor

    def _rotation(self, pose: ArrayLike) -> Tensor:
        pose = self._tensor(pose, "pose")
        size = tuple(pose.shape)
        if size[1:] == (JOINT_COUNT, 3, 3):
            return pose
        if size[1:] == (JOINT_COUNT * 3,):
            return rotation_matrices(pose.unflatten(1, (JOINT_COUNT, 3)))
        if size[1:] == (JOINT_COUNT, 3):
            return rotation_matrices(pose)
        raise UserError(
            f"pose has size {list(size)}; expected [T, 24, 3] or [T, 72] axis-angle, or [T, 24, 3, 3] matrices "
            "(T frames; one frame is T = 1)."
        )

    def _shape(self, shape: ArrayLike | None, frames: int) -> Tensor:
        if shape is None:
            return torch.zeros(self.shape_size, dtype=self.dtype, device=self.device)
        shape = self._tensor(shape, "shape")
        rows_fit = shape.ndim == 1 or (shape.ndim == 2 and len(shape) in (1, frames))
        if not rows_fit or not 1 <= shape.shape[-1] <= self.shape_size:
            raise UserError(
                f"shape has size {list(shape.shape)}; expected [S] or [T, S] with T = {frames} frames and S at most "
                f"{self.shape_size}, the directions of the {self.name} body."
            )
        if shape.ndim == 2 and len(shape) == 1:
            shape = shape[0]  # one body for all frames
        return torch.nn.functional.pad(shape, (0, self.shape_size - shape.shape[-1]))

    def _translation(self, translation: ArrayLike | None, frames: int) -> Tensor | None:
        if translation is None:
            return None
        translation = self._tensor(translation, "translation")
        if tuple(translation.shape) not in ((frames, 3), (1, 3)):
            raise UserError(f"translation has size {list(translation.shape)}; expected [{frames}, 3] metres.")
        return translation.unsqueeze(1)


_GIVEN = {name for name, entry in Body.__dataclass_fields__.items() if entry.init}
