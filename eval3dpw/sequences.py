"""One 3DPW sequence: `sequenceFiles/SPLIT/NAME.pkl`, a Python 2 pickle, read without running anything in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base import unpickle
from pose2d.base.errors import UserError

GENDERS = {"m": "male", "f": "female", "n": "neutral"}
SHAPE_SIZE = 10  # some files carry 300 directions; the body files in use have these
_PERSON = ("poses", "trans", "betas", "genders", "campose_valid", "poses2d")
_NEEDED = ("cam_poses", "cam_intrinsics", *_PERSON)
_GET_AGAIN = "Get sequenceFiles.zip again from virtualhumans.mpi-inf.mpg.de/3DPW"


@dataclass(frozen=True)
class Person:
    """One person of a sequence, in the world."""

    gender: str  # "male", "female" or "neutral"
    shape: np.ndarray  # [10] standard deviations
    pose: np.ndarray  # [N, 24, 3] axis-angle; joint 0 turns the body into the world
    translation: np.ndarray  # [N, 3] metres, world
    camera_valid: np.ndarray  # [N] whether this person's place relative to the camera is known in a frame
    poses2d_px: np.ndarray  # [N, 18, 3] x, y, confidence of OpenPose's 18 keypoints; all 0: not seen


@dataclass(frozen=True)
class Sequence:
    """What a camera saw, frame by frame; frame n is `imageFiles/NAME/image_{n:05d}.jpg`."""

    name: str
    intrinsics: np.ndarray  # [3, 3] pixels
    T_cam_world: np.ndarray  # [N, 4, 4] world -> camera, metres
    people: tuple[Person, ...]

    def __len__(self) -> int:
        return len(self.T_cam_world)


def read_sequence(path: str | Path) -> Sequence:
    """Read and check one file; anything wrong with it is told in words."""
    path = Path(path)
    content = unpickle.load(path)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a 3DPW sequence: it holds a {type(content).__name__}. {_GET_AGAIN}.")
    missing = [key for key in _NEEDED if key not in content]
    if missing:
        raise UserError(f"{path} is not a 3DPW sequence: it lacks {', '.join(missing)}. {_GET_AGAIN}.")
    T_cam_world = _numbers(content["cam_poses"], path, "cam_poses", (-1, 4, 4))
    frames = len(T_cam_world)
    counts = {key: len(content[key]) for key in _PERSON}
    if len(set(counts.values())) != 1:
        raise UserError(f"{path} is damaged: it has different numbers of people in {counts}. {_GET_AGAIN}.")
    people = tuple(_person(content, i, frames, path) for i in range(counts["poses"]))
    intrinsics = _numbers(content["cam_intrinsics"], path, "cam_intrinsics", (3, 3))
    return Sequence(path.stem, intrinsics, T_cam_world, people)


def _person(content: Mapping[str, Any], i: int, frames: int, path: Path) -> Person:
    def numbers(key: str, shape: tuple[int, ...]) -> np.ndarray:
        return _numbers(content[key][i], path, f"{key}[{i}]", shape)

    gender = content["genders"][i]
    gender = gender.decode("latin1") if isinstance(gender, bytes) else str(gender)
    if gender[:1].lower() not in GENDERS:
        raise UserError(f"{path}: genders[{i}] is {gender!r}; expected m or f. {_GET_AGAIN}.")
    valid = numbers("campose_valid", (frames,)) > 0
    pose, translation = numbers("poses", (frames, 72)), numbers("trans", (frames, 3))
    shape = np.ravel(numbers("betas", (-1,)))[:SHAPE_SIZE]
    if not (np.isfinite(pose[valid]).all() and np.isfinite(translation[valid]).all() and np.isfinite(shape).all()):
        raise UserError(f"{path} is damaged: person {i} has a number that is not finite. {_GET_AGAIN}.")
    return Person(
        gender=GENDERS[gender[:1].lower()],
        shape=shape,
        pose=pose.reshape(frames, 24, 3),
        translation=translation,
        camera_valid=valid,
        poses2d_px=np.nan_to_num(numbers("poses2d", (frames, 3, 18))).transpose(0, 2, 1),
    )


def _numbers(value: Any, path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray:
    """`value` as float64 of that shape; -1 is any length."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {key} is not an array of numbers. {_GET_AGAIN}.") from error
    if array.ndim != len(shape) or any(want not in (-1, got) for want, got in zip(shape, array.shape, strict=True)):
        expected = ", ".join("any" if side == -1 else str(side) for side in shape)
        raise UserError(f"{path} is damaged: {key} has size {list(array.shape)}; expected [{expected}]. {_GET_AGAIN}.")
    return array
