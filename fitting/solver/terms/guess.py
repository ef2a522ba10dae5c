"""The fit stays near the initial guess of pose and position."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body.rotations import matrix_to_axis_angle
from fitting.solver.jacobian import Posed, left_jacobian
from fitting.solver.terms.term import (
    NormalEquations,
    Term,
)
from fitting.solver.unknowns import BODY_JOINTS, POSE, TRANSLATION, State

# in doubt, on a guess of size and distance, which keypoints alone hardly tell apart
DISTANCE_STD_FACTOR = 5.0


@dataclass(frozen=True)
class Guess(Term):
    """Pull towards a guess of pose and position, with a standard deviation for each part."""

    PER_FRAME = ("root", "pose", "translation", "root_std_rad", "pose_std_rad", "translation_std_m")

    root: Tensor  # [T, 3, 3]
    pose: Tensor  # [T, 57] of BODY_JOINTS
    translation: Tensor  # [T, 3] metres
    root_std_rad: Tensor  # [T, 1]
    pose_std_rad: Tensor  # [T, 57]
    translation_std_m: Tensor  # [T, 1]

    @classmethod
    def at(cls, state: State, rotation_std_rad: Tensor, depth_std: Tensor) -> "Guess":
        """Return the term for a guess at a state. Deviations are as in `InitialGuess`: of 24 joints
        [T, 24], and of the translation as a share of its length.
        """
        pose_std = rotation_std_rad[:, BODY_JOINTS].repeat_interleave(3, dim=1)
        far = state.translation.norm(dim=-1, keepdim=True)
        place = state.root, state.body_pose, state.translation
        return cls(*place, rotation_std_rad[:, :1], pose_std, depth_std[:, None] * far)

    def residuals(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return the residuals of root [T, 3], pose [T, 57] and translation [T, 3]."""
        root = matrix_to_axis_angle(state.root @ self.root.mT) / self.root_std_rad
        pose = (state.body_pose - self.pose) / self.pose_std_rad
        return root, pose, (state.translation - self.translation) / self.translation_std_m

    def cost(self, posed: Posed) -> Tensor:
        root, pose, translation = (part.square().sum(-1) for part in self.residuals(posed.state))
        return (root + pose + translation) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        root, pose, translation = self.residuals(posed.state)
        # root = log(R R_guess^T): its derivative by a turn of R is the inverse left Jacobian at
        # that vector.
        slope = (
            torch.linalg.inv(left_jacobian(root * self.root_std_rad)) / self.root_std_rad[..., None]
        )
        equations.add_block(slice(3), torch.einsum("tij,ti->tj", slope, root), slope.mT @ slope)
        equations.add_diagonal(POSE, pose / self.pose_std_rad, 1 / self.pose_std_rad**2)
        equations.add_diagonal(
            TRANSLATION, translation / self.translation_std_m, 1 / self.translation_std_m**2
        )

    def in_doubt(self) -> "Guess":
        return replace(self, translation_std_m=DISTANCE_STD_FACTOR * self.translation_std_m)
