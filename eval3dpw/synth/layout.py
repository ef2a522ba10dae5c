"""3DPW's files: one pickle a sequence, and a folder of numbered images."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.synth.cast import Person
from eval3dpw.synth.truth import BEHIND_SELF, HIDDEN, SEEN
from fitting.body.rotations import axis_angle_to_quaternion, quaternion_to_axis_angle

# OpenPose's 18 points, as 3DPW keeps them, by COCO's numbers; the second is the neck, between the shoulders.
_OPENPOSE18 = (0, None, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
_TRUST = {HIDDEN: 0.2, BEHIND_SELF: 0.6, SEEN: 0.9}
_FEWEST_SEEN = 4  # with fewer points in sight a 2D network would find nobody


def image_path(root: Path, sequence: str, frame: int) -> Path:
    return root / "imageFiles" / sequence / f"image_{frame:05d}.jpg"


def sequence_path(root: Path, split: str, sequence: str) -> Path:
    return root / "sequenceFiles" / split / f"{sequence}.pkl"


def truth_path(root: Path, sequence: str) -> Path:
    return root / "synthFiles" / f"{sequence}.npz"


def content(
    sequence: str,
    people: list[Person],
    dressed_m: list[np.ndarray],
    cam_poses: np.ndarray,
    intrinsics: np.ndarray,
    keypoints_px: np.ndarray,
    visibility: np.ndarray,
) -> dict[str, Any]:
    """What 3DPW's pickles hold, by its names.

    dressed_m: each person's clothed template [V, 3]; keypoints_px [P, T, 17, 2] and visibility [P, T, 17].
    """
    frames = len(cam_poses)
    points2d = [openpose18(xy, seen) for xy, seen in zip(keypoints_px, visibility, strict=True)]
    return {
        "sequence": sequence,
        "betas": [p.shape.double().numpy() for p in people],
        "poses": [p.pose.flatten(1).double().numpy() for p in people],
        "trans": [p.translation.double().numpy() for p in people],
        "poses_60Hz": [_twice_as_often(p)[0] for p in people],
        "trans_60Hz": [_twice_as_often(p)[1] for p in people],
        "betas_clothed": [p.shape.double().numpy() for p in people],
        "v_template_clothed": [template.astype(np.float64) for template in dressed_m],
        "genders": ["m" for _ in people],
        "texture_maps": [np.zeros((1, 1, 3), np.uint8) for _ in people],
        "poses2d": points2d,
        "jointPositions": [p.joints.flatten(1).double().numpy() for p in people],
        "img_frame_ids": 2 * np.arange(frames),
        "cam_poses": cam_poses.astype(np.float64),
        "campose_valid": [(points[:, 2] > 0).any(1).astype(np.int64) for points in points2d],
        "cam_intrinsics": intrinsics.astype(np.float64),
    }


def openpose18(keypoints_px: np.ndarray, visibility: np.ndarray) -> np.ndarray:
    """COCO points [T, 17, 2] -> 3DPW's poses2d [T, 3, 18]: x, y, confidence; zeros where nothing is found."""
    trust = np.zeros(visibility.shape)
    for state, value in _TRUST.items():
        trust[visibility == state] = value
    trust[(visibility >= BEHIND_SELF).sum(1) < _FEWEST_SEEN] = 0
    rows = []
    for source in _OPENPOSE18:
        if source is None:
            xy, confidence = keypoints_px[:, 5:7].mean(1), trust[:, 5:7].min(1)
        else:
            xy, confidence = keypoints_px[:, source], trust[:, source]
        rows.append(np.column_stack((xy, confidence)) * (confidence > 0)[:, None])
    return np.stack(rows, 2)


def dumps(sequence: dict[str, Any]) -> bytes:
    """Protocol 2, which 3DPW's files have as well; nothing but plain values and numpy's arrays."""
    return pickle.dumps(sequence, protocol=2)


def _twice_as_often(person: Person) -> tuple[np.ndarray, np.ndarray]:
    """Poses and translations between the frames as well: [2 T - 1, 72] and [2 T - 1, 3]."""
    rotation = axis_angle_to_quaternion(person.pose)
    flip = (rotation[1:] * rotation[:-1]).sum(-1, keepdim=True) < 0
    between = rotation[:-1] + torch.where(flip, -rotation[1:], rotation[1:])
    half = quaternion_to_axis_angle(between / between.norm(dim=-1, keepdim=True))
    middle = (person.translation[1:] + person.translation[:-1]) / 2
    return _woven(person.pose, half).flatten(1).double().numpy(), _woven(person.translation, middle).double().numpy()


def _woven(whole: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
    woven = whole.new_empty((2 * len(whole) - 1, *whole.shape[1:]))
    woven[::2], woven[1::2] = whole, half
    return woven
