"""What is likely of a body before it is seen: poses, ranges of joints, upright people, shapes; and near the guess."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body.rotations import matrix_to_axis_angle
from fitting.solver.jacobian import left_jacobian
from fitting.solver.prior import PosePrior
from fitting.solver.terms.term import Blocks, Term, Window, geman_mcclure
from fitting.solver.unknowns import BODY_JOINTS, POSE, TRANSLATION, State

LIMIT_STD_RAD = 0.05  # so far beyond its range a number is one std off; not tuned
DISTANCE_STD_FACTOR = 5.0  # in doubt, on a guess of size and distance, which keypoints alone hardly tell apart
LEAN_SCALE = 3.0  # stds at which a lean counts half of its square: people do lie down. Not tuned


@dataclass(frozen=True)
class LikelyPose(Term):
    """The nearest component of the pose prior."""

    prior: PosePrior
    weight: float = 1.0  # less beside a guess that was made with such a prior itself

    def cost(self, window: Window) -> Tensor:
        return self.weight * self.prior.energy(window.state.body_pose)[0]

    def add(self, window: Window, blocks: Blocks) -> None:
        pose = window.state.body_pose
        _, nearest = self.prior.energy(pose)
        counts = self.weight * self.prior.pull(pose, nearest)
        precision = counts[:, None, None] * self.prior.precision[nearest]
        blocks.add_block(POSE, torch.einsum("tij,tj->ti", precision, pose - self.prior.mean[nearest]), precision)

    def in_doubt(self) -> "LikelyPose":
        """One Gaussian as wide as the whole mixture."""
        return replace(self, prior=self.prior.single_gaussian())


@dataclass(frozen=True)
class JointLimits(Term):
    """Axis-angle numbers stay in their ranges: free inside, soft beyond."""

    low: Tensor  # [57] radians
    high: Tensor  # [57]

    def beyond(self, pose: Tensor) -> Tensor:
        """How far numbers [T, 57] reach beyond their range, in stds: zero inside."""
        return ((pose - self.high).clamp(min=0) + (pose - self.low).clamp(max=0)) / LIMIT_STD_RAD

    def cost(self, window: Window) -> Tensor:
        return self.beyond(window.state.body_pose).square().sum(-1) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        beyond = self.beyond(window.state.body_pose)
        blocks.add_diagonal(POSE, beyond / LIMIT_STD_RAD, (beyond != 0) / LIMIT_STD_RAD**2)


@dataclass(frozen=True)
class Upright(Term):
    """Bodies do not lean towards or away from the camera.

    Seen from the front, a body that leans towards or away from the camera looks like a slightly shorter one that
    does not, so noise alone would make everybody lean. The sine of the lean is the body's up axis along the direction
    away from the camera: the optical axis, or its horizontal part where gravity is known.
    """

    PER_FRAME = ("axis",)

    axis: Tensor  # [T, 3] unit, away from the camera, in each frame's camera
    std_rad: float

    def residual(self, root: Tensor) -> Tensor:
        """The lean of bodies turned by root [T, 3, 3], in stds [T]."""
        return (root[:, :, 1] * self.axis).sum(-1) / self.std_rad

    def cost(self, window: Window) -> Tensor:
        squared = self.residual(window.state.root).square()
        return geman_mcclure(squared, squared.new_tensor(LEAN_SCALE**2))[0] / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        residual = self.residual(window.state.root)
        _, slope = geman_mcclure(residual.square(), residual.new_tensor(LEAN_SCALE**2))
        up = window.state.root[:, :, 1]  # a turn w moves it by w x up, and axis . (w x up) = w . (up x axis)
        row = torch.linalg.cross(up, self.axis) / self.std_rad
        matrix = slope[:, None, None] * row[:, :, None] * row[:, None]
        blocks.add_block(slice(3), (slope * residual)[:, None] * row, matrix)


def optical_axis(like: Tensor) -> Tensor:
    """[T, 3] away from the camera, for as many frames as `like` [T, ...] has."""
    return like.new_tensor([0.0, 0.0, 1.0]).expand(len(like), 3)


@dataclass(frozen=True)
class Guess(Term):
    """A guess of pose and place, and one standard deviation of each part."""

    PER_FRAME = ("root", "pose", "translation", "root_std_rad", "pose_std_rad", "translation_std_m")

    root: Tensor  # [T, 3, 3]
    pose: Tensor  # [T, 57] of BODY_JOINTS
    translation: Tensor  # [T, 3] metres
    root_std_rad: Tensor  # [T, 1]
    pose_std_rad: Tensor  # [T, 57]
    translation_std_m: Tensor  # [T, 1]

    @classmethod
    def at(cls, state: State, rotation_std_rad: Tensor, depth_std: Tensor) -> "Guess":
        """Deviations as `InitialGuess` has them: of 24 joints [T, 24], of the translation as a share of its length."""
        pose_std = rotation_std_rad[:, BODY_JOINTS].repeat_interleave(3, dim=1)
        far = state.translation.norm(dim=-1, keepdim=True)
        place = state.root, state.body_pose, state.translation
        return cls(*place, rotation_std_rad[:, :1], pose_std, depth_std[:, None] * far)

    def residuals(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Root [T, 3], pose [T, 57], translation [T, 3]."""
        root = matrix_to_axis_angle(state.root @ self.root.mT) / self.root_std_rad
        pose = (state.body_pose - self.pose) / self.pose_std_rad
        return root, pose, (state.translation - self.translation) / self.translation_std_m

    def cost(self, window: Window) -> Tensor:
        root, pose, translation = (part.square().sum(-1) for part in self.residuals(window.state))
        return (root + pose + translation) / 2

    def add(self, window: Window, blocks: Blocks) -> None:
        root, pose, translation = self.residuals(window.state)
        # root = log(R R_guess^T): its derivative by a turn of R is the inverse left Jacobian at that vector.
        slope = torch.linalg.inv(left_jacobian(root * self.root_std_rad)) / self.root_std_rad[..., None]
        blocks.add_block(slice(3), torch.einsum("tij,ti->tj", slope, root), slope.mT @ slope)
        blocks.add_diagonal(POSE, pose / self.pose_std_rad, 1 / self.pose_std_rad**2)
        blocks.add_diagonal(TRANSLATION, translation / self.translation_std_m, 1 / self.translation_std_m**2)

    def in_doubt(self) -> "Guess":
        return replace(self, translation_std_m=DISTANCE_STD_FACTOR * self.translation_std_m)


