"""What the solver moves: rotations, translation and shape, and how a step changes them.

Toes and hands (joints 10, 11, 22, 23) move no other joint and no COCO keypoint, so nothing measures
them: they stay as guessed. A step therefore has 63 numbers per frame,

    [0:3]   root: R_0 <- exp(w) R_0, radians in the camera frame,
    [3:60]  the 19 joints of BODY_JOINTS: added to their axis-angle vectors,
    [60:63] translation: added, metres,

and what all frames share: one number per direction of shape, and one per reading habit
(`fitting.body.reading`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_COUNT
from fitting.body.params import BodyParams
from fitting.body.rotations import matrix_to_axis_angle, nearest_rotation, rotation_matrices
from pose2d.base.columns import column
from pose2d.base.table import Table

BODY_JOINTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
MOVED_JOINTS = (0, *BODY_JOINTS)  # a step turns these
POSE = slice(3, 3 + 3 * len(BODY_JOINTS))
TRANSLATION = slice(POSE.stop, POSE.stop + 3)
STEP_SIZE = TRANSLATION.stop
# leading directions that are fitted; the finer ones move keypoints by a few millimetres only
SHAPE_SIZE = 10


@dataclass(frozen=True)
class State(Table):
    """Values of the unknowns for B frames."""

    TENSORS = True
    root: Tensor = column((3, 3), "f", "turns the body into the camera frame")  # [B, 3, 3]
    theta: Tensor = column((24, 3), "f", "axis-angle; row 0 is not used", unit="rad")  # [B, 24, 3]
    translation: Tensor = column((3,), "f", "in the camera frame", unit="m")  # [B, 3]
    shape: Tensor = column(
        ("directions",), "f", "shape and readings, one for all frames or one for each"
    )  # [S] or [B, S]: the shape's directions, then the readings

    @property
    def shared_shape(self) -> bool:
        return self.shape.ndim == 1

    @property
    def rotation(self) -> Tensor:
        """Return the local rotations, [B, 24, 3, 3]."""
        return torch.cat((self.root.unsqueeze(1), rotation_matrices(self.theta[:, 1:])), 1)

    @property
    def body_pose(self) -> Tensor:
        """Return the axis-angle numbers of BODY_JOINTS, [B, 57], the variables of the pose
        prior.
        """
        return self.theta[:, BODY_JOINTS].flatten(1)

    def moved(self, step: Tensor, shape_step: Tensor) -> "State":
        """Return the state after a step [B, 63] and a change of shape of the size of `shape`."""
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

    def where(self, choice: Tensor, otherwise: "State") -> "State":
        """Return this state where `choice` is true and the other one elsewhere. choice: [B] with a
        shape per frame, or [1] for all.
        """
        pairs = zip(vars(self).values(), vars(otherwise).values(), strict=True)
        return State(*(torch.where(choice.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


def from_params(
    params: BodyParams,
    shape_size: int = SHAPE_SIZE,
    readings: int = 0,
    dtype: torch.dtype = torch.float32,
) -> State:
    """Return the state of these parameters; rotations by more than half a turn become the shorter
    ones. Readings are 0 where the parameters have none.
    """
    pose = params.pose.detach().to(dtype).reshape(-1, JOINT_COUNT, 3)
    theta = matrix_to_axis_angle(rotation_matrices(pose))
    shape = params.shape.detach().to(dtype)[..., :shape_size]
    shape = torch.nn.functional.pad(shape, (0, shape_size - shape.shape[-1]))
    reading = shape.new_zeros(readings)
    if params.reading is not None and readings:
        reading = params.reading.detach().to(dtype)
    rows = torch.broadcast_shapes(shape.shape[:-1], reading.shape[:-1])
    shape = torch.cat((shape.expand(*rows, -1), reading.expand(*rows, -1)), -1)
    return State(rotation_matrices(pose[:, 0]), theta, params.translation.detach().to(dtype), shape)


def to_params(state: State, readings: int = 0) -> BodyParams:
    """Return the parameters of a state whose shape ends with so many readings."""
    pose = state.theta.clone()
    pose[:, 0] = matrix_to_axis_angle(nearest_rotation(state.root))
    shape, reading = state.shape.split((state.shape.shape[-1] - readings, readings), -1)
    return BodyParams(pose, shape, state.translation, reading=reading if readings else None)
