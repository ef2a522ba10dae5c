"""What the solver moves: rotations, translation and shape, and how a step changes them.

Toes and hands (joints 10, 11, 22, 23) move no other joint and no COCO keypoint, so nothing measures them: given the
rest, the pose prior alone places them, in closed form. A step therefore has 63 numbers per frame,

    [0:3]   root: R_0 <- exp(w) R_0, radians in the camera frame,
    [3:60]  the 19 joints of BODY_JOINTS: added to their axis-angle vectors,
    [60:63] translation: added, metres,

and one number per direction of shape.

Joint limits are ranges of those axis-angle numbers. Axes at rest (T-pose): x to the body's left, y up, z to the front.
A bent knee turns about +x; a bent left elbow about -y, a bent right one about +y; an arm let down turns its shoulder
about -z (left) or +z (right). The limits are soft: a number beyond its range costs (`terms.priors`).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import BodyParams
from fitting.body.kinematics import JOINT_COUNT, JOINT_NAMES, rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle, nearest_rotation

BODY_JOINTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
LEAF_JOINTS = (10, 11, 22, 23)
MOVED_JOINTS = (0, *BODY_JOINTS)  # a step turns these
POSE = slice(3, 3 + 3 * len(BODY_JOINTS))
TRANSLATION = slice(POSE.stop, POSE.stop + 3)
STEP_SIZE = TRANSLATION.stop
SHAPE_SIZE = 10  # leading directions that are fitted; the finer ones move keypoints by a few millimetres only


@dataclass(frozen=True)
class State:
    """Values of the unknowns for B frames."""

    root: Tensor  # [B, 3, 3] turns the body into the camera frame
    theta: Tensor  # [B, 24, 3] axis-angle in radians; row 0 is not used
    translation: Tensor  # [B, 3] metres in the camera frame
    shape: Tensor  # [S] shared by all frames, or [B, S]

    def __len__(self) -> int:
        return len(self.root)

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

    def frames(self, index: Tensor | slice) -> "State":
        """Some of the frames."""
        shape = self.shape if self.shared_shape else self.shape[index]
        return State(self.root[index], self.theta[index], self.translation[index], shape)

    def where(self, choice: Tensor, other: "State") -> "State":
        """This state in the frames where `choice` [B] is true, the other one elsewhere; a shape per frame."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return State(*(torch.where(choice.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))

    def put(self, index: Tensor, part: "State") -> "State":
        """With other values in the frames `index`; a shape per frame."""
        pairs = zip(vars(self).values(), vars(part).values(), strict=True)
        return State(*(whole.index_copy(0, index, values) for whole, values in pairs))


def join(states: list[State]) -> State:
    """Frames of several states one after the other; a shared shape is the first one's."""
    first = states[0]
    joined = {name: torch.cat([getattr(state, name) for state in states]) for name in ("root", "theta", "translation")}
    return State(**joined, shape=first.shape if first.shared_shape else torch.cat([state.shape for state in states]))


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


def orthonormal(state: State) -> State:
    """Remove the rounding errors of many multiplications from the root's matrix."""
    return replace(state, root=nearest_rotation(state.root))


# Ranges of textbooks on joint motion (goniometry), widened by hand where one bone of this tree does the work of several
# (spine, collar, wrist); not tuned. Degrees about x, y, z; left side. The right side is its mirror image: x stays, y
# and z change sign.
_DEGREES = {
    "left_hip": ((-130, 40), (-60, 60), (-45, 75)),
    "left_knee": ((-10, 150), (-25, 25), (-20, 20)),
    "left_ankle": ((-40, 60), (-45, 45), (-40, 40)),
    "spine1": ((-30, 60), (-30, 30), (-30, 30)),
    "spine2": ((-30, 45), (-30, 30), (-30, 30)),
    "spine3": ((-30, 45), (-30, 30), (-30, 30)),
    "neck": ((-60, 60), (-60, 60), (-45, 45)),
    "head": ((-45, 45), (-60, 60), (-45, 45)),
    "left_collar": ((-30, 30), (-40, 40), (-35, 45)),
    "left_shoulder": ((-110, 110), (-130, 110), (-110, 120)),
    "left_elbow": ((-120, 120), (-155, 5), (-60, 60)),
    "left_wrist": ((-120, 120), (-60, 60), (-90, 90)),
}


def _range(name: str) -> tuple[tuple[float, float], ...]:
    if name in _DEGREES:
        return _DEGREES[name]
    x, y, z = _DEGREES[name.replace("right", "left")]
    return x, (-y[1], -y[0]), (-z[1], -z[0])


def ranges(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Lowest and highest axis-angle numbers of BODY_JOINTS, each [57] radians."""
    table = torch.tensor([_range(JOINT_NAMES[joint]) for joint in BODY_JOINTS], dtype=dtype) * (math.pi / 180)
    return table[..., 0].flatten(), table[..., 1].flatten()