@dataclass(frozen=True)
class LikelyShape(Term):
    """The shape's prior, of standard deviation 1 in every direction, and the guess of it."""

    weight: float = 1.0  # so many frames a track is worth (`fitting.optimise`)
    guess: Tensor | None = None  # [S], or [T, S] where each frame has its own
    guess_std: float = 1.0

    def cost(self, window: Window) -> Tensor:
        shape = window.state.shape
        cost = shape.square().sum(-1) / 2
        if self.guess is not None:
            cost = cost + ((shape - self.guess) / self.guess_std).square().sum(-1) / 2
        return self.weight * cost

    def add(self, window: Window, blocks: Blocks) -> None:
        shape = window.state.shape
        eye = torch.eye(shape.shape[-1], dtype=shape.dtype)
        blocks.add_shape(self.weight * shape, self.weight * eye)
        if self.guess is not None:
            per = self.weight / self.guess_std**2
            blocks.add_shape(per * (shape - self.guess), per * eye)

    def frames(self, index: Tensor | slice) -> "LikelyShape":
        return self if self.guess is None or self.guess.ndim == 1 else replace(self, guess=self.guess[index])

    def in_doubt(self) -> "LikelyShape":
        return replace(self, guess_std=DISTANCE_STD_FACTOR * self.guess_std)
