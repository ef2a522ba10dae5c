"""One person of a sequence as a camera sees it: the truth that a fit is measured against."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from eval3dpw.sequences import Sequence
from fitting.body import Body, BodyParams
from fitting.body.kinematics import rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle


@dataclass(frozen=True)
class TruthTrack:
    """T frames of one person."""

    sequence: str
    person: int
    gender: str  # "male", "female" or "neutral"
    frame: np.ndarray  # [T] image numbers, strictly increasing
    shape: np.ndarray  # [S]
    pose: np.ndarray  # [T, 24, 3] axis-angle; joint 0 turns the body into the world
    translation: np.ndarray  # [T, 3] metres, world
    T_cam_world: np.ndarray  # [T, 4, 4]
    camera_valid: np.ndarray  # [T]
    intrinsics: np.ndarray | None  # [3, 3] pixels; None: the source does not say
    poses2d_px: np.ndarray | None = None  # [T, 18, 3] OpenPose's x, y, confidence; None: the source has none
    boxes_px: np.ndarray | None = None  # [T, 4] x1, y1, x2, y2, where the source gives boxes and no place in space

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def name(self) -> str:
        return f"{self.sequence}/{self.person}"

    def rows(self, choice: np.ndarray) -> "TruthTrack":
        """Some of the frames."""
        return replace(
            self,
            frame=self.frame[choice],
            pose=self.pose[choice],
            translation=self.translation[choice],
            T_cam_world=self.T_cam_world[choice],
            camera_valid=self.camera_valid[choice],
            poses2d_px=None if self.poses2d_px is None else self.poses2d_px[choice],
            boxes_px=None if self.boxes_px is None else self.boxes_px[choice],
        )


def tracks_of(sequence: Sequence) -> list[TruthTrack]:
    """Everyone in a sequence, all frames, also those without a valid camera."""
    return [
        TruthTrack(
            sequence=sequence.name,
            person=number,
            gender=person.gender,
            frame=np.arange(len(sequence)),
            shape=person.shape,
            pose=person.pose,
            translation=person.translation,
            T_cam_world=sequence.T_cam_world,
            camera_valid=person.camera_valid,
            intrinsics=sequence.intrinsics,
            poses2d_px=person.poses2d_px,
        )
        for number, person in enumerate(sequence.people)
    ]


def camera_params(track: TruthTrack, body: Body) -> BodyParams:
    """The true body in the camera frame.

    A body turns about its pelvis J, which its file keeps away from the origin: v = R (x - J) + J + t. In the camera,
    C v + c, the turn is C R and the translation C (J + t) + c - J.
    """
    pose = torch.as_tensor(track.pose, dtype=torch.float64)
    C, c = (torch.as_tensor(track.T_cam_world[:, :3, part], dtype=torch.float64) for part in (slice(3), 3))
    shape = torch.as_tensor(track.shape, dtype=torch.float64)
    pelvis = body.rest_joints[0].double() + body.rest_joint_shapedirs[0, :, : len(shape)].double() @ shape
    root = matrix_to_axis_angle(C @ rotation_matrices(pose[:, 0]))
    at = torch.as_tensor(track.translation, dtype=torch.float64) + pelvis
    translation = torch.einsum("tij,tj->ti", C, at) + c - pelvis
    turned = torch.cat((root[:, None], pose[:, 1:]), 1)
    return BodyParams(turned.to(body.dtype), shape.to(body.dtype), translation.to(body.dtype))
