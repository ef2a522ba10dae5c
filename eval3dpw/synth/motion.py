"""The motion of rendered people: CMU clips, split by subject so that no two splits share a captured person."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle
from fitting.training.motion_capture import COPIES_OF_HELD_OUT, Motion, load_motion
from pose2d.base.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FPS = 30
RADIANS_PER_STEP = 1e-4  # resolution of the embedded file's angles
VALIDATION_SUBJECTS = (20, 75, 85, 125, 135)  # of the held-out ones; the other held-out subjects are for the test
SHORTEST_CLIP = 40  # frames


@dataclass(frozen=True)
class Clip:
    """One recording on the mean body, in the capture's frame: y up, metres."""

    name: str  # subject_take
    pose: Tensor  # [T, 24, 3] axis-angle
    root_m: Tensor  # [T, 3] pelvis


def load_clips(body: Body, split: Split, path: Path | None = None) -> tuple[Clip, ...]:
    """The clips of a split, from a file of CMU clips or, without one, the embedded clips."""
    motion = _embedded() if path is None else _from_file(path, body)
    assert motion.root_m is not None
    spans = (motion.clip(number) for number in range(len(motion.clip_name)))
    clips = tuple(
        Clip(name, motion.pose[span], motion.root_m[span])
        for name, span in zip(motion.clip_name, spans, strict=True)
        if _split_of(name, motion) == split and span.stop - span.start >= SHORTEST_CLIP
    )
    if clips:
        return clips
    if path is None:
        raise UserError(
            f"the embedded motion has no clips for the split {split!r}: it holds the subjects kept for validation and "
            "test only. Give a file of CMU clips with --motion."
        )
    raise UserError(f"{path} has no clip of at least {SHORTEST_CLIP} frames for the split {split!r}.")


def mirrored(clip: Clip) -> Clip:
    """The mirrored motion: left and right are exchanged."""
    pose = clip.pose[:, _MIRROR] * clip.pose.new_tensor([1, -1, -1])
    return Clip(clip.name + "m", pose, clip.root_m * clip.root_m.new_tensor([-1, 1, 1]))


def rotated(clip: Clip, yaw: float) -> Clip:
    """The same motion in another direction: rotated about the vertical through the origin."""
    rotation = rotation_matrices(torch.tensor([0.0, yaw, 0.0], dtype=clip.pose.dtype))
    pose = clip.pose.clone()
    pose[:, 0] = matrix_to_axis_angle(rotation @ rotation_matrices(clip.pose[:, 0]))
    return Clip(clip.name, pose, clip.root_m @ rotation.mT)


def _split_of(name: str, motion: Motion) -> Split | None:
    """None of recordings of held-out subjects that have another number."""
    subject = int(name.split("_")[0])
    if subject in COPIES_OF_HELD_OUT:
        return None
    if not motion.held_out[motion.clip_name.index(name)]:
        return "train"
    return "validation" if subject in VALIDATION_SUBJECTS else "test"


def _embedded() -> Motion:
    with files("eval3dpw.synth").joinpath("data/held_out_motion.npz").open("rb") as stream, np.load(stream) as file:
        pose = torch.from_numpy(file["pose_steps"].astype(np.float32) * RADIANS_PER_STEP)
        names = tuple(str(name) for name in file["clip_name"])
        return Motion(pose, torch.from_numpy(file["root_m"]), file["clip_start"], names, FPS)


def _from_file(path: Path, body: Body) -> Motion:
    try:
        motion = load_motion(path, body, FPS)
    except (KeyError, ValueError, OSError) as error:
        raise UserError(
            f"{path} is not a file of CMU clips: expected an .npz with euler_zyx_deg_x100, root_pos, joint, parent, "
            f"offset, clip_start and clip_name at {FPS} frames/s."
        ) from error
    if motion.root_m is None:
        raise UserError(f"{path} has no root positions (root_pos); which place people on the ground.")
    return motion


_MIRROR = [0, 2, 1, 3, 5, 4, 6, 8, 7, 9, 11, 10, 12, 14, 13, 15, 17, 16, 19, 18, 21, 20, 23, 22]
