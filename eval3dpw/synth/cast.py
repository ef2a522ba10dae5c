"""People in the world: whose motion, which shape, where they stand. World frame: y up, ground at 0, metres."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eval3dpw.synth.motion import Clip, turned
from fitting.body import Body
from fitting.body.kinematics import Placement, rotation_matrices

BETAS = 10  # as many as 3DPW's files hold


@dataclass(frozen=True)
class Person:
    """One person's truth over T frames."""

    clip: str
    shape: Tensor  # [10]
    pose: Tensor  # [T, 24, 3] axis-angle, the root in the world
    translation: Tensor  # [T, 3]
    joints: Tensor  # [T, 24, 3]
    keypoints: Tensor  # [T, 17, 3] COCO
    placement: Placement  # before the translation

    @property
    def path(self) -> np.ndarray:
        """[T, 2] x, z of the pelvis."""
        return self.joints[:, 0, ::2].numpy()


def draw_shape(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.clip(rng.normal(0, 1, BETAS), -2.2, 2.2).astype(np.float32))


def stand(body: Body, clip: Clip, shape: Tensor, first: int, count: int, yaw: float) -> Person:
    """A piece of a clip, walked in a direction, feet on the ground, its path centred on the origin."""
    piece = turned(Clip(clip.name, clip.pose[first : first + count], clip.root_m[first : first + count]), yaw)
    longer = _leg_length(body, shape) / _leg_length(body, torch.zeros(BETAS))
    translation = (
        piece.root_m * longer - body.placement(torch.eye(3).expand(1, 24, 3, 3), _full(body, shape)).joints[0, 0]
    )
    middle = (translation.amin(0) + translation.amax(0)) / 2
    rest = body(piece.pose, _full(body, shape), translation, vertices=True).vertices
    assert rest is not None
    lowest = torch.quantile(rest[..., 1].amin(1), 0.1)  # of all frames but a few, so that one odd frame lifts nobody
    return place(body, clip.name, piece.pose, shape, translation - torch.stack((middle[0], lowest, middle[2])))


def place(body: Body, clip: str, pose: Tensor, shape: Tensor, translation: Tensor) -> Person:
    output = body(pose, _full(body, shape), translation)
    placement = body.placement(rotation_matrices(pose), _full(body, shape))
    return Person(clip, shape, pose, translation, output.joints, output.keypoints, placement)


def shifted(body: Body, person: Person, shift_m: tuple[float, float]) -> Person:
    """The same person elsewhere: x, z."""
    shift = torch.tensor([shift_m[0], 0.0, shift_m[1]])
    return place(body, person.clip, person.pose, person.shape, person.translation + shift)


def _full(body: Body, shape: Tensor) -> Tensor:
    return torch.cat((shape, shape.new_zeros(body.shape_size - len(shape))))


def _leg_length(body: Body, shape: Tensor) -> float:
    joints = body.rest_joints + torch.einsum("jcs,s->jc", body.rest_joint_shapedirs, _full(body, shape))
    return sum(float((joints[a] - joints[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8)))
